// SPDX-License-Identifier: MIT
// Compares the device's JPEG decoder with libjpeg-turbo: whatever the device decodes, the CPU must
// decode to the same pixels; what is undamaged and has a stream, the device must decode.
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_codec.h"
#include "jpeg/cuda/cuda_jpeg.h"
#include "jpeg/jpeg.h"
#include "support/device.h"
#include "support/jpeg_make.h"

#define UNTOUCHED 0xdeadbeefu
#define MOST_FILES 64 // in a batch

// How a batch is decoded.
enum batch_kind {
    BATCH_USUAL,
    BATCH_STOPPED, // by the host, before it begins
    BATCH_OTHER,   // planned for images of another size than the streams'
};

static struct {
    int accepted, refused; // by the CPU
    int missing;           // undamaged files without a stream
    int results[CONV_JPEG_RESULTS];
} counts;

// --- files ---------------------------------------------------------------------------------------

// A file of the batch, and what the CPU makes of it.
struct sample {
    struct png_file file;
    struct conv_image_header header;
    bool whole;    // not damaged: the device must decode it
    bool noise;    // fine noise, in which decoders hardly synchronise
    bool accepted; // by the CPU
    bool streamed;
    struct conv_image image; // of the CPU
    uint8_t *stream;
    size_t stream_bytes;
};

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory)
        abort();
    return memory;
}

static void free_sample(struct sample *sample)
{
    png_make_free(&sample->file);
    free(sample->image.plane[0].data);
    free(sample->stream);
    *sample = (struct sample){0};
}

// Decodes by the CPU and makes the stream. False if the header is refused; the file is then none
// for the device.
static bool prepare(struct sample *sample)
{
    struct conv_err err;
    const struct png_file *file = &sample->file;
    if (conv_jpeg_probe(file->data, file->size, &sample->header, &err) ||
        conv_jpeg_check_size(file->data, file->size, &sample->header, &err))
        return false;
    struct conv_image *image = &sample->image;
    *image = sample->header.shape;
    if ((int64_t)image->width * image->height > 1 << 26)
        return false;
    size_t plane = (size_t)image->width * (size_t)image->height;
    uint8_t *samples = allocate(plane * (size_t)image->channels);
    for (int c = 0; c < image->channels; c++)
        image->plane[c] = (struct conv_plane){samples + plane * (size_t)c, image->width};
    struct conv_buffer row = {0};
    sample->accepted = !conv_libjpeg_decode(&row, file->data, file->size, &sample->header, image,
                                            NULL, NULL, &err);
    conv_buffer_free(&row);
    sample->stream = allocate(conv_jpeg_stream_bytes(&sample->header, file->size));
    sample->streamed = conv_jpeg_copy_stream(sample->stream, &sample->stream_bytes, file->data,
                                             file->size, &sample->header);
    return true;
}

// --- the device ----------------------------------------------------------------------------------

struct device_batch {
    int count;
    const struct sample *samples[MOST_FILES];
    struct conv_jpeg_decode_image images[MOST_FILES];
    struct device_memory memory;
    size_t plane_bytes[MOST_FILES];
    uint8_t *d_scratch;
    struct conv_jpeg_decode_image *d_images;
    uint32_t *d_status, *h_stop;
    uint32_t status[MOST_FILES];
};

static void set_image(struct conv_jpeg_decode_image *image, const struct sample *sample,
                      size_t more)
{
    const struct conv_image *shape = &sample->header.shape;
    *image = (struct conv_jpeg_decode_image){
        .stream_bytes = (uint32_t)(sample->stream_bytes + more),
        .column = 1,
        .stride = (shape->width + 15) / 16 * 16,
        .width = shape->width,
        .height = shape->height,
        .components = shape->channels,
        .segments = sample->header.jpeg.segments,
    };
    memcpy(image->h, sample->header.jpeg.h, sizeof image->h);
    memcpy(image->v, sample->header.jpeg.v, sizeof image->v);
}

