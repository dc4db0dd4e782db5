// SPDX-License-Identifier: MIT
// Blocks of DEFLATE (RFC 1951) in a zlib stream (RFC 1950). For anything invalid the functions
// return false without a reason: libpng then decodes the file again and reports the cause.
#include "png/cpu/inflate.h"

#include <libdeflate.h>
#include <string.h>

#include "base/features.h"
#include "png/chunk.h"
#include "png/cpu/inflate_internal.h"

#define DROP CONV_INFLATE_DROP
#define KIND CONV_INFLATE_KIND
#define LITERALS CONV_INFLATE_LITERALS

enum {
    LITLEN_COUNT = 286, // symbols that may be used
    DISTANCE_COUNT = 30,
    PRECODE_COUNT = 19,
    LITLEN_BITS = CONV_INFLATE_LITLEN_BITS,
    PRECODE_BITS = CONV_INFLATE_PRECODE_BITS,
    // Bytes of output, as worth() counts them, after which joined tables pay off: joining takes up
    // to 3 us, and libpng at least 1 ns per byte, so the time stays within a factor of libpng's.
    // With a quarter of it, icons and photographs took as long.
    JOINED_AFTER = 16 << 10,
    MOST_CREDIT = 4 * JOINED_AFTER,
    SUM_BYTES = 4,           // of the Adler-32
    FEW = 4,                 // literals: 3 + 4 x 9 + 7 bits are available after a refill
    LEAST_STRETCH = 4 << 10, // bytes of output between two calls of next(), at first
    BLOCKS_BETWEEN = 256,    // blocks between two such calls: empty ones take up to 100 us
    DYNAMIC_BETWEEN = 8,     // the same after a dynamic block: short ones take up to 10 us each
    // Blocks that end after the last byte of output, besides the last one of the stream. libpng
    // ignores the chunks after that byte's: their blocks took 20 ns per byte, where it needs 1 ns.
    MOST_AFTER = 2,
};

// Reads the lengths of both codes of a dynamic block.
static bool read_lengths(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                         unsigned litlens, unsigned distances, unsigned precodes)
{
    static const uint8_t order[PRECODE_COUNT] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                 11, 4,  12, 3, 13, 2, 14, 1, 15};
    static const struct {
        uint8_t least, extra;
    } repeats[] = {{3, 2}, {3, 3}, {11, 7}}; // of the former length, of zeros, of zeros
    uint8_t precode_lengths[PRECODE_COUNT] = {0};
    uint32_t *table = inflate->precode;
    for (unsigned i = 0; i < precodes; i++) {
        conv_inflate_refill(reader);
        precode_lengths[order[i]] = (uint8_t)conv_inflate_take(reader, 3);
    }
    if (!conv_inflate_code_precode(table, precode_lengths))
        return false;
    unsigned total = litlens + distances, done = 0;
    while (done < total) {
        if (reader->count < PRECODE_BITS + 7)
            conv_inflate_refill(reader);
        uint32_t entry = table[reader->bits & ((1 << PRECODE_BITS) - 1)];
        unsigned symbol = entry >> 16;
        conv_inflate_drop(reader, DROP(entry));
        if (symbol < 16) {
            inflate->lengths[done++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && done == 0)
            return false;
        unsigned value = symbol == 16 ? inflate->lengths[done - 1] : 0;
        unsigned repeat =
            repeats[symbol - 16].least + conv_inflate_take(reader, repeats[symbol - 16].extra);
        if (repeat > total - done)
            return false;
        memset(inflate->lengths + done, (int)value, repeat);
        done += repeat;
    }
    return true;
}

bool conv_inflate_read_dynamic(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                               bool join)
{
    unsigned litlens = 257 + conv_inflate_take(reader, 5),
             distances = 1 + conv_inflate_take(reader, 5);
    unsigned precodes = 4 + conv_inflate_take(reader, 4);
    return litlens <= LITLEN_COUNT && distances <= DISTANCE_COUNT &&
           read_lengths(inflate, reader, litlens, distances, precodes) &&
           conv_inflate_code_tables(&inflate->tables, inflate->lengths, litlens,
                                    inflate->lengths + litlens, distances, join);
}

void conv_inflate_count(struct conv_inflate_output *output)
{
    size_t size = (size_t)(output->at - output->fresh);
    if (output->summed)
        output->adler = libdeflate_adler32(output->adler, output->fresh, size);
    output->counted += size;
    output->fresh = output->at;
}

// Sets when to call next(), after output->at was set to `at` and everything before it counted.
static void plan_look(struct conv_inflate_output *output, uint8_t *at)
{
    output->at = output->fresh = at;
    size_t stretch = LEAST_STRETCH + output->counted / 4, left = output->total - output->counted;
    stretch = stretch < CONV_INFLATE_STRETCH ? stretch : CONV_INFLATE_STRETCH;
    output->look = at + (stretch < left ? stretch : left);
    output->end = at + (left < CONV_INFLATE_ROOM ? left : CONV_INFLATE_ROOM - CONV_INFLATE_SLACK);
}

