// SPDX-License-Identifier: MIT
// libFuzzer target: an image of the input's bytes goes through the fast encoder, at a level that
// the input chooses too, and comes back by libpng with the same samples.
#include "base/features.h"
#include "fuzz/fuzz.h"
#include "png/cpu/cpu_png.h"
#include "png/png.h"

#define HEAD 4 // bytes of the input: shape and level, width (two), repeats
// The number of executions per second finds faults, and most faults need no large image: only the
// largest number of repeats makes more than a stripe, at the levels that have stripes.
#define MOST_BYTES ((size_t)4 << 10)
#define MOST_BYTES_STRIPES ((size_t)150 << 10)

// One encoder per level and instruction set, kept as a worker keeps it.
static struct conv_encoder *encoder_for(int level, bool plain)
{
    static struct conv_encoder *encoders[2][CONV_ENCODE_MAX_LEVEL + 1];
    struct conv_encoder **encoder = &encoders[plain][level];
    if (!*encoder && conv_encode_open(encoder, level, plain ? 0 : conv_cpu_features(),
                                      plain ? 300 : CONV_ENCODE_MAX_CHUNK, NULL))
        abort();
    return *encoder;
}

// Allocates planes of the exact size. The input's samples are repeated until the image is full.
static void alloc_planes(struct conv_image *image, const uint8_t *samples, size_t size)
{
    size_t row = (size_t)image->width * (size_t)(image->depth / 8);
    size_t bytes = row * (size_t)image->height;
    for (int c = 0; c < image->channels; c++) {
        uint8_t *plane = malloc(bytes);
        if (!plane)
            abort();
        for (size_t i = 0; size > 0 && i < bytes; i++)
            plane[i] = samples[(i + (size_t)c * bytes) % size];
        image->plane[c] = (struct conv_plane){plane, (ptrdiff_t)row};
    }
}

static void free_planes(struct conv_image *image)
{
    for (int c = 0; c < image->channels; c++)
        free(image->plane[c].data);
}

static void read_back(const struct conv_buffer *file, const struct conv_image *image)
{
    struct conv_image_header header;
    struct conv_buffer rows = {0};
    struct conv_err err;
    if (conv_png_format.probe(file->data, file->size, &header, &err))
        fail("the header is refused", err.text);
    struct conv_image back = header.shape;
    if (back.width != image->width || back.height != image->height ||
        back.channels != image->channels || back.depth != image->depth)
        fail("the header differs", "shape");
    alloc_planes(&back, NULL, 0);
    if (conv_libpng_decode(&rows, file->data, file->size, &header, &back, NULL, NULL, &err))
        fail("the image is refused", err.text);
    for (int c = 0; c < image->channels; c++) {
        if (memcmp(back.plane[c].data, image->plane[c].data,
                   (size_t)image->plane[c].stride * (size_t)image->height) != 0)
            fail("the image differs", "samples");
    }
    conv_buffer_free(&rows);
    free_planes(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct conv_buffer file;
    if (size <= HEAD)
        return 0;
    int level = (data[0] >> 4) % (CONV_ENCODE_MAX_LEVEL + 1);
    bool large = level <= 1 && data[3] == 255;
    struct conv_image image = {
        .channels = data[0] % 4 + 1,
        .depth = data[0] & 4 ? 16 : 8,
        .alpha = data[0] % 2 == 1,
        .width = (large ? data[1] | data[2] << 8 : data[1]) + 1,
    };
    size_t row = (size_t)image.width * (size_t)(image.channels * image.depth / 8);
    size_t bytes = (size - HEAD) * (data[3] + 1u); // a few bytes can make an image of many blocks
    size_t most = large ? MOST_BYTES_STRIPES : MOST_BYTES;
    if (bytes > most)
        bytes = most;
    image.height = (int)(bytes / row) + 1;
    alloc_planes(&image, data + HEAD, size - HEAD);
    struct conv_err err;
    if (conv_encode_image(encoder_for(level, data[0] & 8), &file, &image, NULL, &err))
        fail("not encoded", err.text);
    read_back(&file, &image);
    free_planes(&image);
    return 0;
}
