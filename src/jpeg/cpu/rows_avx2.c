// SPDX-License-Identifier: MIT
// rows.c with AVX2, 32 samples at a time. Bytes are widened in place within each half of a vector
// and narrowed the same way, so their order needs no permutation.
#ifdef __x86_64__
#include <immintrin.h>

#include "base/features.h"
#include "jpeg/cpu/cpu_jpeg.h"
#include "jpeg/decoding.h"

#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))
#define AVX2 __attribute__((target("avx2")))
#define WIDTH 32

AVX2_INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

AVX2_INLINE __m256i load_wide(const uint8_t *p) // 16 bytes
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

AVX2_INLINE void store(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

AVX2_INLINE __m256i pair(int low, int high) // of factors for _mm256_madd_epi16
{
    return _mm256_set1_epi32((int)((uint32_t)high << 16 | (uint16_t)low));
}

// --- the inverse DCT -----------------------------------------------------------------------------

// The sums of conv_jpeg_idct with all factors of an input added up. Inputs are rows of two blocks,
// one in each half of a vector.
AVX2_INLINE __m256i products(__m256i a, int factor_a, int factor_b)
{
    return _mm256_madd_epi16(a, pair(factor_a, factor_b));
}

// The eight results of four columns of each block from the inputs 0 and 4, 2 and 6, 1 and 3, 5 and
// 7 in turn.
AVX2_INLINE void transform_half(__m256i out[8], __m256i in04, __m256i in26, __m256i in13,
                                __m256i in57, int round, int shift)
{
    const __m256i half = _mm256_set1_epi32(round);
    __m256i plus = _mm256_add_epi32(products(in04, 8192, 8192), half);
    __m256i minus = _mm256_add_epi32(products(in04, 8192, -8192), half);
    __m256i low = products(in26, 4433, 4433 - 15137), high = products(in26, 4433 + 6270, 4433);
    const __m256i even[4] = {_mm256_add_epi32(plus, high), _mm256_add_epi32(minus, low),
                             _mm256_sub_epi32(minus, low), _mm256_sub_epi32(plus, high)};
    const __m256i odd[4] = {
        _mm256_add_epi32(products(in13, 11363, 9633), products(in57, 6437, 2260)),
        _mm256_add_epi32(products(in13, 9633, -2259), products(in57, -11362, -6436)),
        _mm256_add_epi32(products(in13, 6437, -11362), products(in57, 2261, 9633)),
        _mm256_add_epi32(products(in13, 2260, -6436), products(in57, 9633, -11363))};
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
    }
}

AVX2_INLINE void transform(__m256i v[8], int round, int shift)
{
    __m256i low[8], high[8];
    transform_half(low, _mm256_unpacklo_epi16(v[0], v[4]), _mm256_unpacklo_epi16(v[2], v[6]),
                   _mm256_unpacklo_epi16(v[1], v[3]), _mm256_unpacklo_epi16(v[5], v[7]), round,
                   shift);
    transform_half(high, _mm256_unpackhi_epi16(v[0], v[4]), _mm256_unpackhi_epi16(v[2], v[6]),
                   _mm256_unpackhi_epi16(v[1], v[3]), _mm256_unpackhi_epi16(v[5], v[7]), round,
                   shift);
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_packs_epi32(low[i], high[i]);
}

