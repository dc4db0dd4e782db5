// SPDX-License-Identifier: MIT
// Tiles of outputs in registers, for the instruction set of the including file; blocked_image.h has
// the loops over them. The including file defines
//   LANES               float32 in a vector
//   FMA(a, b, c)        a * b + c of vectors, rounded once
//   PUT_SOME(p, x, n)   optional: stores the first n elements of x, all if n >= LANES
//   GET_SOME(p, n)      optional: a vector whose first n elements, n < LANES, are those at p
//   SCORE               the variant's score for all layers
//   MOST_MAPS           maps of a tile, at most 8
//   VECTORS_FOR(maps)   vectors of a tile with `maps` maps, at most 8
//   ACROSS_OUTPUTS(v)   outputs of a tile across maps or groups with v vectors, at most 14
#pragma once

#include <string.h>

#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/layer.h"

// --- vectors -------------------------------------------------------------------------------------
// The operations of tiles on vectors other than additions: loads, activations, stores. In the
// compiler's vector extension, for any number of LANES; each operation rounds as the scalar one
// does.

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined CONV_COMPILE_ONCE
#define UNROLL
#elif defined __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// A vector is read once. Otherwise GCC makes it an operand of each multiply-add, and where vectors
// cross cache lines reading them takes longer than the arithmetic.
#if defined __x86_64__
#define READ_ONCE(x) __asm__("" : "+v"(x))
#else
#define READ_ONCE(x)
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * LANES)));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * LANES)));
typedef uint16_t vec_u16 __attribute__((vector_size(2 * LANES)));
typedef float vec_loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

ALWAYS_INLINE vec load(const float *p)
{
    return *(const vec_loose *)p;
}

ALWAYS_INLINE vec splat(float value)
{
    return value - (vec){0}; // -0 stays -0
}

ALWAYS_INLINE vec choose(vec_i32 which, vec a, vec b)
{
    return (vec)((which & (vec_i32)a) | (~which & (vec_i32)b));
}

ALWAYS_INLINE vec magnitude(vec x)
{
    return (vec)((vec_i32)x & 0x7fffffff);
}

// The function in layer.h, operation by operation.
ALWAYS_INLINE vec tanh_of(vec x)
{
    vec a = magnitude(x), z = x * x;
    vec p = FMA(splat(-0.006113188806921244f), z, splat(0.021010080352425575f));
    p = FMA(p, z, splat(-0.053854070603847504f));
    p = FMA(p, z, splat(0.13332794606685638f));
    p = FMA(p, z, splat(-0.333333283662796f));
    vec low = FMA(p * z, x, x);

    vec inside = choose(a <= 9.1f, a, splat(1)), t = 2 * inside;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    vec n = (t * 1.4426950216293335f + 0x1.8p23f) - 0x1.8p23f;
    vec r = FMA(n, splat(-0.693359375f), t);
    r = FMA(n, splat(0.00021219444170128554f), r);
    vec q = FMA(splat(0.0013941109646111727f), r, splat(0.008363175205886364f));
    q = FMA(q, r, splat(0.04166637361049652f));
    q = FMA(q, r, splat(0.16666576266288757f));
    q = FMA(q, r, splat(0.5f));
    vec e = FMA(q * r, r, r) + 1;
    vec power = (vec)((__builtin_convertvector(n, vec_i32) + 127) << 23);
    vec high = 1 - 2 / FMA(e, power, splat(1));

    high = choose(a > 9.1f, splat(1), high);
    high = (vec)((vec_i32)high | ((vec_i32)x & (int32_t)0x80000000));
    return choose(x != x, x, choose(a < 0.625f, low, high));
}

ALWAYS_INLINE vec relu_of(vec x)
{
    return choose(x < 0, (vec){0}, x);
}

ALWAYS_INLINE vec activate(enum conv_activation activation, vec x)
{
    switch (activation) {
    case CONV_ACTIVATION_RELU:
        return relu_of(x);
    case CONV_ACTIVATION_TANH:
        return tanh_of(x);
    case CONV_ACTIVATION_ABS:
        return magnitude(x);
    case CONV_ACTIVATION_NONE:
        break;
    }
    return x;
}

