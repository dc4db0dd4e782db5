// SPDX-License-Identifier: MIT
// cuda_layer_strips and cuda_layer_strips_half: choose an instance of strips.cuh and a tile, pack
// the weights, and launch it.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/strips.cuh"
#include "tensor/element.h"

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10) // of a multiprocessor, for a block
#define PROCESSORS 132     // assumed for the choice of a tile

struct strips_shape {
    int blocks, products, rows, kernel_rows; // blocks of 8 maps; T and U of strips_products.cuh
    void (*kernel)(strips_launch);
};

#define SHAPE(blocks, products, rows, kernel_rows)                                                 \
    {                                                                                              \
        blocks, products, rows, kernel_rows, strips_layer<blocks, products, rows, kernel_rows>     \
    }
static const struct strips_shape shapes[] = {
    SHAPE(8, 3, 2, 1), SHAPE(8, 3, 2, 3), SHAPE(8, 3, 2, 5), SHAPE(8, 3, 1, 7), SHAPE(6, 3, 2, 1),
    SHAPE(6, 3, 2, 3), SHAPE(6, 3, 2, 5), SHAPE(6, 3, 2, 7), SHAPE(4, 3, 3, 1), SHAPE(4, 3, 3, 3),
    SHAPE(4, 3, 3, 5), SHAPE(4, 3, 2, 7), SHAPE(3, 3, 3, 1), SHAPE(3, 3, 3, 3), SHAPE(3, 3, 3, 5),
    SHAPE(3, 3, 3, 7), SHAPE(2, 3, 4, 1), SHAPE(2, 3, 4, 3), SHAPE(2, 3, 4, 5), SHAPE(2, 3, 4, 7),
    SHAPE(1, 3, 4, 1), SHAPE(1, 3, 4, 3), SHAPE(1, 3, 4, 5), SHAPE(1, 3, 4, 7), SHAPE(8, 1, 3, 1),
    SHAPE(8, 1, 3, 3), SHAPE(8, 1, 3, 5), SHAPE(8, 1, 2, 7), SHAPE(6, 1, 4, 1), SHAPE(6, 1, 4, 3),
    SHAPE(6, 1, 3, 5), SHAPE(6, 1, 3, 7), SHAPE(4, 1, 4, 1), SHAPE(4, 1, 4, 3), SHAPE(4, 1, 4, 5),
    SHAPE(4, 1, 4, 7), SHAPE(3, 1, 5, 1), SHAPE(3, 1, 5, 3), SHAPE(3, 1, 5, 5), SHAPE(3, 1, 5, 7),
    SHAPE(2, 1, 4, 1), SHAPE(2, 1, 4, 3), SHAPE(2, 1, 4, 5), SHAPE(2, 1, 4, 7), SHAPE(1, 1, 4, 1),
    SHAPE(1, 1, 4, 3), SHAPE(1, 1, 4, 5), SHAPE(1, 1, 4, 7),
};

// Values derived from a layer; a plan's constants.
struct strips_config {
    int shape, chunks, group, tile_rows, tile_columns, down, across, in_rows, pitch, wide, split;
    int planes, plane_bytes, last_pixels, row_atoms, row_sets, sets, all_sets, steps;
    int strip_rows, strip_columns, strips_down, strips;
    int buffer_bytes, atoms_at, stages, stages_at, shared_bytes; // stages_at: after atoms_at
    float cost;                                                  // cycles, roughly
};

// The atoms that a kernel row takes in the last plane, which has fewer than 8 channels.
static int last_row_atoms(const struct conv_layer *layer, const struct strips_config *c)
{
    return ceil_div(layer->kernel_width, c->last_pixels);
}

// Measured cycles of a wgmma of n columns with its first operand in registers.
static int strips_cycles(int n)
{
    int cycles = n / 2 + (n < 64 ? 4 : 0);
    return cycles < 13 ? 13 : cycles;
}

