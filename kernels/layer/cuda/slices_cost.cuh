// SPDX-License-Identifier: MIT
// Whether an instance of slices.cuh fits a layer with given strips and shares, and the time that it
// takes by a model.
#ifndef CONV_KERNELS_LAYER_CUDA_SLICES_COST_CUH
#define CONV_KERNELS_LAYER_CUDA_SLICES_COST_CUH

#include <math.h>

#include "kernels/layer/cuda/slices.cuh"

// Of compute capability 9.0; the number of multiprocessors is that of an H100 or H200.
#define SLICES_SHARED (227 << 10)   // bytes of a multiprocessor, for all of its blocks
#define SLICES_RESERVED (1 << 10)   // bytes of each block
#define SLICES_REGISTERS (64 << 10) // of a multiprocessor
#define SLICES_PROCESSORS 132
#define SLICES_LEAST_THREADS 128          // of a block: more than compute, since they also load
#define SLICES_MOST_IMAGE_UNITS (1 << 28) // four images can be launched

// How an instance computes a layer.
struct slices_config {
    int shape; // of shapes
    int strips, strip_rows, groups, tiles, positions, share, threads;
    int in_rows, columns, pitch, wavefronts, item_floats, weight_floats, memory_items, first,
        shared_bytes;
    float cost; // microseconds
};

// Images of a launch, for the choice.
static int64_t slices_images(const struct conv_layer_shape *shape)
{
    const int64_t most = 1 << 30; // so that products have 64 bits
    return shape->images <= 0 ? 1000 : shape->images < most ? shape->images : most;
}

// Output rows of a strip whose samples fit in shared memory; 0 if there are none.
static int slices_most_rows(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int64_t columns = (int64_t)shape->width + layer->pad_left + layer->pad_right;
    int64_t rows = SLICES_SHARED / 4 / layer->channels / columns - layer->kernel_height + 1;
    return rows > 0 ? (int)rows : 0;
}

// Samples are copied one by one where a row in shared memory is not a row of the input.
static bool slices_loads_singly(const struct conv_layer *layer)
{
    return layer->input != CONV_ELEMENT_F32 || layer->pad_top || layer->pad_bottom ||
           layer->pad_left || layer->pad_right;
}

// Wavefronts in which a warp reads 16 bytes per thread of its rows, eight threads at a time.
static int slices_wavefronts(const struct slices_shape *s, const struct slices_config *c, int pitch)
{
    int wavefronts = 0;
    for (int first = 0; first < 32; first += 8) {
        int most = 1, places[8];
        for (int i = 0; i < 8; i++) {
            int position = (first + i) % c->positions;
            places[i] = position / c->tiles * s->rows * pitch / 4 + position % c->tiles;
            int same = 1; // others in the same banks
            for (int k = 0; k < i; k++)
                same += places[k] != places[i] && (places[k] - places[i]) % 8 == 0;
            most = same > most ? same : most;
        }
        wavefronts += most;
    }
    return wavefronts;
}

// Sets what depends on the instance and the strips only; false if an item does not fit in memory.
static bool slices_fill_item(const struct conv_layer *layer, const struct slices_shape *s,
                             const struct conv_layer_shape *shape, struct slices_config *c)
{
    int window = ceil_div(SLICES_COLUMNS + s->kernel_width - 1, 4) * 4;
    int need = (c->tiles - 1) * SLICES_COLUMNS + window, least = 33;
    c->columns = shape->width + layer->pad_left + layer->pad_right;
    need = need > c->columns ? need : ceil_div(c->columns, 4) * 4;
    c->in_rows = ceil_div(c->strip_rows, s->rows) * s->rows + s->kernel_width - 1;
    if (need * c->in_rows > SLICES_SHARED / 4 / layer->channels)
        return false;
    c->positions = ceil_div(c->strip_rows, s->rows) * c->tiles;
    if ((int64_t)c->strips * c->positions * layer->maps > SLICES_MOST_IMAGE_UNITS)
        return false;
    for (int pitch = need; pitch < need + 32; pitch += 4) {
        int wavefronts = slices_wavefronts(s, c, pitch);
        if (wavefronts < least) {
            least = c->wavefronts = wavefronts;
            c->pitch = pitch;
        }
    }
    c->item_floats = layer->channels * c->in_rows * c->pitch;
    // Groups begin at different banks.
    c->weight_floats = layer->channels * slices_weight_group(s->kernel_width, s->maps);
    c->weight_floats += (36 - c->weight_floats % 32) % 32;
    return true;
}

// Computes shared memory for the share in `c`; false if it does not fit.
static bool slices_fill_memory(const struct conv_layer *layer, const struct slices_shape *s,
                               struct slices_config *c)
{
    int64_t item_units = (int64_t)c->groups * c->positions;
    bool apart = item_units % c->share == 0; // no block has two items
    int64_t items = apart ? 1 : (c->share + item_units - 2) / item_units + 1;
    int64_t groups = apart && c->share % c->positions == 0
                         ? c->share / c->positions
                         : (c->share + c->positions - 2) / c->positions + 1;
    c->threads = ceil_div(c->share, 32) * 32;
    c->threads = c->threads > SLICES_LEAST_THREADS ? c->threads : SLICES_LEAST_THREADS;
    groups = groups < c->groups ? groups : c->groups;
    int64_t floats = items * c->item_floats + groups * c->weight_floats;
    int buffers = c->threads / 32 * slices_buffer(s->maps);
    floats = floats > buffers ? floats : buffers;
    if (floats * 4 > SLICES_SHARED - SLICES_RESERVED)
        return false;
    c->memory_items = (int)items;
    c->shared_bytes = (int)floats * 4;
    // Waiting twice costs more than it hides if little is loaded: 10→20, 12², 100 images: 0.0081
    // instead of 0.0077 ms; but 16→32, 28²: 0.0376 instead of 0.0387.
    c->first = c->shared_bytes > 100 << 10 ? ceil_div(layer->channels, 2) : layer->channels;
    return true;
}

