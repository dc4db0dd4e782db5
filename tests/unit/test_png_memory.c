// SPDX-License-Identifier: MIT
// Decoders and encoders take no more memory than conv_png_decode_bytes and conv_png_encode_bytes
// say, and a damaged file no more than with libpng alone.
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/features.h"
#include "png/cpu/cpu_png.h"
#include "png/cpu/encode_internal.h"
#include "support/parallel.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

#define KIB ((size_t)1 << 10)

// --- estimates -----------------------------------------------------------------------------------

// Headers of blocks that cannot be compressed, and room after the last one that is hardly used.
static size_t slack(size_t bytes)
{
    return bytes / 512 + 512 * KIB;
}

static const struct conv_image shapes[] = {
    {.width = 3000000, .height = 1, .channels = 1, .depth = 8},
    {.width = 700000, .height = 1, .channels = 3, .depth = 16},
    {.width = 500000, .height = 2, .channels = 4, .depth = 8},
    {.width = 200000, .height = 7, .channels = 3, .depth = 8},
    {.width = 100, .height = 20000, .channels = 2, .depth = 8},
    {.width = 1500, .height = 1100, .channels = 3, .depth = 8},
    {.width = 3, .height = 2, .channels = 1, .depth = 8},
};

// Incompressible.
static void paint(struct conv_image *image)
{
    uint64_t seed = 3;
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++) {
            uint8_t *row = image->plane[c].data + y * image->plane[c].stride;
            for (size_t i = 0; i < (size_t)image->width * (size_t)image->depth / 8; i++)
                row[i] = (uint8_t)random_bits(&seed);
        }
}

static void encode(struct conv_buffer *file, const struct conv_image *image, int level)
{
    const struct conv_codec_config config = {.level = level};
    struct conv_encoder *encoder;
    size_t most = conv_png_format.encode_bytes(&config, image, NULL);
    assert_ok(conv_encode_open(&encoder, level, conv_cpu_features(), CONV_ENCODE_MAX_CHUNK, NULL));
    assert_ok(conv_encode_image(encoder, file, image, NULL, NULL));
    size_t taken = encoder->scratch.capacity + encoder->filtered.capacity +
                   encoder->tried.capacity + file->capacity;
    if (encoder->compressor)
        taken += conv_encode_tables_bytes(level);
    if (taken > most + slack(most))
        fail_msg("%d x %d at level %d: %zu bytes of %zu", image->width, image->height, level, taken,
                 most);
    assert_true(most < 3 * taken + 512 * KIB); // worth knowing
    conv_encode_close(encoder);
}

static void decode(const struct conv_buffer *file, const struct conv_image *image, int threads)
{
    struct conv_parallel parallel = {.most = threads, .run = parallel_run};
    struct conv_decoder decoder = {.parallel = &parallel};
    struct conv_image_header header;
    struct conv_err err;
    assert_ok(conv_png_format.probe(file->data, file->size, &header, &err));
    assert_true(conv_decode_fast(&decoder, file->data, file->size, &header, image));
    size_t taken = decoder.idat.capacity + decoder.raw.capacity + decoder.rows.capacity;
    size_t most = conv_png_format.decode_bytes(&header, file->size);
    if (taken > most + slack(most))
        fail_msg("%d x %d with %d threads: %zu bytes of %zu", image->width, image->height, threads,
                 taken, most);
    conv_decoder_free(&decoder);
}

// Rows of their own were not counted: images of a few long rows took twice as much.
UNIT_TEST(memory_is_as_estimated)
{
    static const int levels[] = {12, 6, 1, 0};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct conv_image image = shapes[i];
        struct conv_buffer file = {0};
        image_alloc(&image, 0);
        paint(&image);
        for (size_t k = 0; k < sizeof levels / sizeof levels[0]; k++) {
            conv_buffer_free(&file);
            encode(&file, &image, levels[k]);
        }
        decode(&file, &image, 1);
        decode(&file, &image, TEST_PARALLEL_MOST);
        conv_buffer_free(&file);
        image_free(&image);
    }
}

// --- helpers -------------------------------------------------------------------------------------

// Each thread beyond the first opens an encoder of its own, as the real ones do.
struct counted {
    struct conv_parallel parallel;
    int threads; // of the last call
};

static void count_threads(struct conv_parallel *parallel, int threads, void (*work)(void *context),
                          void *context)
{
    ((struct counted *)parallel->owner)->threads = threads;
    work(context);
}

static size_t bytes_of_thread(const struct conv_encoder *encoder, int level)
{
    size_t bytes = conv_encode_tables_bytes(level) + encoder->scratch.capacity;
    if (level <= 1)
        return bytes + encoder->filtered.capacity;
    return bytes + encoder->inflated.capacity + (encoder->inflate ? sizeof *encoder->inflate : 0);
}

