// SPDX-License-Identifier: MIT
// Depthwise layers, for the instruction set of the including file: from the planes of the input to
// those of the result, without copies. A vector is of adjacent outputs of a row; the sums of some
// vectors of some rows of a map are in registers, and samples that are read are used for all these
// rows. With a kernel of 3x3, 5x5 or 7x7 a tile goes down the plane, so that each row of samples is
// read once. In other tiles the rows are fixed.
#pragma once

#include "kernels/layer/cpu/blocked_tile.h"

#define LESS(a, b) ((a) < (b) ? (a) : (b))
#define PLANE_VECTORS 4 // of a tile, at most
#define PLANE_ROWS 7    // of one with fixed rows, at most
#define PLANE_MAPS 8    // whose planes stay in a cache for the tiles beside each other

// Rows of outputs that use a row of samples, and vectors of a tile that goes down the plane.
#define ROWS_USING(side, stride) (((side)-1) / (stride) + 1)
#define MOST_VECTORS(side, stride)                                                                 \
    LESS(PLANE_VECTORS, PLANE_SUMS / (ROWS_USING(side, stride) + (stride)-1))

struct plane_tile {
    struct tile tile; // its maps are rows of outputs
    const struct conv_layer *layer;
    int rows, maps;
    size_t map_size;      // bytes
    const float *samples; // of the first tap of the first output: may be outside the plane
    ptrdiff_t row, plane; // floats from one row of samples, and plane, to the next
    int y, height;        // the row of the plane that the first tap reads, and the plane's rows
    uint16_t inside[CONV_LAYER_MAX_SIDE][2 * PLANE_VECTORS]; // bits: samples inside a row
};

// Constants of a tile. `side`: of a kernel for which it goes down the plane, else 0.
struct plane_kind {
    int side, vectors, stride, rows;
    bool holds; // all weights are in registers
};

// What of a map is computed next.
struct plane_sums {
    const float *samples, *weights;
    int y, height, width; // as that of the tile; of the kernel
    vec held[25], sums[7][MOST_TILES];
};

// Adds the products of `stride` columns of taps, from v on, of row `row` of the samples to rows
// `from` to `to` of the sums.
ALWAYS_INLINE void add_columns(const struct plane_tile *tile, struct plane_sums *of,
                               const struct plane_kind kind, int row, int v, const int from,
                               const int to)
{
    const float *samples = of->samples + row * tile->row + v * tile->layer->dilation_x;
    vec read[2 * PLANE_VECTORS], x[PLANE_VECTORS];
    UNROLL
    for (int k = 0; k < kind.vectors * kind.stride; k++) {
        vec some = GET_CHOSEN(samples + k * LANES, tile->inside[v][k]);
        READ_ONCE(some);
        read[k] = some;
    }
    UNROLL
    for (int p = 0; p < kind.stride; p++) {
        if (v + p >= of->width)
            continue;
        UNROLL
        for (int k = 0; k < kind.vectors; k++)
            x[k] = kind.stride == 1 ? read[k]
                   : p == 0         ? HALF(read[2 * k], read[2 * k + 1], 0)
                                    : HALF(read[2 * k], read[2 * k + 1], 1);
        UNROLL
        for (int a = 0; a < kind.rows; a++) {
            if (a < from || a > to)
                continue;
            int tap = (v + p + 1) * of->height - 1 - row + a * kind.stride;
            vec weight = kind.holds ? of->held[tap] : splat(of->weights[tap]);
            UNROLL
            for (int k = 0; k < kind.vectors; k++)
                of->sums[a][k] = FMA(weight, x[k], of->sums[a][k]);
        }
    }
}

