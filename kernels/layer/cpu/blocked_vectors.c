// SPDX-License-Identifier: MIT
// The vectors of blocked_image.h, layers of many groups, and the variants of each instruction set:
// compiled once for each (CMakeLists.txt), which CONV_ISA_... names, and once for any processor.
#include <stdint.h>

#if defined CONV_ISA_AVX2 // and FMA3: 8 outputs per vector, 16 registers
#include <immintrin.h>

// All bits of the first n elements.
static inline __m256i first_lanes(int n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n));
}

#define VARIANTS CONV_LAYER_VARIANTS(avx2, CONV_CPU_AVX2)
#define LANES 8
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    ((n) < LANES ? _mm256_maskstore_ps(p, first_lanes(n), (__m256)(x)) : put(p, x))
#define GET_SOME(p, n) ((vec)_mm256_maskload_ps(p, first_lanes(n)))
#define SCORE 40
#define MOST_MAPS 6
// At most 12 sums, and 4 registers for weights and samples.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) == 1 ? 8 : (maps) == 2 ? 6 : (maps) == 3 ? 4 : (maps) == 4 ? 3 : 2)
#define ACROSS_OUTPUTS(vectors) (12 / (vectors))

#elif defined CONV_ISA_AVX512 // 16 outputs per vector, 32 registers
#include <immintrin.h>

#define VARIANTS CONV_LAYER_VARIANTS(avx512, CONV_CPU_AVX512)
#define LANES 16
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    _mm512_mask_storeu_ps(p, (__mmask16)((n) < LANES ? (1 << (n)) - 1 : 0xffff), (__m512)(x))
#define GET_SOME(p, n) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1 << (n)) - 1), p))
#define SCORE 50
#define MOST_MAPS 8
// At most 28 sums, and 3 to 4 registers for weights and samples. On two units, a tap takes half as
// many cycles as it has sums; its loads take fewer cycles, although those of samples cross cache
// lines.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : (maps) == 6 ? 4 : 3)
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 12 : (vectors) == 2 ? 14 : 24 / (vectors))

#elif defined CONV_ISA_NEON // 64-bit ARM: 4 outputs per vector, 32 registers
#include <arm_neon.h>

#define VARIANTS CONV_LAYER_VARIANTS(neon, CONV_CPU_NEON)
#define LANES 4
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define SCORE 40
#define MOST_MAPS 6
#define VECTORS_FOR(maps) ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : 4)
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 12 : (vectors) == 2 ? 14 : 24 / (vectors))

#else // no fused multiply-add instruction: 4 outputs at a time in float64
#define VARIANTS CONV_LAYER_VARIANTS(portable, 0)
#define LANES 4
#define SCORE 20
#define MOST_MAPS 2
#define VECTORS_FOR(maps) 2
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 4 : 2)
#define FMA(a, b, c) fused(a, b, c)

typedef double vec_f64 __attribute__((vector_size(32)));
typedef int64_t vec_i64 __attribute__((vector_size(32)));
typedef uint64_t vec_u64 __attribute__((vector_size(32)));
typedef float vec_f32 __attribute__((vector_size(16)));

// The product of two float32 is exact in float64. The sum is rounded to odd: if it is inexact, to
// the neighbour whose last bit is odd. Rounding that to float32, with less than half as many
// digits, gives the exact sum rounded once (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums", 2008). The error of the sum is Knuth's TwoSum; it is NaN for sums that are not
// finite.
static inline __attribute__((always_inline)) vec_f32 fused(vec_f32 a, vec_f32 b, vec_f32 c)
{
    vec_f64 product = __builtin_convertvector(a, vec_f64) * __builtin_convertvector(b, vec_f64);
    vec_f64 addend = __builtin_convertvector(c, vec_f64);
    vec_f64 sum = product + addend, rest = sum - product;
    vec_f64 error = (product - (sum - rest)) + (addend - rest);
    vec_u64 bits = (vec_u64)sum;
    vec_i64 inexact = (error < 0) | (error > 0);
    vec_u64 even = (bits & 1) - 1;
    vec_u64 towards = 1 - (((bits ^ (vec_u64)error) >> 63) << 1); // 1 or -1
    bits += towards & even & (vec_u64)inexact;
    return __builtin_convertvector((vec_f64)bits, vec_f32);
}
#endif

#ifdef CONV_COMPILE_ONCE // kernels/stencil/cpu/vector.h
#undef MOST_MAPS
#undef VECTORS_FOR
#undef ACROSS_OUTPUTS
#define MOST_MAPS 3
#define VECTORS_FOR(maps) 2
#define ACROSS_OUTPUTS(vectors) 3
#endif
#include "kernels/layer/cpu/blocked_image.h"

