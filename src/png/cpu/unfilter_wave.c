// SPDX-License-Identifier: MIT
// The functions of struct conv_unfilter can only begin rows. To continue a row, they begin one
// pixel earlier, whose filtered bytes are replaced by bytes that produce the pixel that is already
// there.
#include "png/cpu/unfilter_wave.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    STRETCH = 2 << 10, // bytes: 1 to 2 us, some ten times what two cores need to exchange a line
    // Bytes before the end of a stretch that are not released yet, and bytes after it that a row
    // waits for: the functions read and write this far beyond it, and one pixel is written twice.
    MARGIN = CONV_UNFILTER_SLACK + 16,
    SPINS = 400,      // looks, some microseconds: longer than that only if the other is interrupted
    YIELDS = 200,     // looks after which another thread may run
    SLEEP_NS = 50000, // between two looks from then on: a sleep delays all rows below
    ROWS = CONV_UNFILTER_WAVE_ROWS,
    THREADS = ROWS / 2,
};

static size_t pitch_of(size_t size)
{
    return conv_image_align(size + CONV_UNFILTER_SLACK, 64);
}

size_t conv_unfilter_wave_bytes(size_t size)
{
    return (ROWS + 1) * pitch_of(size);
}

int conv_unfilter_wave_threads(size_t size)
{
    size_t threads = size / (2 * STRETCH); // each is a stretch and some waiting behind another
    return threads < 1 ? 1 : threads < THREADS ? (int)threads : THREADS;
}

void conv_unfilter_wave_start(struct conv_unfilter_wave *wave, const struct conv_unfilter *unfilter,
                              size_t size, int pixel, uint8_t *memory)
{
    *wave = (struct conv_unfilter_wave){
        .reverse = unfilter->reverse[conv_unfilter_index(pixel)],
        .size = size,
        .pixel = (size_t)pixel,
        .stretch = STRETCH / (8 * (size_t)pixel) * (8 * (size_t)pixel),
        .rows = memory,
        .pitch = pitch_of(size),
    };
    memset(memory, 0, wave->pitch);
}

static uint8_t *row_of(const struct conv_unfilter_wave *wave, unsigned y)
{
    return wave->rows + (1 + y % ROWS) * wave->pitch;
}

static void publish(struct conv_unfilter_wave *wave, unsigned y, size_t bytes)
{
    atomic_store_explicit(&wave->progress[y % ROWS].value, (uint64_t)y << 32 | bytes,
                          memory_order_release);
}

// Waits until `bytes` bytes of row y may be read; size + 1: until the row has ended.
static bool await(struct conv_unfilter_wave *wave, unsigned y, size_t bytes)
{
    const uint64_t want = (uint64_t)y << 32 | bytes;
    for (unsigned i = 1;
         atomic_load_explicit(&wave->progress[y % ROWS].value, memory_order_acquire) < want; i++) {
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
    return await(wave, y - ROWS, wave->size + 1) && await(wave, y - ROWS + 1, wave->size);
}

// Sets *to to the end of the stretch. Returns the bytes of the row above that it needs.
static size_t end_stretch(const struct conv_unfilter_wave *wave, size_t from, size_t *to)
{
    *to = wave->size - from < 2 * wave->stretch ? wave->size : from + wave->stretch;
    return *to + MARGIN < wave->size ? *to + MARGIN : wave->size;
}

const uint8_t *conv_unfilter_wave_row(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw)
{
    int filter = raw[0];
    uint8_t *src = raw + 1, *dst = row_of(wave, y);
    const uint8_t *above = y > 0 ? row_of(wave, y - 1) : wave->rows;
    if (filter >= CONV_UNFILTER_COUNT)
        return NULL;
    if (y >= ROWS && !await_memory(wave, y))
        return NULL;
    bool above_counts = y > 0 && filter != CONV_UNFILTER_NONE && filter != CONV_UNFILTER_SUB;
    for (size_t from = 0, to; from < wave->size; from = to) {
        size_t needed = end_stretch(wave, from, &to);
        if (above_counts && !await(wave, y - 1, needed))
            return NULL;
        size_t begin = from;
        if (from > 0 && filter != CONV_UNFILTER_NONE && filter != CONV_UNFILTER_UP) {
            begin -= wave->pixel;
            plant(src + begin, dst + begin, above + begin, wave->pixel, filter);
        }
        wave->reverse[filter](dst + begin, src + begin, above + begin, to - begin);
        publish(wave, y, to < wave->size ? to - MARGIN : to);
    }
    return dst;
}

bool conv_unfilter_wave_pair(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw,
                             conv_unfilter_pair_fn pair, const uint8_t *rows[2])
{
    int filter = raw[0];
    uint8_t *src[2] = {raw + 1, raw + wave->size + 2},
            *dst[2] = {row_of(wave, y), row_of(wave, y + 1)};
    const uint8_t *above = y > 0 ? row_of(wave, y - 1) : wave->rows;
    size_t pixel = wave->pixel;
    for (unsigned i = y; i < y + 2; i++)
        if (i >= ROWS && !await_memory(wave, i))
            return false;
    for (size_t from = 0, to; from < wave->size; from = to) {
        size_t needed = end_stretch(wave, from, &to);
        if (y > 0 && !await(wave, y - 1, needed))
            return false;
        size_t begin = from;
        if (from > 0) {
            begin -= pixel;
            plant(src[0] + begin, dst[0] + begin, above + begin, pixel, filter);
            plant(src[1] + begin, dst[1] + begin, dst[0] + begin, pixel, filter);
        }
        pair((uint8_t *const[2]){dst[0] + begin, dst[1] + begin},
             (const uint8_t *const[2]){src[0] + begin, src[1] + begin}, above + begin, to - begin);
        publish(wave, y, to < wave->size ? to - MARGIN : to);
        publish(wave, y + 1, to < wave->size ? to - MARGIN : to);
    }
    rows[0] = dst[0];
    rows[1] = dst[1];
    return true;
}

void conv_unfilter_wave_end(struct conv_unfilter_wave *wave, unsigned y)
{
    publish(wave, y, wave->size + 1);
}

void conv_unfilter_wave_fail(struct conv_unfilter_wave *wave)
{
    atomic_store_explicit(&wave->failed, true, memory_order_relaxed);
}