// The share of a tile's strips that contain the last column of one image and the first of another.
static float crossing_share(const struct strips_config *c)
{
    float share = (float)(c->group - 1) * (float)c->strips_down / (float)c->strips;
    return c->tile_columns % c->strip_columns == 0 ? 0 : share > 1 ? 1 : share;
}

// Estimated cycles of a block that computes `tasks` tasks. A task takes the largest of three:
// `multiply` for the tensor cores; `path` for shared memory and the first level cache, which move
// 128 bytes per cycle or a store; `fill` for reading samples, slower where shared memory leaves
// little to the first level cache. The first fill and the last multiplication are not hidden.
// Tiles that are narrower than the image, and strips of two images, write short runs of memory,
// which is slow. The constants are fitted to measurements.
static float block_cost(const struct strips_config *c, const struct strips_shape *s, int64_t tasks)
{
    int parts = s->products == 3 ? 2 : 1, units = ceil_div(c->strips, 4) << c->split;
    int maps = s->blocks * 8, loaded = s->rows + s->kernel_rows - 1;
    bool wide = STRIPS_WIDE(s->blocks, s->products, s->rows, s->kernel_rows);
    int products = s->products == 1 ? strips_cycles(maps)
                   : wide           ? strips_cycles(maps * 2) + strips_cycles(maps)
                                    : strips_cycles(maps) * 3;
    float matrices = (float)(units * s->rows), steps = (float)c->steps;
    float reads = (float)(2 * s->blocks * s->products) +
                  (float)(parts * 16 * loaded) / (float)(s->rows * s->kernel_rows);
    float stores = (float)(s->blocks * 16) * ((c->wide ? 5.9f : 13.4f) + 8.2f * crossing_share(c) +
                                              (c->across > 1 ? 17.8f : 0));
    float atoms = (float)(c->group * c->in_rows * c->pitch * c->planes) / 32;
    float multiply = matrices * steps * (float)products +
                     (float)units * (float)(c->all_sets * 174 + s->blocks * s->rows * 157);
    float path = matrices * (steps * reads + stores) + atoms * (float)(16 + 4 * parts);
    int producers = STRIPS_PRODUCERS(s->blocks, s->products, s->kernel_rows);
    int lost_cache = c->shared_bytes > 168 << 10 ? c->shared_bytes - (168 << 10) : 0;
    float fill =
        atoms * ((float)(156 * STRIPS_MOST_PRODUCERS / producers) + (float)lost_cache / 1020) +
        1140;
    float most = multiply > path ? multiply : path;
    most = most > fill ? most : fill; // a tenth of the other two is not hidden
    return (float)tasks * (most + 0.1f * (multiply + path + fill - most) + 1040) +
           1.45f * (fill + multiply);
}

// The number of stages for tasks of `bytes` bytes of samples. A second one delays the first task:
// with three products 6→16 on 12² takes 0.051 ms with two stages and 0.049 with one, with one
// product 0.037 and 0.039. With 16 or more channels and one product, or small tasks, stages cost
// more than they save: 16→32 on 14² takes 0.028 instead of 0.025 ms.
static int most_stages(const struct conv_layer *layer, int products, int64_t bytes)
{
    if (layer->channels < 16)
        return products == 3 ? 1 : 2;
    return products == 3 && bytes >= 32 << 10;
}

// Adds stages, if tasks are whole images and there is memory for stages.
static void add_stages(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                       struct strips_config *c)
{
    int64_t image = (int64_t)layer->channels * shape->height * shape->width * 4;
    bool whole = c->down * c->across == 1 && c->in_rows == shape->height &&
                 c->pitch == shape->width && image % 16 == 0;
    int most = most_stages(layer, shapes[c->shape].products, image * c->group);
    c->stages = 0;
    c->stages_at = c->shared_bytes - c->atoms_at;
    for (; whole && c->stages < most && c->shared_bytes + image * c->group <= SHARED; c->stages++)
        c->shared_bytes += (int)image * c->group;
}

