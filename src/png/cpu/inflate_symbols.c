// SPDX-License-Identifier: MIT
// Decodes the symbols of a block with tables whose entries hold up to two literals or a whole
// match. Looking up several literals at once is from Intel's ISA-L.
#include "png/cpu/inflate_internal.h"

#include "base/features.h"

#define ELEMENT uint8_t
#define put_literals conv_inflate_put_literals

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
    if (__builtin_expect(distance >= 16, 1)) {
        do {
            for (int i = 0; i < 4; i++)
                copy16(out + 16 * i, from + 16 * i);
            out += 64;
            from += 64;
        } while (__builtin_expect(out < end, 0));
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
    if (step == 8) { // distances 1, 2 and 4: most runs in filtered rows
        do {
            for (int i = 0; i < 8; i++)
                memcpy(out + 8 * i, &value, sizeof value);
            out += 64;
        } while (__builtin_expect(out < end, 0));
        return;
    }
    do {
        memcpy(out, &value, sizeof value);
        out += step;
    } while (out < end);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,bmi2")))

// Overwrites up to 127 bytes after the match: one match in three is longer than 64 bytes, one in
// five than 128. Icons took 1.02 times as long to decode without it.
AVX2 static inline void copy_match_avx2(uint8_t *out, size_t distance, size_t length)
{
    const uint8_t *from = out - distance;
    uint8_t *end = out + length;
    if (__builtin_expect(distance < 32, 0)) {
        copy_match(out, distance, length);
        return;
    }
    do {
        for (int i = 0; i < 128; i += 32) {
            __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
            _mm256_storeu_si256((__m256i *)(void *)(out + i), bytes);
        }
        out += 128;
        from += 128;
    } while (__builtin_expect(out < end, 0));
}
#endif

#include "png/cpu/inflate_symbols_body.h"

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

typedef enum conv_inflate_state (*decode_fn)(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct conv_inflate_output *output);

#define DECODER(name, target, inside, mixed, low, copy)                                            \
    target static enum conv_inflate_state name(const struct conv_inflate_tables *tables,           \
                                               struct conv_inflate_reader *reader,                 \
                                               struct conv_inflate_output *output)                 \
    {                                                                                              \
        struct decode_range range = {output->begin, output->at, output->stop};                     \
        enum conv_inflate_state state =                                                            \
            decode_symbols(tables, reader, &range, inside, mixed, low, copy);                      \
        output->at = range.at;                                                                     \
        return state;                                                                              \
    }

DECODER(decode_literals, , true, false, conv_inflate_low_plain, copy_match)
DECODER(decode_mixed, , true, true, conv_inflate_low_plain, copy_match)
DECODER(decode_tail, , false, false, conv_inflate_low_plain, copy_match)
#ifdef __x86_64__
// BMI2, which comes with AVX2, has variable shifts and masks in one instruction. In blocks with few
// matches wide copies gain nothing.
#define BMI2 __attribute__((target("bmi2")))
DECODER(decode_literals_avx2, BMI2, true, false, conv_inflate_low_bmi2, copy_match)
DECODER(decode_mixed_avx2, AVX2, true, true, conv_inflate_low_bmi2, copy_match_avx2)
#endif

// For blocks with few matches, and for others.
struct conv_inflate_decoders {
    decode_fn literals, mixed;
};

const struct conv_inflate_decoders *conv_inflate_symbols_choose(unsigned features)
{
    static const struct conv_inflate_decoders plain = {decode_literals, decode_mixed};
#ifdef __x86_64__
    static const struct conv_inflate_decoders avx2 = {decode_literals_avx2, decode_mixed_avx2};
    if (features & CONV_CPU_AVX2)
        return &avx2;
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
    if (state == CONV_INFLATE_WORKING && output->at <= output->stop && !reader->more)
        state = decode_tail(tables, reader, output);
    return state;
}
