// SPDX-License-Identifier: MIT
#include "png/cpu/inflate_internal.h"

#include "base/features.h"

#define ELEMENT uint16_t

CONV_INFLATE_INLINE void put_literals(uint16_t *out, uint64_t entry)
{
    out[0] = entry >> 32 & 255;
    out[1] = entry >> 40 & 255;
}

static inline void copy8(uint16_t *dst, const uint16_t *src)
{
    uint64_t value[2]; // loaded before anything is stored: src and dst may overlap
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

static inline void copy16(uint16_t *dst, const uint16_t *src)
{
    uint64_t value[4]; // as above
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

// Overwrites up to 24 symbols after the match.
CONV_INFLATE_INLINE void copy_match(uint16_t *out, size_t distance, size_t length)
{
    uint16_t *end = out + length;
    if (distance < 8) { // repeat the pattern until its distance is at least 8
        size_t step = distance * ((7 + distance) / distance);
        for (size_t i = 0; i < step; i++)
            out[i] = out[i - distance];
        out += step;
        distance = step;
    }
    for (; out < end; out += 8)
        copy8(out, out - distance);
}

#include "png/cpu/inflate_symbols_body.h"

typedef enum conv_inflate_state (*decode_fn)(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct decode_range *range);

#define DECODER(name, target, inside, mixed, low)                                                  \
    target static enum conv_inflate_state name(const struct conv_inflate_tables *tables,           \
                                               struct conv_inflate_reader *reader,                 \
                                               struct decode_range *range)                         \
    {                                                                                              \
        return decode_symbols(tables, reader, range, inside, mixed, low, copy_match);              \
    }

DECODER(decode_literals, , true, false, conv_inflate_low_plain)
DECODER(decode_mixed, , true, true, conv_inflate_low_plain)
DECODER(decode_tail, , false, false, conv_inflate_low_plain)
#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,bmi2"))) // BMI2 comes with AVX2
DECODER(decode_literals_avx2, AVX2, true, false, conv_inflate_low_bmi2)
DECODER(decode_mixed_avx2, AVX2, true, true, conv_inflate_low_bmi2)
#endif

static decode_fn choose(bool mixed, unsigned features)
{
#ifdef __x86_64__
    if (features & CONV_CPU_AVX2)
        return mixed ? decode_mixed_avx2 : decode_literals_avx2;
#endif
    (void)features;
    return mixed ? decode_mixed : decode_literals;
}

enum conv_inflate_state conv_inflate_wide(const struct conv_inflate_tables *tables,
                                          struct conv_inflate_reader *reader, uint16_t **at,
                                          uint16_t *begin, uint16_t *stop, unsigned features)
{
    struct decode_range range = {begin, *at, stop};
    enum conv_inflate_state state = CONV_INFLATE_WORKING;
    if (reader->end - reader->at >= INSIDE)
        state = choose(tables->mixed, features)(tables, reader, &range);
    if (state == CONV_INFLATE_WORKING && range.at <= stop)
        state = decode_tail(tables, reader, &range);
    *at = range.at;
    return state;
}