static bool upload(struct device_batch *batch, enum batch_kind kind, uint64_t *state)
{
    struct device_memory *memory = &batch->memory;
    size_t scratch = 0, table = (size_t)batch->count * sizeof batch->images[0];
    for (int i = 0; i < batch->count; i++) {
        const struct sample *sample = batch->samples[i];
        struct conv_jpeg_decode_image *image = &batch->images[i];
        set_image(image, sample, random_below(state, 2) ? random_below(state, 5000) : 0);
        image->stride += 16 * (int64_t)random_below(state, 3);
        image->height += kind == BATCH_OTHER ? 8 : 0;
        batch->plane_bytes[i] = (size_t)(image->stride * image->height);
        image->d_stream = device_put(memory, sample->stream, sample->stream_bytes,
                                     sample->stream_bytes, "a stream");
        for (int c = 0; c < image->components; c++)
            image->d_plane[c] = device_take(memory, batch->plane_bytes[i], "plane");
        scratch += conv_cuda_jpeg_decode_scratch(image);
        batch->status[i] = UNTOUCHED;
    }
    batch->d_scratch = device_take(memory, scratch, "scratch");
    conv_cuda_jpeg_decode_plan(batch->images, batch->count, batch->d_scratch);
    batch->d_images = (void *)device_put(memory, batch->images, table, table, "the table");
    batch->d_status = (void *)device_put(memory, NULL, 0, sizeof batch->status, "results");
    batch->h_stop = (void *)device_add(memory, sizeof *batch->h_stop, true, "a word");
    return !memory->failed;
}

static bool run(struct device_batch *batch, enum batch_kind kind)
{
    *batch->h_stop = kind == BATCH_STOPPED;
    struct conv_jpeg_decode_batch work = {
        .images = batch->images,
        .d_images = batch->d_images,
        .count = batch->count,
        .d_scratch = batch->d_scratch,
        .d_stop = batch->h_stop,
        .d_status = batch->d_status,
    };
    if (conv_cuda_jpeg_decode(&work)) {
        (void)device_failed(cudaGetLastError(), "conv_cuda_jpeg_decode");
        return false;
    }
    return device_finish(&batch->memory, "decoding") &&
           device_get(&batch->memory, batch->status, batch->d_status,
                      (size_t)batch->count * sizeof(uint32_t), "results") &&
           device_guards_hold(&batch->memory);
}

static bool holds_fill(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i] != DEVICE_FILL)
            return false;
    return true;
}

// Rows may be written up to a multiple of 16 bytes.
static const char *compare_planes(struct device_batch *batch, int i, bool decoded)
{
    const struct conv_jpeg_decode_image *image = &batch->images[i];
    const struct sample *sample = batch->samples[i];
    size_t stride = (size_t)image->stride, width = (size_t)image->width;
    size_t row = (width + 15) / 16 * 16;
    uint8_t *plane = allocate(batch->plane_bytes[i]);
    const char *wrong = NULL;
    for (int c = 0; c < image->components && !wrong; c++) {
        if (!device_get(&batch->memory, plane, image->d_plane[c], batch->plane_bytes[i], "a plane"))
            wrong = "no copy";
        for (int y = 0; y < image->height && !wrong; y++) {
            const uint8_t *got = plane + (size_t)y * stride;
            if (!holds_fill(got + row, stride - row))
                wrong = "writes after a row";
            if (decoded && memcmp(got, sample->image.plane[c].data + (size_t)y * width, width) != 0)
                wrong = "other pixels";
        }
    }
    free(plane);
    return wrong;
}

