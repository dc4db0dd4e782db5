// SPDX-License-Identifier: MIT
// The loop that decodes the symbols of a block, for inflate_symbols.c, which writes bytes, and
// inflate_wide.c, which writes 16 bits for each byte. The including file defines ELEMENT,
// put_literals(), copy16() and copy_match(): see inflate_symbols.c.
#include "png/cpu/inflate_symbols.h"

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

// Matches do not reach before `begin`. Decoding ends when `at` is beyond `stop`.
struct decode_range {
    ELEMENT *begin, *at, *stop;
};

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
CONV_INFLATE_INLINE const ELEMENT *find_source(uint64_t bits, uint64_t entry, const ELEMENT *out,
                                               const ELEMENT *begin)
{
    unsigned length = KIND(entry), distance = read_litlen(bits, entry);
    if (UNLIKELY(length > CONV_INFLATE_NEAR) || UNLIKELY(length > distance) ||
        UNLIKELY(distance > (size_t)(out - begin)))
        return NULL;
    return out - distance;
}

// Decodes symbols until the block ends, range->stop is passed or, if `inside`, the end of the
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
                                                           struct decode_range *range, bool inside,
                                                           bool mixed)
{
    struct conv_inflate_reader reader = *reader_io;
    ELEMENT *out = range->at;
    const ELEMENT *const begin = range->begin, *const stop = range->stop;
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
        ELEMENT *to = out + LITERALS(entry);                                                       \
        const ELEMENT *from = find_source(reader.bits, entry, to, begin);                          \
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
                conv_inflate_drop(&reader, DROP(entry));
                *reader_io = reader;
                range->at = out;
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
    range->at = out;
    return CONV_INFLATE_WORKING;
}
