// SPDX-License-Identifier: MIT
// Writes bits to memory, lowest first, in deflate's order (RFC 1951, 3.1.1). Nothing here checks
// for space: callers reserve an upper bound.
#ifndef CONV_PNG_CPU_BIT_WRITER_H
#define CONV_PNG_CPU_BIT_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct conv_bits {
    uint8_t *at;   // where the next whole byte goes
    uint64_t bits; // pending; those above `count` are 0
    unsigned count;
};

// Most bits that may be put between two flushes: a flush leaves up to 7 pending.
#define CONV_BITS_BETWEEN_FLUSHES 56
// Bytes after the last bit that conv_bits_flush may overwrite.
#define CONV_BITS_SLACK 8

static inline void conv_bits_put(struct conv_bits *out, uint64_t value, unsigned count)
{
    out->bits |= value << out->count;
    out->count += count;
}

static inline void conv_bits_store(uint8_t *at, uint64_t bits)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bits = __builtin_bswap64(bits);
#endif
    memcpy(at, &bits, sizeof bits);
}

// Writes the whole bytes. At most 63 bits are pending.
static inline void conv_bits_flush(struct conv_bits *out)
{
    conv_bits_store(out->at, out->bits);
    out->at += out->count >> 3;
    out->bits >>= out->count & ~7u;
    out->count &= 7;
}

// Fills the last byte with 0 bits and writes it.
static inline void conv_bits_align(struct conv_bits *out)
{
    out->count = (out->count + 7) & ~7u;
    conv_bits_flush(out);
}

#endif
