// SPDX-License-Identifier: MIT
// The loop that decodes the symbols of a block, for inflate_symbols.c, which writes bytes, and
// inflate_ahead.c, which writes 16 bits for each byte. The including file defines ELEMENT,
// put_literals() and copy16(): see inflate_symbols.c.
#include "png/cpu/inflate_internal.h"

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

// Copies a match; may overwrite bytes after it.
typedef void (*copy_match_fn)(ELEMENT *out, size_t distance, size_t length);

// The base of the distance in an entry plus its extra bits, which follow the codewords in `bits`.
CONV_INFLATE_INLINE unsigned read_litlen(uint64_t bits, uint64_t entry, conv_inflate_low_fn low)
{
    return (unsigned)(entry >> 48) + (unsigned)(low(bits, entry) >> (entry >> 16 & 63));
}

CONV_INFLATE_INLINE unsigned read_distance(uint64_t bits, uint32_t entry, conv_inflate_low_fn low)
{
    return (entry >> 16) + (unsigned)(low(bits, entry) >> (entry >> 8 & 63));
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
                                                           bool mixed, conv_inflate_low_fn low,
                                                           copy_match_fn copy)
{
    struct conv_inflate_reader reader = *reader_io;
    ELEMENT *out = range->at;
    const ELEMENT *const begin = range->begin, *const stop = range->stop;
    const uint64_t *litlen = tables->litlen;
    const uint64_t litlen_mask = (1 << LITLEN_BITS) - 1;
    const uint64_t distance_mask = (1 << DISTANCE_BITS) - 1;
#define REFILL() (inside ? conv_inflate_refill_inside(&reader) : conv_inflate_refill(&reader))
#define DROP_ENTRY(e)                                                                              \
    (inside ? conv_inflate_drop_inside(&reader, e) : conv_inflate_drop(&reader, DROP(e)))
#define NEXT()                                                                                     \
    do {                                                                                           \
        DROP_ENTRY(entry);                                                                         \
        entry = litlen[reader.bits & litlen_mask];                                                 \
    } while (0)
// Ends at `one` if it cannot handle the entry. The source may be before the output, so it is
// compared as a number.
#define STEP()                                                                                     \
    {                                                                                              \
        ELEMENT *to = out + LITERALS(entry);                                                       \
        unsigned length = KIND(entry), distance = read_litlen(reader.bits, entry, low);            \
        uintptr_t from = (uintptr_t)to - distance * sizeof *to;                                    \
        if (UNLIKELY(distance < length) || UNLIKELY(from < (uintptr_t)begin))                      \
            goto one;                                                                              \
        put_literals(out, entry);                                                                  \
        out = to + length;                                                                         \
        NEXT();                                                                                    \
        copy16(to, (const ELEMENT *)from);                                                         \
    }
#define LEAVE(state)                                                                               \
    do {                                                                                           \
        reader.count &= 63;                                                                        \
        *reader_io = reader;                                                                       \
        range->at = out;                                                                           \
        return state;                                                                              \
    } while (0)
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
                DROP_ENTRY(entry);
                LEAVE(KIND(entry) == CONV_INFLATE_END ? CONV_INFLATE_DONE : CONV_INFLATE_FAILED);
            }
        }
        unsigned length = KIND(entry), distance = read_litlen(reader.bits, entry, low);
        if (UNLIKELY(length == CONV_INFLATE_LENGTH)) {
            length = (unsigned)(entry >> 32) + distance; // its extra bits
            DROP_ENTRY(entry);
            uint32_t far = tables->distance[reader.bits & distance_mask];
            if (UNLIKELY((far >> 8 & 255) > CONV_INFLATE_NEAR)) {
                REFILL();
                if ((far >> 8 & 255) == CONV_INFLATE_LONG)
                    far = conv_inflate_code_find_distance(tables->distance, far, reader.bits);
                if ((far >> 8 & 255) > CONV_INFLATE_NEAR)
                    return CONV_INFLATE_FAILED;
            }
            distance = read_distance(reader.bits, far, low);
            DROP_ENTRY(far);
            entry = litlen[reader.bits & litlen_mask];
        } else {
            NEXT();
        }
        if (UNLIKELY(distance > (size_t)(out - begin)))
            return CONV_INFLATE_FAILED;
        copy(out, distance, length);
        out += length;
    }
    LEAVE(CONV_INFLATE_WORKING);
#undef LEAVE
#undef STEP
#undef NEXT
#undef DROP_ENTRY
#undef REFILL
}
