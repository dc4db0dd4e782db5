// SPDX-License-Identifier: MIT
// Streams written bit by bit: each breaks one rule, or is just within it.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_decode.h"
#include "png/cuda/cuda_png.h"

#define ROOM 327680

struct writer {
    uint8_t bytes[ROOM];
    size_t bits;
};

static void put(struct writer *writer, unsigned value, int count)
{
    for (int i = 0; i < count; i++, writer->bits++)
        writer->bytes[writer->bits / 8] |= (uint8_t)((value >> i & 1) << writer->bits % 8);
}

static void put_codeword(struct writer *writer, unsigned codeword, int count)
{
    while (count-- > 0)
        put(writer, codeword >> count & 1, 1);
}

// --- the fixed code ------------------------------------------------------------------------------

static void put_fixed(struct writer *writer, unsigned symbol)
{
    if (symbol < 144)
        put_codeword(writer, 0x30 + symbol, 8);
    else if (symbol < 256)
        put_codeword(writer, 0x190 + symbol - 144, 9);
    else if (symbol < 280)
        put_codeword(writer, symbol - 256, 7);
    else
        put_codeword(writer, 0xc0 + symbol - 280, 8);
}

// --- dynamic codes ------------------------------------------------------------------------------

// The head of a dynamic block, lengths written one by one: the precode has 16 codewords of 4 bits
// for them, or what `broken` makes of it.
static void put_head(struct writer *writer, const uint8_t *lengths, unsigned litlens,
                     unsigned distances, int broken)
{
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    put(writer, litlens - 257, 5);
    put(writer, distances - 1, 5);
    put(writer, 19 - 4, 4);
    for (int i = 0; i < 19; i++)
        put(writer, order[i] > 15 ? broken == 1 : broken == 2 && order[i] == 15 ? 0 : 4, 3);
    for (unsigned i = 0; i < litlens + distances; i++)
        put_codeword(writer, lengths[i], 4);
}

// A block with the lengths of literal 0, the end and a length of 3, of distances 1 and 2, and as
// many bytes 0 as `bytes` says, each by the codeword 0, then the end by `end` bits of ones.
static void put_dynamic(struct writer *writer, const uint8_t of[5], unsigned litlens, int broken,
                        unsigned bytes, int end)
{
    uint8_t lengths[288 + 32] = {0};
    lengths[0] = of[0];
    lengths[256] = of[1];
    lengths[257] = of[2];
    lengths[litlens] = of[3];
    lengths[litlens + 1] = of[4];
    put(writer, 1, 1);
    put(writer, 2, 2);
    put_head(writer, lengths, litlens, 2, broken);
    for (unsigned i = 0; i < bytes; i++)
        put(writer, 0, 1);
    put(writer, (1u << end) - 1, end);
}

// A head whose first length repeats the one before it, although there is none; without that rule,
// the lengths are those of two codewords, and none of distances.
static void put_repeat(struct writer *writer)
{
    put(writer, 5, 3); // the last block, type 2
    put(writer, 257 - 257, 5);
    put(writer, 1 - 1, 5);
    put(writer, 18 - 4, 4);
    // The precode's lengths of 16, 0 and 1: two bits, one bit, two bits.
    static const uint8_t lengths[18] = {[0] = 2, [3] = 1, [17] = 2};
    for (int i = 0; i < 18; i++)
        put(writer, lengths[i], 3);
    put_codeword(writer, 3, 2); // 16
    put(writer, 0, 2);          // three times
    for (int i = 3; i < 258; i++)
        put_codeword(writer, i == 3 || i == 256 ? 2 : 0, i == 3 || i == 256 ? 2 : 1);
    put(writer, 1, 1); // the end
}

// --- the cases -----------------------------------------------------------------------------------

// All cases are a gray image of 8 rows of zeros, unless stated otherwise. Images made of many
// stored blocks have more rows.
enum { WIDTH = 39, HEIGHT = 8, BYTES = (WIDTH + 1) * HEIGHT };
enum { COSTLY_HEIGHT = 2500, COSTLY_BYTES = (WIDTH + 1) * COSTLY_HEIGHT };
enum { LONG_HEIGHT = 5000, LONG_BYTES = (WIDTH + 1) * LONG_HEIGHT };

// Writes matches of 258 with the fixed code until `bytes` bytes are complete, `first` of which were
// written before.
static void put_rest(struct writer *writer, unsigned first, unsigned bytes)
{
    for (; first < bytes; first++)
        put_fixed(writer, 0);
}

static void fixed_match(struct writer *writer, unsigned before, unsigned symbol, unsigned distance,
                        unsigned extra, int extra_bits)
{
    put(writer, 1, 1);
    put(writer, 1, 2);
    for (unsigned i = 0; i < before; i++)
        put_fixed(writer, 0);
    put_fixed(writer, symbol);
    put_codeword(writer, distance, 5);
    put(writer, extra, extra_bits);
    put_rest(writer, before + 3, BYTES);
    put_fixed(writer, 256);
}

static void stored(struct writer *writer, unsigned size, unsigned check, bool last)
{
    put(writer, last, 1);
    put(writer, 0, 2);
    writer->bits = (writer->bits + 7) / 8 * 8;
    put(writer, size, 16);
    put(writer, check, 16);
}

