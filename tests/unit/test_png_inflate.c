// SPDX-License-Identifier: MIT
// inflate.c against zlib: streams of every kind that zlib writes, and the same with bits flipped,
// which zlib classifies. Buffers end at pages without access.
#include <inttypes.h>
#include <stdio.h>

#include <zlib.h>

#include "png/cpu/inflate.h"
#include "support/guard.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/rows.h"
#include "support/unit.h"

#define MOST 100000 // bytes of data: three times what a distance can reach
#define FLIPS 60   // of a short stream; of a long one, which takes as long as all short ones, fewer
#define LONG 20000 // bytes of data
#define LONG_FLIPS 10 // each kind of damage once

static uint64_t seed;

// --- the comparison ------------------------------------------------------------------------------

struct bench {
    struct conv_inflate inflate;
    struct guarded in, out;
    uint8_t expected[MOST + 1];
    int accepted, refused;
};

// zlib's verdict on the stream after correcting its header and checksum.
static bool ask_zlib(struct bench *bench, uint8_t *stream, size_t stream_size, size_t size)
{
    z_stream z = {.next_in = stream + 2, .avail_in = (uInt)stream_size - 6};
    z.next_out = bench->expected;
    z.avail_out = (uInt)size + 1;
    assert_int_equal(inflateInit2(&z, -15), Z_OK);
    bool good = inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_in == 0 && z.total_out == size;
    inflateEnd(&z);
    unsigned long sum = adler32(adler32(0, NULL, 0), bench->expected, (uInt)size);
    for (int i = 0; i < 4; i++)
        stream[stream_size - 4 + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    return good;
}

static void check(struct bench *bench, const struct png_file *stream, size_t size, const char *what)
{
    uint8_t *in = bench->in.end - stream->size;
    uint8_t *out = bench->out.end - size - CONV_INFLATE_SLACK;
    memcpy(in, stream->data, stream->size);
    bool good = ask_zlib(bench, in, stream->size, size);
    if (conv_inflate_zlib(&bench->inflate, out, size, in, stream->size) != good)
        fail_msg("%s of %zu bytes: zlib says %s", what, size, good ? "good" : "bad");
    if (good && memcmp(out, bench->expected, size) != 0)
        fail_msg("%s of %zu bytes: other bytes than zlib's", what, size);
    good ? bench->accepted++ : bench->refused++;
}

static void check_flips(struct bench *bench, struct png_file *stream, size_t size)
{
    for (int i = 0; i < (size < LONG ? FLIPS : LONG_FLIPS); i++) {
        // The head of the first block, the rest, and what is cut off.
        size_t span = i % 3 == 0 && stream->size > 100 ? 80 : stream->size - 6;
        size_t at = 2 + random_below(&seed, (unsigned)span);
        uint8_t old = stream->data[at], bit = (uint8_t)(1u << random_below(&seed, 8));
        size_t whole = stream->size;
        stream->data[at] ^= bit;
        if (i % 10 == 9)
            stream->size = 7 + random_below(&seed, (unsigned)stream->size - 6);
        check(bench, stream, size, "a damaged stream");
        stream->data[at] = old;
        stream->size = whole;
    }
}

UNIT_TEST(streams_are_what_zlib_says)
{
    static const size_t sizes[] = {1, 40, 300, 2047, 2100, 9000, 40000, MOST};
    static const int levels[] = {0, 1, 6, 9};
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE,
                                     Z_FIXED};
    struct bench *bench = calloc(1, sizeof *bench);
    uint8_t *data = malloc(MOST);
    assert_true(bench && data);
    bench->in = guard_alloc(2 * MOST + 100);
    bench->out = guard_alloc(MOST + CONV_INFLATE_SLACK);
    for (int kind = 0; kind < ROWS_ALL_KINDS; kind++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            rows_fill(&seed, data, sizes[s], sizes[s], kind);
            for (int i = 0; i < (CONV_SANITIZED ? 8 : 20); i++) {
                struct png_file stream =
                    png_make_zlib_as(data, sizes[s], levels[i % 4], strategies[i / 4],
                                     1 + (int)random_below(&seed, 9));
                int accepted = bench->accepted;
                setenv("CONV_DISABLE", (i + i / 4) % 2 ? "avx2" : "", 1); // and with it BMI2
                check(bench, &stream, sizes[s], "a stream");
                assert_int_equal(bench->accepted, accepted + 1);
                check_flips(bench, &stream, sizes[s]);
                png_make_free(&stream);
            }
        }
    }
    // Many damages must show in the bytes alone, many must be errors.
    assert_true(bench->accepted > 5000 && bench->refused > 5000);
    guard_free(&bench->in);
    guard_free(&bench->out);
    free(data);
    free(bench);
}

int main(void)
{
    const char *given = getenv("CONV_SEED");
    seed = given ? strtoull(given, NULL, 0) : 1;
    printf("CONV_SEED=%" PRIu64 "\n", seed);
    return UNIT_RUN(NULL, NULL);
}