// Completes a configuration whose shape, group, tile and `wide` are set; false if it needs too much
// memory.
static bool fill_config(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        struct strips_config *c)
{
    const struct strips_shape *s = &shapes[c->shape];
    int parts = s->products == 3 ? 2 : 1;
    c->chunks = ceil_div(layer->maps, s->blocks * 8 << c->split) << c->split;
    c->strip_rows = c->wide ? s->rows : s->rows * 2;
    c->strip_columns = c->wide ? 16 : 8;
    c->strips_down = ceil_div(c->tile_rows, c->strip_rows);
    c->strips = c->strips_down * ceil_div(c->group * c->tile_columns, c->strip_columns);
    c->row_sets = ceil_div(layer->kernel_height, s->kernel_rows);
    // The first set sets the sums, so it must have two atoms per row; one may have weights of 0.
    bool odd = c->row_atoms % 2 && c->row_atoms > 1 && s->kernel_rows > 1;
    c->sets = (odd ? c->row_atoms / 2 : ceil_div(c->row_atoms, 2)) * c->row_sets;
    c->all_sets = c->sets + odd * c->row_sets;
    c->steps = c->sets * s->kernel_rows + odd * c->row_sets * ceil_div(s->kernel_rows, 2);
    if (c->steps > STRIPS_MOST_STEPS)
        return false;
    c->in_rows = c->tile_rows + layer->kernel_height - 1;
    c->pitch = c->tile_columns + layer->kernel_width - 1;
    c->down = ceil_div(conv_layer_out_height(layer, shape->height), c->tile_rows);
    c->across = ceil_div(conv_layer_out_width(layer, shape->width), c->tile_columns);
    if (c->in_rows < 2 || c->pitch < 2) // wgmma_inverse()
        return false;
    int64_t positions = (int64_t)c->group * c->in_rows * c->pitch;
    if (positions * c->planes * parts * 16 > SHARED)
        return false;
    c->plane_bytes = (int)positions * 16;
    // The last strip may end after the last position.
    int last = ((c->group - 1) * c->in_rows + c->strips_down * c->strip_rows - 1 +
                layer->kernel_height - 1) *
                   c->pitch +
               c->tile_columns + layer->kernel_width - 1;
    int after = last - (int)positions;
    c->buffer_bytes = parts * c->planes * c->plane_bytes;
    c->atoms_at =
        ((c->steps * parts * s->blocks * 256 + s->blocks * 64) << c->split) + STRIPS_SHARED_BYTES;
    c->shared_bytes = c->atoms_at + STRIPS_BUFFERS * c->buffer_bytes + (after > 0 ? after : 0) * 16;
    if (c->shared_bytes > SHARED)
        return false;
    int64_t images = shape->images > 0 ? shape->images : 1000;
    int64_t tasks = ceil_div64(images, c->group) * c->down * c->across * (c->chunks >> c->split);
    c->cost = block_cost(c, s, ceil_div64(tasks, PROCESSORS));
    add_stages(layer, shape, c);
    return true;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      int products, struct strips_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width), rest = layer->channels % 8;
    bool found = false;
    if (out_height <= 0 || out_width <= 0 || layer->stride_x != 1)
        return false;
    struct strips_config c = {};
    c.planes = ceil_div(layer->channels, 8);
    c.last_pixels = rest ? 8 / rest : 1;
    c.row_atoms =
        layer->channels / 8 * layer->kernel_width + (rest ? last_row_atoms(layer, &c) : 0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (shapes[i].products != products || shapes[i].kernel_rows > layer->kernel_height)
            continue;
        c.shape = (int)i;
        for (int across = 1; across <= 8 && (across == 1 || out_width / across >= 16); across++)
            for (int down = 1; down <= out_height && down <= 64; down++)
                for (int group = 1; group <= (across * down == 1 ? 16 : 1); group *= 2)
                    for (int form = 0; form < (layer->maps > shapes[i].blocks * 8 ? 4 : 2);
                         form++) {
                        c.wide = form % 2;
                        c.split = form / 2;
                        c.group = group;
                        c.tile_rows = ceil_div(out_height, down);
                        c.tile_columns = ceil_div(out_width, across);
                        if (fill_config(layer, shape, &c) && (!found || c.cost < best->cost)) {
                            found = true;
                            *best = c;
                        }
                    }
    }
    return found;
}

