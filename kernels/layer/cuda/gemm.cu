// SPDX-License-Identifier: MIT
// cuda_layer_gemm: the choice of a tile of gemm.cuh for a layer, and its launch.
#include <stdio.h>

#include "kernels/layer/cuda/gemm.cuh"

// Assumed for the choice of a tile. The emulated device has few, so that small cases share tiles.
#ifndef GEMM_PROCESSORS
#define GEMM_PROCESSORS 132
#endif
#define STAGES 4
#define SECTOR 8                // samples that are read together from memory
#define MOST_STEP 64            // k of a chunk
#define LEAST_SHARED (64 << 10) // bytes that a block can have on every device
#define LEAST_LONG 900 // terms, about: each saves 1.56 cycles of barriers, longer copies cost 1,475

// Describes an instance to the host.
struct gemm_tile {
    int positions, maps, threads, blocks, step, shared;
    int across, unit;    // positions of a thread; k that are adjacent in shared memory
    float reads, cycles; // of a thread per k, and cycles of shared memory that a warp's take
    void (*kernel)(gemm_launch), (*bytes)(gemm_launch);
    void (*quads)(gemm_launch);   // where four neighbouring positions can be copied at a time
    void (*sectors)(gemm_launch); // where a warp copies SECTOR k of each position at a time
};

// A warp reads four floats of each thread in two cycles, fewer in one.
static constexpr int read_cycles(int count, int unit)
{
    return count * unit < 4 ? 1 : count * unit / 4 * 2;
}

template <int P, int M, int WARPS_P, int WARPS_M, int STEP, int AHEAD, int BLOCKS,
          typename Offset = int, int UNIT = 1>
static gemm_tile tile_of()
{
    typedef gemm_config<float, P, M, WARPS_P, WARPS_M, STEP, STAGES, AHEAD, BLOCKS, Offset, UNIT>
        config;
    typedef gemm_config<uint8_t, P, M, WARPS_P, WARPS_M, STEP, STAGES, AHEAD, BLOCKS, Offset, UNIT>
        bytes;
    const int TP = config::TP, TM = config::TM;
    gemm_tile tile = {P,  M, config::threads, BLOCKS, STEP, bytes::shared, TP, UNIT, 0, 0, {}, {},
                      {}, {}};
    tile.reads = (float)(TP / config::VP + TM / config::VM) / UNIT;
    tile.cycles = (float)(read_cycles(TP, UNIT) + read_cycles(TM, UNIT)) / UNIT;
    tile.kernel = tile.quads = tile.sectors = gemm<config>;
    tile.bytes = gemm<bytes>;
    if constexpr (P >= 16 && UNIT == 1)
        tile.quads = gemm<gemm_config<float4, P, M, WARPS_P, WARPS_M, STEP, STAGES, AHEAD, BLOCKS>>;
    if constexpr (P >= 32 && P * SECTOR <= config::threads * 4) { // four positions of a thread
        tile.sectors = gemm<gemm_config<float, P, M, WARPS_P, WARPS_M, STEP, STAGES, AHEAD, BLOCKS,
                                        Offset, UNIT, SECTOR>>;
        tile.shared += STAGES * STEP * (32 / SECTOR) * 4; // gaps between its rows
    }
    return tile;
}

// A tile of two sums per thread, for few outputs.
template <int P, int M, int WARPS_P, int WARPS_M, int STEP, typename Offset = int>
static gemm_tile deep_of()
{
    return tile_of<P, M, WARPS_P, WARPS_M, STEP, 3, 6, Offset, 4>();
}

// With 16 k of a chunk instead of 8, ptxas keeps more multiply-adds that share a register together.
// With 64, blocks that are alone or two wait at half as many barriers.
static const struct gemm_tile tiles[] = {
    tile_of<64, 128, 1, 4, 16, 1, 3>(), tile_of<128, 64, 2, 2, 16, 1, 4>(),
    tile_of<64, 64, 2, 2, 16, 1, 4>(),  tile_of<32, 128, 1, 4, 16, 1, 4>(),
    tile_of<128, 32, 2, 1, 8, 1, 8>(),  tile_of<32, 64, 1, 4, 32, 3, 4>(),
    tile_of<16, 64, 1, 4, 32, 3, 4>(),  tile_of<32, 32, 1, 2, 16, 3, 8>(),
    tile_of<32, 32, 1, 4, 32, 3, 4>(),  tile_of<16, 32, 1, 4, 64, 3, 4>(),
    tile_of<128, 16, 2, 1, 16, 1, 8>(), deep_of<16, 16, 2, 2, 32>(),
    deep_of<8, 32, 1, 4, 64>(),         tile_of<32, 64, 1, 4, 64, 3, 2>(),
    tile_of<16, 64, 1, 4, 64, 3, 2>(),
};