// --- many groups ---------------------------------------------------------------------------------
// The input of LANES groups is transposed into scratch, with its padding; sums are transposed back.

// Of scratch: the samples and results of a block of rows stay in the level 2 cache.
#define GROUPED_BYTES (192 << 10)
#define GROUPED_MOST (4 << 20) // of scratch, for a row; longer ones are left to the other variants
#define GROUPED_MAPS 4         // of a tile

struct conv_layer_grouped {
    int height, width, rows;          // of the output planes, and of a block
    ptrdiff_t row_size, channel_size; // vectors from one input row, and channel, to the next
    ptrdiff_t results;                // where the results begin, in vectors
    size_t weights;                   // and packed weights, in floats: after the offsets
};

static const struct conv_layer_grouped *grouped_of(const struct conv_layer_plan *plan)
{
    return (const struct conv_layer_grouped *)(const void *)plan->constants;
}

// Fewer groups than three quarters of the vectors' elements are left to the other variants.
static bool plan_grouped(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int64_t channels = layer->channels / layer->groups, maps = layer->maps / layer->groups;
    int reach = conv_layer_reach_y(layer);
    plan->sets = (layer->groups + LANES - 1) / LANES;
    if (layer->input != CONV_ELEMENT_F32 || 4 * layer->groups < 3 * plan->sets * LANES)
        return false;
    struct conv_layer_grouped *grouped = (struct conv_layer_grouped *)(void *)plan->constants;
    grouped->height = conv_layer_out_height(layer, plan->shape.height);
    grouped->width = conv_layer_out_width(layer, plan->shape.width);
    grouped->row_size = (ptrdiff_t)plan->shape.width + layer->pad_left + layer->pad_right;
    int64_t row = layer->stride_y * grouped->row_size * channels + grouped->width * maps;
    int64_t rest = (reach - layer->stride_y) * grouped->row_size * channels;
    int64_t rows = (GROUPED_BYTES / (int64_t)sizeof(vec) - rest) / row;
    rows = rows < 1 ? 1 : rows < grouped->height ? rows : grouped->height;
    int64_t blocks = (grouped->height + rows - 1) / rows;
    grouped->rows = (int)((grouped->height + blocks - 1) / blocks);
    grouped->channel_size =
        ((ptrdiff_t)(grouped->rows - 1) * layer->stride_y + reach) * grouped->row_size;
    grouped->results = grouped->channel_size * channels;
    plan->reading = 25.0 * layer->stride_y * (double)grouped->row_size; // as other variants do
    plan->scratch =
        (size_t)(grouped->results + (int64_t)grouped->rows * grouped->width * maps) * sizeof(vec);
    grouped->weights = (conv_layer_taps(layer) + 15) / 16 * 16;
    plan->packed_bytes = grouped->weights * sizeof(float) +
                         (size_t)(plan->sets * maps) * (conv_layer_taps(layer) + 1) * sizeof(vec);
    return plan->scratch <= GROUPED_MOST;
}

// For each tap c, u, v the offset of its sample, in vectors; then for each LANES groups and each
// set of maps the biases and, for each tap, the weights.
static void pack_grouped(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_grouped *grouped = grouped_of(plan);
    int32_t *offsets = plan->packed;
    for (int c = 0; c < layer->channels / layer->groups; c++)
        for (int u = 0; u < layer->kernel_height; u++)
            for (int v = 0; v < layer->kernel_width; v++)
                *offsets++ =
                    (int32_t)(c * grouped->channel_size +
                              u * layer->dilation_y * grouped->row_size + v * layer->dilation_x);
    int maps = layer->maps / layer->groups;
    size_t taps = conv_layer_taps(layer);
    float *packed = (float *)plan->packed + grouped->weights;
    for (int g = 0; g < layer->groups; g += LANES) {
        int lanes = layer->groups - g < LANES ? layer->groups - g : LANES;
        for (int first = 0, end; first < maps; first = end) {
            end = maps - first < GROUPED_MAPS ? maps : first + GROUPED_MAPS;
            for (int m = first; m < end; m++, packed += LANES)
                for (int k = 0; k < lanes; k++)
                    packed[k] = layer->bias ? layer->bias[(g + k) * maps + m] : 0;
            for (size_t tap = 0; tap < taps; tap++)
                for (int m = first; m < end; m++, packed += LANES)
                    for (int k = 0; k < lanes; k++)
                        packed[k] = layer->weights[(size_t)((g + k) * maps + m) * taps + tap];
        }
    }
}

