// SPDX-License-Identifier: MIT
// Tiles of outputs in registers, for the instruction set of the including file; blocked_image.h has
// the loops over them. The including file defines
//   LANES               float32 in a vector
//   FMA(a, b, c)        a * b + c of vectors, rounded once
//   PUT_SOME(p, x, n)   stores the first n elements of x, all if n >= LANES
//   GET_SOME(p, n)      a vector whose first n elements, n < LANES, are those at p
//   EVENS(a, b)         optional: the even elements of a, then those of b
//   STREAM(p, x)        optional: stores x at p, a multiple of its size, past the caches; requires
//   LAST_OF(a, b, n)    the last n elements of a, n < LANES, followed by the first ones of b
//   PUT_RANGE(p, x, first, n)  stores n elements of x, from `first` on
//   FENCE()             orders stores of STREAM before all that follow
//   SCORE               the variant's score for all layers
//   MOST_MAPS           maps of a tile, at most 8
//   VECTORS_FOR(maps)   vectors of a tile with `maps` maps, at most 8
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_TILE_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_TILE_H

#include <string.h>

#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/layer.h"

// --- vectors -------------------------------------------------------------------------------------
// The operations of tiles on vectors other than additions: loads, activations, stores. In the
// compiler's vector extension, for any number of LANES; each operation rounds as the scalar one
// does.

#define ALWAYS_INLINE static inline __attribute__((always_inline))

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

// GET_SOME and PUT_SOME for instruction sets without such an instruction.
ALWAYS_INLINE vec get_some(const float *src, int n)
{
    vec x = {0};
    memcpy(&x, src, sizeof *src * (size_t)n);
    return x;
}