// Calls next() and sets when to call it next: later the more is decoded, so that little work is
// wasted if one of the first rows is wrong. output->at is not beyond output->end.
static bool look(const struct conv_inflate *inflate, struct conv_inflate_output *output)
{
    conv_inflate_count(output);
    uint8_t *at = inflate->next ? inflate->next(inflate->context, output->at) : output->at;
    if (!at)
        return false;
    if (at != output->at)
        output->begin = at - CONV_INFLATE_WINDOW;
    plan_look(output, at);
    return true;
}

// Moves on to the next piece of the input. The last bytes of a piece are not read before: they may
// be a part of the checksum. False: there is none.
static bool supply(const struct conv_inflate *inflate, struct conv_inflate_reader *reader)
{
    size_t left = (size_t)(reader->end - reader->at) + SUM_BYTES;
    if (!reader->more)
        return false;
    reader->at = inflate->supply(inflate->input, reader->at, &left, &reader->more);
    reader->end = reader->at + left - SUM_BYTES;
    return true;
}

// Bytes of output, but at most 8 per byte of input, since long matches take little time.
static size_t worth(const struct conv_inflate_output *output, const uint8_t *out_start,
                    const struct conv_inflate_reader *reader, const uint8_t *in_start)
{
    size_t out = (size_t)(output->at - out_start), in = (size_t)(reader->at - in_start);
    return out < 8 * in ? out : 8 * in;
}

// Decodes the symbols of a block to its end. Its tables are joined as soon as it has produced
// JOINED_AFTER bytes (at once by decode_dynamic if the blocks before have done so).
bool conv_inflate_rest_of_block(struct conv_inflate *inflate,
                                const struct conv_inflate_tables *tables,
                                struct conv_inflate_reader *reader,
                                struct conv_inflate_output *output)
{
    const uint8_t *out_start = output->at, *in_start = reader->at;
    for (;;) {
        output->stop = output->look;
        if (!tables->joined && output->stop - output->at > JOINED_AFTER)
            output->stop = output->at + JOINED_AFTER;
        enum conv_inflate_state state = conv_inflate_symbols(tables, reader, output);
        if (state != CONV_INFLATE_WORKING) {
            inflate->credit += worth(output, out_start, reader, in_start);
            if (inflate->credit > MOST_CREDIT)
                inflate->credit = MOST_CREDIT;
            return state == CONV_INFLATE_DONE;
        }
        const uint8_t *before = reader->at;
        bool starved = output->at <= output->stop;
        if (starved
                ? !supply(inflate, reader)
                : output->at > output->end || (output->at > output->look && !look(inflate, output)))
            return false;
        in_start += reader->at - before;
        if (!tables->joined && worth(output, out_start, reader, in_start) >= JOINED_AFTER)
            conv_inflate_code_join(&inflate->tables);
    }
}

// Moves to the start of the next byte and gives back the bytes that were read ahead. False if zeros
// from after the input were used.
bool conv_inflate_align(struct conv_inflate_reader *reader)
{
    unsigned ahead = reader->count / 8;
    if (reader->beyond > ahead)
        return false;
    reader->at -= ahead - reader->beyond;
    reader->bits = 0;
    reader->count = 0;
    reader->beyond = 0;
    return true;
}

static bool copy_stored(struct conv_inflate_reader *reader, struct conv_inflate_output *output)
{
    if (!conv_inflate_align(reader) || reader->end - reader->at < 4)
        return false;
    const uint8_t *p = reader->at;
    unsigned size = p[0] | (unsigned)p[1] << 8, check = p[2] | (unsigned)p[3] << 8;
    reader->at += 4;
    if (size != (check ^ 0xffff) || size > (size_t)(reader->end - reader->at) ||
        output->at > output->end || size > (size_t)(output->end - output->at))
        return false;
    if (size > 0)
        memcpy(output->at, reader->at, size);
    reader->at += size;
    output->at += size;
    return true;
}

static bool decode_fixed(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                         struct conv_inflate_output *output)
{
    // Short blocks are decoded here, without the cost of starting the decoder for long ones.
    const uint64_t *litlen = output->fixed->litlen, mask = (1 << LITLEN_BITS) - 1;
    for (int i = 0; i < FEW && output->at <= output->end; i++) {
        uint64_t entry = litlen[reader->bits & mask];
        if (KIND(entry) == CONV_INFLATE_END) {
            conv_inflate_drop(reader, DROP(entry));
            return true;
        }
        if (!LITERALS(entry))
            break;
        conv_inflate_put_literals(output->at, entry);
        output->at += LITERALS(entry);
        conv_inflate_drop(reader, DROP(entry));
    }
    return conv_inflate_rest_of_block(inflate, output->fixed, reader, output);
}

static bool decode_dynamic(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                           struct conv_inflate_output *output)
{
    bool join = inflate->credit >= JOINED_AFTER;
    if (!conv_inflate_read_dynamic(inflate, reader, join))
        return false;
    if (join)
        inflate->credit -= JOINED_AFTER;
    return conv_inflate_rest_of_block(inflate, &inflate->tables, reader, output);
}