// Transposes `rows` rows of planes that are `distance` samples apart, of `lanes` groups.
static void transpose_rows(const struct conv_layer_plan *plan, const float *src, ptrdiff_t src_row,
                           ptrdiff_t distance, int lanes, int rows, vec *dst)
{
    ptrdiff_t width = plan->shape.width, run = width, left = width;
    ptrdiff_t gap = grouped_of(plan)->row_size - width;
    if (src_row == width) { // rows without gaps are as one
        run *= rows;
        rows = 1;
    }
    for (dst += plan->layer.pad_left; rows > 0; rows--, src += src_row) {
        for (ptrdiff_t i = 0; i < run; i += LANES) {
            vec block[LANES];
            int n = run - i < LANES ? (int)(run - i) : LANES;
            UNROLL
            for (int k = 0; k < LANES; k++)
                block[k] = fetch(src + (k < lanes ? k : 0) * distance + i, n);
            transpose(block);
            for (int k = 0; k < n; k++) {
                *dst++ = block[k];
                if (--left == 0) {
                    dst += gap;
                    left = width;
                }
            }
        }
    }
}

// Fills in the padding on both sides of `rows` rows.
static void pad_sides(const struct conv_layer_plan *plan, vec *row, int rows)
{
    const struct conv_layer *layer = &plan->layer;
    ptrdiff_t row_size = grouped_of(plan)->row_size;
    for (int x = 0; x < row_size; x++) {
        if (x == layer->pad_left && (x += plan->shape.width) == row_size)
            break;
        int from = conv_border_index(layer->border, x - layer->pad_left, plan->shape.width);
        for (ptrdiff_t i = 0; i < rows * row_size; i += row_size)
            row[i + x] = from < 0 ? splat(layer->border_value) : row[i + layer->pad_left + from];
    }
}

// Copies what `rows` output rows read of a channel of each of `lanes` groups, from `src` on.
static void copy_grouped(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                         const uint8_t *src, int lanes, int first_row, int rows, vec *dst)
{
    const struct conv_layer *layer = &plan->layer;
    ptrdiff_t row_size = grouped_of(plan)->row_size;
    ptrdiff_t distance = layer->channels / layer->groups * batch->src_plane;
    int y = first_row * layer->stride_y - layer->pad_top, height = plan->shape.height;
    int end = y + (rows - 1) * layer->stride_y + conv_layer_reach_y(layer);
    for (int n; y < end; y += n, dst += n * row_size) {
        int from = conv_border_index(layer->border, y, height);
        n = from < 0 || from != y ? 1 : (end < height ? end : height) - y;
        if (from < 0) {
            for (ptrdiff_t i = 0; i < row_size; i++)
                dst[i] = splat(layer->border_value);
            continue;
        }
        transpose_rows(plan, (const float *)(const void *)(src + from * batch->src_row),
                       batch->src_row / (ptrdiff_t)sizeof(float),
                       distance / (ptrdiff_t)sizeof(float), lanes, n, dst);
        pad_sides(plan, dst, n);
    }
}

// Computes n outputs of `maps` maps from some rows and columns of each channel's taps.
static void sum_taps(const struct conv_layer_plan *plan, struct tile tile, struct conv_taps down,
                     struct conv_taps along, int maps, int n)
{
    const struct conv_layer *layer = &plan->layer;
    const float *weights = tile.weights;
    for (int c = 0; c < layer->channels / layer->groups; c++)
        for (int u = down.first; u < down.end; u++, tile.continues = true) {
            int first = (c * layer->kernel_height + u) * layer->kernel_width + along.first;
            tile.weights = weights + (ptrdiff_t)first * maps * LANES;
            tile.offsets = (const int32_t *)plan->packed + first;
            tile.offsets_end = tile.offsets + (along.end - along.first);
            across_tiles[1][maps][n](&tile);
        }
}

