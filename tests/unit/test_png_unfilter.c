// SPDX-License-Identifier: MIT
// Every variant of the filters' reversal and of the split against plain code, with rows that end at
// inaccessible pages.

#include "base/features.h"
#include "base/lock.h"
#include "png/cpu/unfilter.h"
#include "support/guard.h"
#include "support/parallel.h"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/unit.h"

#define MOST 4096 // bytes of a row

static uint64_t seed;

static uint8_t *end_of(const struct guarded *fence, size_t size)
{
    return fence->end - size;
}

static struct guarded fences[4];

static int make_fences(void **)
{
    for (int i = 0; i < 4; i++)
        fences[i] = guard_alloc(8 * MOST);
    return 0;
}

static int free_fences(void **)
{
    for (int i = 0; i < 4; i++)
        guard_free(&fences[i]);
    return 0;
}

// Noise, the values at which predictions tie or wrap, and stretches of zeros.
static void fill(uint8_t *p, size_t size)
{
    static const uint8_t edges[] = {0, 1, 127, 128, 254, 255};
    unsigned kind = random_bits(&seed) % 4;
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)(kind == 0   ? random_bits(&seed)
                         : kind == 1 ? edges[random_bits(&seed) % 6]
                         : kind == 2 ? random_bits(&seed) % 64 == 0
                                     : i);
}

static void check_filters(const struct conv_unfilter *variant, int bpp, size_t width)
{
    uint8_t want[MOST + CONV_UNFILTER_SLACK];
    size_t size = width * (size_t)bpp, room = size + CONV_UNFILTER_SLACK;
    uint8_t *src = end_of(&fences[0], room), *up = end_of(&fences[1], room);
    uint8_t *dst = end_of(&fences[2], room);
    int index = conv_unfilter_index(bpp);
    for (int f = 0; f < CONV_UNFILTER_COUNT; f++) {
        fill(src, room);
        fill(up, room);
        memset(dst - 16, 0x5a, room + 16);
        conv_unfilter_plain.reverse[index][f](want, src, up, size);
        variant->reverse[index][f](dst, src, up, size);
        if (memcmp(dst, want, size) != 0)
            fail_msg("%s, filter %d, %d bytes a pixel, %zu pixels: wrong bytes", variant->name, f,
                     bpp, width);
        for (int i = 1; i <= 16; i++)
            assert_int_equal(dst[-i], 0x5a);
    }
}

// Two rows, which follow each other in memory as in a file.
static void check_pairs(const struct conv_unfilter *variant, int bpp, size_t width)
{
    uint8_t want[2][MOST + CONV_UNFILTER_SLACK];
    size_t size = width * (size_t)bpp, room = size + CONV_UNFILTER_SLACK;
    uint8_t *src = end_of(&fences[0], size + 1 + room), *up = end_of(&fences[1], room);
    uint8_t *dst[2] = {end_of(&fences[2], room), end_of(&fences[3], room)};
    int index = conv_unfilter_index(bpp);
    for (int f = 0; f < CONV_UNFILTER_COUNT; f++) {
        if (!variant->pair[index][f])
            continue;
        fill(src, size);
        fill(src + size, 1 + room);
        fill(up, room);
        for (int i = 0; i < 2; i++)
            memset(dst[i] - 16, 0x5a, room + 16);
        conv_unfilter_plain.reverse[index][f](want[0], src, up, size);
        conv_unfilter_plain.reverse[index][f](want[1], src + size + 1, want[0], size);
        variant->pair[index][f](dst, (const uint8_t *[]){src, src + size + 1}, up, size);
        for (int i = 0; i < 2; i++) {
            if (memcmp(dst[i], want[i], size) != 0)
                fail_msg("%s, filter %d, %d bytes a pixel, %zu pixels: wrong bytes in row %d of 2",
                         variant->name, f, bpp, width, i);
            for (int k = 1; k <= 16; k++)
                assert_int_equal(dst[i][-k], 0x5a);
        }
    }
}

UNIT_TEST(filters_are_plain_codes)
{
    static const int sizes[CONV_UNFILTER_SIZES] = {1, 2, 3, 4, 6, 8};
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    seed = 8;
    for (int v = 0; v < count; v++) {
        if (variants[v]->needs & ~conv_cpu_features()) {
            print_message("%s cannot run here\n", variants[v]->name);
            continue;
        }
        for (int s = 0; s < CONV_UNFILTER_SIZES; s++) {
            for (size_t width = 1; width <= 67; width++)
                check_filters(variants[v], sizes[s], width);
            for (int i = 0; i < 60; i++)
                check_filters(variants[v], sizes[s], 1 + random_bits(&seed) % (MOST / 8));
            for (int i = 0; i < 100; i++)
                check_pairs(variants[v], sizes[s],
                            CONV_UNFILTER_PAIR_LEAST + random_bits(&seed) % (MOST / 16));
        }
    }
}

