// SPDX-License-Identifier: MIT
// The fast encoder: libpng reads its images back, of every shape, level and number of threads;
// buffers end at pages without access.
#include "base/features.h"
#include "png/cpu/cpu_png.h"
#include "png/png.h"
#include "support/guard.h"
#include "support/parallel.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

static uint64_t seed;

enum { PAINT_NOISE, PAINT_FLAT, PAINT_SMOOTH, PAINT_DRAWING, PAINT_PAGE, PAINTS };

static unsigned paint(int kind, int c, int x, int y)
{
    switch (kind) {
    case PAINT_NOISE:
        return random_bits(&seed);
    case PAINT_FLAT:
        return 0x5a5a;
    case PAINT_SMOOTH: // a photograph's slopes and grain
        return (unsigned)(x * x / 9 + y * 40 + c * 3000) + random_bits(&seed) % 700;
    case PAINT_PAGE: // little ink, and rows that repeat
        return y % 5 && (x + 97 * y) % 701 < 9 ? (unsigned)(x * y) * 0x1111u : 0xffff;
    default:
        return (x / 8 + y / 8) % 5 ? 0xffff : (unsigned)(x ^ y) * 0x1111u;
    }
}

struct planes {
    struct conv_image image;
    struct guarded memory[CONV_IMAGE_MAX_CHANNELS];
};

static void planes_alloc(struct planes *planes, const struct conv_image *shape)
{
    planes->image = *shape;
    for (int c = 0; c < shape->channels; c++) {
        size_t row = (size_t)shape->width * (size_t)(shape->depth / 8);
        planes->memory[c] = guard_alloc(row * (size_t)shape->height);
        planes->image.plane[c] = (struct conv_plane){planes->memory[c].data, (ptrdiff_t)row};
    }
}

static void planes_free(struct planes *planes)
{
    for (int c = 0; c < planes->image.channels; c++)
        guard_free(&planes->memory[c]);
}

static void planes_paint(struct planes *planes, int kind)
{
    const struct conv_image *image = &planes->image;
    for (int c = 0; c < image->channels; c++) {
        for (int y = 0; y < image->height; y++) {
            uint8_t *row = image->plane[c].data + y * image->plane[c].stride;
            for (int x = 0; x < image->width; x++) {
                unsigned sample = paint(kind, c, x, y) & 0xffff;
                if (image->depth == 16)
                    ((uint16_t *)(void *)row)[x] = (uint16_t)sample;
                else
                    row[x] = (uint8_t)(sample >> 8);
            }
        }
    }
}