// All maps of `rows` output rows of LANES groups, whose samples are in scratch, as are the results.
// Fetches `planes` planes from dst on, to which these will be stored. If a large kernel has finite
// weights, taps that meet only zero padding are skipped, unless the sum is then -0.
static void sum_grouped(const struct conv_layer_plan *plan, struct tile *tile, const float *weights,
                        vec *scratch, int first_row, int rows, const uint8_t *dst, int planes)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_grouped *grouped = grouped_of(plan);
    int maps = layer->maps / layer->groups, width = grouped->width;
    int height = layer->kernel_height, columns = layer->kernel_width; // of the kernel
    ptrdiff_t taps = (ptrdiff_t)conv_layer_taps(layer);
    bool may_skip = columns > 8 && layer->border == CONV_BORDER_CONSTANT &&
                    layer->border_value == 0 &&
                    !has_special(weights, (taps + 1) * maps * LANES, false);
    tile->step = (ptrdiff_t)rows * width;
    ptrdiff_t row = (ptrdiff_t)width * (ptrdiff_t)conv_element_size(tile->output);
    for (int i = 0; i < rows; i++) {
        struct conv_taps down = {0, height}, along = {0, columns};
        if (may_skip)
            down = conv_taps_inside(first_row + i, 1, layer->stride_y, layer->pad_top,
                                    plan->shape.height, layer->dilation_y, height);
        for (int p = 0; p < planes; p++) // lines of which no row before has a part
            for (ptrdiff_t at = (i * row + 63) / 64 * 64; at < (i + 1) * row; at += 64)
                __builtin_prefetch(dst + p * (ptrdiff_t)grouped->height * row + at, 1);
        for (int m = 0, set; m < maps; m += set) {
            set = maps - m < GROUPED_MAPS ? maps - m : GROUPED_MAPS;
            tile->bias = weights + (taps + 1) * (m * LANES);
            tile->weights = tile->bias + set * LANES;
            tile->results = scratch + grouped->results + m * tile->step + i * width;
            tile->samples = (float *)(scratch + (ptrdiff_t)i * layer->stride_y * grouped->row_size);
            int left = (width + ACROSS_OUTPUTS(set) - 1) / ACROSS_OUTPUTS(set);
            for (int j = 0, n; left > 0; left--, j += n) {
                n = (width - j + left - 1) / left; // of tiles about equally large
                if (may_skip)
                    along = conv_taps_inside(j, n, layer->stride_x, layer->pad_left,
                                             plan->shape.width, layer->dilation_x, columns);
                // To begin a tile again takes as long as four taps.
                bool skips = may_skip && (down.end - down.first) * (along.end - along.first + 4) <
                                             height * columns;
                if (skips)
                    sum_taps(plan, *tile, down, along, set, n);
                for (int k = 0; k < set && skips; k++)
                    skips = !has_special((const float *)(tile->results + k * tile->step), n * LANES,
                                         true);
                if (!skips)
                    across_tiles[1][set][n](tile);
                tile->samples += n * tile->stride;
                tile->results += n;
            }
        }
    }
}

static enum conv_status run_grouped(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_grouped *grouped = grouped_of(plan);
    int channels = layer->channels / layer->groups, maps = layer->maps / layer->groups;
    int end = batch->first_row + batch->rows, sets = batch->sets ? batch->sets : plan->sets;
    size_t row = (size_t)grouped->width * conv_element_size(layer->output);
    size_t map_size = (size_t)grouped->height * row;
    size_t taps = conv_layer_taps(layer);
    vec *scratch = batch->scratch;
    struct tile tile = {.offsets = plan->packed,
                        .offsets_end = (const int32_t *)plan->packed + taps,
                        .stride = (ptrdiff_t)layer->stride_x * LANES,
                        .activation = layer->activation,
                        .output = layer->output};
    for (int64_t at = 0; at < batch->images * sets; at++) {
        int64_t image = at / sets;
        int set = batch->first_set + (int)(at % sets), g = set * LANES;
        int lanes = layer->groups - g < LANES ? layer->groups - g : LANES;
        const uint8_t *src = (const uint8_t *)batch->src + image * batch->src_image +
                             g * channels * batch->src_plane;
        uint8_t *dst = (uint8_t *)batch->dst + (size_t)(image * layer->maps + g * maps) * map_size;
        for (int i = batch->first_row, rows; i < end; i += rows) {
            rows = end - i < grouped->rows ? end - i : grouped->rows;
            for (int c = 0; c < channels; c++)
                copy_grouped(plan, batch, src + c * batch->src_plane, lanes, i, rows,
                             scratch + c * grouped->channel_size);
            sum_grouped(plan, &tile,
                        (const float *)plan->packed + grouped->weights +
                            (size_t)(g * maps) * (taps + 1),
                        scratch, i, rows, dst + (size_t)i * row, lanes * maps);
            for (int m = 0; m < maps; m++)
                store_across(&tile, dst + (size_t)m * map_size + (size_t)i * row,
                             (size_t)maps * map_size, lanes,
                             scratch + grouped->results + m * tile.step, tile.step);
        }
    }
    return CONV_OK;
}

#define CONV_LAYER_VARIANTS(isa, needed)                                                           \
    CONV_LAYER_VARIANT(cpu_layer_group_##isa, grouped, needed,                                     \
                       "each element of a vector belongs to another group");                       \
    CONV_LAYER_VARIANT(cpu_layer_##isa, blocked, needed, "tiles of outputs in registers");

VARIANTS