// The same of all columns.
ALWAYS_INLINE void add_row(const struct plane_tile *tile, struct plane_sums *of,
                           const struct plane_kind kind, int row, const int from, const int to)
{
    int y = of->y + row * tile->layer->dilation_y;
    if (y < 0 || y >= tile->height) {
        UNROLL
        for (int a = 0; a < kind.rows; a++) {
            if (a < from || a > to)
                continue;
            vec zero = splat(of->weights[(of->width + 1) * of->height - 1 - row + a * kind.stride]);
            UNROLL
            for (int k = 0; k < kind.vectors; k++)
                of->sums[a][k] += zero;
        }
        return;
    }
    const int unrolled = kind.side <= 5 ? kind.side : 0;
    UNROLL
    for (int v = 0; v < unrolled; v += kind.stride)
        add_columns(tile, of, kind, row, v, from, to);
    for (int v = unrolled; v < of->width; v += kind.stride)
        add_columns(tile, of, kind, row, v, from, to);
}

// Goes down the plane. The first of the sums is of the row of outputs that is stored next.
ALWAYS_INLINE void go_down(const struct plane_tile *tile, struct plane_sums *of,
                           const struct plane_kind kind, struct tile *result, vec bias)
{
    const int last = kind.rows - 1, above = last * kind.stride;
    UNROLL
    for (int row = 0; row < PLANE_ROWS; row++)
        if (row < above)
            add_row(tile, of, kind, row, 0, row / kind.stride);
    for (int i = last; i < tile->rows; i++) {
        UNROLL
        for (int row = above; row < above + kind.stride; row++)
            add_row(tile, of, kind, row, row < kind.side ? 0 : 1, last);
        put_tile(result, of->sums, 1, kind.vectors);
        UNROLL
        for (int a = 0; a <= last; a++) {
            UNROLL
            for (int k = 0; k < kind.vectors; k++)
                of->sums[a][k] = a < last ? of->sums[a + 1][k] : bias;
        }
        of->samples += kind.stride * tile->row;
        of->y += kind.stride * tile->layer->dilation_y;
        result->dst += result->map_size;
    }
    UNROLL
    for (int row = above; row < above - kind.stride + kind.side; row++)
        add_row(tile, of, kind, row, row < kind.side ? 0 : (row - kind.side) / kind.stride + 1,
                last - 1);
    put_tile(result, of->sums, last, kind.vectors);
}

// Computes fixed rows.
ALWAYS_INLINE void add_rows(const struct plane_tile *tile, struct plane_sums *of,
                            const struct plane_kind kind, const struct tile *result)
{
    for (int row = 0; row < (tile->rows - 1) * kind.stride + of->height; row++) {
        int first = row < of->height ? 0 : (row - of->height) / kind.stride + 1;
        int last = LESS(row / kind.stride, tile->rows - 1);
        UNROLL
        for (int from = 0; from < kind.rows; from++) {
            UNROLL
            for (int to = 0; to < kind.rows; to++)
                if (to >= from && first == from && last == to)
                    add_row(tile, of, kind, row, from, to);
        }
    }
    store_tile(result, of->sums, kind.rows, kind.vectors, tile->rows);
}

ALWAYS_INLINE void compute_plane(const struct plane_tile *tile, const struct plane_kind kind)
{
    struct tile result = tile->tile;
    struct plane_sums of = {.weights = result.weights,
                            .height = kind.side ? kind.side : tile->layer->kernel_height,
                            .width = kind.side ? kind.side : tile->layer->kernel_width};
    for (int m = 0; m < tile->maps; m++) {
        vec bias = splat(*of.weights++);
        UNROLL
        for (int a = 0; a < kind.rows; a++) {
            UNROLL
            for (int k = 0; k < kind.vectors; k++)
                of.sums[a][k] = bias;
        }
        UNROLL
        for (int k = 0; k < 25; k++) {
            if (!kind.holds || k >= kind.side * kind.side)
                continue;
            vec weight = splat(of.weights[k]);
            READ_ONCE(weight);
            of.held[k] = weight;
        }
        of.samples = tile->samples + m * tile->plane;
        of.y = tile->y;
        result.dst = tile->tile.dst + (size_t)m * tile->map_size;
        if (kind.side > 0)
            go_down(tile, &of, kind, &result, bias);
        else
            add_rows(tile, &of, kind, &result);
        of.weights += (of.width + 1) * of.height;
    }
}