// tensor/element.h's conversion.
ALWAYS_INLINE vec_u16 half_of(vec x)
{
    vec_u32 sign = (vec_u32)x >> 16 & 0x8000, bits = (vec_u32)x & 0x7fffffff;
    vec_u32 normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - ((127 - 15) << 10);
    vec_u32 small = (vec_u32)((vec)bits + 0.5f) - 0x3f000000;
    vec half = choose((vec_i32)bits < 0x38800000, (vec)small, (vec)normal);
    half = choose((vec_i32)bits >= 0x477ff000, (vec)((vec_u32){0} + 0x7c00), half);
    half = choose((vec_i32)bits > 0x7f800000, (vec)((vec_u32){0} + 0x7e00), half);
    return __builtin_convertvector((vec_u32)half | sign, vec_u16);
}

ALWAYS_INLINE vec_u16 bfloat_of(vec x) // as conv_bfloat_from_float
{
    vec_u32 bits = (vec_u32)x, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    vec nan = (vec)(bits >> 16 | 0x40);
    vec bfloat = choose((vec_i32)(bits & 0x7fffffff) > 0x7f800000, nan, (vec)rounded);
    return __builtin_convertvector((vec_u32)bfloat, vec_u16);
}

ALWAYS_INLINE void put(float *dst, vec x)
{
    *(vec_loose *)dst = x;
}

#ifndef GET_SOME
ALWAYS_INLINE vec GET_SOME(const float *src, int n)
{
    vec x = {0};
    memcpy(&x, src, sizeof *src * (size_t)n);
    return x;
}

ALWAYS_INLINE void PUT_SOME(float *dst, vec x, int n)
{
    if (n < LANES)
        memcpy(dst, &x, sizeof *dst * (size_t)n);
    else
        put(dst, x);
}
#endif

// Elements of a and b from i on: every other one; two of each four; every other four.
#define TWO(i) (i), (i) + 2
#define FOUR(i) (i), (i) + 1, (i) + 2, (i) + 3
#if LANES == 16
#define EVENS(a, b)                                                                                \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define TWO_OF_FOUR(a, b, i)                                                                       \
    __builtin_shufflevector(a, b, TWO(i), TWO(i + 16), TWO(i + 4), TWO(i + 20), TWO(i + 8),        \
                            TWO(i + 24), TWO(i + 12), TWO(i + 28))
#define FOURS(a, b, i)                                                                             \
    __builtin_shufflevector(a, b, FOUR(i), FOUR(i + 8), FOUR(i + 16), FOUR(i + 24))
#elif LANES == 8
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define TWO_OF_FOUR(a, b, i)                                                                       \
    __builtin_shufflevector(a, b, TWO(i), TWO(i + 8), TWO(i + 4), TWO(i + 12))
#define FOURS(a, b, i) __builtin_shufflevector(a, b, FOUR(i), FOUR(i + 8))
#else
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define TWO_OF_FOUR(a, b, i) __builtin_shufflevector(a, b, TWO(i), TWO(i + 4))
#define FOURS(a, b, i) (a) // a vector is one four
#endif

// Element i of vector k becomes element k of vector i. Steps within fours and of whole fours take
// less time than others (0.7 and 1 cycle on Zen 4, where any other takes 1 and a copy); the order
// of the vectors makes up for that.
ALWAYS_INLINE void transpose(vec x[LANES])
{
    vec y[LANES];
    UNROLL
    for (int k = 0; k < LANES; k++)
        y[k % 4 * (LANES / 4) + k / 4] = x[k];
    UNROLL
    for (int n = LANES; n > 1; n /= 2) {
        UNROLL
        for (int k = 0; k < LANES / 2; k++) {
            vec a = y[2 * k], b = y[2 * k + 1];
            x[k] = n > 4 ? FOURS(a, b, 0) : TWO_OF_FOUR(a, b, 0);
            x[k + LANES / 2] = n > 4 ? FOURS(a, b, 4) : TWO_OF_FOUR(a, b, 1);
        }
        UNROLL
        for (int k = 0; k < LANES; k++)
            y[k] = x[k];
    }
    UNROLL
    for (int k = 0; k < LANES; k++)
        x[k] = y[k % 4 * (LANES / 4) + k / 4];
}

// The first n elements at p, all if n >= LANES.
ALWAYS_INLINE vec fetch(const float *p, int n)
{
    return n < LANES ? GET_SOME(p, n) : load(p);
}