// For samples that lie too far apart for the others; it can read their weights.
static const struct gemm_tile far_tiles[] = {tile_of<16, 16, 1, 2, 32, 7, 8, int64_t>(),
                                             deep_of<16, 16, 2, 2, 32, int64_t>()};

// How a layer is computed.
struct gemm_plan {
    int tile;
    int shares; // blocks of a multiprocessor that share tiles; 0: each computes one
    float cost; // cycles
};

// What a layer's tiles have in common: products of a sum, cache lines of 32 samples, and the share
// of samples that no other tap has brought to the L1 cache.
struct gemm_sums {
    float depth, lines, misses;
    bool quads; // four neighbouring positions are copied at a time
};

// A tile begins and ends with waiting for memory; its threads share what precedes the sums.
static float tile_ends(const struct gemm_tile *t)
{
    return 2600 + (9 * (float)(t->positions * t->maps) + 33000) / (float)t->threads;
}

// Cycles of a multiprocessor for `count` tiles, `blocks` at a time. The figures fit all tiles and
// shares of 192 layers of networks and 100 of random sizes with 1, 4, 16 and 64 images (an H200);
// what they choose takes 1 % longer than the best of them (178 layers with 1, 4 and 16 images).
static float tile_cycles(const struct gemm_tile *t, float count, float blocks,
                         const struct gemm_sums *sums)
{
    if (count <= 0)
        return 0;
    // Instructions of a warp per k: where a weight is new, the multiply-add may read three new
    // registers and take longer; a sample, or four neighbours, takes 8 to load, 4 weights 2.
    bool quads = sums->quads && t->quads != t->kernel;
    float steps = (float)t->step, threads = (float)t->threads, maps = (float)t->maps;
    float positions = (float)t->positions, copies = positions / (quads ? 4 : 1) / threads;
    float warp = (1 + 0.5f / (float)t->across) * positions * maps / threads + t->reads +
                 8 * copies + 1.7f * maps / 4 / threads;
    // Each of four schedulers issues one at a time. A warp's load of 32 samples takes a cycle of
    // the L1 cache per line; of those beyond the first, arithmetic hides half.
    float issued =
        warp * ceilf(threads / 128 * blocks) + (sums->lines - 1) / 2 * positions / 32 * blocks;
    // A block by itself waits for a barrier per chunk, and for copies of single samples.
    float single = quads ? 0 : positions;
    float alone = 1.05f * warp * fmaxf(threads / 128, 1) + 100 / steps +
                  single * (0.15f + 0.2f * sums->misses);
    // Shared memory delivers 128 bytes in a cycle, and takes the copies.
    float shared = blocks * (1.05f * threads / 32 * (t->cycles + 2 * copies + maps / threads) +
                             0.05f * positions + 0.15f * single * sums->misses);
    // A multiprocessor gets 25 bytes in a cycle. Limits that are close to each other add up.
    float bytes = blocks * (positions + maps) * 4 / 25;
    float cycles =
        hypotf(hypotf(issued * issued, alone * alone), hypotf(shared * shared, bytes * bytes));
    return count / blocks * (sums->depth * sqrtf(cycles) + tile_ends(t));
}

// Whether neighbouring positions are some sectors apart, each of which has taps of one alone.
static bool has_sectors(const struct conv_layer *layer)
{
    return layer->stride_x % SECTOR == 0 && layer->kernel_width % SECTOR == 0 &&
           layer->dilation_x == 1;
}