// Bytes of each part of the packed weights.
struct strips_parts {
    size_t weights, bias, exact, offsets;
};

static struct strips_parts parts_of(const struct conv_layer *layer, const struct strips_config *c)
{
    const struct strips_shape *s = &shapes[c->shape];
    struct strips_parts parts;
    parts.weights = (size_t)(c->chunks * c->steps * (s->products == 3 ? 2 : 1) * s->blocks) * 256;
    parts.bias = (size_t)(c->chunks * s->blocks * 8) * 2 * sizeof(float);
    parts.exact = (size_t)layer->maps * layer_tap_count(layer) * sizeof(float);
    parts.offsets = (size_t)c->all_sets * sizeof(uint2);
    return parts;
}

template <int PRODUCTS> static bool plan_products(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct strips_config *c = layer_constants<struct strips_config>(plan);
    if (!configure(layer, shape, PRODUCTS, c) ||
        (int64_t)shape->height * shape->width > 1 << 27 || // 6 planes of outputs: int
        (int64_t)c->group * layer->maps * shape->height * shape->width > INT32_MAX ||
        !half_scales_exist(layer))
        return false;
    struct strips_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact + parts.offsets;
    return true;
}

// Finds atom `index` of row `u` of the kernel; atoms are numbered by plane, then column. Returns
// its offset in bytes from the atom at the row's first column, and the tap of each of its 8 numbers
// (-1: none).
static int find_atom(const struct conv_layer *layer, const struct strips_config *c, int index,
                     int u, int (&taps)[8])
{
    int full = layer->channels / 8 * layer->kernel_width;
    bool is_last = index >= full;
    int plane = is_last ? layer->channels / 8 : index / layer->kernel_width;
    int channels = is_last ? layer->channels % 8 : 8, pixels = is_last ? c->last_pixels : 1;
    int v = is_last ? (index - full) * pixels : index % layer->kernel_width;
    for (int i = 0; i < 8; i++) {
        int pixel = i / channels, k = i % channels;
        bool is_tap = pixel < pixels && v + pixel < layer->kernel_width;
        taps[i] =
            is_tap ? ((plane * 8 + k) * layer->kernel_height + u) * layer->kernel_width + v + pixel
                   : -1;
    }
    return plane * c->plane_bytes + v * 16;
}

// Packs the weights of an atom, which is half `half` of a step.
static void pack_atom(const struct conv_layer *layer, const struct strips_config *c,
                      const int (&taps)[8], int step, int half, const float *unscale,
                      uint16_t *weights)
{
    const struct strips_shape *s = &shapes[c->shape];
    size_t all = layer_tap_count(layer), maps = (size_t)s->blocks * 8,
           parts = s->products == 3 ? 2 : 1, steps = (size_t)c->steps;
    for (size_t m = 0; m < (size_t)layer->maps; m++) {
        size_t at = ((m / maps * steps + (size_t)step) * 2 + (size_t)half) * parts;
        uint16_t *to = weights + (at * maps + m % maps) * 8;
        for (int i = 0; i < 8; i++) {
            if (taps[i] < 0)
                continue;
            float w = layer->weights[m * all + (size_t)taps[i]] / unscale[m];
            to[i] = conv_half_from_float(w);
            if (parts == 2)
                to[(size_t)i + maps * 8] =
                    conv_half_from_float((w - conv_half_to_float(to[i])) * WGMMA_LO);
        }
    }
}

