// SPDX-License-Identifier: MIT
// The reference implementation of PNG's filters (section 9 of the standard), the choice among
// implementations, and how several threads reverse rows that depend on each other.
#include "png/cpu/unfilter.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "png/cpu/unfilter_table.h"

static void up(uint8_t *restrict dst, const uint8_t *restrict src, const uint8_t *restrict above,
               size_t size)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + above[i]);
}

// Left of the first pixel, a (left) and c (above left) are 0.

CONV_UNFILTER_INLINE void sub(uint8_t *dst, const uint8_t *src, size_t size, size_t bpp)
{
    for (size_t i = 0; i < size; i++)
        dst[i] = (uint8_t)(src[i] + (i < bpp ? 0 : dst[i - bpp]));
}

CONV_UNFILTER_INLINE void average(uint8_t *dst, const uint8_t *src, const uint8_t *above,
                                  size_t size, size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp];
        dst[i] = (uint8_t)(src[i] + (a + above[i]) / 2);
    }
}

// The one of a, b and c nearest to a + b - c, the first of those equally near. With t = 3c - a - b
// this is the smaller of a and b if t is at least the larger one, the larger if t is at most the
// smaller one, else c. From stb_image; it needs no branch.
CONV_UNFILTER_INLINE int predict(int a, int b, int c)
{
    int t = 3 * c - (a + b), low = a < b ? a : b, high = a < b ? b : a;
    int p = high <= t ? low : c;
    return t <= low ? high : p;
}

CONV_UNFILTER_INLINE void paeth(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size,
                                size_t bpp)
{
    for (size_t i = 0; i < size; i++) {
        int a = i < bpp ? 0 : dst[i - bpp], c = i < bpp ? 0 : above[i - bpp];
        dst[i] = (uint8_t)(src[i] + predict(a, above[i], c));
    }
}

CONV_UNFILTER_FUNCTIONS

const struct conv_unfilter conv_unfilter_plain = {
    .name = "plain",
    .reverse = CONV_UNFILTER_ALL,
    .split = conv_interleave_split,
};

const struct conv_unfilter *const *conv_unfilter_variants(int *count)
{
    static const struct conv_unfilter *const variants[] = {
#ifdef __x86_64__
        &conv_unfilter_avx2,
        &conv_unfilter_sse41,
#elif defined(__aarch64__)
        &conv_unfilter_neon,
#endif
        &conv_unfilter_plain,
    };
    *count = sizeof variants / sizeof variants[0];
    return variants;
}

// True if there are zeros at one of some places: reverse() copies pixels there.
static bool is_flat(const uint8_t *row, size_t size)
{
    enum { PLACES = 8 };
    bool flat = false;
    for (size_t i = 0; i < PLACES; i++) {
        uint64_t word;
        memcpy(&word, row + i * (size / PLACES), sizeof word);
        flat |= word == 0;
    }
    return flat;
}

// The function for two rows with their filter bytes; NULL: one after the other is as fast.
static conv_unfilter_pair_fn find_pair(const struct conv_unfilter *unfilter, int pixel,
                                       const uint8_t *first, const uint8_t *second, size_t size)
{
    if (first[0] != second[0] || first[0] >= CONV_UNFILTER_COUNT || size < CONV_UNFILTER_PAIR_LEAST)
        return NULL;
    conv_unfilter_pair_fn pair = unfilter->pair[conv_unfilter_index(pixel)][first[0]];
    bool copies = pair && first[0] == CONV_UNFILTER_PAETH &&
                  (is_flat(first + 1, size) || is_flat(second + 1, size));
    return copies ? NULL : pair;
}

const struct conv_unfilter *conv_unfilter_choose(unsigned features)
{
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    while ((*variants)->needs & ~features)
        variants++;
    return *variants;
}

// --- rows that follow each other -----------------------------------------------------------------

// The functions of struct conv_unfilter can only begin rows. To continue a row, they begin one
// pixel earlier, whose filtered bytes are replaced by bytes that produce the pixel that is already
// there.

enum {
    STRETCH = 2 << 10, // bytes: 1 to 2 us, some ten times what two cores need to exchange a line
    // Bytes before the end of a stretch that are not released yet, and bytes after it that a row
    // waits for: the functions read and write this far beyond it, and one pixel is written twice.
    MARGIN = CONV_UNFILTER_SLACK + 16,
    SPINS = 400,      // looks, some microseconds: longer than that only if the other is interrupted
    YIELDS = 200,     // looks after which another thread may run
    SLEEP_NS = 50000, // between two looks from then on: a sleep delays all rows below
    THREADS = CONV_UNFILTER_WAVE_ROWS / 2,
    ROWS_ALONE = 4, // of one thread: two, the row above them, and a power of two
};

static size_t pitch_of(size_t size)
{
    return conv_image_align(size + CONV_UNFILTER_SLACK, 64);
}

static unsigned rows_of(int threads)
{
    return threads > 1 ? CONV_UNFILTER_WAVE_ROWS : ROWS_ALONE;
}

size_t conv_unfilter_wave_bytes(size_t size, int threads)
{
    return rows_of(threads) * pitch_of(size);
}

int conv_unfilter_wave_threads(size_t size)
{
    size_t threads = size / (2 * STRETCH); // each works on a stretch or waits for the row above
    return threads < 1 ? 1 : threads < THREADS ? (int)threads : THREADS;
}

uint8_t *conv_unfilter_wave_row(const struct conv_unfilter_wave *wave, unsigned y)
{
    return wave->rows + (y & wave->last) * wave->pitch;
}