// The cheapest of a tile per block and equal shares.
static void estimate(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                     struct gemm_plan *c)
{
    const struct gemm_tile *t = &tiles[c->tile];
    float positions = (float)conv_layer_out_height(layer, shape->height) *
                      (float)conv_layer_out_width(layer, shape->width) * (float)shape->images;
    if (shape->images <= 0) // unknown: enough for all multiprocessors
        positions = 1 << 22;
    float count = ceilf(positions / (float)t->positions) *
                  (float)(ceil_div(layer->maps / layer->groups, t->maps) * layer->groups);
    struct gemm_sums sums = {
        ceilf((float)conv_layer_taps(layer) / (float)t->step) * (float)t->step,
        has_sectors(layer) && t->sectors != t->kernel ? 32 / SECTOR
                                                      : fminf((float)layer->stride_x, 32),
        fminf((float)layer->stride_y / (float)layer->kernel_height, 1) *
            fminf((float)layer->stride_x / (float)layer->kernel_width, 1),
        layer->kernel_height * layer->kernel_width == 1 && layer->stride_x == 1 &&
            layer->stride_y == 1 && !layer_is_padded(layer) &&
            (int64_t)shape->height * shape->width % 4 == 0,
    };
    float blocks = (float)t->blocks, each = ceilf(count / GEMM_PROCESSORS);
    float whole = floorf(each / blocks) * blocks, rest = each - whole;
    c->cost = tile_cycles(t, whole, blocks, &sums) + tile_cycles(t, rest, rest, &sums);
    c->shares = 0;
    // As many blocks as leave more than a tile to each.
    for (int n = t->blocks; n > 0 && shape->images > 0; n--) {
        if (count <= (float)(n * GEMM_PROCESSORS))
            continue;
        // Two parts of tiles, their sums, and a memset before.
        float shared =
            tile_cycles(t, count / GEMM_PROCESSORS, (float)n, &sums) + 2 * tile_ends(t) + 7200;
        if (shared < c->cost) {
            c->shares = n;
            c->cost = shared;
        }
    }
}

// Bytes of the partial sums of all blocks.
static size_t partial_bytes(const struct gemm_tile *t, int blocks)
{
    return (size_t)blocks * (size_t)(t->positions * t->maps) * sizeof(float);
}

// Of weights of a group: whole chunks of any tile, and those that it loads after the last one.
static size_t weight_rows(const struct conv_layer *layer)
{
    return (conv_layer_taps(layer) / MOST_STEP + STAGES) * MOST_STEP;
}

static const struct gemm_tile *tile_in(const struct conv_layer_plan *plan)
{
    return &tiles[layer_constants<struct gemm_plan>(plan)->tile];
}

// The maps of a group in whole tiles.
static int padded_maps(const struct conv_layer_plan *plan)
{
    int maps = tile_in(plan)->maps;
    return ceil_div(plan->layer.maps / plan->layer.groups, maps) * maps;
}

static bool plan_gemm(struct conv_layer_plan *plan)
{
    struct gemm_plan *best = layer_constants<struct gemm_plan>(plan);
    // The kernel's own padding is zeros, for kernels of a limited size.
    if (!layer_pads_zeros(&plan->layer) ||
        (layer_is_padded(&plan->layer) &&
         plan->layer.kernel_height + plan->layer.kernel_width > GEMM_MOST_SIDES))
        conv_layer_plan_pad(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    int64_t height = conv_layer_out_height(layer, shape->height);
    int64_t width = conv_layer_out_width(layer, shape->width);
    if (height <= 0 || width <= 0 || height * width > INT32_MAX / 2 ||
        conv_layer_taps(layer) > INT32_MAX / 2)
        return false;
    // An image's tiles are numbered by ints, also those of 16 x 16.
    int64_t map_tiles = (int64_t)ceil_div(layer->maps / layer->groups, 16) * layer->groups;
    if (map_tiles > INT32_MAX / 4 / (height * width / 16 + 1))
        return false;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        struct gemm_plan c = {};
        c.tile = (int)i;
        if (tiles[i].shared > LEAST_SHARED && conv_layer_taps(layer) < LEAST_LONG)
            continue;
        estimate(layer, shape, &c);
        if (i == 0 || c.cost < best->cost)
            *best = c;
    }
    const struct gemm_tile *t = &tiles[best->tile];
    snprintf(plan->tile, sizeof plan->tile, "%dx%d%s", t->positions, t->maps,
             best->shares ? "+" : "");
    plan->packed_bytes = (size_t)layer->groups * (weight_rows(layer) + 1) *
                         (size_t)padded_maps(plan) * sizeof(float);
    if (best->shares)
        plan->scratch = partial_bytes(t, GEMM_PROCESSORS * best->shares) +
                        (size_t)(GEMM_PROCESSORS * best->shares + 1) * sizeof(uint32_t);
    return true;
}