static const char *compare(struct device_batch *batch, int i, enum batch_kind kind)
{
    const struct sample *sample = batch->samples[i];
    uint32_t status = batch->status[i];
    if (status >= CONV_JPEG_RESULTS)
        return "no such result";
    if (kind == BATCH_STOPPED)
        return status == CONV_JPEG_STOPPED ? NULL : "was not stopped";
    if (kind == BATCH_OTHER)
        return status == CONV_JPEG_CODE ? compare_planes(batch, i, false) : "another image";
    bool decoded = status == CONV_JPEG_DECODED;
    counts.results[status]++;
    if (decoded && !sample->accepted)
        return "not refused";
    if (sample->whole && !decoded && !(sample->noise && status == CONV_JPEG_COSTLY))
        return "an undamaged file is refused";
    return compare_planes(batch, i, decoded);
}

static bool check_batch(struct sample *samples, int count, enum batch_kind kind, uint64_t *state)
{
    static struct device_batch batch;
    bool ok = true;
    batch = (struct device_batch){0};
    for (int i = 0; i < count; i++) {
        struct conv_jpeg_decode_image image;
        if (!samples[i].streamed)
            continue;
        set_image(&image, &samples[i], 0);
        if (!conv_cuda_jpeg_decode_takes(&image)) {
            printf("FAILED: an image with a stream is not taken\n");
            ok = false;
        }
        batch.samples[batch.count++] = &samples[i];
    }
#ifdef CONV_EMULATED
    emulated_seed(random_bits(state));
#endif
    ok = ok && (batch.count == 0 || (upload(&batch, kind, state) && run(&batch, kind)));
    for (int i = 0; i < batch.count && ok; i++) {
        const struct sample *sample = batch.samples[i];
        const char *wrong = compare(&batch, i, kind);
        if (!wrong)
            continue;
        const struct conv_image_header *header = &sample->header;
        printf("FAILED image %d of %d: %s (result %u; %dx%d, %d components of %dx%d %dx%d %dx%d, "
               "%u segments, %zu bytes)\n",
               i, batch.count, wrong, batch.status[i], header->shape.width, header->shape.height,
               header->shape.channels, header->jpeg.h[0], header->jpeg.v[0], header->jpeg.h[1],
               header->jpeg.v[1], header->jpeg.h[2], header->jpeg.v[2], header->jpeg.segments,
               sample->file.size);
        ok = false;
    }
    device_free(&batch.memory);
    return ok;
}

// --- cases ---------------------------------------------------------------------------------------

// Makes samples of a file and of damaged copies. Coefficients of coarse quantisation may leave the
// range in which decoders agree.
static int add_samples(struct sample *samples, int count, struct png_file *file,
                       const struct jpeg_spec *spec, int mutations, uint64_t *state)
{
    for (int i = 0; i <= mutations && count < MOST_FILES; i++) {
        struct sample *sample = &samples[count];
        *sample = (struct sample){
            .whole = i == 0 && spec && spec->quality >= 20,
            .noise = spec && spec->content != JPEG_FLAT && spec->quality > 85,
        };
        png_make_bytes(&sample->file, file->data, file->size);
        if (i > 0)
            jpeg_mutate(&sample->file, state);
        if (!prepare(sample)) {
            free_sample(sample);
            continue;
        }
        if (sample->whole && (!sample->streamed || !sample->accepted))
            counts.missing++;
        counts.accepted += sample->accepted;
        counts.refused += !sample->accepted;
        count++;
    }
    return count;
}

static bool check_round(const struct check_options *options, uint64_t seed)
{
    static struct sample samples[MOST_FILES];
    uint64_t state = seed;
    int count = 0, files = 1 + (int)random_below(&state, 4);
    unsigned odd = random_below(&state, 50);
    enum batch_kind kind = odd == 0 ? BATCH_STOPPED : odd == 1 ? BATCH_OTHER : BATCH_USUAL;
    for (int i = 0; i < files; i++) {
        struct jpeg_spec spec = jpeg_draw(&state);
        struct png_file file = {0};
        jpeg_make(&file, &spec, random_bits(&state));
        count = add_samples(samples, count, &file, &spec, options->mutations, &state);
        png_make_free(&file);
    }
    bool ok = check_batch(samples, count, kind, &state);
    for (int i = 0; i < count; i++)
        free_sample(&samples[i]);
    if (!ok)
        printf("--seed %" PRIu64 " --rounds 1 --mutate %d\n", seed, options->mutations);
    return ok;
}