// Copies that bring the samples of an item to shared memory.
static int64_t slices_item_copies(const struct conv_layer *layer,
                                  const struct conv_layer_shape *shape,
                                  const struct slices_config *c)
{
    int vector = slices_loads_singly(layer) || shape->width % 2 ? 1 : shape->width % 4 ? 2 : 4;
    return (int64_t)layer->channels * c->in_rows * (c->columns / vector);
}

// Rows of outputs are stored 16 bytes at a time, without passing through shared memory.
static bool slices_stores_directly(const struct conv_layer *layer,
                                   const struct conv_layer_shape *shape)
{
    return conv_layer_out_width(layer, shape->width) % SLICES_COLUMNS == 0 &&
           layer->activation != CONV_ACTIVATION_TANH;
}

// What a block does; cycles are those of a warp.
struct slices_work {
    float row_cycles, row_reads, rows; // of a kernel row, its reads of shared memory; kernel rows
    float other_cycles;                // before and after these
    float copies, floats;              // that a block loads
    bool whole;                        // rows of outputs are stored 16 bytes at a time
};

static struct slices_work slices_count_work(const struct conv_layer *layer,
                                            const struct slices_shape *s,
                                            const struct conv_layer_shape *shape,
                                            const struct slices_config *c)
{
    struct slices_work work;
    int side = s->kernel_width;
    float samples = 2 * (float)(side + s->rows - 1) / (float)side;
    float weights = (float)(slices_weight_row(side, s->maps) / 4);
    work.row_cycles = (float)(SLICES_COLUMNS * s->rows * s->maps * side) * 1.05f;
    work.row_reads = samples * (float)c->wavefronts + weights;
    work.rows = (float)(layer->channels * side);

    // Rows that are not stored 16 bytes at a time pass through shared memory in runs.
    work.whole = slices_stores_directly(layer, shape);
    float runs = s->rows == 1 || c->tiles > 32 ? 1 : 32 / (float)c->tiles;
    work.other_cycles = 74 + (float)(s->rows * s->maps) * (work.whole ? 51 : 150 + 40 * runs);

    float items = 1 + (float)(c->share - 1) / ((float)c->groups * (float)c->positions);
    items = items < (float)c->memory_items ? items : (float)c->memory_items;
    int groups = ceil_div(c->share - 1, c->positions) + 1;
    groups = groups < c->groups ? groups : c->groups;
    float weight_floats = (float)(groups * layer->channels * slices_weight_group(side, s->maps));
    work.copies = items * (float)slices_item_copies(layer, shape, c) + weight_floats / 4;
    work.floats = items * (float)(layer->channels * c->in_rows * c->columns) + weight_floats;
    return work;
}

// Cycles in which a multiprocessor computes `blocks` blocks at the same time.
static float slices_wave_cycles(const struct slices_work *work, const struct slices_config *c,
                                int64_t blocks)
{
    float together = (float)blocks, warps = (float)ceil_div(c->share, 32);
    float of_scheduler = together * ceilf(warps / 4); // a block's warps go to schedulers in turn
    float issue = of_scheduler * work->row_cycles,
          path = together * warps * work->row_reads * 0.78f;
    float row = issue > path ? issue + 0.49f * path : path + 0.49f * issue;
    // With few warps, latency counts.
    float least = 13 + work->row_cycles * (0.5f + 0.5f * of_scheduler);
    row = row > least ? row : least;
    float load = together * work->copies * 0.6f;
    float latency = work->copies / (float)c->threads * 200, bytes = together * work->floats / 6;
    load = load > latency ? load : latency;
    load = load > bytes ? load : bytes;
    return work->rows * row + of_scheduler * work->other_cycles + load;
}

// Microseconds, with constants that were fitted to the times of all configurations of 58 layers
// (H100, 2026-11-26). The configuration with the least cost took 5 % longer than the fastest one,
// on average.
static void slices_fill_cost(const struct conv_layer *layer, const struct slices_shape *s,
                             const struct conv_layer_shape *shape, struct slices_config *c)
{
    int64_t units = slices_images(shape) * c->strips * c->groups * c->positions;
    // Blocks of a multiprocessor.
    int64_t turns = ceil_div64(ceil_div64(units, c->share), SLICES_PROCESSORS);
    int64_t resident = SLICES_SHARED / (c->shared_bytes + SLICES_RESERVED);
    int64_t by_registers = SLICES_REGISTERS / (s->registers * c->threads);
    resident = resident < by_registers ? resident : by_registers;
    int64_t waves = turns / resident, rest = turns % resident;
    struct slices_work work = slices_count_work(layer, s, shape, c);
    float cycles = (float)waves * (slices_wave_cycles(&work, c, resident) + 1900);
    if (rest > 0)
        cycles += slices_wave_cycles(&work, c, rest) + 1900;
    // Tiles of 2 rows x 2 maps are faster than their counts say if rows are stored directly.
    cycles *= s->rows == 2 && s->maps == 2 && work.whole ? 1 : 1.08f;
    c->cost = 4.4f + cycles / 1900;
}

#endif