// Transposes the block in each half.
AVX2_INLINE void transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(v[i], v[i + 4]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(v[i], v[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
        b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
        v[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
    }
}

// Writes columns of 8 samples of each block as rows.
AVX2_INLINE void put_columns(uint8_t *dst, ptrdiff_t stride, const __m256i v[8])
{
    __m256i even[2], odd[2], four[4];
    for (int i = 0; i < 2; i++) {
        even[i] = _mm256_packus_epi16(v[4 * i], v[4 * i + 2]);
        odd[i] = _mm256_packus_epi16(v[4 * i + 1], v[4 * i + 3]);
        __m256i first = _mm256_unpacklo_epi8(even[i], odd[i]);
        __m256i second = _mm256_unpackhi_epi8(even[i], odd[i]);
        four[i] = _mm256_unpacklo_epi16(first, second);
        four[2 + i] = _mm256_unpackhi_epi16(first, second);
    }
    for (int i = 0; i < 4; i++) { // two rows at a time
        __m256i rows = i % 2 ? _mm256_unpackhi_epi32(four[i / 2 * 2], four[i / 2 * 2 + 1])
                             : _mm256_unpacklo_epi32(four[i / 2 * 2], four[i / 2 * 2 + 1]);
        rows = _mm256_permute4x64_epi64(rows, 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(dst + 2 * i * stride), _mm256_castsi256_si128(rows));
        _mm_storeu_si128((__m128i *)(void *)(dst + (2 * i + 1) * stride),
                         _mm256_extracti128_si256(rows, 1));
    }
}

// Values in a range of 2^n from `least` on have no other than the n lowest bits after this.
AVX2_INLINE __m256i collect_bits(const __m256i v[8], int least)
{
    __m256i bits = _mm256_setzero_si256();
    for (int i = 0; i < 8; i++)
        bits = _mm256_or_si256(bits, _mm256_sub_epi16(v[i], _mm256_set1_epi16((int16_t)least)));
    return bits;
}

AVX2_INLINE __m128i load_row(const int16_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

AVX2 static bool idct(uint8_t *dst, ptrdiff_t stride, const int16_t *blocks, const int16_t *steps)
{
    __m256i v[8];
    for (int i = 0; i < 8; i++) {
        __m256i rows = _mm256_inserti128_si256(_mm256_castsi128_si256(load_row(blocks + 8 * i)),
                                               load_row(blocks + 64 + 8 * i), 1);
        v[i] = _mm256_mullo_epi16(rows, _mm256_broadcastsi128_si256(load_row(steps + 8 * i)));
    }
    transform(v, 1 << (CONV_JPEG_IDCT_FIRST - 1), CONV_JPEG_IDCT_FIRST);
    __m256i first = collect_bits(v, -8192);
    transpose(v);
    transform(v, (128 << CONV_JPEG_IDCT_SECOND) + (1 << (CONV_JPEG_IDCT_SECOND - 1)),
              CONV_JPEG_IDCT_SECOND);
    __m256i second = collect_bits(v, 128 - 512);
    put_columns(dst, stride, v);
    __m256i outside = _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi16(~16383)),
                                      _mm256_and_si256(second, _mm256_set1_epi16(~1023)));
    return _mm256_testz_si256(outside, outside);
}

// --- colours -------------------------------------------------------------------------------------

// (factor * x + 2^15) >> 16 for a factor of 16 bits.
AVX2_INLINE __m256i scale(__m256i x, int factor)
{
    __m256i twice = _mm256_mulhi_epi16(_mm256_add_epi16(x, x), _mm256_set1_epi16((int16_t)factor));
    return _mm256_srai_epi16(_mm256_add_epi16(twice, _mm256_set1_epi16(1)), 1);
}

struct wide {
    __m256i c[3];
};

// 1.402 = 1 + 26345 / 2^16; 1.772 = 2 - 14942 / 2^16; 0.34414 = 22554 / 2^16;
// 0.71414 = 1 - 18734 / 2^16.
AVX2_INLINE struct wide rgb_of(struct wide ycc)
{
    const __m256i middle = _mm256_set1_epi16(128), half = _mm256_set1_epi32(1 << 15);
    __m256i y = ycc.c[0], cb = _mm256_sub_epi16(ycc.c[1], middle);
    __m256i cr = _mm256_sub_epi16(ycc.c[2], middle);
    __m256i red = _mm256_add_epi16(cr, scale(cr, 26345));
    __m256i blue = _mm256_add_epi16(_mm256_add_epi16(cb, cb), scale(cb, -14942));
    const __m256i factors = pair(-22554, 18734);
    __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
    __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);
    low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
    high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
    __m256i green = _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr);
    return (struct wide){
        {_mm256_add_epi16(y, red), _mm256_add_epi16(y, green), _mm256_add_epi16(y, blue)}};
}