// Packs the weights of set `set`, whose first step is `step`: two atoms of each of U kernel rows,
// or the last atom of each. Returns its offsets. Atoms that occur twice have weights of 0 the
// second time: if there is no second atom, and in rows that an earlier set contains. Memory outside
// the samples is never read, since it might not be finite.
static uint2 pack_set(const struct conv_layer *layer, const struct strips_config *c, int set,
                      int step, const float *unscale, uint16_t *weights)
{
    int rows = shapes[c->shape].kernel_rows, begin = set % c->row_sets * rows, taps[8];
    bool single = set >= c->sets;
    int first = single ? c->row_atoms - 1 : set / c->row_sets * 2;
    int row = begin + rows > layer->kernel_height ? layer->kernel_height - rows : begin;
    int place = find_atom(layer, c, first, row, taps), second = place;
    for (int u = begin - row; u < rows; u++) {
        // Steps have rows 0 and 1, 2 and 3, and so on; with an odd number, the last step has the
        // last two rows.
        bool last = single && rows % 2 && u == rows - 1;
        find_atom(layer, c, first, row + u, taps);
        pack_atom(layer, c, taps, single ? step + u / 2 : step + u, last || (single && u % 2),
                  unscale, weights);
        if (single || first + 1 == c->row_atoms)
            continue;
        second = find_atom(layer, c, first + 1, row + u, taps);
        pack_atom(layer, c, taps, step + u, 1, unscale, weights);
    }
    uint32_t distance = (uint32_t)(single ? c->pitch * 16 : second - place);
    return make_uint2((uint32_t)(place + row * c->pitch * 16), distance);
}

static void pack_products(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct strips_config *c = layer_constants<struct strips_config>(plan);
    const struct strips_shape *s = &shapes[c->shape];
    struct strips_parts parts = parts_of(layer, c);
    uint16_t *weights = (uint16_t *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    float *exact = (float *)(void *)((char *)bias + parts.bias);
    char *offsets = (char *)exact + parts.exact; // aligned to 4 bytes; a uint2 needs 8
    size_t all = layer_tap_count(layer);
    int padded = c->chunks * s->blocks * 8;
    memcpy(exact, layer->weights, parts.exact);
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        bias[padded + m] = 1 / half_scale(layer->weights + (size_t)m * all, all);
    }
    for (int set = 0, step = 0; set < c->all_sets; set++) {
        uint2 offset = pack_set(layer, c, set, step, bias + padded, weights);
        memcpy(offsets + (size_t)set * sizeof offset, &offset, sizeof offset);
        step += set < c->sets ? s->kernel_rows : ceil_div(s->kernel_rows, 2);
    }
}

// Stages need samples without gaps, at a multiple of 16 bytes.
static void set_stages(strips_launch *p, const struct strips_config *c)
{
    bool dense = p->src_row == p->width * (int64_t)sizeof(float) &&
                 p->src_plane == p->height * p->src_row &&
                 p->src_image == p->channels * p->src_plane && (uintptr_t)p->src % 16 == 0;
    if (!dense || !c->stages)
        return;
    p->stages = c->stages;
    p->stages_at = c->stages_at;
    p->stage_bytes = p->group * (int)p->src_image;
    p->image_positions = c->in_rows * c->pitch;
    p->image_inverse = wgmma_inverse(p->image_positions);
}