static int score_gemm(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    size_t taps = conv_layer_taps(layer);
    int maps = layer->maps / layer->groups;
    // A few microseconds, of which tensor cores save nothing.
    if (taps >= 48 && layer_constants<struct gemm_plan>(plan)->cost < 14600)
        return 125;
    if (maps < 16 || taps < 16) // most of a tile is not needed
        return 60;
    // Layers of few channels have kernels that read samples and weights less often.
    return maps < 32 || taps < 64 ? 86 : layer->channels / layer->groups <= 4 ? 87 : 100;
}

static void pack_gemm(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    size_t depth = conv_layer_taps(layer), rows = weight_rows(layer);
    size_t padded = (size_t)padded_maps(plan);
    int maps = layer->maps / layer->groups;
    float *packed = (float *)plan->packed;
    float *bias = packed + (size_t)layer->groups * rows * padded;
    size_t unit = (size_t)tile_in(plan)->unit;
    for (int m = 0; m < layer->maps; m++) {
        size_t group = (size_t)(m / maps), column = (size_t)(m % maps);
        float *to = packed + group * rows * padded + column * unit;
        for (size_t k = 0; k < rows; k++)
            to[k / unit * unit * padded + k % unit] =
                k < depth ? layer->weights[(size_t)m * depth + k] : -0.0f;
        if (layer->bias)
            bias[group * padded + column] = layer->bias[m];
    }
}

// Whether a tap may be 2^31 samples away from the first one.
static bool is_far(const struct conv_layer *layer, const struct conv_layer_batch *batch)
{
    int64_t channels = layer->channels / layer->groups;
    int64_t bytes = (channels - 1) * batch->src_plane + conv_layer_reach_y(layer) * batch->src_row;
    return bytes / (int64_t)conv_element_size(layer->input) > INT32_MAX - conv_layer_reach_x(layer);
}

// What does not depend on the number of images.
static struct gemm_launch describe(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch, const struct gemm_tile *t)
{
    const struct conv_layer *layer = &plan->layer;
    struct gemm_launch p = {};
    p.src_row = batch->src_row;
    p.src_plane = batch->src_plane;
    p.src_image = batch->src_image;
    p.tap_row = p.src_row * layer->dilation_y / (int64_t)conv_element_size(layer->input);
    p.tap_plane = p.src_plane / (int64_t)conv_element_size(layer->input);
    p.height = plan->shape.height;
    p.width = plan->shape.width;
    p.out_width = conv_layer_out_width(layer, p.width);
    p.plane = p.out_width * conv_layer_out_height(layer, p.height);
    p.stride_y = layer->stride_y;
    p.stride_x = layer->stride_x;
    p.dilation_y = layer->dilation_y;
    p.dilation_x = layer->dilation_x;
    p.pad_top = layer->pad_top;
    p.pad_left = layer->pad_left;
    p.padded = layer_is_padded(layer);
    p.group_channels = layer->channels / layer->groups;
    p.group_maps = layer->maps / layer->groups;
    p.maps = layer->maps;
    p.padded_maps = padded_maps(plan);
    p.taps = layer->kernel_height * layer->kernel_width;
    p.kernel_width = layer->kernel_width;
    p.depth = (int)conv_layer_taps(layer);
    p.rows = (int)weight_rows(layer);
    p.map_tiles = p.padded_maps / t->maps;
    p.chunks = ceil_div(p.depth, t->step);
    p.by_plane = layer_divider_of(p.plane);
    p.by_out_width = layer_divider_of(p.out_width);
    p.by_taps = layer_divider_of(p.taps);
    p.by_kernel_width = layer_divider_of(p.kernel_width);
    p.by_map_tiles = layer_divider_of(p.map_tiles);
    p.weights = (const float *)plan->d_packed;
    p.bias = p.weights + (size_t)layer->groups * (size_t)p.rows * (size_t)p.padded_maps;
    p.divisor = layer->input_divisor;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    p.vectors = !p.half && p.plane % 4 == 0 && layer->activation != CONV_ACTIVATION_TANH;
    return p;
}