// (a * factors_a + b * factors_b + constant) >> 16, where a and b are pairs of 16 bits.
AVX2_INLINE __m256i mix(const __m256i a[2], __m256i factors_a, const __m256i b[2],
                        __m256i factors_b, __m256i constant)
{
    __m256i sum[2];
    for (int i = 0; i < 2; i++) {
        sum[i] = _mm256_add_epi32(_mm256_madd_epi16(a[i], factors_a),
                                  _mm256_madd_epi16(b[i], factors_b));
        sum[i] = _mm256_srli_epi32(_mm256_add_epi32(sum[i], constant), 16);
    }
    return _mm256_packus_epi32(sum[0], sum[1]);
}

// 0.587 is 0.337 with red and 0.25 with blue: factors have 16 bits. A factor of 2^15 must be
// negative, so the sum of a chroma sample is that of the inverted sample, 255 - sample:
// (middle - x) >> 16 = 255 - (((255 << 16) + 65535 - middle + x) >> 16).
AVX2_INLINE struct wide ycc_of(struct wide rgb)
{
    const __m256i half = _mm256_set1_epi32(1 << 15), all = _mm256_set1_epi16(255);
    const __m256i inverted = _mm256_set1_epi32((255 << 16) + 65535 - ((128 << 16) + (1 << 15) - 1));
    __m256i r = rgb.c[0], g = rgb.c[1], b = rgb.c[2];
    const __m256i rg[2] = {_mm256_unpacklo_epi16(r, g), _mm256_unpackhi_epi16(r, g)};
    const __m256i bg[2] = {_mm256_unpacklo_epi16(b, g), _mm256_unpackhi_epi16(b, g)};
    __m256i y = mix(rg, pair(19595, 22086), bg, pair(7471, 16384), half);
    __m256i cb = mix(rg, pair(11059, 21709), bg, pair(-32768, 0), inverted);
    __m256i cr = mix(rg, pair(-32768, 27439), bg, pair(5329, 0), inverted);
    return (struct wide){{y, _mm256_sub_epi16(all, cb), _mm256_sub_epi16(all, cr)}};
}

// Converts 32 samples of three components.
AVX2_INLINE void convert(uint8_t *const dst[3], const uint8_t *const src[3], size_t at, int to_rgb)
{
    const __m256i zero = _mm256_setzero_si256();
    struct wide low, high;
    for (int c = 0; c < 3; c++) {
        __m256i bytes = load(src[c] + at);
        low.c[c] = _mm256_unpacklo_epi8(bytes, zero);
        high.c[c] = _mm256_unpackhi_epi8(bytes, zero);
    }
    low = to_rgb ? rgb_of(low) : ycc_of(low);
    high = to_rgb ? rgb_of(high) : ycc_of(high);
    for (int c = 0; c < 3; c++)
        store(dst[c] + at, _mm256_packus_epi16(low.c[c], high.c[c]));
}

// The last vector overlaps the one before.
AVX2 static void to_rgb(uint8_t *const rgb[3], const uint8_t *const ycc[3], size_t n)
{
    if (n < WIDTH) {
        conv_jpeg_rows_plain.to_rgb(rgb, ycc, n);
        return;
    }
    for (size_t i = 0; i < n - WIDTH; i += WIDTH)
        convert(rgb, ycc, i, 1);
    convert(rgb, ycc, n - WIDTH, 1);
}

AVX2 static void to_ycc(uint8_t *const ycc[3], const uint8_t *const rgb[3], size_t n)
{
    if (n < WIDTH) {
        conv_jpeg_rows_plain.to_ycc(ycc, rgb, n);
        return;
    }
    for (size_t i = 0; i < n - WIDTH; i += WIDTH)
        convert(ycc, rgb, i, 0);
    convert(ycc, rgb, n - WIDTH, 0);
}

// --- sizes ---------------------------------------------------------------------------------------

AVX2_INLINE __m256i three(__m256i x)
{
    return _mm256_add_epi16(x, _mm256_add_epi16(x, x));
}

