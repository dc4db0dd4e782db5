// SPDX-License-Identifier: MIT
// DEFLATE (RFC 1951) with tables that give two literals or a whole match at once. The idea of
// looking up more than one literal is from Intel's ISA-L; reading 8 bytes ahead of need is common
// to all fast decoders. Anything odd ends in "false", and somebody slower says what is wrong.
#include "png/cpu/inflate.h"

#include <libdeflate.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

// Short names for what is everywhere below.
#define DROP CONV_INFLATE_DROP
#define KIND CONV_INFLATE_KIND
#define LITERALS CONV_INFLATE_LITERALS

enum {
    LITLEN_COUNT = 286, // symbols that may be used
    DISTANCE_COUNT = 30,
    PRECODE_COUNT = 19,
    LITLEN_BITS = CONV_INFLATE_LITLEN_BITS,
    DISTANCE_BITS = CONV_INFLATE_DISTANCE_BITS,
    PRECODE_BITS = CONV_INFLATE_PRECODE_BITS,
    // Bytes of input for a turn of decode_symbols: a match, three literals and a match use up 13,
    // the bits hold 8, and 8 are read at once.
    INSIDE = 32,
    // What a block must have been worth to libpng, as worth() counts, for joined tables to cost
    // less: joining takes up to 17 us, and libpng at least 1 ns for each.
    JOINED_AFTER = 16 << 10,
    MOST_CREDIT = 4 * JOINED_AFTER,
    FEW = 4, // literals: 3 + 4 x 9 + 7 bits are there after a refill
    LEAST_STRETCH = 4 << 10,
    BLOCKS_BETWEEN = 256, // calls of go_on(): some 500 us of blocks with nothing in them
};

// --- reading bits --------------------------------------------------------------------------------

// `bits` holds `count` bits that count, the next one lowest. Behind the end of the input come
// zeros; `beyond` says how many bytes of them were taken.
struct reader {
    uint64_t bits;
    unsigned count;
    unsigned beyond;
    const uint8_t *at, *end;
};

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

// Makes `count` at least 56. Bits beyond `count` may be set already: they are those that come next.
ALWAYS_INLINE void refill_inside(struct reader *reader)
{
    reader->bits |= load64(reader->at) << reader->count;
    reader->at += (63 - reader->count) >> 3;
    reader->count |= 56;
}

static void refill_bytes(struct reader *reader)
{
    reader->bits &= ((uint64_t)1 << reader->count) - 1;
    while (reader->count < 56) {
        if (reader->at < reader->end)
            reader->bits |= (uint64_t)*reader->at++ << reader->count;
        else
            reader->beyond++;
        reader->count += 8;
    }
}

static inline void refill(struct reader *reader)
{
    if (LIKELY(reader->end - reader->at >= 8))
        refill_inside(reader);
    else
        refill_bytes(reader);
}

ALWAYS_INLINE void drop(struct reader *reader, unsigned count)
{
    reader->bits >>= count;
    reader->count -= count;
}

static unsigned take(struct reader *reader, unsigned count)
{
    unsigned value = (unsigned)(reader->bits & (((uint64_t)1 << count) - 1));
    drop(reader, count);
    return value;
}

// --- blocks --------------------------------------------------------------------------------------

// Reads the lengths of both codes of a dynamic block.
static bool read_lengths(struct conv_inflate *inflate, struct reader *reader, unsigned litlens,
                         unsigned distances, unsigned precodes)
{
    static const uint8_t order[PRECODE_COUNT] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                 11, 4,  12, 3, 13, 2, 14, 1, 15};
    static const struct {
        uint8_t least, extra;
    } repeats[] = {{3, 2}, {3, 3}, {11, 7}}; // of the former length, of zeros, of zeros
    uint8_t precode_lengths[PRECODE_COUNT] = {0};
    uint32_t *table = inflate->precode;
    for (unsigned i = 0; i < precodes; i++) {
        refill(reader);
        precode_lengths[order[i]] = (uint8_t)take(reader, 3);
    }
    if (!conv_inflate_code_precode(table, precode_lengths))
        return false;
    unsigned total = litlens + distances, done = 0;
    while (done < total) {
        if (reader->count < PRECODE_BITS + 7)
            refill(reader);
        uint32_t entry = table[reader->bits & ((1 << PRECODE_BITS) - 1)];
        unsigned symbol = entry >> 16;
        drop(reader, DROP(entry));
        if (symbol < 16) {
            inflate->lengths[done++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && done == 0)
            return false;
        unsigned value = symbol == 16 ? inflate->lengths[done - 1] : 0;
        unsigned repeat = repeats[symbol - 16].least + take(reader, repeats[symbol - 16].extra);
        if (repeat > total - done)
            return false;
        memset(inflate->lengths + done, (int)value, repeat);
        done += repeat;
    }
    return true;
}