// Stores x as the elements of dst from `first` on; dst has `count` elements.
ALWAYS_INLINE void store(uint8_t *dst, int first, int count, vec x, enum conv_element element)
{
    int n = count - first < LANES ? count - first : LANES;
    if (element != CONV_ELEMENT_F32) {
        vec_u16 half = element == CONV_ELEMENT_F16 ? half_of(x) : bfloat_of(x);
        memcpy(dst + 2 * first, &half, 2 * (size_t)n);
    } else {
        PUT_SOME((float *)(void *)dst + first, x, n);
    }
}

// --- tiles ---------------------------------------------------------------------------------------

#define MOST_TILES 8 // maps, and vectors
// Taps whose weights are fetched ahead. They take 100 to 250 cycles from memory that cores share,
// or more, and a tap takes about 12.
#define TAPS_AHEAD 16

// A tile is `maps` x `vectors` sums. It stores `count` outputs of each map.
struct tile {
    const float *samples, *weights, *bias;
    struct conv_layer_tap *taps, *taps_end; // of a channel
    int channels;
    ptrdiff_t channel_size, channel_taps; // from the samples and weights of one to the next
    enum conv_activation activation;
    enum conv_element output;
    uint8_t *dst;
    size_t map_size; // bytes from one map to the next
    int count;
    bool is_first;          // to read its samples: those of the next tile are fetched meanwhile
    bool continues;         // from the sums in dst, or in `results`, instead of the bias
    vec *results;           // across: sums
    ptrdiff_t step, stride; // across: from one vector of `results` to the next; see add_tap
    const int32_t *offsets, *offsets_end; // groups: where samples of each tap begin, in vectors
};

// Stores the tiles that compute_tile does not store itself: those with an activation other than
// ReLU, or float16 output. A separate function, so that compute_tile has all registers for sums.
static __attribute__((noinline)) void finish_tile(const struct tile *tile, const vec *sums,
                                                  int maps, int vectors)
{
    for (int m = 0; m < maps; m++) {
        uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
        for (int k = 0; k < vectors; k++)
            store(dst, k * LANES, tile->count, activate(tile->activation, sums[m * vectors + k]),
                  tile->output);
    }
}

// `maps` and `vectors` are constants, so that all sums are in registers. Either weights or samples,
// whichever are fewer, are held in registers, and the others are read when they are used.
ALWAYS_INLINE void compute_tile(struct tile *tile, const int maps, const int vectors)
{
    vec sums[MOST_TILES][MOST_TILES];
    UNROLL
    for (int m = 0; m < maps; m++) {
        const uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
        UNROLL
        for (int k = 0; k < vectors; k++) {
            if (tile->continues)
                sums[m][k] = fetch((const float *)(const void *)dst + k * LANES,
                                   k < vectors - 1 ? LANES : tile->count - k * LANES);
            else
                sums[m][k] = splat(tile->bias[m]);
            // The cache lines of dst arrive while the sums are computed.
            __builtin_prefetch(dst + (size_t)k * sizeof(vec), 1);
        }
    }
    const float *of_channel = tile->samples, *weights_of_channel = tile->weights;
    for (int c = tile->channels; c > 0; c--) {
        for (const struct conv_layer_tap *tap = tile->taps; tap < tile->taps_end; tap++) {
            const float *samples = of_channel + tap->samples;
            const float *weights = weights_of_channel + tap->weights * (ptrdiff_t)maps;
            vec held[MOST_TILES];
            if (tile->is_first) {
                UNROLL
                for (int k = 0; k < vectors; k++)
                    __builtin_prefetch(samples + (vectors + k) * LANES);
            }
            if (maps > vectors) {
                __builtin_prefetch(weights + TAPS_AHEAD * maps);
                UNROLL
                for (int k = 0; k < vectors; k++)
                    held[k] = load(samples + k * LANES);
                UNROLL
                for (int m = 0; m < maps; m++) {
                    vec weight = splat(weights[m]);
                    UNROLL
                    for (int k = 0; k < vectors; k++)
                        sums[m][k] = FMA(weight, held[k], sums[m][k]);
                }
            } else {
                UNROLL
                for (int m = 0; m < maps; m++)
                    held[m] = splat(weights[m]);
                UNROLL
                for (int k = 0; k < vectors; k++) {
                    vec sample = load(samples + k * LANES);
                    READ_ONCE(sample);
                    UNROLL
                    for (int m = 0; m < maps; m++)
                        sums[m][k] = FMA(held[m], sample, sums[m][k]);
                }
            }
        }
        of_channel += tile->channel_size;
        weights_of_channel += tile->channel_taps * maps;
    }
    bool is_plain = tile->output == CONV_ELEMENT_F32 && tile->activation <= CONV_ACTIVATION_RELU;
    if (is_plain && tile->activation == CONV_ACTIVATION_RELU) {
        UNROLL
        for (int m = 0; m < maps; m++) {
            UNROLL
            for (int k = 0; k < vectors; k++)
                sums[m][k] = relu_of(sums[m][k]);
        }
    }
    if (is_plain) {
        const int last = vectors - 1, count = tile->count - last * LANES;
        UNROLL
        for (int m = 0; m < maps; m++) {
            float *dst = (float *)(void *)(tile->dst + (size_t)m * tile->map_size);
            UNROLL
            for (int k = 0; k < last; k++)
                put(dst + k * LANES, sums[m][k]);
            PUT_SOME(dst + last * LANES, sums[m][last], count);
        }
        return;
    }
    vec kept[MOST_TILES * MOST_TILES];
    UNROLL
    for (int m = 0; m < maps; m++) {
        UNROLL
        for (int k = 0; k < vectors; k++)
            kept[m * vectors + k] = sums[m][k];
    }
    finish_tile(tile, kept, maps, vectors);
}