// Bytes of two vectors in turn.
AVX2_INLINE __m256i in_turn(__m256i even, __m256i odd)
{
    return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
}

AVX2 static void widen(uint8_t *dst, const uint8_t *src, size_t n)
{
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);
    for (size_t i = 0; i < n; i += 16) {
        __m256i here = three(load_wide(src + i));
        __m256i even = _mm256_add_epi16(_mm256_add_epi16(here, one), load_wide(src + i - 1));
        __m256i odd = _mm256_add_epi16(_mm256_add_epi16(here, two), load_wide(src + i + 1));
        store(dst + 2 * i, in_turn(_mm256_srli_epi16(even, 2), _mm256_srli_epi16(odd, 2)));
    }
}

struct columns {
    __m256i half[2]; // of the bytes in each half of a vector the lower and the higher ones
};

AVX2_INLINE struct columns columns(const uint8_t *near, const uint8_t *far)
{
    const __m256i factors = _mm256_set1_epi16(1 << 8 | 3);
    __m256i a = load(near), b = load(far);
    return (struct columns){{_mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), factors),
                             _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), factors)}};
}

AVX2 static void widen_between(uint8_t *dst, const uint8_t *near, const uint8_t *far, size_t n)
{
    const __m256i seven = _mm256_set1_epi16(7), eight = _mm256_set1_epi16(8);
    for (size_t i = 0; i < n; i += WIDTH) {
        struct columns here = columns(near + i, far + i);
        struct columns before = columns(near + i - 1, far + i - 1);
        struct columns next = columns(near + i + 1, far + i + 1);
        __m256i out[2];
        for (int k = 0; k < 2; k++) {
            __m256i most = three(here.half[k]);
            __m256i even = _mm256_add_epi16(_mm256_add_epi16(most, eight), before.half[k]);
            __m256i odd = _mm256_add_epi16(_mm256_add_epi16(most, seven), next.half[k]);
            out[k] = in_turn(_mm256_srli_epi16(even, 4), _mm256_srli_epi16(odd, 4));
        }
        store(dst + 2 * i, _mm256_permute2x128_si256(out[0], out[1], 0x20));
        store(dst + 2 * i + WIDTH, _mm256_permute2x128_si256(out[0], out[1], 0x31));
    }
}

AVX2_INLINE __m256i sums(const uint8_t *p) // of pairs
{
    return _mm256_maddubs_epi16(load(p), _mm256_set1_epi8(1));
}

AVX2_INLINE void put_halved(uint8_t *dst, __m256i first, __m256i second)
{
    store(dst, _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8));
}

AVX2 static void halve(uint8_t *dst, const uint8_t *src, size_t n)
{
    const __m256i bias = pair(0, 1);
    for (size_t i = 0; i < n; i += WIDTH) {
        __m256i a = _mm256_add_epi16(sums(src + 2 * i), bias);
        __m256i b = _mm256_add_epi16(sums(src + 2 * i + WIDTH), bias);
        put_halved(dst + i, _mm256_srli_epi16(a, 1), _mm256_srli_epi16(b, 1));
    }
}

AVX2_INLINE __m256i quarter(const uint8_t *upper, const uint8_t *lower)
{
    __m256i sum = _mm256_add_epi16(sums(upper), sums(lower));
    return _mm256_srli_epi16(_mm256_add_epi16(sum, pair(1, 2)), 2);
}

AVX2 static void halve_both(uint8_t *dst, const uint8_t *upper, const uint8_t *lower, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH)
        put_halved(dst + i, quarter(upper + 2 * i, lower + 2 * i),
                   quarter(upper + 2 * i + WIDTH, lower + 2 * i + WIDTH));
}

const struct conv_jpeg_rows conv_jpeg_rows_avx2 = {
    .needs = CONV_CPU_AVX2,
    .idct = idct,
    .to_rgb = to_rgb,
    .to_ycc = to_ycc,
    .widen = widen,
    .widen_between = widen_between,
    .halve = halve,
    .halve_both = halve_both,
};
#endif
