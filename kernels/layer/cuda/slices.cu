// SPDX-License-Identifier: MIT
// cuda_layer_slices: the choice of an instance of slices.cuh and of a block's share of the outputs
// for a layer by a model of the time, and its launch.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/slices.cuh"

// --- the time by a model -------------------------------------------------------------------------

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

// --- the choice and the launch -------------------------------------------------------------------

#define MOST_BLOCKS (1 << 30) // of a launch
#define MOST_ROWS (1 << 30)   // of outputs, so that sums have 32 bits
#define MOST_TURNS 24         // blocks of a multiprocessor, one after the other

static const struct slices_shape shapes[] = {
    // Kernel width, rows, maps, threads at most; registers.
    slices_instance<5, 2, 4, 768>(80),  slices_instance<5, 1, 4, 1024>(64),
    slices_instance<5, 2, 2, 1024>(64), slices_instance<5, 1, 2, 1024>(56),
    slices_instance<5, 1, 1, 1024>(56), slices_instance<3, 2, 4, 768>(80),
    slices_instance<3, 1, 4, 1024>(64), slices_instance<3, 2, 2, 1024>(64),
    slices_instance<3, 1, 2, 1024>(56), slices_instance<3, 1, 1, 1024>(56),
};

static void try_share(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct slices_config *c, bool *found, struct slices_config *best)
{
    const struct slices_shape *s = &shapes[c->shape];
    if (!slices_fill_memory(layer, s, c))
        return;
    slices_fill_cost(layer, s, shape, c);
    if (!*found || c->cost < best->cost) {
        *best = *c;
        *found = true;
    }
}

// The difference to the next number of parts to try: every number up to 127, then about one in 64.
static int next_step(int parts)
{
    return parts < 64 ? 1 : parts / 64;
}

// Tries all shares with which each multiprocessor has equally many units, and those of whole groups
// with which a block needs one item.
static void try_shares(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                       struct slices_config *c, bool *found, struct slices_config *best)
{
    const struct slices_shape *s = &shapes[c->shape];
    c->groups = ceil_div(layer->maps, s->maps);
    int64_t units = slices_images(shape) * c->strips * c->groups * c->positions;
    for (int quarters = 1; quarters <= 4 * MOST_TURNS; quarters += quarters < 4 ? 1 : 4) {
        int64_t share = ceil_div64(units * 4, (int64_t)quarters * SLICES_PROCESSORS);
        if (share > s->threads)
            continue;
        c->share = (int)(share < 32 ? 32 : share);
        try_share(layer, shape, c, found, best);
        if (share <= 32)
            break;
    }
    int groups = c->groups, previous = 0, most = s->threads / c->positions;
    if (most < 1)
        return;
    for (int chunks = ceil_div(groups, most); chunks <= groups; chunks += next_step(chunks)) {
        int together = ceil_div(groups, chunks);
        if (together == previous)
            continue;
        previous = together;
        c->groups = chunks * together; // the last ones may be empty
        c->share = together * c->positions;
        try_share(layer, shape, c, found, best);
    }
}

// Tries all instances and numbers of strips.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct slices_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    bool found = false;
    if (layer->stride_x != 1 || layer->kernel_width != layer->kernel_height || out_height <= 0 ||
        out_width <= 0)
        return false;
    int most_rows = slices_most_rows(layer, shape);
    if (most_rows < 1 || out_height > MOST_ROWS)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct slices_shape *s = &shapes[i];
        if (s->kernel_width != layer->kernel_width || s->maps > layer->maps)
            continue;
        struct slices_config c = {};
        c.shape = (int)i;
        c.tiles = ceil_div(out_width, SLICES_COLUMNS);
        int previous = 0;
        int least = ceil_div(out_height, most_rows);
        for (int strips = least; strips <= out_height; strips += next_step(strips)) {
            c.strip_rows = ceil_div(out_height, strips);
            c.strips = ceil_div(out_height, c.strip_rows);
            if (c.strip_rows == previous)
                continue;
            previous = c.strip_rows;
            if (slices_fill_item(layer, s, shape, &c))
                try_shares(layer, shape, &c, &found, best);
        }
    }
    return found;
}

