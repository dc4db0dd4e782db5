// SPDX-License-Identifier: MIT
// Streams written bit by bit: each breaks one rule, or is just within it.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/deflate_make.h"

static struct deflate_codes fixed;

static void put_fixed(struct deflate_make *make, unsigned symbol)
{
    deflate_make_bits(make, fixed.litlen[symbol], fixed.litlen_lengths[symbol]);
}

// --- dynamic codes ------------------------------------------------------------------------------

// The head of a dynamic block, lengths written one by one: the precode has 16 codewords of 4 bits
// for them, or what `broken` makes of it.
static void put_head(struct deflate_make *make, const struct deflate_codes *codes, int broken)
{
    struct deflate_run runs[288 + 32];
    uint8_t precode[DEFLATE_PRECODES];
    for (int i = 0; i < DEFLATE_PRECODES; i++)
        precode[i] = i > 15 ? broken == 1 : broken == 2 && i == 15 ? 0 : 4;
    for (int i = 0; i < codes->litlen_count + codes->distance_count; i++)
        runs[i] = (struct deflate_run){i < codes->litlen_count
                                           ? codes->litlen_lengths[i]
                                           : codes->distance_lengths[i - codes->litlen_count],
                                       0, 0};
    deflate_make_header(make, codes, runs, codes->litlen_count + codes->distance_count, precode,
                        DEFLATE_PRECODES, true);
}

// A block with the lengths of literal 0, the end and a length of 3, of distances 1 and 2, and as
// many bytes 0 as `bytes` says, each by the codeword 0, then the end by `end` bits of ones.
static void put_dynamic(struct deflate_make *make, const uint8_t of[5], int litlens, int broken,
                        unsigned bytes, unsigned end)
{
    const struct deflate_codes codes = {
        .litlen_lengths = {[0] = of[0], [256] = of[1], [257] = of[2]},
        .distance_lengths = {of[3], of[4]},
        .litlen_count = litlens,
        .distance_count = 2,
    };
    put_head(make, &codes, broken);
    for (unsigned i = 0; i < bytes; i++)
        deflate_make_bits(make, 0, 1);
    deflate_make_bits(make, (1u << end) - 1, end);
}

// A head whose first length repeats the one before it, although there is none; without that rule,
// the lengths are those of two codewords, and none of distances.
static void put_repeat(struct deflate_make *make)
{
    static const struct deflate_codes codes = {.litlen_count = 257, .distance_count = 1};
    static const uint8_t precode[DEFLATE_PRECODES] = {[0] = 1, [1] = 2, [16] = 2};
    struct deflate_run runs[1 + 255] = {{16, 0, 2}, {1, 0, 0}, [254] = {1, 0, 0}};
    deflate_make_header(make, &codes, runs, 256, precode, 18, true);
    deflate_make_bits(make, 1, 1); // the end
}

// --- the cases -----------------------------------------------------------------------------------

// All cases are a gray image of 8 rows of zeros, unless stated otherwise. Images made of many
// stored blocks have more rows.
enum { WIDTH = 39, HEIGHT = 8, BYTES = (WIDTH + 1) * HEIGHT };
enum { COSTLY_HEIGHT = 2500, COSTLY_BYTES = (WIDTH + 1) * COSTLY_HEIGHT };
enum { LONG_HEIGHT = 5000, LONG_BYTES = (WIDTH + 1) * LONG_HEIGHT };

// Writes matches of 258 with the fixed code until `bytes` bytes are complete, `first` of which were
// written before.
static void put_rest(struct deflate_make *make, unsigned first, unsigned bytes)
{
    for (; first < bytes; first++)
        put_fixed(make, 0);
}

static void fixed_match(struct deflate_make *make, unsigned before, unsigned symbol,
                        unsigned distance, unsigned extra, unsigned extra_bits)
{
    deflate_make_fixed(make, &fixed, true);
    put_rest(make, 0, before);
    put_fixed(make, symbol);
    deflate_make_bits(make, fixed.distance[distance], 5);
    deflate_make_bits(make, extra, extra_bits);
    put_rest(make, before + 3, BYTES);
    put_fixed(make, 256);
}

static void empty_fixed(struct deflate_make *make, int blocks)
{
    for (int i = 0; i < blocks; i++) {
        deflate_make_fixed(make, &fixed, false);
        put_fixed(make, 256);
    }
}

// Blocks of the fixed code with a match after some zeros.
static const struct {
    const char *kind;
    unsigned before, symbol, distance, extra, extra_bits;
    int result;
} matches[] = {
    {"a match of the first byte", 1, 257, 0, 0, 0, CONV_DECODE_DECODED},
    {"a match before the first byte", 0, 257, 0, 0, 0, CONV_DECODE_DISTANCE},
    {"a distance one too far", 4, 257, 4, 0, 1, CONV_DECODE_DISTANCE},
    {"a distance to the first byte", 5, 257, 4, 0, 1, CONV_DECODE_DECODED},
    {"the longest distance", 200, 257, 29, 8191, 13, CONV_DECODE_DISTANCE},
    {"distance symbol 30", 200, 257, 30, 0, 0, CONV_DECODE_SYMBOL},
    {"length symbol 286", 200, 286, 0, 0, 0, CONV_DECODE_SYMBOL},
};