// The plain code itself, byte by byte from the standard's words.
UNIT_TEST(plain_code_is_the_standard)
{
    static const int sizes[CONV_UNFILTER_SIZES] = {1, 2, 3, 4, 6, 8};
    uint8_t src[240], up[240], dst[240];
    seed = 9;
    for (int round = 0; round < 400; round++) {
        size_t bpp = (size_t)sizes[round % 6];
        int f = round % CONV_UNFILTER_COUNT;
        fill(src, sizeof src);
        fill(up, sizeof up);
        conv_unfilter_plain.reverse[conv_unfilter_index((int)bpp)][f](dst, src, up, sizeof src);
        for (size_t i = 0; i < sizeof dst; i++) {
            int a = i < bpp ? 0 : dst[i - bpp], b = up[i], c = i < bpp ? 0 : up[i - bpp];
            assert_int_equal(dst[i], (src[i] + png_predict(f, a, b, c)) & 255);
        }
    }
}

static void check_split(const struct conv_unfilter *variant, int channels, int depth, int width)
{
    struct conv_image image = {.width = width,
                               .height = 2,
                               .channels = channels,
                               .depth = depth,
                               .alpha = channels % 2 == 0};
    size_t bytes = (size_t)width * (size_t)depth / 8, row_size = bytes * (size_t)channels;
    uint8_t *row = end_of(&fences[3], conv_image_align(row_size + CONV_UNFILTER_SLACK, 16));
    uint8_t guard[64];
    memset(guard, 0x5a, sizeof guard);
    fill(row, row_size);
    for (int c = 0; c < channels; c++) {
        // Rows that end at a fence in three of the planes, with guard bytes in the fourth.
        uint8_t *end = c < 3 ? end_of(&fences[c], 0) : end_of(&fences[0], 4 * MOST);
        image.plane[c].stride = -(ptrdiff_t)conv_image_align(bytes + 64, 16);
        image.plane[c].data = end - bytes;
        memset(end - bytes - 64, 0x5a, 64 + bytes);
        if (c == 3)
            memset(end, 0x5a, 64);
    }
    variant->split(&image, 0, row);
    for (int c = 0; c < channels; c++) {
        const uint8_t *plane = image.plane[c].data;
        assert_memory_equal(plane - 64, guard, 64);
        if (c == 3)
            assert_memory_equal(plane + bytes, guard, 64);
        for (int x = 0; x < width; x++) {
            const uint8_t *sample = row + (size_t)(x * channels + c) * (size_t)depth / 8;
            uint16_t wide;
            memcpy(&wide, plane + (size_t)x * (size_t)depth / 8, (size_t)depth / 8);
            unsigned got = depth == 8 ? plane[x] : wide;
            unsigned want = depth == 8 ? sample[0] : (unsigned)sample[0] << 8 | sample[1];
            if (got != want)
                fail_msg("%s: %d channels of %d bits, %d pixels: channel %d at %d is %u, not %u",
                         variant->name, channels, depth, width, c, x, got, want);
        }
    }
}

UNIT_TEST(splits_are_right)
{
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    seed = 10;
    for (int v = 0; v < count; v++) {
        if (variants[v]->needs & ~conv_cpu_features())
            continue;
        for (int channels = 1; channels <= 4; channels++) {
            for (int width = 1; width <= 67; width++) {
                check_split(variants[v], channels, 8, width);
                // Samples of two bytes lie on even addresses.
                check_split(variants[v], channels, 16, width);
            }
        }
    }
}

// --- several rows at once ------------------------------------------------------------------------

struct wave_run {
    struct conv_unfilter_wave wave;
    uint8_t *raw, *got;
    size_t size;
    unsigned rows;
    unsigned next; // under lock
    atomic_uint paired;
    struct conv_lock lock;
    atomic_bool failed;
};

// The next row, or two that begin alike; their bytes are the caller's from then on. Returns the
// number of rows, 0 at the end.
static unsigned take_next(struct wave_run *run, unsigned *y)
{
    conv_lock_acquire(&run->lock);
    *y = run->next;
    unsigned rows = *y < run->rows ? 1 : 0;
    const uint8_t *raw = run->raw + *y * (run->size + 1);
    rows += *y + 1 < run->rows && raw[0] == raw[run->size + 1] ? 1 : 0;
    run->next += rows;
    conv_lock_release(&run->lock);
    return rows;
}