static bool read_dynamic(struct conv_inflate *inflate, struct reader *reader)
{
    unsigned litlens = 257 + take(reader, 5), distances = 1 + take(reader, 5);
    unsigned precodes = 4 + take(reader, 4);
    return litlens <= LITLEN_COUNT && distances <= DISTANCE_COUNT &&
           read_lengths(inflate, reader, litlens, distances, precodes) &&
           conv_inflate_code_tables(&inflate->tables, inflate->lengths, litlens,
                                    inflate->lengths + litlens, distances);
}

static inline void copy8(uint8_t *dst, const uint8_t *src)
{
    uint64_t value; // loaded whole before it is stored: they may overlap
    memcpy(&value, src, sizeof value);
    memcpy(dst, &value, sizeof value);
}

static inline void copy16(uint8_t *dst, const uint8_t *src)
{
    uint64_t value[2]; // as above
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

// Writes up to 24 bytes too many.
ALWAYS_INLINE void copy_match(uint8_t *out, size_t distance, size_t length)
{
    const uint8_t *from = out - distance;
    uint8_t *end = out + length;
    if (LIKELY(distance >= 16)) {
        do {
            copy16(out, from);
            out += 16;
            from += 16;
        } while (out < end);
        return;
    }
    if (distance >= 8) {
        do {
            copy8(out, from);
            out += 8;
            from += 8;
        } while (out < end);
        return;
    }
    // The bytes that are repeated, as often as they fit into eight. They are not loaded as eight:
    // that would wait until the bytes just written have left for the cache.
    uint64_t value = *from;
    for (unsigned i = 1; i < distance; i++)
        value |= (uint64_t)from[i] << 8 * i;
    unsigned width = (unsigned)distance;
    for (; width < 8; width *= 2)
        value |= value << 8 * width;
    static const uint8_t steps[8] = {0, 8, 8, 6, 8, 5, 6, 7}; // the largest multiple
    unsigned step = steps[distance];
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    do {
        memcpy(out, &value, sizeof value);
        out += step;
    } while (out < end);
}

// The base in an entry with its extra bits, which follow the codewords in `bits`.
ALWAYS_INLINE unsigned read_litlen(uint64_t bits, uint64_t entry)
{
    uint64_t both = bits & (((uint64_t)1 << DROP(entry)) - 1);
    return (unsigned)(entry >> 48) + (unsigned)(both >> (entry >> 16 & 63));
}

ALWAYS_INLINE unsigned read_distance(uint64_t bits, uint32_t entry)
{
    uint64_t both = bits & (((uint64_t)1 << DROP(entry)) - 1);
    return (entry >> 16) + (unsigned)(both >> (entry >> 8 & 63));
}

struct decoders;

struct output {
    const struct decoders *decoders;
    const struct conv_inflate_tables *fixed;
    uint8_t *begin, *at, *end;
    uint8_t *stop; // where decode_symbols returns, at the latest
    uint8_t *look; // where go_on() is to be called
};

ALWAYS_INLINE void put_literals(uint8_t *out, uint64_t entry)
{
    uint16_t bytes = (uint16_t)(entry >> 32);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap16(bytes);
#endif
    memcpy(out, &bytes, sizeof bytes);
}

// Where a step of decode_mixed copies from: NULL if the entry is not one that it takes.
ALWAYS_INLINE const uint8_t *find_source(uint64_t bits, uint64_t entry, const uint8_t *out,
                                         const uint8_t *begin)
{
    unsigned length = KIND(entry), distance = read_litlen(bits, entry);
    if (UNLIKELY(length > CONV_INFLATE_NEAR) || UNLIKELY(length > distance) ||
        UNLIKELY(distance > (size_t)(out - begin)))
        return NULL;
    return out - distance;
}

enum { WORKING, DONE, FAILED };

// Decodes symbols until the block ends or, if `inside`, until the end of the input is too near for
// reading 8 bytes at once. Between two looks at the end of the output at most two steps that write
// 2 + 16 bytes, or 3 x 2 literals, and a match are written, which is what the slack is for.
//
// An entry is looked up before the bits are refilled, so that the way from one to the next is a
// shift, a mask and a load. That leaves an index of 11 in any case: of 56 bits, three entries of
// literals take 33; a whole match 11 + 13; a length 15 + 5 and a distance from the table 9 + 13; a
// longer distance refills. Two whole matches take 48, but of the 64 bits that there are inside.
//
// If `mixed`, literals and matches are not told apart, since a wrong guess takes as long as two
// entries: each step writes literals, copies 16 bytes behind them, and goes on by what was meant.
// Left alone: the steps of two images in turn, 1.15 times as fast again in a prototype; an index
// of 12, 0.8 times on photographs; two literals before a match in one entry, 7 % fewer entries.
ALWAYS_INLINE int decode_symbols(const struct conv_inflate_tables *tables, struct reader *reader_io,
                                 struct output *output, bool inside, bool mixed)
{
    struct reader reader = *reader_io;
    uint8_t *out = output->at, *const begin = output->begin, *const stop = output->stop;
    const uint64_t *litlen = tables->litlen;
    const uint64_t litlen_mask = (1 << LITLEN_BITS) - 1;
    const uint64_t distance_mask = (1 << DISTANCE_BITS) - 1;
#define REFILL() (inside ? refill_inside(&reader) : refill(&reader))
#define NEXT()                                                                                     \
    do {                                                                                           \
        drop(&reader, DROP(entry));                                                                \
        entry = litlen[reader.bits & litlen_mask];                                                 \
    } while (0)
#define STEP()                                                                                     \
    {                                                                                              \
        uint8_t *to = out + LITERALS(entry);                                                       \
        const uint8_t *from = find_source(reader.bits, entry, to, begin);                          \
        if (UNLIKELY(!from))                                                                       \
            goto one;                                                                              \
        put_literals(out, entry);                                                                  \
        out = to + KIND(entry);                                                                    \
        NEXT();                                                                                    \
        copy16(to, from);                                                                          \
    }
    REFILL();
    uint64_t entry = litlen[reader.bits & litlen_mask];
    while (out <= stop &&
           (inside ? reader.end - reader.at >= INSIDE : reader.beyond * 8 <= reader.count)) {
        REFILL();
        if (mixed) {
            STEP()
            STEP()
            continue;
        one:
            REFILL();
        }
        if (LITERALS(entry)) {
            put_literals(out, entry);
            out += LITERALS(entry);
            NEXT();
            if (LITERALS(entry)) {
                put_literals(out, entry);
                out += LITERALS(entry);
                NEXT();
                if (LITERALS(entry)) {
                    put_literals(out, entry);
                    out += LITERALS(entry);
                    NEXT();
                    continue;
                }
            }
            REFILL();
        }
        if (UNLIKELY(KIND(entry) > CONV_INFLATE_LENGTH)) {
            if (KIND(entry) == CONV_INFLATE_LONG)
                entry = conv_inflate_code_find_litlen(litlen, entry, reader.bits);
            if (LITERALS(entry)) {
                put_literals(out, entry);
                out += LITERALS(entry);
                NEXT();
                continue;
            }
            if (KIND(entry) > CONV_INFLATE_LENGTH) {
                drop(&reader, DROP(entry));
                *reader_io = reader;
                output->at = out;
                return KIND(entry) == CONV_INFLATE_END ? DONE : FAILED;
            }
        }
        unsigned length = KIND(entry), distance = read_litlen(reader.bits, entry);
        if (UNLIKELY(length == CONV_INFLATE_LENGTH)) {
            length = distance; // that was its own base
            drop(&reader, DROP(entry));
            uint32_t far = tables->distance[reader.bits & distance_mask];
            if (UNLIKELY((far >> 8 & 255) > CONV_INFLATE_NEAR)) {
                REFILL();
                if ((far >> 8 & 255) == CONV_INFLATE_LONG)
                    far = conv_inflate_code_find_distance(tables->distance, far, reader.bits);
                if ((far >> 8 & 255) > CONV_INFLATE_NEAR)
                    return FAILED;
            }
            distance = read_distance(reader.bits, far);
            drop(&reader, DROP(far));
            entry = litlen[reader.bits & litlen_mask];
        } else {
            NEXT();
        }
        if (UNLIKELY(distance > (size_t)(out - begin)))
            return FAILED;
        copy_match(out, distance, length);
        out += length;
    }
#undef STEP
#undef NEXT
#undef REFILL
    *reader_io = reader;
    output->at = out;
    return WORKING;
}

typedef int (*decode_fn)(const struct conv_inflate_tables *tables, struct reader *reader,
                         struct output *output);

#define DECODER(name, inside, mixed)                                                               \
    static int name(const struct conv_inflate_tables *tables, struct reader *reader,               \
                    struct output *output)                                                         \
    {                                                                                              \
        return decode_symbols(tables, reader, output, inside, mixed);                              \
    }

DECODER(decode_literals, true, false)
DECODER(decode_mixed, true, true)
DECODER(decode_tail, false, false)
#ifdef __x86_64__
// Shifts and masks by a variable are one instruction each there.
__attribute__((target("bmi2"))) DECODER(decode_literals_bmi2, true, false)
    __attribute__((target("bmi2"))) DECODER(decode_mixed_bmi2, true, true)
#endif

        struct decoders {
    decode_fn literals, mixed;
};

static const struct decoders *choose_decoders(void)
{
    static const struct decoders plain = {decode_literals, decode_mixed};
#ifdef __x86_64__
    static const struct decoders bmi2 = {decode_literals_bmi2, decode_mixed_bmi2};
    if (__builtin_cpu_supports("bmi2"))
        return &bmi2;
#endif
    return &plain;
}

// Up to output->stop, or to where the input ends.
static int decode_stretch(const struct conv_inflate_tables *tables, struct reader *reader,
                          struct output *output)
{
    const struct decoders *decoders = output->decoders;
    int state = WORKING;
    if (reader->end - reader->at >= INSIDE)
        state = (tables->mixed ? decoders->mixed : decoders->literals)(tables, reader, output);
    if (state == WORKING && output->at <= output->stop)
        state = decode_tail(tables, reader, output);
    return state;
}

// Calls go_on(). Its next call is farther away the more has been decoded, so that little is done in
// vain where it is the first rows that are wrong.
static bool look(const struct conv_inflate *inflate, struct output *output)
{
    size_t done = (size_t)(output->at - output->begin), stretch = LEAST_STRETCH + done / 4;
    size_t left = (size_t)(output->end - output->at);
    stretch = stretch < CONV_INFLATE_STRETCH ? stretch : CONV_INFLATE_STRETCH;
    output->look = stretch < left ? output->at + stretch : output->end;
    return !inflate->go_on || inflate->go_on(inflate->context, done);
}

// Bytes of output, but no more than 8 for a byte of input: long matches are copied in no time.
static size_t worth(const struct output *output, const uint8_t *out_start,
                    const struct reader *reader, const uint8_t *in_start)
{
    size_t out = (size_t)(output->at - out_start), in = (size_t)(reader->at - in_start);
    return out < 8 * in ? out : 8 * in;
}

// Decodes the symbols of a block to its end. A table is joined at once if the blocks before were
// worth it, or else as soon as this one is.
static bool decode_block(struct conv_inflate *inflate, const struct conv_inflate_tables *tables,
                         struct reader *reader, struct output *output)
{
    const uint8_t *out_start = output->at, *in_start = reader->at;
    for (;;) {
        output->stop = output->look;
        if (!tables->joined && output->stop - output->at > JOINED_AFTER)
            output->stop = output->at + JOINED_AFTER;
        int state = decode_stretch(tables, reader, output);
        if (state != WORKING) {
            inflate->credit += worth(output, out_start, reader, in_start);
            if (inflate->credit > MOST_CREDIT)
                inflate->credit = MOST_CREDIT;
            return state == DONE;
        }
        if (output->at <= output->stop || output->at > output->end ||
            (output->at > output->look && !look(inflate, output)))
            return false;
        if (!tables->joined && worth(output, out_start, reader, in_start) >= JOINED_AFTER)
            conv_inflate_code_join(&inflate->tables);
    }
}

// Gives back the bytes that were read ahead, up to the next byte's start. False if zeros from
// beyond the input have been used.
static bool align(struct reader *reader)
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

static bool copy_stored(struct reader *reader, struct output *output)
{
    if (!align(reader) || reader->end - reader->at < 4)
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

static bool decode_fixed(struct conv_inflate *inflate, struct reader *reader, struct output *output)
{
    // A block of few literals is over before the decoder for many has begun.
    const uint64_t *litlen = output->fixed->litlen, mask = (1 << LITLEN_BITS) - 1;
    for (int i = 0; i < FEW && output->at <= output->end; i++) {
        uint64_t entry = litlen[reader->bits & mask];
        if (KIND(entry) == CONV_INFLATE_END) {
            drop(reader, DROP(entry));
            return true;
        }
        if (!LITERALS(entry))
            break;
        put_literals(output->at, entry);
        output->at += LITERALS(entry);
        drop(reader, DROP(entry));
    }
    return decode_block(inflate, output->fixed, reader, output);
}

static bool decode_dynamic(struct conv_inflate *inflate, struct reader *reader,
                           struct output *output)
{
    if (!read_dynamic(inflate, reader))
        return false;
    if (inflate->credit >= JOINED_AFTER) {
        inflate->credit -= JOINED_AFTER;
        conv_inflate_code_join(&inflate->tables);
    }
    return decode_block(inflate, &inflate->tables, reader, output);
}

static bool read_block(struct conv_inflate *inflate, struct reader *reader, struct output *output,
                       bool *last)
{
    refill(reader);
    *last = take(reader, 1);
    switch (take(reader, 2)) {
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

bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size)
{
    if (size < 2 + 4)
        return false;
    unsigned method = data[0], flags = data[1];
    // Deflate, a right checksum, no dictionary. zlib refuses distances beyond the window, which
    // cannot occur if it is as large as the format allows or as the image.
    if ((method & 15) != 8 || method >> 4 > 7 || (method << 8 | flags) % 31 != 0 || flags & 32 ||
        (method >> 4 < 7 && out_size > (size_t)256 << (method >> 4)))
        return false;
    struct reader reader = {.at = data + 2, .end = data + size - 4};
    struct output output = {
        .decoders = choose_decoders(),
        .fixed = conv_inflate_code_fixed(),
        .begin = out,
        .at = out,
        .end = out + out_size,
        .look = out,
    };
    inflate->credit = out_size / 4 < MOST_CREDIT ? out_size / 4 : MOST_CREDIT;
    bool last = false;
    for (unsigned blocks = 1; !last; blocks++) {
        if (!read_block(inflate, &reader, &output, &last))
            return false;
        if ((output.at > output.look || blocks % BLOCKS_BETWEEN == 0) &&
            (output.at > output.end || !look(inflate, &output)))
            return false;
    }
    const uint8_t *sum = data + size - 4;
    uint32_t adler =
        (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3];
    return align(&reader) && reader.at == reader.end && output.at == output.end &&
           libdeflate_adler32(1, out, out_size) == adler;
}