typedef void (*tile_fn)(struct tile *tile);

#define TILE(maps, vectors)                                                                        \
    static void tile_##maps##_##vectors(struct tile *tile)                                         \
    {                                                                                              \
        if (maps <= MOST_MAPS && vectors <= VECTORS_FOR(maps))                                     \
            compute_tile(tile, maps, vectors);                                                     \
    }
#define ROW(T, m) T(m, 1) T(m, 2) T(m, 3) T(m, 4) T(m, 5) T(m, 6) T(m, 7) T(m, 8)
#define ALL(T) ROW(T, 1) ROW(T, 2) ROW(T, 3) ROW(T, 4) ROW(T, 5) ROW(T, 6) ROW(T, 7) ROW(T, 8)
ALL(TILE)

#define ENTRY(m, k) [m][k] = tile_##m##_##k,
static const tile_fn tiles[MOST_TILES + 1][MOST_TILES + 1] = {ALL(ENTRY)};

// Whether one of n floats is not finite, or is -0.
static bool has_special(const float *x, ptrdiff_t n, bool minus_zero)
{
    vec_i32 found = {0}, none = {0};
    for (ptrdiff_t k = 0; k < n; k += LANES) {
        vec some = fetch(x + k, n - k < LANES ? (int)(n - k) : LANES);
        found |= minus_zero ? (vec_i32)some == INT32_MIN : (vec_i32)(some - some);
    }
    return memcmp(&found, &none, sizeof none) != 0;
}

// --- tiles across maps or groups -----------------------------------------------------------------
// A vector has one output of LANES maps, or of a map of LANES groups; a tile `vectors` of them for
// each of n <= ACROSS_OUTPUTS adjacent outputs: sums, weights and a sample are in registers. Sums
// begin and end in `results`.

#define MOST_ACROSS 14 // outputs
#define TAPS 3

// Adds the products of adjacent taps to adjacent outputs, for which each sample is read once.
ALWAYS_INLINE void add_taps(vec *sums, const int n, const float *samples, const float *weights)
{
    vec held[TAPS];
    UNROLL
    for (int t = 0; t < TAPS; t++)
        held[t] = load(weights + t * LANES);
    UNROLL
    for (int i = 0; i < n + TAPS - 1; i++) {
        vec sample = load(samples + i * LANES);
        READ_ONCE(sample);
        UNROLL
        for (int t = 0; t < TAPS; t++)
            if (i >= t && i - t < n)
                sums[i - t] = FMA(held[t], sample, sums[i - t]);
    }
}