// Stored blocks of this size and its check.
static const struct {
    const char *kind;
    unsigned size, check;
    int result;
} stored_blocks[] = {
    {"a stored block", BYTES, BYTES ^ 0xffff, CONV_DECODE_DECODED},
    {"a stored block of another size", BYTES, BYTES ^ 0xfffe, CONV_DECODE_BLOCK},
    {"a stored block beyond the end", BYTES + 1, (BYTES + 1) ^ 0xffff, CONV_DECODE_TRUNCATED},
};

// Arguments of put_dynamic and, in the last two, bits that follow it.
// clang-format off
static const struct {
    const char *kind;
    uint8_t of[5];
    int litlens, broken;
    unsigned bytes, end;
    int result;
    unsigned more, more_bits;
} dynamics[] = {
    {"two codewords", {1, 1, 0, 1, 0}, 257, 0, BYTES, 1, CONV_DECODE_DECODED, 0, 0},
    {"no distances", {1, 1, 0, 0, 0}, 257, 0, BYTES, 1, CONV_DECODE_DECODED, 0, 0},
    {"an incomplete code", {1, 2, 0, 1, 0}, 257, 0, BYTES, 2, CONV_DECODE_CODE, 0, 0},
    {"an over-subscribed code", {1, 1, 1, 1, 0}, 258, 0, BYTES, 1, CONV_DECODE_CODE, 0, 0},
    {"an incomplete code of distances", {1, 2, 2, 2, 0}, 258, 0, BYTES, 2, CONV_DECODE_CODE, 0, 0},
    {"no end of block", {1, 0, 1, 1, 0}, 258, 0, BYTES, 1, CONV_DECODE_CODE, 0, 0},
    {"287 literals and lengths", {1, 1, 0, 1, 1}, 287, 0, BYTES, 1, CONV_DECODE_CODE, 0, 0},
    {"an over-subscribed precode", {1, 1, 0, 1, 1}, 257, 1, BYTES, 1, CONV_DECODE_CODE, 0, 0},
    {"an incomplete precode", {1, 1, 0, 1, 1}, 257, 2, BYTES, 1, CONV_DECODE_CODE, 0, 0},
    {"a byte too many", {1, 1, 0, 1, 1}, 257, 0, BYTES + 1, 1, CONV_DECODE_SIZE, 0, 0},
    {"a byte too few", {1, 1, 0, 1, 1}, 257, 0, BYTES - 1, 1, CONV_DECODE_SIZE, 0, 0},
    {"no end", {1, 1, 0, 1, 1}, 257, 0, BYTES - 30, 0, CONV_DECODE_TRUNCATED, 0, 0},
    {"a byte behind the last block", {1, 1, 0, 1, 0}, 257, 0, BYTES, 1, CONV_DECODE_SIZE, 0, 8},
    // A match of distance 1, whose only codeword is 0, and the end.
    {"a distance of no codeword", {1, 2, 2, 1, 0}, 258, 0, BYTES - 3, 0, CONV_DECODE_SYMBOL, 15, 5},
    {"the only codeword", {1, 2, 2, 1, 0}, 258, 0, BYTES - 3, 0, CONV_DECODE_DECODED, 11, 5},
};
// clang-format on

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

// Blocks of other kinds.
static const char *write_other(struct deflate_make *make, int number, int *result)
{
    *result = CONV_DECODE_DECODED;
    switch (number) {
    case 0:
        deflate_make_bits(make, 7, 3);
        *result = CONV_DECODE_BLOCK;
        return "a block of type 3";
    case 1:
        for (int i = 0; i < 300; i++)
            deflate_make_stored(make, NULL, 0, false);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "empty stored blocks";
    case 2:
        empty_fixed(make, 700);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "empty fixed blocks";
    case 3:
        put_repeat(make);
        *result = CONV_DECODE_CODE;
        return "a repeated length before the first";
    case 4: // the first row has filter 5, the rest is 0
        deflate_make_fixed(make, &fixed, true);
        put_fixed(make, 5);
        put_rest(make, 1, BYTES);
        put_fixed(make, 256);
        *result = CONV_DECODE_FILTER;
        return "filter 5";
    default:
        return NULL;
    }
}