static enum conv_status run_strips(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct strips_config *c = layer_constants<struct strips_config>(plan);
    const struct strips_shape *s = &shapes[c->shape];
    void (*kernel)(strips_launch) = s->kernel;
    if (batch->images <= 0)
        return CONV_OK;
    struct strips_parts parts = parts_of(layer, c);
    strips_launch p = {};
    wgmma_set_launch(&p, plan, batch, c);
    p.strips_down = c->strips_down;
    p.split = c->split;
    p.columns_divider = layer_divider_of(c->tile_columns);
    p.strip_rows = c->strip_rows;
    p.strip_columns = c->strip_columns;
    p.second_row = c->wide ? 0 : c->strip_rows / 2;
    set_stages(&p, c);
    p.sets = c->sets;
    p.single_sets = c->all_sets - c->sets;
    p.steps = c->steps;
    const char *packed = (const char *)plan->d_packed;
    p.weights = (const uint16_t *)(const void *)packed;
    p.bias = (const float *)(const void *)(packed + parts.weights);
    p.exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    memcpy(p.offsets, (const char *)plan->packed + parts.weights + parts.bias + parts.exact,
           parts.offsets);
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    int chunks = c->chunks >> c->split;
    int64_t most = processors / chunks;
    most = most < 1 ? 1 : most;
    dim3 grid((unsigned)(p.tasks < most ? p.tasks : most), (unsigned)chunks);
    int threads = STRIPS_THREADS(s->blocks, s->products, s->kernel_rows);
    kernel<<<grid, threads, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// With few products per sample, making its float16 parts costs more than it saves: 3→16, 32², 5×5
// takes 0.053 ms (`uniform` 0.047), 4→16, 65², 0.211 (0.354), 4→8, 50², 0.090 (0.112). Kernels of
// even size, and large ones of one channel, are worth it because no exact variant is fast for them.
static bool is_worth_it(const struct conv_layer *layer)
{
    size_t taps = layer_tap_count(layer);
    bool even = layer->kernel_height % 2 == 0 && layer->kernel_width % 2 == 0;
    double least = layer->channels >= 4 ? 800 : 2000;
    return ((layer->channels >= 3 || taps >= 81) && (double)layer->maps * (double)taps >= least) ||
           (even && layer->maps >= 8);
}

// Wide images with few maps: narrow tiles were slower than other variants, and tiles as wide as the
// image were measured only for large kernels of one channel, which gain from them.
static bool is_unknown(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    bool large = layer->channels == 1 && layer_tap_count(layer) >= 81;
    return !large && layer->maps < 64 && conv_layer_out_width(layer, shape->width) > 128;
}

// wgmma.cu's three-product variant is as fast or faster with 3 channels and few maps, and with more
// than 8 channels if kernels are 4×4, if there are many taps, or if launches are small: 24→48 on
// 28² with 5×5 takes 0.207 ms (`wgmma` 0.169), 16→32 on 28² 0.095 (0.107), with 100 images 0.025
// (0.020).
static int score_strips(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    bool few_images = shape->images > 0 && shape->images < 1000;
    if (!is_worth_it(layer) || is_unknown(layer, shape))
        return 25;
    if (layer->channels <= 8)
        return layer->channels == 3 && layer->maps < 64 ? 119 : 121;
    bool slow = layer_tap_count(layer) > 512 || layer->kernel_height == 4 ||
                layer->kernel_height == 1; // 1: not measured
    return slow || (few_images && layer->channels > 12) ? 119 : 121;
}

// Weights of many maps and taps leave little memory for samples: 50→100 on 12² takes 0.069 ms
// (`wgmma_half` 0.059), 24→48 on 28² 0.095 (0.105), 20→50 on 12² with 100 images 0.010 (0.008).
static int score_half(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    bool large = layer->channels >= 16 && layer->maps > 32 && layer->kernel_height >= 5;
    bool few_images = shape->images > 0 && shape->images < 1000;
    if (!is_worth_it(layer) || is_unknown(layer, shape))
        return 25;
    return large && (layer->maps > 64 || few_images) ? 114 : 131;
}

// Error in units of 2^-24: 36 from the operands, and 4 for each of at most 128 additions of the
// tensor cores, which truncate.
const struct conv_layer_variant conv_cuda_layer_strips = {
    "cuda_layer_strips",
    "tensor cores of Hopper, three float16 products, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_FAST,
    36 + 4 * STRIPS_MOST_STEPS,
    0,
    plan_products<3>,
    score_strips,
    pack_products,
    run_strips,
};

// Operands of 11 bits, as TF32 has: 2^-11 each.
const struct conv_layer_variant conv_cuda_layer_strips_half = {
    "cuda_layer_strips_half",
    "tensor cores of Hopper, one float16 product, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_TF32,
    16400 + 4 * STRIPS_MOST_STEPS,
    0,
    plan_products<1>,
    score_half,
    pack_products,
    run_strips,
};