// Helpers counted as 4 MB each, whatever the rows and the level: rows of a million pixels take
// eight times as much, the tables of level 10 twice.
UNIT_TEST(helpers_stay_within_their_memory)
{
    enum { MOST = 16, MEMORY = 40 << 20 };
    static const struct {
        int level, width, height, least, most;
    } cases[] = {
        {1, 1000000, 6, 2, 3},   {0, 1000000, 6, 2, 3}, {6, 1000000, 6, 2, 3},
        {12, 1000000, 6, 2, 2},  {12, 2000, 850, 3, 4}, {6, 2000, 850, MOST, MOST},
        {1, 2000, 850, 8, MOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct counted counted = {.parallel = {.most = MOST, .run = count_threads}};
        struct conv_image image = {
            .width = cases[i].width, .height = cases[i].height, .channels = 3, .depth = 16};
        struct conv_buffer file = {0};
        struct conv_encoder *encoder;
        counted.parallel.owner = &counted;
        counted.parallel.memory = MEMORY;
        image_alloc(&image, 0);
        assert_ok(conv_encode_open(&encoder, cases[i].level, conv_cpu_features(),
                                   CONV_ENCODE_MAX_CHUNK, NULL));
        conv_encode_share(encoder, &counted.parallel);
        assert_ok(conv_encode_image(encoder, &file, &image, NULL, NULL));
        size_t others = (size_t)(counted.threads - 1) * bytes_of_thread(encoder, cases[i].level);
        if (others > MEMORY || counted.threads < cases[i].least || counted.threads > cases[i].most)
            fail_msg("level %d, rows of %d pixels: %d threads, %zu bytes", cases[i].level,
                     image.width, counted.threads, others);
        conv_encode_close(encoder);
        conv_buffer_free(&file);
        image_free(&image);
    }
}

// Tables are as large as their sizes say.
UNIT_TEST(tables_are_as_large_as_stated)
{
#if CONV_SANITIZED
    skip(); // another allocator
#endif
    for (int level = 0; level <= CONV_ENCODE_MAX_LEVEL; level++) {
        struct mallinfo2 before = mallinfo2();
        struct conv_encoder *encoder;
        assert_ok(
            conv_encode_open(&encoder, level, conv_cpu_features(), CONV_ENCODE_MAX_CHUNK, NULL));
        struct mallinfo2 after = mallinfo2();
        size_t taken = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        if (taken > conv_encode_tables_bytes(level) || taken < conv_encode_tables_bytes(level) / 2)
            fail_msg("level %d: %zu bytes of %zu", level, taken, conv_encode_tables_bytes(level));
        conv_encode_close(encoder);
    }
}

// --- little memory -------------------------------------------------------------------------------

// The rows of the fast decoder were still there when libpng allocated its own: twice libpng's
// memory.
#define LONG_ROW (16 << 20)
#define MOST_ROWS 4 // libpng has two besides the one that conv splits

static void make_damaged_row(struct png_file *file)
{
    uint8_t *row = calloc(1, LONG_ROW + 1);
    assert_non_null(row);
    struct png_file stream = png_make_zlib(row, LONG_ROW + 1);
    free(row);
    stream.data[stream.size - 1] ^= 1; // the sum, which is read last
    *file = (struct png_file){0};
    png_make_head(file, LONG_ROW, 1, 8, 0);
    png_make_chunk(file, "IDAT", stream.data, stream.size);
    png_make_chunk(file, "IEND", "", 0);
    png_make_free(&stream);
}

// Decodes with room for MOST_ROWS more; returns the exit status of a process.
static int decode_in_little_memory(struct conv_codec *codec, const struct png_file *file,
                                   const struct conv_image_header *header,
                                   const struct conv_image *planes)
{
    struct conv_err err = {0};
    struct rlimit limit;
    long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    if (!sizes || fscanf(sizes, "%ld", &pages) != 1 || getrlimit(RLIMIT_AS, &limit))
        return 2;
    fclose(sizes);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)MOST_ROWS * LONG_ROW;
    if (setrlimit(RLIMIT_AS, &limit))
        return 2;
    enum conv_status status =
        conv_png_format.decode(codec, file->data, file->size, header, planes, NULL, &err);
    return status == CONV_ERR_FORMAT ? 0 : 1;
}

UNIT_TEST(memory_for_a_damaged_row)
{
#if CONV_SANITIZED
    skip(); // address space is reserved
#endif
    struct conv_codec *codec = image_codec(NULL, -1);
    struct conv_image planes;
    struct conv_image_header header;
    struct png_file file;
    make_damaged_row(&file);
    assert_ok(conv_png_format.probe(file.data, file.size, &header, NULL));
    planes = header.shape;
    image_alloc(&planes, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(decode_in_little_memory(codec, &file, &header, &planes));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    image_free(&planes);
    conv_codec_close(codec);
    png_make_free(&file);
}

UNIT_MAIN(NULL, NULL)
