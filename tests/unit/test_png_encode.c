// SPDX-License-Identifier: MIT
// Encoders: libpng reads their images back, of every shape and level, of the fast one with every
// number of threads; buffers end at pages without access.
#include "base/features.h"
#include "png/cpu/cpu_png.h"
#include "png/png.h"
#include "support/guard.h"
#include "support/parallel.h"
#include "support/png_make.h"
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
        return (unsigned)(x * (long)x / 9 + y * 40 + c * 3000) + random_bits(&seed) % 700;
    case PAINT_PAGE: // little ink, and rows that repeat
        return y % 5 && (x + 97 * y) % 701 < 9 ? (unsigned)x * (unsigned)y * 0x1111u : 0xffff;
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
    assert_ok(conv_encode_image(encoder, &roomy->file, image, NULL, NULL));
    assert_ptr_equal(roomy->file.data, roomy->memory.data);
    assert_int_equal(roomy->file.capacity, room);
}

// One of conv_png_format, through which other encoders are used.
static void check_codec(struct conv_codec *codec, const struct planes *planes)
{
    struct conv_encoded bytes;
    struct png_file file = {0};
    struct conv_err err = {0};
    const struct conv_image *image = &planes->image;
    if (conv_png_format.encode(codec, image, NULL, 0, image->height, &bytes, &err))
        fail_msg("%s", err.text);
    assert_int_equal(bytes.part[0].size, 33);
    assert_int_equal(bytes.part[1].size, 0);
    image_join(&file, &bytes);
    check_reads_back(&(struct conv_buffer){.data = file.data, .size = file.size}, planes);
    png_make_free(&file);
}

static void check_encoder(struct conv_encoder *encoder, const struct planes *planes)
{
    struct roomy roomy;
    encode_roomy(&roomy, encoder, &planes->image);
    check_reads_back(&roomy.file, planes);
    guard_free(&roomy.memory);
}

// Either a codec or an encoder. `all`: each shape and each size with all contents, else with one.
static void check_shapes(struct conv_codec *codec, struct conv_encoder *encoder, int deepest,
                         bool all)
{
    static const int sizes[][2] = {{1, 1},   {1, 40},    {40, 1},    {5, 3},    {33, 9},
                                   {67, 35}, {211, 163}, {1500, 11}, {40000, 2}};
    for (int shape = 0; shape < deepest / 2; shape++) {
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
                if (codec)
                    check_codec(codec, &planes);
                else
                    check_encoder(encoder, &planes);
            }
            planes_free(&planes);
        }
    }
}

static void check_level(int level, unsigned features, size_t max_chunk, bool all)
{
    struct conv_encoder *encoder;
    assert_ok(conv_encode_open(&encoder, level, features, max_chunk, NULL));
    check_shapes(NULL, encoder, 16, all);
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
    assert_ok(conv_encode_image(encoder, &shared, &planes->image, NULL, NULL));
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
        assert_ok(conv_encode_open(&encoder, levels[i], conv_cpu_features(),
                                   i % 2 ? 1000 : CONV_ENCODE_MAX_CHUNK, NULL));
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
        assert_ok(conv_encode_open(&encoder, levels[i % 4], conv_cpu_features(),
                                   CONV_ENCODE_MAX_CHUNK, NULL));
        assert_ok(conv_encode_image(encoder, &file, &planes.image, NULL, NULL));
        size_t whole = file.size;
        conv_encode_set_bands(encoder, 1, (size_t)120 << 10);
        assert_ok(conv_encode_image(encoder, &file, &planes.image, NULL, NULL));
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

// --- through the table of formats ----------------------------------------------------------------

UNIT_TEST(other_encoders_read_back)
{
    static const int levels[] = {-1, 0, 1, 6, 9};
    seed = 29;
    for (size_t i = 0; i < 2 * sizeof levels / sizeof levels[0]; i++) {
        struct conv_codec *codec =
            image_codec(i % 2 ? &conv_png_stb : &conv_png_libpng, levels[i / 2]);
        check_shapes(codec, NULL, i % 2 ? 8 : 16, false);
        conv_codec_close(codec);
    }
}

UNIT_TEST(more_columns_than_libpng_takes_by_itself)
{
    struct conv_codec *codec = image_codec(&conv_png_libpng, -1);
    struct planes planes;
    planes_alloc(&planes,
                 &(struct conv_image){.width = 1000003, .height = 1, .channels = 3, .depth = 8});
    planes_paint(&planes, PAINT_SMOOTH);
    check_codec(codec, &planes);
    planes_free(&planes);
    conv_codec_close(codec);
}

UNIT_TEST(stb_says_what_it_cannot)
{
    struct conv_codec *codec = image_codec(&conv_png_stb, -1);
    struct conv_encoded bytes;
    struct conv_err err = {0};
    struct conv_image deep = {.width = 1, .height = 1, .channels = 1, .depth = 16};
    assert_int_equal(conv_png_format.encode(codec, &deep, NULL, 0, deep.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    assert_int_equal(err.hint, CONV_HINT_OTHER_ENCODER);
    // Refused before the planes are looked at.
    struct conv_image large = {.width = 30000, .height = 30000, .channels = 3, .depth = 8};
    assert_int_equal(conv_png_format.encode(codec, &large, NULL, 0, large.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "30000 x 30000"));
    struct conv_image wide = {.width = 1 << 24, .height = 1, .channels = 1, .depth = 8};
    assert_int_equal(conv_png_format.encode(codec, &wide, NULL, 0, wide.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    conv_codec_close(codec);
}

// A signal has come, or --fail-fast has ended the run.
UNIT_TEST(a_signal_ends_the_work_on_an_image)
{
    static const struct conv_codec_config configs[] = {
        {.level = 0},
        {.level = 1},
        {.level = 6},
        {.level = 12},
        {.encoder = &conv_png_libpng, .level = 1},
    };
    static uint16_t samples[300 * 300];
    for (size_t i = 0; i < 2 * sizeof configs / sizeof configs[0]; i++) {
        atomic_int stop = 2;
        struct conv_codec_config config = configs[i / 2];
        struct png_file file;
        struct png_spec spec = {
            .width = 300, .height = 300, .depth = 8, .interlaced = i % 2, .samples = samples};
        struct conv_image_header header;
        struct conv_encoded bytes;
        struct conv_codec *codec;
        struct conv_err err = {0};
        png_make_image(&file, &spec);
        assert_ok(conv_png_format.probe(file.data, file.size, &header, NULL));
        struct conv_image image = header.shape;
        image_alloc(&image, 0);
        config.stop = &stop;
        assert_ok(conv_codec_open(&codec, &conv_png_format, &config, NULL));
        for (int turn = 0; turn < 2; turn++) {
            enum conv_status expected = turn ? CONV_OK : CONV_ERR_CANCELLED;
            assert_int_equal(
                conv_png_format.decode(codec, file.data, file.size, &header, &image, NULL, &err),
                expected);
            assert_int_equal(
                conv_png_format.encode(codec, &image, NULL, 0, image.height, &bytes, &err),
                expected);
            atomic_store(&stop, -1);
        }
        conv_codec_close(codec);
        image_free(&image);
        png_make_free(&file);
    }
}

UNIT_MAIN(NULL, NULL)