static const char *write_case(struct deflate_make *make, int i, int *result)
{
    if (i < COUNT(matches)) {
        fixed_match(make, matches[i].before, matches[i].symbol, matches[i].distance,
                    matches[i].extra, matches[i].extra_bits);
        *result = matches[i].result;
        return matches[i].kind;
    }
    i -= COUNT(matches);
    if (i < COUNT(stored_blocks)) {
        deflate_make_bits(make, 1, 3);
        deflate_make_bits(make, 0, -make->bit_count & 7);
        deflate_make_bits(make, stored_blocks[i].size, 16);
        deflate_make_bits(make, stored_blocks[i].check, 16);
        for (int k = 0; k < BYTES; k++)
            deflate_make_bits(make, 0, 8);
        *result = stored_blocks[i].result;
        return stored_blocks[i].kind;
    }
    i -= COUNT(stored_blocks);
    if (i < COUNT(dynamics)) {
        put_dynamic(make, dynamics[i].of, dynamics[i].litlens, dynamics[i].broken,
                    dynamics[i].bytes, dynamics[i].end);
        deflate_make_bits(make, dynamics[i].more, dynamics[i].more_bits);
        *result = dynamics[i].result;
        return dynamics[i].kind;
    }
    return write_other(make, i - COUNT(dynamics), result);
}

// The head of a dynamic block without bytes: 256 lengths of 0 by two repetitions, the end, and one
// distance, all of one bit; then the end.
static void put_empty_dynamic(struct deflate_make *make)
{
    static const struct deflate_codes codes = {.litlen_count = 257, .distance_count = 1};
    static const uint8_t precode[DEFLATE_PRECODES] = {[1] = 1, [18] = 1};
    static const struct deflate_run runs[] = {
        {18, 138 - 11, 7}, {18, 118 - 11, 7}, {1, 0, 0}, {1, 0, 0}};
    deflate_make_header(make, &codes, runs, 4, precode, 18, false);
    deflate_make_bits(make, 0, 1); // the end
}

// Stored blocks of `each` zeros, until `bytes` are written.
static void put_stored(struct deflate_make *make, unsigned each, unsigned bytes)
{
    static const uint8_t zeros[64];
    for (; bytes > 0; bytes -= each) {
        each = each > bytes ? bytes : each;
        deflate_make_stored(make, zeros, each, each == bytes);
    }
}

static const char *write_costly(struct deflate_make *make, int number, int *result)
{
    *result = number < 4 ? CONV_DECODE_COSTLY : CONV_DECODE_DECODED;
    switch (number) {
    case 0:
        empty_fixed(make, 240);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "more empty fixed blocks than are free";
    case 1:
        for (int i = 0; i < 120; i++)
            put_empty_dynamic(make);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "more empty dynamic blocks than are free";
    case 2:
        for (int i = 0; i < 2200; i++)
            deflate_make_stored(make, NULL, 0, false);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "more empty stored blocks than are free";
    case 3:
        put_stored(make, 10, COSTLY_BYTES);
        return "stored blocks of 10 bytes";
    case 4:
        put_stored(make, 41, COSTLY_BYTES); // their output covers their cost
        return "stored blocks of 41 bytes";
    case 5:
        empty_fixed(make, 200);
        fixed_match(make, 5, 257, 0, 0, 0);
        return "as many empty fixed blocks as are free";
    default:
        return NULL;
    }
}

static struct deflate_make start_stream(void)
{
    struct deflate_make make = {.grows = true};
    deflate_make_fixed_codes(&fixed);
    deflate_make_start(&make, 15);
    return make;
}

// Ends the stream with the Adler-32 of the image without errors: zeros, of which the first is
// `filter`. False without a case of that kind.
static bool finish_stream(struct check_stream *stream, struct deflate_make *make, int height,
                          uint8_t filter)
{
    uint8_t rows[COSTLY_BYTES] = {filter};
    deflate_make_end(make, (uint32_t)adler32(1, rows, (unsigned)((WIDTH + 1) * height)));
    *stream = (struct check_stream){WIDTH,        height,        1, 8, make->data, make->size,
                                    stream->kind, stream->result};
    free(make->plain);
    if (!stream->kind)
        free(make->data);
    return stream->kind != NULL;
}

bool check_special_stream(struct check_stream *stream, int number)
{
    struct deflate_make make = start_stream();
    stream->kind = write_case(&make, number, &stream->result);
    return finish_stream(stream, &make, HEIGHT, stream->result == CONV_DECODE_FILTER ? 5 : 0);
}

bool check_costly_stream(struct check_stream *stream, int number)
{
    struct deflate_make make = start_stream();
    stream->kind = write_costly(&make, number, &stream->result);
    return finish_stream(stream, &make, number == 3 || number == 4 ? COSTLY_HEIGHT : HEIGHT, 0);
}

// 200,000 zeros, each as a literal.
struct check_stream check_long_stream(void)
{
    struct check_stream stream = {WIDTH,     LONG_HEIGHT,        1, 8, malloc(LONG_BYTES), 0,
                                  "stopped", CONV_DECODE_STOPPED};
    uint8_t *rows = calloc(LONG_BYTES, 1);
    z_stream z = {
        .next_in = rows, .avail_in = LONG_BYTES, .next_out = stream.bytes, .avail_out = LONG_BYTES};
    if (!rows || !stream.bytes || deflateInit2(&z, 6, Z_DEFLATED, 15, 9, Z_HUFFMAN_ONLY) != Z_OK ||
        deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    stream.size = z.total_out;
    deflateEnd(&z);
    free(rows);
    return stream;
}
