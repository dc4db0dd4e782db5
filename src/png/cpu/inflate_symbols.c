// SPDX-License-Identifier: MIT
// Decodes the symbols of a block with tables whose entries hold up to two literals or a whole
// match. Looking up several literals at once is from Intel's ISA-L.
#include "png/cpu/inflate_symbols.h"

#include "base/features.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define DROP CONV_INFLATE_DROP
#define KIND CONV_INFLATE_KIND
#define LITERALS CONV_INFLATE_LITERALS

enum {
    LITLEN_BITS = CONV_INFLATE_LITLEN_BITS,
    DISTANCE_BITS = CONV_INFLATE_DISTANCE_BITS,
    // Bytes of input for an iteration of decode_symbols: a match, three literals and a match take
    // 13, the reader holds 8, and 8 are read at once.
    INSIDE = 32,
};

void conv_inflate_refill_bytes(struct conv_inflate_reader *reader)
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

static inline void copy8(uint8_t *dst, const uint8_t *src)
{
    uint64_t value; // loaded before anything is stored: src and dst may overlap
    memcpy(&value, src, sizeof value);
    memcpy(dst, &value, sizeof value);
}

static inline void copy16(uint8_t *dst, const uint8_t *src)
{
    uint64_t value[2]; // as above
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

// Overwrites up to 63 bytes after the match. 64 bytes at a time, since most matches in flat images
// are longer than 16 bytes, and a loop of a few iterations ends with a misprediction: icons took
// 1.06 times as long.
CONV_INFLATE_INLINE void copy_match(uint8_t *out, size_t distance, size_t length)
{
    const uint8_t *from = out - distance;
    uint8_t *end = out + length;
    if (LIKELY(distance >= 16)) {
        do {
            for (int i = 0; i < 4; i++)
                copy16(out + 16 * i, from + 16 * i);
            out += 64;
            from += 64;
        } while (UNLIKELY(out < end));
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
    // Repeats the bytes within a word of eight. They are loaded one by one, since a load of eight
    // would stall on the bytes that were just written (no store forwarding).
    uint64_t value = *from;
    for (unsigned i = 1; i < distance; i++)
        value |= (uint64_t)from[i] << 8 * i;
    unsigned width = (unsigned)distance;
    for (; width < 8; width *= 2)
        value |= value << 8 * width;
    static const uint8_t steps[8] = {0, 8, 8, 6, 8, 5, 6, 7}; // largest multiple of the distance
    unsigned step = steps[distance];
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    if (step == 8) { // distances 1, 2 and 4: most runs in filtered rows
        do {
            for (int i = 0; i < 8; i++)
                memcpy(out + 8 * i, &value, sizeof value);
            out += 64;
        } while (UNLIKELY(out < end));
        return;
    }
    do {
        memcpy(out, &value, sizeof value);
        out += step;
    } while (out < end);
}

// The base in an entry plus its extra bits, which follow the codewords in `bits`.
CONV_INFLATE_INLINE unsigned read_litlen(uint64_t bits, uint64_t entry)
{
    uint64_t both = bits & (((uint64_t)1 << DROP(entry)) - 1);
    return (unsigned)(entry >> 48) + (unsigned)(both >> (entry >> 16 & 63));
}

CONV_INFLATE_INLINE unsigned read_distance(uint64_t bits, uint32_t entry)
{
    uint64_t both = bits & (((uint64_t)1 << DROP(entry)) - 1);
    return (entry >> 16) + (unsigned)(both >> (entry >> 8 & 63));
}

// The address from which a step of decode_mixed copies; NULL if it cannot handle the entry.
CONV_INFLATE_INLINE const uint8_t *find_source(uint64_t bits, uint64_t entry, const uint8_t *out,
                                               const uint8_t *begin)
{
    unsigned length = KIND(entry), distance = read_litlen(bits, entry);
    if (UNLIKELY(length > CONV_INFLATE_NEAR) || UNLIKELY(length > distance) ||
        UNLIKELY(distance > (size_t)(out - begin)))
        return NULL;
    return out - distance;
}

// Decodes symbols until the block ends, output->stop is passed or, if `inside`, the end of the
// input is too near for reading 8 bytes at once. An iteration writes at most two steps of 2 + 16
// bytes, or 3 x 2 literals, and a match: CONV_INFLATE_SLACK covers that.
//
// An entry is looked up before the bits are refilled, so the dependency from one to the next is a
// shift, a mask and a load. The 11 bits of an index are always available: of 56 bits, three entries
// of literals take 33, a whole match 11 + 13, a length 15 + 5 and a distance from the table 9 + 13;
// a longer distance refills. Two whole matches take 48 of the 64 bits that there are `inside`.
//
// If `mixed`, there is no branch on literal or match, since a misprediction costs as much as two
// entries: each step writes two literals, copies 16 bytes after them and advances by the true
// length.
//
// Rejected: interleaving two images (1.15 times as fast in a prototype); an
// index of 12 bits (0.8 times as fast on photographs), or of 10 for streams below 400 KB (0.97
// times on icons, 1.00 on screenshots); two literals and a match in one entry (only 7 % fewer
// entries).
CONV_INFLATE_INLINE enum conv_inflate_state decode_symbols(const struct conv_inflate_tables *tables,
                                                           struct conv_inflate_reader *reader_io,
                                                           struct conv_inflate_output *output,
                                                           bool inside, bool mixed)
{
    struct conv_inflate_reader reader = *reader_io;
    uint8_t *out = output->at, *const begin = output->begin, *const stop = output->stop;
    const uint64_t *litlen = tables->litlen;
    const uint64_t litlen_mask = (1 << LITLEN_BITS) - 1;
    const uint64_t distance_mask = (1 << DISTANCE_BITS) - 1;
#define REFILL() (inside ? conv_inflate_refill_inside(&reader) : conv_inflate_refill(&reader))
#define NEXT()                                                                                     \
    do {                                                                                           \
        conv_inflate_drop(&reader, DROP(entry));                                                   \
        entry = litlen[reader.bits & litlen_mask];                                                 \
    } while (0)
#define STEP()                                                                                     \
    {                                                                                              \
        uint8_t *to = out + LITERALS(entry);                                                       \
        const uint8_t *from = find_source(reader.bits, entry, to, begin);                          \
        if (UNLIKELY(!from))                                                                       \
            goto one;                                                                              \
        conv_inflate_put_literals(out, entry);                                                     \
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
            conv_inflate_put_literals(out, entry);
            out += LITERALS(entry);
            NEXT();
            if (LITERALS(entry)) {
                conv_inflate_put_literals(out, entry);
                out += LITERALS(entry);
                NEXT();
                if (LITERALS(entry)) {
                    conv_inflate_put_literals(out, entry);
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
                conv_inflate_put_literals(out, entry);
                out += LITERALS(entry);
                NEXT();
                continue;
            }
            if (KIND(entry) > CONV_INFLATE_LENGTH) {
                conv_inflate_drop(&reader, DROP(entry));
                *reader_io = reader;
                output->at = out;
                return KIND(entry) == CONV_INFLATE_END ? CONV_INFLATE_DONE : CONV_INFLATE_FAILED;
            }
        }
        unsigned length = KIND(entry), distance = read_litlen(reader.bits, entry);
        if (UNLIKELY(length == CONV_INFLATE_LENGTH)) {
            length = distance; // that was its own base
            conv_inflate_drop(&reader, DROP(entry));
            uint32_t far = tables->distance[reader.bits & distance_mask];
            if (UNLIKELY((far >> 8 & 255) > CONV_INFLATE_NEAR)) {
                REFILL();
                if ((far >> 8 & 255) == CONV_INFLATE_LONG)
                    far = conv_inflate_code_find_distance(tables->distance, far, reader.bits);
                if ((far >> 8 & 255) > CONV_INFLATE_NEAR)
                    return CONV_INFLATE_FAILED;
            }
            distance = read_distance(reader.bits, far);
            conv_inflate_drop(&reader, DROP(far));
            entry = litlen[reader.bits & litlen_mask];
        } else {
            NEXT();
        }
        if (UNLIKELY(distance > (size_t)(out - begin)))
            return CONV_INFLATE_FAILED;
        copy_match(out, distance, length);
        out += length;
    }
#undef STEP
#undef NEXT
#undef REFILL
    *reader_io = reader;
    output->at = out;
    return CONV_INFLATE_WORKING;
}

typedef enum conv_inflate_state (*decode_fn)(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct conv_inflate_output *output);

#define DECODER(name, target, inside, mixed)                                                       \
    target static enum conv_inflate_state name(const struct conv_inflate_tables *tables,           \
                                               struct conv_inflate_reader *reader,                 \
                                               struct conv_inflate_output *output)                 \
    {                                                                                              \
        return decode_symbols(tables, reader, output, inside, mixed);                              \
    }

DECODER(decode_literals, , true, false)
DECODER(decode_mixed, , true, true)
DECODER(decode_tail, , false, false)
#ifdef __x86_64__
// BMI2, which comes with AVX2, has variable shifts and masks in one instruction.
#define BMI2 __attribute__((target("bmi2")))
DECODER(decode_literals_bmi2, BMI2, true, false)
DECODER(decode_mixed_bmi2, BMI2, true, true)
#endif

// For blocks with few matches, and for others.
struct conv_inflate_decoders {
    decode_fn literals, mixed;
};

const struct conv_inflate_decoders *conv_inflate_symbols_choose(unsigned features)
{
    static const struct conv_inflate_decoders plain = {decode_literals, decode_mixed};
#ifdef __x86_64__
    static const struct conv_inflate_decoders bmi2 = {decode_literals_bmi2, decode_mixed_bmi2};
    if (features & CONV_CPU_AVX2)
        return &bmi2;
#endif
    (void)features;
    return &plain;
}

enum conv_inflate_state conv_inflate_symbols(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct conv_inflate_output *output)
{
    const struct conv_inflate_decoders *decoders = output->decoders;
    enum conv_inflate_state state = CONV_INFLATE_WORKING;
    if (reader->end - reader->at >= INSIDE)
        state = (tables->mixed ? decoders->mixed : decoders->literals)(tables, reader, output);
    if (state == CONV_INFLATE_WORKING && output->at <= output->stop)
        state = decode_tail(tables, reader, output);
    return state;
}