ALWAYS_INLINE void put_some(float *dst, vec x, int n)
{
    if (n < LANES)
        memcpy(dst, &x, sizeof *dst * (size_t)n);
    else
        put(dst, x);
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
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

// Signed arithmetic of compute_tile and stream_map is on indices within a tile, but the sanitizer's
// checks of it survive until the loops are unrolled: 35 s for one file's compilation instead of 2.
#ifdef __clang__
#define CONSTANT_INDICES __attribute__((no_sanitize("signed-integer-overflow")))
#else
#define CONSTANT_INDICES
#endif

// How a tile's outputs are stored.
enum tile_stores {
    TILE_CACHED,
    // Past the caches, in whole lines. A line rarely begins where a vector does, so the previous
    // vector is kept: the last elements of one vector and the first of the next form a line.
    TILE_STREAMED_FIRST, // of adjacent outputs: nothing is kept yet
    TILE_STREAMED,
    TILE_STREAMED_LAST, // the last one, also if it is the first
};

// A tile is `maps` x `vectors` sums. It stores `count` outputs of each map.
struct tile {
    const float *samples, *weights, *bias;
    const int32_t *offsets, *offsets_end; // of each tap's samples
    enum conv_activation activation;
    enum conv_element output;
    uint8_t *dst;
    size_t map_size; // bytes from one map to the next
    int count;
    enum tile_stores stores;
    bool keeps;                        // streamed: there is a vector before
    vec *kept;                         // streamed: of each map, the vector before
    vec sums[MOST_TILES * MOST_TILES]; // of the whole tile, for finish_tile and end_stream
};

// Stores the tiles that compute_tile does not store itself: those with an activation other than
// ReLU, or float16 output. A separate function, so that compute_tile has all registers for sums.
static __attribute__((noinline)) void finish_tile(const struct tile *tile, int maps, int vectors)
{
    for (int m = 0; m < maps; m++) {
        uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
        for (int k = 0; k < vectors; k++)
            store(dst, k * LANES, tile->count,
                  activate(tile->activation, tile->sums[m * vectors + k]), tile->output);
    }
}

#ifdef STREAM

// The number of elements from the beginning of p's line to p.
ALWAYS_INLINE int after_line(const uint8_t *p)
{
    return (int)((uintptr_t)p % sizeof(vec) / sizeof(float));
}

// Stores one line: `count` elements of x from `first` on, past the caches if the line is whole.
ALWAYS_INLINE void store_line(float *line, vec x, int first, int count)
{
    if (first == 0 && count >= LANES)
        STREAM(line, x);
    else
        PUT_RANGE(line, x, first, count);
}

// Stores the first elements of a map's outputs, up to the end of a line.
ALWAYS_INLINE void begin_stream(float *line, vec x, int before, int count)
{
    store_line(line, LAST_OF(x, x, before), before,
               count < LANES - before ? count : LANES - before);
}

// Stores the last outputs; the last vector is partly unused.
static __attribute__((noinline)) void end_stream(const struct tile *tile, int maps, int vectors)
{
    for (int m = 0; m < maps; m++) {
        uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
        int before = after_line(dst), left = tile->count;
        float *line = (float *)(void *)(dst - (size_t)before * sizeof(float));
        vec kept = tile->kept[m];
        for (int k = 0; k < vectors; k++, line += LANES, left -= LANES) {
            vec sums = tile->sums[m * vectors + k];
            if (k == 0 && !tile->keeps)
                begin_stream(line, sums, before, left);
            else
                store_line(line, LAST_OF(kept, sums, before), 0, before + left);
            kept = sums;
        }
        left += before;
        if (left > 0)
            PUT_RANGE(line, LAST_OF(kept, kept, before), 0, left);
    }
}

// Stores the whole lines of one map's vectors, and keeps the last one.
CONSTANT_INDICES ALWAYS_INLINE void stream_map(const struct tile *tile, int m, const int vectors,
                                               const vec *sums)
{
    uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
    int before = after_line(dst);
    float *line = (float *)(void *)(dst - (size_t)before * sizeof(float));
    if (tile->stores == TILE_STREAMED_FIRST)
        begin_stream(line, sums[0], before, LANES);
    else
        STREAM(line, LAST_OF(tile->kept[m], sums[0], before));
    UNROLL
    for (int k = 1; k < vectors; k++)
        STREAM(line + k * LANES, LAST_OF(sums[k - 1], sums[k], before));
    tile->kept[m] = sums[vectors - 1];
}

#endif

// `maps` and `vectors` are constants, so that all sums are in registers. Either weights or samples,
// whichever are fewer, are held in registers, and the others are read when they are used.
CONSTANT_INDICES ALWAYS_INLINE void compute_tile(struct tile *tile, const int maps,
                                                 const int vectors)
{
    vec sums[MOST_TILES][MOST_TILES];
    UNROLL
    for (int m = 0; m < maps; m++) {
        const uint8_t *dst = tile->dst + (size_t)m * tile->map_size;
        UNROLL
        for (int k = 0; k < vectors; k++) {
            sums[m][k] = splat(tile->bias[m]);
            // The cache lines of dst arrive while the sums are computed.
            if (tile->stores == TILE_CACHED || (k == 0 && tile->stores == TILE_STREAMED_FIRST))
                __builtin_prefetch(dst + (size_t)k * sizeof(vec), 1);
        }
    }
    if (tile->stores == TILE_STREAMED_LAST) {
        UNROLL
        for (int m = 0; m < maps; m++)
            __builtin_prefetch(tile->dst + (size_t)m * tile->map_size +
                                   (size_t)tile->count * sizeof(float) - 1,
                               1);
    }
    const float *weights = tile->weights;
    for (const int32_t *tap = tile->offsets; tap < tile->offsets_end; tap++, weights += maps) {
        const float *samples = tile->samples + *tap;
        vec held[MOST_TILES];
        if (maps > vectors) {
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
                UNROLL
                for (int m = 0; m < maps; m++)
                    sums[m][k] = FMA(held[m], sample, sums[m][k]);
            }
        }
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
    if (is_plain && tile->stores == TILE_CACHED) {
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
#ifdef STREAM
    if (tile->stores == TILE_STREAMED || tile->stores == TILE_STREAMED_FIRST) {
        UNROLL
        for (int m = 0; m < maps; m++)
            stream_map(tile, m, vectors, sums[m]);
        return;
    }
#endif
    UNROLL
    for (int m = 0; m < maps; m++) {
        UNROLL
        for (int k = 0; k < vectors; k++)
            tile->sums[m * vectors + k] = sums[m][k];
    }
#ifdef STREAM
    if (tile->stores == TILE_STREAMED_LAST) {
        end_stream(tile, maps, vectors);
        return;
    }
#endif
    finish_tile(tile, maps, vectors);
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

#endif