#define PLANE(n, v, s)                                                                             \
    static void plane_##n##_##v##_##s(const struct plane_tile *tile)                               \
    {                                                                                              \
        const int rows = n ? ROWS_USING(n, s) : LESS(PLANE_ROWS, PLANE_SUMS / v);                  \
        const bool holds = PLANE_SUMS >= 16 && n > 0 && n <= 5 && n * v <= 12;                     \
        if (v <= MOST_VECTORS(n ? n : 3, s))                                                       \
            compute_plane(tile, (struct plane_kind){n, v, s, rows, holds});                        \
    }
#define PLANE_ROW(T, side, stride)                                                                 \
    T(side, 1, stride) T(side, 2, stride) T(side, 3, stride) T(side, 4, stride)
#define PLANES_OF(T, side) PLANE_ROW(T, side, 1) PLANE_ROW(T, side, 2)
#define PLANES(T) PLANES_OF(T, 0) PLANES_OF(T, 3) PLANES_OF(T, 5) PLANES_OF(T, 7)
PLANES(PLANE)

#define PLANE_ENTRY(side, v, stride) [side][stride][v] = plane_##side##_##v##_##stride,
static void (*const plane_tiles[8][3][PLANE_VECTORS + 1])(const struct plane_tile *) = {
    PLANES(PLANE_ENTRY)};

// Floats of a map's bias and weights, as packed.
static ptrdiff_t packed_map(const struct conv_layer *layer)
{
    return 1 + (layer->kernel_width + 1) * (ptrdiff_t)layer->kernel_height;
}

static bool plan_planes(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int pads = layer->pad_top | layer->pad_bottom | layer->pad_left | layer->pad_right;
    bool is_zero = layer->border == CONV_BORDER_CONSTANT && layer->border_value == 0 &&
                   !signbit(layer->border_value);
    int stride = layer->stride_x, dilation = layer->dilation_y * layer->dilation_x;
    plan->sets = layer->maps;
    plan->reading = 16.0 * stride * plan->shape.width;
    plan->packed_bytes = (size_t)(layer->maps * packed_map(layer)) * sizeof(float);
    return layer->channels == layer->groups && layer->groups > 1 && stride <= 2 &&
           (layer->stride_y == stride || conv_layer_out_height(layer, plan->shape.height) == 1) &&
           (stride == 1 || dilation == 1) && layer->input == CONV_ELEMENT_F32 &&
           (pads == 0 || is_zero);
}

// For each map its bias and the columns of its weights, from the last row to the first. The last
// column is what a row of the kernel adds in the padding: 0, -0 or NaN.
static void pack_planes(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int height = layer->kernel_height, width = layer->kernel_width;
    const float *weight = layer->weights;
    float *packed = plan->packed;
    for (int m = 0; m < layer->maps; m++, packed += (width + 1) * height) {
        *packed++ = layer->bias ? layer->bias[m] : 0;
        for (int u = 0; u < height; u++) {
            float *column = packed + height - 1 - u, sum = -0.0f;
            for (int v = 0; v < width; v++, column += height) {
                *column = *weight++;
                sum += *column * 0;
            }
            *column = sum;
        }
    }
}

// The index of plane_tiles: 0 for other kernels, and for results that put_tile does not store.
static int side_of(const struct conv_layer *layer)
{
    int side = layer->kernel_width;
    bool is_one = (side == 3 || side == 5 || side == 7) && layer->kernel_height == side;
    return is_one && is_plain(layer->output, layer->activation) ? side : 0;
}