// libpng refuses a wrong length, CRC or Adler-32, and too little or too much data.
static void check_reads_back(const struct conv_buffer *file, const struct planes *planes)
{
    struct conv_image_header header;
    struct conv_buffer rows = {0};
    struct planes back;
    struct conv_err err = {0};
    if (conv_png_format.probe(file->data, file->size, &header, &err))
        fail_msg("%s", err.text);
    planes_alloc(&back, &header.shape);
    if (conv_libpng_decode(&rows, file->data, file->size, &header, &back.image, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(image_equal(&back.image, &planes->image));
    conv_buffer_free(&rows);
    planes_free(&back);
}

// A file in memory of conv_encode_room bytes, which end at a guard page.
struct roomy {
    struct guarded memory;
    struct conv_buffer file;
};

static void encode_roomy(struct roomy *roomy, struct conv_encoder *encoder,
                         const struct conv_image *image)
{
    size_t room = conv_encode_room(encoder, image);
    roomy->memory = guard_alloc(room);
    roomy->file = (struct conv_buffer){.data = roomy->memory.data, .capacity = room};
    assert_int_equal(conv_encode_image(encoder, &roomy->file, image, NULL, NULL), CONV_OK);
    assert_ptr_equal(roomy->file.data, roomy->memory.data);
    assert_int_equal(roomy->file.capacity, room);
}

// `all`: each shape and each size with all contents, else with one of them.
static void check_level(int level, unsigned features, size_t max_chunk, bool all)
{
    static const int sizes[][2] = {{1, 1},   {1, 40},    {40, 1},    {5, 3},    {33, 9},
                                   {67, 35}, {211, 163}, {1500, 11}, {40000, 2}};
    struct conv_encoder *encoder;
    assert_int_equal(conv_encode_open(&encoder, level, features, max_chunk, NULL), CONV_OK);
    for (int shape = 0; shape < 8; shape++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct planes planes;
            planes_alloc(&planes, &(struct conv_image){.width = sizes[s][0],
                                                       .height = sizes[s][1],
                                                       .channels = shape % 4 + 1,
                                                       .depth = shape < 4 ? 8 : 16,
                                                       .alpha = shape % 2 == 1});
            for (int kind = 0; kind < PAINTS; kind++) {
                if (!all && (shape + (int)s + kind) % PAINTS != 0)
                    continue;
                planes_paint(&planes, kind);
                struct roomy roomy;
                encode_roomy(&roomy, encoder, &planes.image);
                check_reads_back(&roomy.file, &planes);
                guard_free(&roomy.memory);
            }
            planes_free(&planes);
        }
    }
    conv_encode_close(encoder);
}

UNIT_TEST(images_read_back)
{
    static const int levels[] = {0, 1, 2, 6, 9, 12};
    seed = 13;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        check_level(levels[i], conv_cpu_features(), CONV_ENCODE_MAX_CHUNK,
                    !CONV_SANITIZED && levels[i] < 9);
    check_level(1, 0, CONV_ENCODE_MAX_CHUNK, !CONV_SANITIZED);
    check_level(1, conv_cpu_features() & CONV_CPU_AVX2, CONV_ENCODE_MAX_CHUNK, !CONV_SANITIZED);
}

// Encodes with bands of a given size, on one thread and on several: the files are identical.
static void check_bands(struct conv_encoder *encoder, const struct planes *planes, size_t bytes)
{
    struct conv_parallel parallel = {.most = TEST_PARALLEL_MOST, .run = parallel_run};
    struct conv_buffer shared = {0};
    struct roomy alone;
    conv_encode_set_bands(encoder, 1, bytes);
    conv_encode_share(encoder, NULL);
    encode_roomy(&alone, encoder, &planes->image);
    conv_encode_share(encoder, &parallel);
    assert_int_equal(conv_encode_image(encoder, &shared, &planes->image, NULL, NULL), CONV_OK);
    check_reads_back(&alone.file, planes);
    assert_int_equal(alone.file.size, shared.size);
    assert_memory_equal(alone.file.data, shared.data, shared.size);
    guard_free(&alone.memory);
    conv_buffer_free(&shared);
}

UNIT_TEST(bands_do_not_depend_on_threads)
{
    static const int levels[] = {0, 1, 2, 6, 9, 10, 12},
                     sizes[][2] = {{1, 40}, {67, 35}, {211, 163}};
    static const size_t bands[] = {1, 700, 5000}; // bytes
    seed = 19;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        struct conv_encoder *encoder;
        assert_int_equal(conv_encode_open(&encoder, levels[i], conv_cpu_features(),
                                          i % 2 ? 1000 : CONV_ENCODE_MAX_CHUNK, NULL),
                         CONV_OK);
        for (int shape = (int)i % 3;
             shape<3 * PAINTS; shape += levels[i]> 6 || CONV_SANITIZED ? 5 : 2) {
            struct planes planes;
            const int *size = sizes[shape % 3];
            planes_alloc(&planes, &(struct conv_image){.width = size[0],
                                                       .height = size[1],
                                                       .channels = shape % 4 + 1,
                                                       .depth = shape % 5 < 3 ? 8 : 16,
                                                       .alpha = shape % 2 == 1});
            planes_paint(&planes, shape / 3);
            check_bands(encoder, &planes, bands[(i + (size_t)shape) % 3]);
            planes_free(&planes);
        }
        conv_encode_close(encoder);
    }
}

// A photograph-like image that is cut into bands is hardly larger, since matches reach back into
// the band before.
UNIT_TEST(bands_cost_little)
{
    static const int levels[] = {1, 2, 5, 6};
    struct planes planes;
    struct conv_buffer file = {0};
    seed = 23;
    planes_alloc(&planes,
                 &(struct conv_image){.width = 700, .height = 500, .channels = 1, .depth = 8});
    for (size_t i = 0; i < 4 * (size_t)PAINTS; i += CONV_SANITIZED ? 9 : 1) {
        struct conv_encoder *encoder;
        planes_paint(&planes, (int)(i / 4));
        assert_int_equal(conv_encode_open(&encoder, levels[i % 4], conv_cpu_features(),
                                          CONV_ENCODE_MAX_CHUNK, NULL),
                         CONV_OK);
        assert_int_equal(conv_encode_image(encoder, &file, &planes.image, NULL, NULL), CONV_OK);
        size_t whole = file.size;
        conv_encode_set_bands(encoder, 1, (size_t)120 << 10);
        assert_int_equal(conv_encode_image(encoder, &file, &planes.image, NULL, NULL), CONV_OK);
        assert_true(file.size != whole); // it was cut
        assert_true(file.size < whole + whole / 300 + 500);
        conv_encode_close(encoder);
    }
    conv_buffer_free(&file);
    planes_free(&planes);
}

UNIT_TEST(chunks_are_split)
{
    static const int levels[] = {0, 1, 6, 12};
    seed = 17;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        check_level(levels[i], conv_cpu_features(), 1000, false);
}

UNIT_MAIN(NULL, NULL)