// Blocks of the fixed code with a match after some zeros.
static const struct {
    const char *kind;
    unsigned before, symbol, distance, extra;
    int extra_bits, result;
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
    unsigned litlens;
    int broken;
    unsigned bytes;
    int end, result;
    unsigned more;
    int more_bits;
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
static const char *write_other(struct writer *writer, int number, int *result)
{
    *result = CONV_DECODE_DECODED;
    switch (number) {
    case 0:
        put(writer, 7, 3);
        *result = CONV_DECODE_BLOCK;
        return "a block of type 3";
    case 1:
        for (int i = 0; i < 300; i++)
            stored(writer, 0, 0xffff, false);
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "empty stored blocks";
    case 2:
        for (int i = 0; i < 700; i++) {
            put(writer, 1 << 1, 3);
            put_fixed(writer, 256);
        }
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "empty fixed blocks";
    case 3:
        put_repeat(writer);
        *result = CONV_DECODE_CODE;
        return "a repeated length before the first";
    case 4: // the first row has filter 5, the rest is 0
        put(writer, 3, 3);
        put_fixed(writer, 5);
        put_rest(writer, 1, BYTES);
        put_fixed(writer, 256);
        *result = CONV_DECODE_FILTER;
        return "filter 5";
    default:
        return NULL;
    }
}

static const char *write_case(struct writer *writer, int i, int *result)
{
    if (i < COUNT(matches)) {
        fixed_match(writer, matches[i].before, matches[i].symbol, matches[i].distance,
                    matches[i].extra, matches[i].extra_bits);
        *result = matches[i].result;
        return matches[i].kind;
    }
    i -= COUNT(matches);
    if (i < COUNT(stored_blocks)) {
        stored(writer, stored_blocks[i].size, stored_blocks[i].check, true);
        writer->bits += 8 * BYTES;
        *result = stored_blocks[i].result;
        return stored_blocks[i].kind;
    }
    i -= COUNT(stored_blocks);
    if (i < COUNT(dynamics)) {
        put_dynamic(writer, dynamics[i].of, dynamics[i].litlens, dynamics[i].broken,
                    dynamics[i].bytes, dynamics[i].end);
        put(writer, dynamics[i].more, dynamics[i].more_bits);
        *result = dynamics[i].result;
        return dynamics[i].kind;
    }
    return write_other(writer, i - COUNT(dynamics), result);
}

// The head of a dynamic block without bytes: 256 lengths of 0 by two repetitions, the end, and one
// distance, all of one bit; then the end.
static void put_empty_dynamic(struct writer *writer)
{
    put(writer, 2 << 1, 3);
    put(writer, 257 - 257, 5);
    put(writer, 1 - 1, 5);
    put(writer, 18 - 4, 4);
    static const uint8_t lengths[18] = {[2] = 1, [17] = 1}; // of 18 and 1
    for (int i = 0; i < 18; i++)
        put(writer, lengths[i], 3);
    put(writer, 1, 1);
    put(writer, 138 - 11, 7);
    put(writer, 1, 1);
    put(writer, 118 - 11, 7);
    put(writer, 0, 3); // 1, 1, and the end
}

// Stored blocks of `each` zeros, until `bytes` are written.
static void put_stored(struct writer *writer, unsigned each, unsigned bytes)
{
    for (; bytes > 0; bytes -= each) {
        if (each > bytes)
            each = bytes;
        stored(writer, each, each ^ 0xffff, each == bytes);
        writer->bits += (size_t)8 * each;
    }
}

static const char *write_costly(struct writer *writer, int number, int *result)
{
    *result = CONV_DECODE_COSTLY;
    switch (number) {
    case 0:
        for (int i = 0; i < 240; i++) {
            put(writer, 1 << 1, 3);
            put_fixed(writer, 256);
        }
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "more empty fixed blocks than are free";
    case 1:
        for (int i = 0; i < 120; i++)
            put_empty_dynamic(writer);
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "more empty dynamic blocks than are free";
    case 2:
        for (int i = 0; i < 2200; i++)
            stored(writer, 0, 0xffff, false);
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "more empty stored blocks than are free";
    case 3:
        put_stored(writer, 10, COSTLY_BYTES);
        return "stored blocks of 10 bytes";
    case 4:
        *result = CONV_DECODE_DECODED;
        put_stored(writer, 41, COSTLY_BYTES); // their output covers their cost
        return "stored blocks of 41 bytes";
    case 5:
        *result = CONV_DECODE_DECODED;
        for (int i = 0; i < 200; i++) {
            put(writer, 1 << 1, 3);
            put_fixed(writer, 256);
        }
        fixed_match(writer, 5, 257, 0, 0, 0);
        return "as many empty fixed blocks as are free";
    default:
        return NULL;
    }
}

// Ends the stream with the Adler-32 of the image without errors: zeros, of which the first is
// `filter`.
static void finish_stream(struct check_stream *stream, const struct writer *writer, int height,
                          uint8_t filter)
{
    size_t size = (writer->bits + 7) / 8;
    uint8_t rows[COSTLY_BYTES] = {filter};
    unsigned long sum = adler32(1, rows, (unsigned)((WIDTH + 1) * height));
    stream->width = WIDTH;
    stream->height = height;
    stream->channels = 1;
    stream->depth = 8;
    stream->bytes = malloc(size + 4);
    stream->size = size + 4;
    if (!stream->bytes)
        abort();
    memcpy(stream->bytes, writer->bytes, size);
    for (int i = 0; i < 4; i++)
        stream->bytes[size + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
}

bool check_special_stream(struct check_stream *stream, int number)
{
    struct writer writer = {{0x78, 0x01}, 16};
    stream->kind = write_case(&writer, number, &stream->result);
    if (stream->kind)
        finish_stream(stream, &writer, HEIGHT, stream->result == CONV_DECODE_FILTER ? 5 : 0);
    return stream->kind != NULL;
}

bool check_costly_stream(struct check_stream *stream, int number)
{
    struct writer writer = {{0x78, 0x01}, 16};
    stream->kind = write_costly(&writer, number, &stream->result);
    if (stream->kind)
        finish_stream(stream, &writer, number == 3 || number == 4 ? COSTLY_HEIGHT : HEIGHT, 0);
    return stream->kind != NULL;
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