// Makes a tile of `vectors` begin at column `first` of the outputs.
static void choose_samples(struct plane_tile *tile, int width, int first, int vectors)
{
    const struct conv_layer *layer = tile->layer;
    int stride = layer->stride_x;
    for (int v = 0; v < layer->kernel_width; v++) {
        int x = first * stride - layer->pad_left + v * layer->dilation_x;
        for (int k = 0; k < vectors * stride; k++, x += LANES) {
            int before = x < -LANES ? LANES : x < 0 ? -x : 0;
            int end = x > width ? 0 : x < width - LANES ? LANES : width - x;
            tile->inside[v][k] = (uint16_t)(((1 << end) - 1) & ~((1 << before) - 1));
        }
    }
}

// Computes all rows of the columns that a tile of n vectors has, of its maps. Its samples and
// results begin with the first row of the first plane.
static void run_part(struct plane_tile *tile, const struct conv_layer_batch *batch, int kernel,
                     int n)
{
    const struct conv_layer *layer = tile->layer;
    int stride = layer->stride_x, dilation = layer->dilation_y;
    const float *samples = tile->samples;
    uint8_t *dst = tile->tile.dst;
    for (int phase = 0; phase < dilation; phase++)
        for (int i = batch->first_row + phase; i < batch->first_row + batch->rows;
             i += tile->rows * dilation) {
            int left = (batch->first_row + batch->rows - i + dilation - 1) / dilation;
            int side = kernel > 0 && left >= ROWS_USING(kernel, stride) ? kernel : 0;
            tile->rows = side > 0 ? left : LESS(left, LESS(PLANE_ROWS, PLANE_SUMS / n));
            tile->y = i * stride - layer->pad_top;
            tile->samples = samples + tile->y * (batch->src_row / (ptrdiff_t)sizeof(float));
            tile->tile.dst = dst + (size_t)i * (tile->tile.map_size / (size_t)dilation);
            plane_tiles[side][stride][n](tile);
        }
}

static enum conv_status run_planes(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    int multiple = layer->maps / layer->groups, stride = layer->stride_x, n;
    int kernel = side_of(layer), most = MOST_VECTORS(kernel ? kernel : 3, stride);
    int end_map = batch->sets ? batch->first_set + batch->sets : layer->maps;
    int width = conv_layer_out_width(layer, plan->shape.width);
    int vectors = (width + LANES - 1) / LANES, parts = (vectors + most - 1) / most;
    size_t element = conv_element_size(layer->output), row = (size_t)width * element;
    struct plane_tile tile = {
        .tile = {.activation = layer->activation,
                 .output = layer->output,
                 .map_size = row * (size_t)layer->dilation_y},
        .layer = layer,
        .map_size = row * (size_t)conv_layer_out_height(layer, plan->shape.height),
        .row = batch->src_row / (ptrdiff_t)sizeof(float) * layer->dilation_y,
        .plane = batch->src_plane / (ptrdiff_t)sizeof(float),
        .height = plan->shape.height,
    };
    for (int64_t image = 0; image < batch->images; image++)
        for (int m = batch->first_set; m < end_map; m += tile.maps) {
            tile.maps = multiple == 1 ? LESS(end_map - m, parts > 1 ? PLANE_MAPS : layer->maps) : 1;
            tile.tile.weights = (const float *)plan->packed + m * packed_map(layer);
            for (int t = parts, j = 0; t > 0; t--, j += n * LANES) {
                n = (vectors - j / LANES + t - 1) / t; // of tiles about equally wide
                choose_samples(&tile, plan->shape.width, j, n);
                tile.tile.count = width - j;
                tile.samples = (const float *)batch->src +
                               image * batch->src_image / (ptrdiff_t)sizeof(float) +
                               m / multiple * tile.plane + j * stride - layer->pad_left;
                tile.tile.dst = (uint8_t *)batch->dst +
                                (size_t)(image * layer->maps + m) * tile.map_size +
                                (size_t)j * element;
                run_part(&tile, batch, kernel, n);
            }
        }
    return CONV_OK;
}