// Floats of the weights, and of the biases.
static size_t weight_floats(const struct conv_layer *layer, const struct slices_config *c)
{
    const struct slices_shape *s = &shapes[c->shape];
    return (size_t)c->groups * (size_t)layer->channels *
           (size_t)slices_weight_group(s->kernel_width, s->maps);
}

static bool plan_slices(struct conv_layer_plan *plan)
{
    struct slices_config *c = layer_constants<struct slices_config>(plan);
    if (!configure(&plan->layer, &plan->shape, c))
        return false;
    size_t floats = weight_floats(&plan->layer, c) + (size_t)(c->groups * shapes[c->shape].maps);
    plan->packed_bytes = floats * sizeof(float);
    return true;
}

// Microseconds that other exact variants take, from what they were measured to do. They compute
// tiles of about 8 columns x 8 maps; with few of them, warps or multiprocessors are idle. 0 with so
// many that this kernel gains nothing or was not measured.
static float others_cost(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    float images = (float)shape->images, outputs = (float)out_height * (float)out_width;
    float tiles = images * (float)out_height * (float)ceil_div(out_width, 8) *
                  (float)ceil_div(layer->maps, 8) / SLICES_PROCESSORS;
    float multiply_adds = images * outputs * (float)layer->maps * (float)taps;
    bool whole = out_width % SLICES_COLUMNS == 0;
    bool uniform = whole && layer->kernel_width == 5 && layer->channels <= 12;
    float full = !whole ? 250 : uniform ? 400 : 600; // tiles that keep all warps busy
    if (tiles > (uniform ? full / 2 : full * 2))
        return 0;
    // With so few channels `uniform` needs less: 6→16, 12², 1,000 images: 0.0149 ms, here 0.0154.
    if (uniform && layer->channels <= 6 && multiply_adds > 100e6f)
        return 0;
    float floats = images * (outputs * (float)layer->maps +
                             (float)layer->channels * (float)shape->height * (float)shape->width);
    float rate = uniform ? 20e6f : taps < 150 ? 10e6f : 16e6f;
    float compute = multiply_adds / rate / (tiles < full ? tiles / full : 1);
    float memory = floats * 4 / 3e6f;
    return 3.5f + (compute > memory ? compute : memory);
}

// Layers with so few taps are limited by writing, which `few` does as well: 1→50, 28², 5×5, 100
// images: 0.0090 ms, here 0.0125. But it takes 6 microseconds at least: 1→12, 64², 5×5, one image:
// 0.0067 ms, here 0.0049.
#define LEAST_TAPS 30
#define FEW_COST 6
// Microseconds. `strips` and `wgmma` take more, even for one image: 6→16, 12²: 0.0079 ms, here
// 0.0054.
#define TENSOR_CORES_COST 7.5f

// Padded and 8-bit input was not measured.
#define SINGLE_COPIES_MARGIN 1.25f

static int score_slices(const struct conv_layer_plan *plan)
{
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    if (shape->images <= 0)
        return CONV_LAYER_SCORE_UNSUITED;
    float others = others_cost(layer, shape);
    if (others <= 0)
        return 60;
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    float margin = slices_loads_singly(layer) ? SINGLE_COPIES_MARGIN : 1;
    if (c->cost * margin > others || (taps < LEAST_TAPS && c->cost > FEW_COST))
        return 60;
    return c->cost < TENSOR_CORES_COST ? 125 : 95;
}

