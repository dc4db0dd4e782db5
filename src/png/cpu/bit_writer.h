// SPDX-License-Identifier: MIT
// Bits into memory, lowest first, as deflate (RFC 1951, 3.1.1) orders them. Nothing here checks for
// room: whoever writes has computed how much there can be.
#ifndef CONV_PNG_CPU_BIT_WRITER_H
#define CONV_PNG_CPU_BIT_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct conv_bits {
    uint8_t *at;   // where the next whole byte goes
    uint64_t bits; // not yet in memory; those above `count` are 0
    unsigned count;
};

// Most bits that conv_bits_put may be given between two conv_bits_flush: up to 7 stay behind.
#define CONV_BITS_BETWEEN_FLUSHES 56
// Bytes beyond the last bit that conv_bits_flush may overwrite.
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

// Moves the whole bytes to memory. At most 63 bits are waiting.
static inline void conv_bits_flush(struct conv_bits *out)
{
    conv_bits_store(out->at, out->bits);
    out->at += out->count >> 3;
    out->bits >>= out->count & ~7u;
    out->count &= 7;
}

// Fills the last byte with 0 bits.
static inline void conv_bits_align(struct conv_bits *out)
{
    out->count = (out->count + 7) & ~7u;
    conv_bits_flush(out);
}

#endif
