// SPDX-License-Identifier: MIT
// Parts of a stream that are decoded ahead of the rest, by one thread: where blocks begin, and the
// bytes of the parts, against zlib. test_png_shared.c has the threads.
#include <zlib.h>

#include "png/cpu/inflate_ahead.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/rows.h"
#include "support/unit.h"

#define MOST ((size_t)400000)   // bytes of rows
#define PARTS ((size_t)2 << 20) // bytes of memory of a part

struct boundary {
    size_t bit, byte; // where a block begins, and of the output
};

// All begins of blocks, by zlib.
static size_t find_boundaries(struct boundary *out, size_t most, const struct png_file *zlib)
{
    uint8_t *plain = malloc(MOST);
    z_stream z = {.next_in = zlib->data, .avail_in = (uInt)zlib->size};
    size_t count = 0;
    assert_non_null(plain);
    z.next_out = plain;
    z.avail_out = MOST;
    assert_int_equal(inflateInit(&z), Z_OK);
    while (inflate(&z, Z_BLOCK) == Z_OK)
        if (z.data_type & 128 && !(z.data_type & 64) && count < most)
            out[count++] = (struct boundary){8 * z.total_in - (z.data_type & 7), z.total_out};
    inflateEnd(&z);
    free(plain);
    return count;
}

static size_t byte_of(const struct boundary *all, size_t count, size_t bit)
{
    for (size_t i = 0; i < count; i++)
        if (all[i].bit == bit)
            return all[i].byte;
    return SIZE_MAX;
}

// Checks the bytes of a part. True if the part begins at a block's beginning and has a window.
static bool check_part(struct conv_inflate_ahead *ahead, const uint8_t *data,
                       const struct boundary *all, size_t count)
{
    size_t begin = byte_of(all, count, ahead->first), end = byte_of(all, count, ahead->end);
    size_t size = ahead->symbols + ahead->bytes;
    uint8_t window[CONV_INFLATE_WINDOW];
    uint32_t sum;
    if (begin == SIZE_MAX || begin < CONV_INFLATE_WINDOW)
        return false;
    const uint8_t *before = data + begin - CONV_INFLATE_WINDOW;
    assert_true(ahead->last || end == begin + size);
    conv_inflate_ahead_window(ahead, window, before);
    assert_memory_equal(window, before + size, CONV_INFLATE_WINDOW);
    assert_memory_equal(conv_inflate_ahead_finish(ahead, before, &sum), data + begin, size);
    assert_int_equal(sum, adler32(1, data + begin, (uInt)size));
    return true;
}

// Checks that all beginnings of dynamic blocks are found.
static void check_beginnings(const struct png_file *zlib, const struct boundary *all, size_t count)
{
    for (size_t b = 1; b < count; b++) {
        unsigned head = zlib->data[all[b].bit / 8] | zlib->data[all[b].bit / 8 + 1] << 8;
        if ((head >> all[b].bit % 8 & 7) == 4 && all[b].bit / 8 + 32 < zlib->size)
            assert_int_equal(
                conv_inflate_find(zlib->data, zlib->size - 4, all[b].bit, all[b].bit + 1),
                all[b].bit);
    }
}

UNIT_TEST(parts_are_right)
{
    struct boundary all[1000];
    uint8_t *data = malloc(MOST);
    atomic_bool stop = false;
    struct conv_inflate_ahead *ahead = calloc(1, sizeof *ahead);
    assert_true(data && ahead && (ahead->memory = malloc(PARTS)));
    int parts = 0, markers = 0;
    uint64_t seed = 4;
    for (int i = 0; i < 40; i++) {
        int kind = i % ROWS_KINDS;
        rows_fill(&seed, data, MOST, 1000, kind);
        struct png_file zlib =
            png_make_zlib_as(data, MOST, 1 + i % 9, i % 3 ? Z_DEFAULT_STRATEGY : Z_FILTERED, 2);
        size_t count = find_boundaries(all, 1000, &zlib);
        *ahead = (struct conv_inflate_ahead){.data = zlib.data,
                                             .size = zlib.size - 4,
                                             .memory = ahead->memory,
                                             .room = i % 5 ? PARTS : CONV_INFLATE_AHEAD_LEAST,
                                             .stop = &stop};
        size_t from = random_below(&seed, (unsigned)(8 * zlib.size / 2));
        ahead->until = ahead->to = from + 8 * 10000 + random_below(&seed, 8 * 60000);
        if (conv_inflate_ahead_find(ahead, from) && conv_inflate_ahead_decode(ahead) &&
            check_part(ahead, data, all, count)) {
            parts++;
            markers += ahead->bytes == 0;
        }
        check_beginnings(&zlib, all, count);
        png_make_free(&zlib);
    }
    assert_true(parts > 15 && markers > 5 && markers < parts);
    free(ahead->memory);
    free(ahead);
    free(data);
}

UNIT_MAIN(NULL, NULL)