static void take_rows(void *context)
{
    struct wave_run *run = context;
    unsigned y;
    for (unsigned taken; (taken = take_next(run, &y)) > 0;) {
        for (unsigned done; taken > 0; taken -= done) {
            done = conv_unfilter_wave_next(&run->wave, y, run->raw + y * (run->size + 1), taken);
            if (done == 0) {
                conv_unfilter_wave_fail(&run->wave);
                atomic_store(&run->failed, true);
                return;
            }
            atomic_fetch_add(&run->paired, done - 1);
            for (unsigned i = 0; i < done; i++, y++) {
                memcpy(run->got + y * run->size, conv_unfilter_wave_row(&run->wave, y), run->size);
                conv_unfilter_wave_end(&run->wave, y);
            }
        }
    }
}

// Returns how many rows were taken in pairs.
static unsigned check_wave(const struct conv_unfilter *variant, int pixel, size_t width,
                           unsigned rows, int threads, bool bad)
{
    struct conv_parallel parallel = {.most = TEST_PARALLEL_MOST, .run = parallel_run};
    struct wave_run run = {
        .size = width * (size_t)pixel, .rows = rows, .lock = CONV_LOCK_INITIALIZER};
    size_t size = run.size, pitch = size + 1;
    uint8_t *memory = aligned_alloc(64, (conv_unfilter_wave_bytes(size, threads) + 63) / 64 * 64);
    uint8_t *want = malloc((rows + 1) * (size + 64));
    run.raw = malloc(rows * pitch + CONV_UNFILTER_SLACK);
    run.got = malloc(rows * size);
    assert_true(memory && want && run.raw && run.got);
    memset(want, 0, size + 64);
    for (unsigned y = 0; y < rows; y++) {
        uint8_t *raw = run.raw + y * pitch;
        fill(raw, size + 1);
        raw[0] = (uint8_t)(random_bits(&seed) % 16); // mostly Paeth, in pairs too
        raw[0] = raw[0] < CONV_UNFILTER_COUNT ? raw[0] : CONV_UNFILTER_PAETH;
        conv_unfilter_plain.reverse[conv_unfilter_index(pixel)][raw[0]](
            want + (y + 1) * (size + 64), raw + 1, want + y * (size + 64), size);
    }
    if (bad)
        run.raw[(rows / 2) * pitch] = CONV_UNFILTER_COUNT;
    conv_unfilter_wave_start(&run.wave, variant, size, pixel, threads, memory);
    conv_parallel_run(threads > 1 ? &parallel : NULL, 0, take_rows, &run);
    assert_int_equal(atomic_load(&run.wave.bad_filter), bad);
    assert_int_equal(atomic_load(&run.failed), bad);
    for (unsigned y = 0; y < rows && !bad; y++)
        if (memcmp(run.got + y * size, want + (y + 1) * (size + 64), size) != 0)
            fail_msg("%s, %d bytes a pixel, %zu pixels: row %u is wrong", variant->name, pixel,
                     width, y);
    free(memory);
    free(want);
    free(run.raw);
    free(run.got);
    return 2 * atomic_load(&run.paired);
}

UNIT_TEST(rows_of_several_threads)
{
    static const int sizes[CONV_UNFILTER_SIZES] = {1, 2, 3, 4, 6, 8};
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    seed = 12;
    for (int v = 0; v < count; v++) {
        if (variants[v]->needs & ~conv_cpu_features())
            continue;
        // With a sanitizer every other size: filters_are_plain_codes has all of them.
        for (int s = CONV_SANITIZED ? v % 2 : 0; s < CONV_UNFILTER_SIZES; s += 1 + CONV_SANITIZED) {
            unsigned paired = 0;
            for (int i = 0; i < 4; i++)
                paired += check_wave(
                    variants[v], sizes[s], 1 + random_bits(&seed) % (i < 1 ? 40 : 5000),
                    2 * CONV_UNFILTER_WAVE_ROWS + 3, i == 2 ? 1 : TEST_PARALLEL_MOST, i == 3);
            if (variants[v]->pair[s][CONV_UNFILTER_PAETH])
                assert_true(paired > CONV_UNFILTER_WAVE_ROWS);
        }
    }
}

UNIT_MAIN(make_fences, free_fences)