// Whether four neighbouring positions are four adjacent samples at a multiple of 16 bytes.
static bool has_quads(const struct gemm_launch *p)
{
    return p->taps == 1 && p->stride_y == 1 && p->stride_x == 1 && !p->padded &&
           p->plane % 4 == 0 && p->src_row == p->out_width * (int64_t)sizeof(float) &&
           (p->src_plane | p->src_image) % 16 == 0;
}

// Lets all blocks do the same work if that is worth it for this number of tiles.
static enum conv_status share_tiles(const struct gemm_tile *t, int shares, struct gemm_launch *p,
                                    const struct conv_layer_batch *batch, int64_t *blocks)
{
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device))
        return CONV_ERR_DEVICE;
    int64_t most = (int64_t)(processors < GEMM_PROCESSORS ? processors : GEMM_PROCESSORS) * shares;
    if (p->tiles <= most)
        return CONV_OK;
    p->share = ceil_div64((int64_t)p->tiles * p->chunks, most);
    *blocks = ceil_div64((int64_t)p->tiles * p->chunks, p->share);
    p->partial = (float *)batch->scratch;
    p->flags = (uint32_t *)((char *)batch->scratch + partial_bytes(t, GEMM_PROCESSORS * shares));
    return cudaMemsetAsync(p->flags, 0, (size_t)(*blocks + 1) * sizeof(uint32_t),
                           (cudaStream_t)batch->stream)
               ? CONV_ERR_DEVICE
               : CONV_OK;
}

// The same with shorter chunks if blocks of the device have too little shared memory.
static const struct gemm_tile *fit_tile(const struct gemm_tile *t)
{
    int device = 0, bytes = LEAST_SHARED;
    if (t->shared > bytes && !cudaGetDevice(&device))
        (void)cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const struct gemm_tile *other = t->shared > bytes ? tiles : t;
    while (other->positions != t->positions || other->maps != t->maps || other->shared > bytes)
        other++;
    return other;
}

static enum conv_status run_gemm(const struct conv_layer_plan *plan,
                                 const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct gemm_plan *c = layer_constants<struct gemm_plan>(plan);
    bool far = is_far(layer, batch);
    const struct gemm_tile *t = far ? &far_tiles[tile_in(plan)->unit > 1] : fit_tile(tile_in(plan));
    struct gemm_launch p = describe(plan, batch, t);
    void (*kernel)(gemm_launch) = layer->input == CONV_ELEMENT_U8 ? t->bytes
                                  : has_quads(&p) && !far         ? t->quads
                                  : has_sectors(layer)            ? t->sectors
                                                                  : t->kernel;
    if (t->shared > LAYER_USUAL_SHARED && layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    // Tiles are numbered by ints.
    int64_t most = (int64_t)INT32_MAX / 2 * t->positions / p.map_tiles / layer->groups / p.plane;
    size_t element = conv_element_size(layer->output);
    enum conv_status status = CONV_OK;
    for (int64_t first = 0; first < batch->images && status == CONV_OK; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * p.src_image;
        p.dst = (char *)batch->dst + (size_t)(first * p.maps * p.plane) * element;
        p.positions = images * p.plane;
        p.position_tiles = (int)ceil_div64(p.positions, t->positions);
        p.by_position_tiles = layer_divider_of(p.position_tiles);
        p.tiles = p.position_tiles * p.map_tiles * layer->groups;
        p.share = 0;
        int64_t blocks = p.tiles;
        if (c->shares && !far)
            status = share_tiles(t, c->shares, &p, batch, &blocks);
        if (status == CONV_OK) {
            kernel<<<(unsigned)blocks, t->threads, (size_t)t->shared,
                     (cudaStream_t)batch->stream>>>(p);
            status = layer_launch_status();
        }
    }
    return status;
}

const struct conv_layer_variant conv_cuda_layer_gemm = {
    "cuda_layer_gemm",
    "a product of matrices: tiles of positions x maps in registers, samples gathered by copies",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_ANY | CONV_LAYER_LATE,
    plan_gemm,
    score_gemm,
    pack_gemm,
    run_gemm,
};