static bool read_block(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                       struct conv_inflate_output *output, unsigned *kind, bool *last)
{
    if (reader->more && (size_t)(reader->end - reader->at) < CONV_INFLATE_PIECE / 4 * 3)
        (void)supply(inflate, reader);
    conv_inflate_refill(reader);
    *last = conv_inflate_take(reader, 1);
    *kind = conv_inflate_take(reader, 2);
    switch (*kind) {
    case 0:
        return copy_stored(reader, output);
    case 1:
        return decode_fixed(inflate, reader, output);
    case 2:
        return decode_dynamic(inflate, reader, output);
    default:
        return false;
    }
}

bool conv_inflate_next_block(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                             struct conv_inflate_output *output, unsigned number, bool *last)
{
    unsigned kind;
    if (!read_block(inflate, reader, output, &kind, last))
        return false;
    unsigned between = kind == 2 ? DYNAMIC_BETWEEN : BLOCKS_BETWEEN;
    bool looks = output->at > output->look || number % between == 0;
    return !looks || (output->at <= output->end && look(inflate, output));
}

void conv_inflate_start(struct conv_inflate *inflate, struct conv_inflate_output *output,
                        uint8_t *out, size_t out_size)
{
    inflate->credit = out_size / 4 < MOST_CREDIT ? out_size / 4 : MOST_CREDIT;
    *output = (struct conv_inflate_output){
        .decoders = conv_inflate_symbols_choose(conv_cpu_features()),
        .fixed = conv_inflate_code_fixed(),
        .begin = out,
        .at = out,
        .end = out + (out_size < CONV_INFLATE_STRETCH ? out_size : CONV_INFLATE_STRETCH),
        .look = out,
        .fresh = out,
        .total = out_size,
        .adler = 1,
        .summed = !inflate->jump,
    };
}

static bool jump(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                 struct conv_inflate_output *output, const uint8_t *data, bool *last)
{
    size_t bit = conv_inflate_used_bits(reader, data);
    struct conv_inflate_place place = {.bit = bit, .at = output->at};
    if (!inflate->jump(inflate->context, &place))
        return false;
    if (place.bit == bit)
        return true;
    conv_inflate_count(output);
    if (place.skipped > output->total - output->counted)
        return false;
    output->counted += place.skipped;
    output->begin = place.at - CONV_INFLATE_WINDOW;
    plan_look(output, place.at);
    conv_inflate_move(reader, data, place.bit);
    *last = place.last;
    return true;
}

// Decodes all blocks. Sets *last_block to where the last one begins, if that is not NULL.
static bool read_blocks(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                        struct conv_inflate_output *output, const uint8_t *data, size_t *last_block)
{
    bool last = false;
    unsigned after = 0;
    for (unsigned blocks = 1; !last; blocks++) {
        if (last_block)
            *last_block = conv_inflate_used_bits(reader, data);
        if (inflate->jump && !jump(inflate, reader, output, data, &last))
            return false;
        if (!last && !conv_inflate_next_block(inflate, reader, output, blocks, &last))
            return false;
        bool complete = output->counted + (size_t)(output->at - output->fresh) == output->total;
        if (complete && !last && ++after > MOST_AFTER)
            return false;
    }
    if (output->at > output->end)
        return false;
    conv_inflate_count(output);
    return true;
}

bool conv_inflate_find_end(struct conv_inflate *inflate, struct conv_inflate_end *end, uint8_t *out,
                           size_t out_size, const uint8_t *data, size_t size)
{
    struct conv_inflate_reader reader = {.at = data, .end = data + size};
    struct conv_inflate_output output;
    conv_inflate_start(inflate, &output, out, out_size);
    if (!read_blocks(inflate, &reader, &output, data, &end->last_block) ||
        output.counted != output.total)
        return false;
    end->bits = conv_inflate_used_bits(&reader, data);
    return end->bits <= 8 * size;
}

bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size)
{
    inflate->ended_early = false;
    if (size < 2 + SUM_BYTES)
        return false;
    unsigned method = data[0], flags = data[1];
    // Deflate, a valid header checksum, no dictionary. zlib refuses distances beyond the window;
    // they cannot occur if it is the largest possible or not smaller than the output.
    if ((method & 15) != 8 || method >> 4 > 7 || (method << 8 | flags) % 31 != 0 || flags & 32 ||
        (method >> 4 < 7 && out_size > (size_t)256 << (method >> 4)))
        return false;
    struct conv_inflate_reader reader = {
        .at = data + 2, .end = data + size - SUM_BYTES, .more = inflate->supply != NULL};
    struct conv_inflate_output output;
    conv_inflate_start(inflate, &output, out, out_size);
    if (!read_blocks(inflate, &reader, &output, data, NULL))
        return false;
    (void)supply(inflate, &reader); // what is left, if that is the checksum
    const uint8_t *sum = reader.end;
    uint32_t adler = conv_chunk_read_u32(sum);
    if (!conv_inflate_align(&reader) || reader.at != reader.end || reader.more ||
        (inflate->sum && !inflate->sum(inflate->context, &output.adler, output.at)))
        return false;
    bool good = output.adler == adler;
    inflate->ended_early = good && output.counted < output.total;
    return good && output.counted == output.total;
}