static bool check_corpus(const struct check_options *options)
{
    static struct sample samples[MOST_FILES];
    uint64_t state = options->seed;
    DIR *directory = opendir(options->corpus);
    int files = 0;
    bool ok = directory != NULL;
    for (struct dirent *entry; ok && (entry = readdir(directory));) {
        char path[4096];
        struct png_file file = {0};
        snprintf(path, sizeof path, "%s/%s", options->corpus, entry->d_name);
        if (entry->d_name[0] == '.' || !png_make_read(&file, path))
            continue;
        int count = add_samples(samples, 0, &file, NULL, options->mutations, &state);
        ok = check_batch(samples, count, BATCH_USUAL, &state);
        if (!ok)
            printf("%s\n", path);
        for (int s = 0; s < count; s++)
            free_sample(&samples[s]);
        png_make_free(&file);
        files++;
    }
    if (directory)
        closedir(directory);
    return ok && files > 0;
}

// Images that are left to the CPU because of their shape or the size of their stream.
static bool check_taken(void)
{
    static const struct {
        int width, height, components;
        uint8_t h[3], v[3];
        uint32_t stream_bytes;
        bool taken;
    } cases[] = {
        {768, 512, 3, {2, 1, 1}, {2, 1, 1}, 150000, true},
        {65500, 65500, 1, {1}, {1}, 1 << 27, true},
        {65501, 1, 1, {1}, {1}, 1000, false},
        {1, 65501, 1, {1}, {1}, 1000, false},
        {8, 8, 1, {1}, {1}, 256 + 4 + 65536, true},
        {8, 8, 1, {1}, {1}, 256 + 4 + 65537, false},
        {1000, 60000, 3, {1, 1, 1}, {1, 1, 1}, 1 << 28, false},
        {768, 512, 3, {3, 2, 1}, {1, 1, 1}, 150000, false}, // 3 is no multiple of 2
        {768, 512, 3, {4, 1, 1}, {2, 1, 1}, 150000, true},  // 10 blocks
        {768, 512, 3, {4, 1, 2}, {2, 1, 1}, 150000, false},
        {768, 512, 2, {1, 1}, {1, 1}, 150000, false},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conv_jpeg_decode_image image = {
            .stream_bytes = cases[i].stream_bytes,
            .width = cases[i].width,
            .height = cases[i].height,
            .components = cases[i].components,
            .segments = 1,
        };
        memcpy(image.h, cases[i].h, sizeof image.h);
        memcpy(image.v, cases[i].v, sizeof image.v);
        if (conv_cuda_jpeg_decode_takes(&image) == cases[i].taken)
            continue;
        printf("FAILED: case %zu is %staken\n", i, cases[i].taken ? "not " : "");
        ok = false;
    }
    return ok;
}

bool check_jpeg_decode(const struct check_options *options)
{
    bool ok = check_taken() && (!options->corpus || check_corpus(options));
    for (int i = 0; i < options->rounds && ok; i++)
        ok = check_round(options, options->seed + (uint64_t)i);
    printf("%d files accepted and %d refused by the CPU; on the device %d decoded, code %d, "
           "index %d, size %d, range %d, costly %d\n",
           counts.accepted, counts.refused, counts.results[CONV_JPEG_DECODED],
           counts.results[CONV_JPEG_CODE], counts.results[CONV_JPEG_INDEX],
           counts.results[CONV_JPEG_SIZE], counts.results[CONV_JPEG_RANGE],
           counts.results[CONV_JPEG_COSTLY]);
    if (counts.missing)
        printf("FAILED: %d undamaged files have no stream\n", counts.missing);
    return ok && !counts.missing && (options->rounds < 10 || counts.results[CONV_JPEG_DECODED]);
}