static void pack_slices(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    float *packed = (float *)plan->packed;
    int maps = shapes[c->shape].maps, side = layer->kernel_width;
    int row = slices_weight_row(side, maps), group = slices_weight_group(side, maps);
    float *bias = packed + weight_floats(layer, c);
    for (int i = 0; i < c->groups * maps; i++) {
        int g = i / maps, m = i % maps;
        // The last group ends with the maps and may overlap the one before.
        int map = (g * maps < layer->maps - maps ? g * maps : layer->maps - maps) + m;
        if (g * maps >= layer->maps)
            break; // empty groups
        bias[i] = layer->bias ? layer->bias[map] : 0;
        for (int k = 0; k < layer->channels; k++) {
            size_t from =
                ((size_t)map * (size_t)layer->channels + (size_t)k) * (size_t)(side * side);
            float *to =
                packed + ((size_t)g * (size_t)layer->channels + (size_t)k) * (size_t)group + m;
            for (int t = 0; t < side * side; t++)
                to[t / side * row + t % side * maps] = layer->weights[from + (size_t)t];
        }
    }
}

// Samples of a row that are copied at a time.
static int choose_copy(const struct conv_layer *layer, const struct conv_layer_batch *batch,
                       int width)
{
    if (slices_loads_singly(layer))
        return 0;
    int64_t strides = batch->src_row | batch->src_plane | batch->src_image;
    return strides % 16 == 0 && width % 4 == 0 ? 4 : strides % 8 == 0 && width % 2 == 0 ? 2 : 1;
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct slices_config *c, struct slices_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_shape *s = &shapes[c->shape];
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->weights = (const float *)plan->d_packed;
    p->bias = p->weights + weight_floats(layer, c);
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->whole = slices_stores_directly(layer, &plan->shape);
    p->strips = c->strips;
    p->strip_rows = c->strip_rows;
    p->groups = c->groups;
    p->tiles = c->tiles;
    p->positions = c->positions;
    p->in_rows = c->in_rows;
    p->columns = c->columns;
    p->copy = choose_copy(layer, batch, p->width);
    p->vectors = p->columns / (p->copy > 1 ? p->copy : 1);
    p->row_threads = 1;
    while (p->row_threads < p->vectors && p->row_threads < 32)
        p->row_threads *= 2;
    p->pitch = c->pitch;
    p->item_floats = c->item_floats;
    p->weight_floats = c->weight_floats;
    p->memory_items = c->memory_items;
    p->share = c->share;
    p->first = c->first;
    int group = slices_weight_group(s->kernel_width, s->maps), others = p->channels - p->first;
    p->by_item = layer_divider_of(p->groups * p->positions);
    p->by_positions = layer_divider_of(p->positions);
    p->by_tiles = layer_divider_of(p->tiles);
    p->by_strips = layer_divider_of(p->strips);
    p->by_in_rows = layer_divider_of(p->in_rows);
    p->by_first_weights = layer_divider_of(p->first * group / 4);
    p->by_other_weights = layer_divider_of(others > 0 ? others * group / 4 : 1);
}

static enum conv_status run_slices(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    const struct slices_shape *s = &shapes[c->shape];
    struct slices_launch p;
    fill_launch(plan, batch, c, &p);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    int64_t image_units = (int64_t)p.strips * p.groups * p.positions;
    int64_t plane = (int64_t)p.out_height * p.out_width;
    // Items and blocks have numbers of 31 bits. Each launch begins at a multiple of 16 bytes.
    int64_t image_blocks = ceil_div64(image_units, p.share);
    int64_t most = MOST_BLOCKS / (image_blocks > p.strips ? image_blocks : p.strips) / 4 * 4;
    for (int64_t first = 0; first < batch->images; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * batch->src_image;
        p.to = store_target_of(layer,
                               (char *)batch->dst + first * p.maps * plane *
                                                        (int64_t)conv_element_size(layer->output),
                               p.out_height, p.out_width);
        p.units = images * image_units;
        void (*kernel)(slices_launch) = s->kernel;
        kernel<<<(unsigned)ceil_div64(p.units, p.share), c->threads, (size_t)c->shared_bytes,
                 (cudaStream_t)batch->stream>>>(p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cuda_layer_slices = {
    "cuda_layer_slices",
    "small tiles in registers, blocks with equal shares of the outputs, for few images",
    CONV_ON_CUDA,
    CONV_CUDA_ONLY + 90, // others have less shared memory; the choice was measured there
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS,
    plan_slices,
    score_slices,
    pack_slices,
    run_slices,
};