// The same of one tap. A sample is a vector of groups, `stride` floats from the next one; or of all
// maps, and the samples of the second half of the outputs are `stride` after those of the first.
ALWAYS_INLINE void add_tap(vec sums[][MOST_ACROSS], const int vectors, const int n,
                           const bool groups, const float *sample, ptrdiff_t stride,
                           const float *weights)
{
    vec held[4];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        held[v] = load(weights + v * LANES);
        READ_ONCE(held[v]);
        if (!groups)
            __builtin_prefetch(weights + (TAPS_AHEAD * vectors + v) * LANES);
    }
    const float *second = sample + stride - n / 2;
    __asm__("" : "+r"(second)); // one register, not one for each of its samples
    UNROLL
    for (int k = 0; k < n; k++, sample += groups ? stride : 0) {
        vec x = groups ? load(sample) : splat((k < n / 2 ? sample : second)[k]);
        UNROLL
        for (int v = 0; v < vectors; v++)
            sums[v][k] = FMA(held[v], x, sums[v][k]);
    }
}

ALWAYS_INLINE void compute_across(const struct tile *tile, const int vectors, const int n,
                                  const bool groups)
{
    vec sums[4][MOST_ACROSS];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        UNROLL
        for (int k = 0; k < n; k++)
            sums[v][k] =
                tile->continues ? tile->results[v * tile->step + k] : load(tile->bias + v * LANES);
    }
    const float *samples = tile->samples, *weights = tile->weights;
    for (const int32_t *tap = tile->offsets; groups && tap < tile->offsets_end;
         tap++, weights += vectors * LANES) {
        const float *sample = samples + *tap * (ptrdiff_t)LANES;
        if (vectors == 1 && tile->stride == LANES && tile->offsets_end - tap >= TAPS &&
            tap[TAPS - 1] - tap[0] == TAPS - 1) {
            add_taps(sums[0], n, sample, weights);
            weights += (TAPS - 1) * LANES;
            tap += TAPS - 1;
        } else {
            add_tap(sums, vectors, n, groups, sample, tile->stride, weights);
        }
    }
    for (int c = groups ? 0 : tile->channels; c > 0; c--) {
        for (const struct conv_layer_tap *tap = tile->taps; tap < tile->taps_end; tap++)
            add_tap(sums, vectors, n, groups, samples + tap->samples, tile->stride,
                    weights + tap->weights * (ptrdiff_t)vectors * LANES);
        samples += tile->channel_size;
        weights += tile->channel_taps * vectors * LANES;
    }
    UNROLL
    for (int v = 0; v < vectors; v++) {
        UNROLL
        for (int k = 0; k < n; k++)
            tile->results[v * tile->step + k] = sums[v][k];
    }
}

#define ACROSS(v, n)                                                                               \
    static void maps_##v##_##n(struct tile *tile)                                                  \
    {                                                                                              \
        if (v <= 2 && n <= ACROSS_OUTPUTS(v))                                                      \
            compute_across(tile, v, n, false);                                                     \
    }                                                                                              \
    static void groups_##v##_##n(struct tile *tile)                                                \
    {                                                                                              \
        if (n <= ACROSS_OUTPUTS(v))                                                                \
            compute_across(tile, v, n, true);                                                      \
    }
#define ACROSS_ROW(T, v) ROW(T, v) T(v, 9) T(v, 10) T(v, 11) T(v, 12) T(v, 13) T(v, 14)
#define ACROSS_ALL(T) ACROSS_ROW(T, 1) ACROSS_ROW(T, 2) ACROSS_ROW(T, 3) ACROSS_ROW(T, 4)
ACROSS_ALL(ACROSS)

// The first index: whether a vector is of groups.
#define ACROSS_ENTRY(v, n) [0][v][n] = maps_##v##_##n, [1][v][n] = groups_##v##_##n,
static const tile_fn across_tiles[2][5][MOST_ACROSS + 1] = {ACROSS_ALL(ACROSS_ENTRY)};

// Stores `count` results of each of `lanes` maps, `distance` bytes apart, at dst.
static void store_across(const struct tile *tile, uint8_t *dst, size_t distance, int lanes,
                         const vec *results, ptrdiff_t count)
{
    for (; count > 0; count -= LANES, results += LANES) {
        vec block[LANES];
        int n = count < LANES ? (int)count : LANES;
        UNROLL
        for (int k = 0; k < LANES; k++)
            block[k] = k < n ? activate(tile->activation, results[k]) : (vec){0};
        transpose(block);
        UNROLL
        for (int k = 0; k < LANES; k++)
            if (k < lanes)
                store(dst + (size_t)k * distance, 0, n, block[k], tile->output);
        dst += LANES * conv_element_size(tile->output);
    }
}