void conv_unfilter_wave_start(struct conv_unfilter_wave *wave, const struct conv_unfilter *unfilter,
                              size_t size, int pixel, int threads, uint8_t *memory)
{
    const size_t eight = 8 * (size_t)pixel;
    *wave = (struct conv_unfilter_wave){
        .unfilter = unfilter,
        .size = size,
        .pixel = pixel,
        .stretch = threads > 1 ? STRETCH / eight * eight : size,
        .rows = memory,
        .last = rows_of(threads) - 1,
        .pitch = pitch_of(size),
    };
    memset(conv_unfilter_wave_row(wave, wave->last), 0, wave->pitch); // above the first row
}

static void publish(struct conv_unfilter_wave *wave, unsigned y, size_t bytes)
{
    atomic_store_explicit(&wave->progress[y & wave->last].value, (uint64_t)y << 32 | bytes,
                          memory_order_release);
}

// Waits until `bytes` bytes of row y may be read; size + 1: until the row has ended.
static bool await(struct conv_unfilter_wave *wave, unsigned y, size_t bytes)
{
    const uint64_t want = (uint64_t)y << 32 | bytes;
    for (unsigned i = 1;
         atomic_load_explicit(&wave->progress[y & wave->last].value, memory_order_acquire) < want;
         i++) {
        if (atomic_load_explicit(&wave->failed, memory_order_relaxed))
            return false;
        if (i > SPINS + YIELDS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
        else if (i > SPINS)
            sched_yield();
#ifdef __x86_64__
        else
            __builtin_ia32_pause();
#endif
    }
    return true;
}

// Replaces the filtered pixel at `src` by the one from which a function that begins there computes
// the pixel at `dst`; there the prediction is half the pixel above with average and that pixel with
// Paeth.
static void plant(uint8_t *src, const uint8_t *dst, const uint8_t *above, size_t pixel, int filter)
{
    for (size_t i = 0; i < pixel; i++) {
        unsigned up = filter == CONV_UNFILTER_SUB ? 0 : above[i];
        src[i] = (uint8_t)(dst[i] - (filter == CONV_UNFILTER_AVERAGE ? up / 2 : up));
    }
}

// Waits until row y may overwrite an earlier one, which the row below that one may still need.
static bool await_memory(struct conv_unfilter_wave *wave, unsigned y)
{
    return (y <= wave->last || await(wave, y - wave->last - 1, wave->size + 1)) &&
           (y < wave->last || await(wave, y - wave->last, wave->size));
}

// Sets *to to the end of the stretch. Returns the bytes of the row above that it needs.
static size_t end_stretch(const struct conv_unfilter_wave *wave, size_t from, size_t *to)
{
    *to = wave->size - from < 2 * wave->stretch ? wave->size : from + wave->stretch;
    return *to + MARGIN < wave->size ? *to + MARGIN : wave->size;
}

unsigned conv_unfilter_wave_next(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw,
                                 size_t count)
{
    const int filter = raw[0];
    const size_t size = wave->size, pixel = (size_t)wave->pixel;
    uint8_t *src[2] = {raw + 1, raw + size + 2},
            *dst[2] = {conv_unfilter_wave_row(wave, y), conv_unfilter_wave_row(wave, y + 1)};
    const uint8_t *above = conv_unfilter_wave_row(wave, y - 1);
    if (filter >= CONV_UNFILTER_COUNT) {
        atomic_store_explicit(&wave->bad_filter, true, memory_order_relaxed);
        return 0;
    }
    conv_unfilter_pair_fn pair = NULL;
    if (count > 1)
        pair = find_pair(wave->unfilter, wave->pixel, raw, raw + size + 1, size);
    conv_unfilter_fn one = wave->unfilter->reverse[conv_unfilter_index(wave->pixel)][filter];
    if (!await_memory(wave, y) || (pair && !await_memory(wave, y + 1)))
        return 0;
    bool above_counts = y > 0 && filter != CONV_UNFILTER_NONE && filter != CONV_UNFILTER_SUB;
    bool left_counts = filter != CONV_UNFILTER_NONE && filter != CONV_UNFILTER_UP;
    for (size_t from = 0, to; from < size; from = to) {
        size_t needed = end_stretch(wave, from, &to), begin = from;
        if (above_counts && !await(wave, y - 1, needed))
            return 0;
        if (from > 0 && left_counts) {
            begin -= pixel;
            plant(src[0] + begin, dst[0] + begin, above + begin, pixel, filter);
            if (pair)
                plant(src[1] + begin, dst[1] + begin, dst[0] + begin, pixel, filter);
        }
        if (pair)
            pair((uint8_t *const[2]){dst[0] + begin, dst[1] + begin},
                 (const uint8_t *const[2]){src[0] + begin, src[1] + begin}, above + begin,
                 to - begin);
        else
            one(dst[0] + begin, src[0] + begin, above + begin, to - begin);
        size_t readable = to < size ? to - MARGIN : to;
        publish(wave, y, readable);
        if (pair)
            publish(wave, y + 1, readable);
    }
    return pair ? 2 : 1;
}

void conv_unfilter_wave_end(struct conv_unfilter_wave *wave, unsigned y)
{
    publish(wave, y, wave->size + 1);
}

void conv_unfilter_wave_fail(struct conv_unfilter_wave *wave)
{
    atomic_store_explicit(&wave->failed, true, memory_order_relaxed);
}
