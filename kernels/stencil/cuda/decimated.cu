// SPDX-License-Identifier: MIT
// Large Gaussians of integers by way of a coarse image (struct conv_decimated), in three kernels:
// reduce, filter, enlarge. Sums are exact in any order, and tensor cores compute them in bytes.
//
// Scratch of a plane, in cells of 32 bits (of 16 bits for what is exact in them): coarse samples
// from -1 - pad on, and filtered samples from -1 on.
#include "kernels/stencil/cuda/decimated_enlarge.cuh"

// --- a coarse image of integers ------------------------------------------------------------------
// Filtered with the products of decimated_reduce.cuh: a warp has 16 columns of results and walks
// down, 16 rows at a time, which depend on 16 + 2 * radius columns and rows. Results are exact sums
// of 16 bits times two weights of 16 bits, rounded once.

#define FILTER_WARPS 4  // of a block
#define FILTER_BLOCKS 4 // of a processor

// The lane's coarse samples of a window: columns i to i + 7 of rows y and y + 8, as coarse_place
// counts them.
template <typename Sample>
__device__ static inline void load_window(uint4 (&rows)[2], int i, int y,
                                          const struct grid<Sample> &grid,
                                          const struct decimated_filter &f)
{
    int x = i - f.radius + f.pad;
    bool inside = x >= 0 && x + 8 <= grid.coarse_width;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const uint16_t *row =
            grid.coarse + (uint64_t)(uint32_t)coarse_place(f, y + 8 * q, grid.coarse_height) *
                              (uint32_t)grid.coarse_pitch;
        if (inside) {
            rows[q] = *(const uint4 *)(row + x);
        } else {
            uint32_t words[4];
#pragma unroll
            for (int w = 0; w < 4; w++)
                words[w] = (uint32_t)row[coarse_place(f, i + 2 * w, grid.coarse_width)] |
                           (uint32_t)row[coarse_place(f, i + 2 * w + 1, grid.coarse_width)] << 16;
            rows[q] = as_uint4(words);
        }
    }
}

// The first product of 16 rows, as half of B of the second.
template <typename Sample>
__device__ static inline void
filter_rows(uint32_t (*words)[bytes_of<uint16_t>::ROW_SUM], int left, int top, const uint4 *tables,
            const struct grid<Sample> &grid, const struct decimated_filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    int32_t sums[2][bytes_of<uint16_t>::ROW_PARTS][4] = {};
    for (int a = 0; a < f.across_windows; a++) {
        uint4 rows[2];
        load_window(rows, left + a * WINDOW + lane % 4 * 8, top + lane / 4, grid, f);
        add_segment<uint16_t>(sums, rows, tables + a * TABLE_CELLS + lane);
    }
    split_sums<uint16_t>(words, sums);
}

// A lane has four neighbours of two rows; rows have room for all of these.
template <typename Sample>
__device__ static inline void store_tile(const int32_t (*sums)[bytes_of<uint16_t>::PARTS][4],
                                         int left, int top, const struct grid<Sample> &grid)
{
    constexpr int PARTS = bytes_of<uint16_t>::PARTS;
    constexpr int DROPPED = 48 - samples_of<Sample>::FILTERED - 24; // bits, after the first 24
    int lane = (int)threadIdx.x % WARP, x = left + lane % 4 * 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t four[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t sum = 0; // without the lower 24 bits
#pragma unroll
            for (int p = 0; p < PARTS - 1; p++)
                sum = (sum >> 8) + (uint32_t)sums[k / 2][p][2 * half + k % 2];
            sum += (uint32_t)sums[k / 2][PARTS - 1][2 * half + k % 2] << 8;
            four[k] = (sum + (1u << (DROPPED - 1))) >> DROPPED;
        }
        int y = top + lane / 4 + 8 * half;
        auto *to = grid.filtered + (uint64_t)(uint32_t)y * (uint32_t)grid.pitch + x;
        if (x >= grid.width || y >= grid.height)
            continue;
        if constexpr (sizeof *to == 2)
            *(uint2 *)to = make_uint2(four[0] | four[1] << 16, four[2] | four[3] << 16);
        else
            *(uint4 *)to = as_uint4(four);
    }
}

// A warp has filter_rows results of 16 columns. Shared: at most 10 KB of tables.
template <typename Sample>
static __global__ void __launch_bounds__(FILTER_WARPS *WARP, FILTER_BLOCKS)
    filter_bytes(const __grid_constant__ struct decimated_filter f)
{
    typedef struct bytes_of<uint16_t> bytes;
    __shared__ uint4 tables[2 * MOST_WINDOWS * TABLE_CELLS];
    const struct grid<Sample> grid = find_grid<Sample>(f, f.planes[blockIdx.y]);
    int windows = f.windows;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int across = (grid.width - 1) / STRIP + 1;
    int items = across * ((grid.height - 1) / f.filter_rows + 1);
    ask_tables(tables, f.tables->filter, (f.across_windows + windows) * TABLE_CELLS);
    __pipeline_commit();
    start_next_kernel();
    wait_for_earlier_kernel();
    __pipeline_wait_prior(0);
    __syncthreads(); // tables
    for (int item = (int)blockIdx.x * FILTER_WARPS + warp; item < items;
         item += (int)gridDim.x * FILTER_WARPS) {
        int left = item % across * STRIP, first = item / across * f.filter_rows;
        int end = min(first + f.filter_rows, grid.height);
        uint32_t words[2][2][bytes::ROW_SUM];
        for (int top = first; top < end; top += STRIP) {
            int32_t sums[2][bytes::PARTS][4] = {};
            for (int b = 0; b < windows; b++) {
                int y = top + b * WINDOW;
                if (windows == 1 && top > first)
                    memcpy(words[0], words[1], sizeof words[0]);
                else
                    filter_rows(words[0], left - f.lead, y, tables, grid, f);
                filter_rows(words[1], left - f.lead, y + STRIP, tables, grid, f);
                add_block<uint16_t>(sums, words,
                                    tables + (f.across_windows + b) * TABLE_CELLS + lane);
            }
            store_tile(sums, left, top, grid);
        }
    }
}

// --- host ----------------------------------------------------------------------------------------

#define MOST_BLOCKS 65535 // of a launch along x, and planes along y

struct decimated_constants {
    struct decimated_filter filter; // first, for conv_cuda_decimated_tables
    void (*reduce)(struct decimated_filter);
    void (*share)(struct decimated_filter); // the same with SHARES, for large steps, or NULL
    void (*join)(struct decimated_filter);  // after these, with seams
    void (*filter_image)(struct decimated_filter);
    void (*enlarge)(struct decimated_filter);
    int table_bytes, sample_bytes, sum_bytes; // the last of a strip
    int stage_rows, reducing_blocks;          // of a block that reduces, of a processor
};

template <typename Sample, typename Result, int PARTS>
static void choose_enlarge(struct decimated_constants *constants)
{
    constants->enlarge = constants->filter.amount ? enlarge<Sample, Result, MUCH, PARTS>
                                                  : enlarge<Sample, Result, NONE, PARTS>;
    if constexpr (sizeof(Sample) == 1 && sizeof(Result) == 1)
        if (constants->filter.amount && constants->filter.amount <= CONV_DECIMATED_AMOUNT)
            constants->enlarge = enlarge<Sample, Result, SOME, PARTS>;
}

template <typename Sample, enum borders BORDERS>
static void choose_reduce(struct decimated_constants *constants, bool small)
{
    constexpr int HALF = ROW_GROUPS / 2;
    bool large = constants->filter.step > 2 && !small;
    constants->reduce = small   ? reduce_bytes<Sample, ROW_GROUPS, 1, BORDERS>
                        : large ? reduce_bytes<Sample, HALF, 2, BORDERS>
                                : reduce_bytes<Sample, HALF, 1, BORDERS>;
    constants->share = large ? reduce_bytes<Sample, HALF, 2, BORDERS, true> : NULL;
}

template <typename Sample, typename Result>
static void set_kernels(struct decimated_constants *constants)
{
    struct decimated_filter &f = constants->filter;
    // Stages of about 32 KB or less.
    constants->sample_bytes = (int)sizeof(Sample);
    constants->sum_bytes = STRIP_SUMS(Sample) * WARP * (int)sizeof(uint32_t);
    bool small = f.step > 2 && f.step * constants->sample_bytes <= 8;
    constants->stage_rows = small ? 8 * ROW_GROUPS : 4 * ROW_GROUPS;
    if (f.border == CONV_BORDER_REPLICATE)
        choose_reduce<Sample, REPLICATED>(constants, small);
    else if (f.border == CONV_BORDER_REFLECT || f.border == CONV_BORDER_REFLECT101)
        choose_reduce<Sample, MIRRORED>(constants, small);
    else
        choose_reduce<Sample, OTHERS>(constants, small);
    constants->reducing_blocks = REDUCING_BLOCKS(Sample);
    constants->join = join_seams<Sample>;
    constants->filter_image = filter_bytes<Sample>;
    if (f.up_parts == 1)
        choose_enlarge<Sample, Result, 1>(constants);
    else
        choose_enlarge<Sample, Result, MOST_PARTS>(constants);
    f.segments = (19 * f.step - 1) * (int)sizeof(Sample) / SEGMENT + 1;
    bool halves = (19 * f.step - 1) % SEGMENT < SEGMENT / 2;
    f.half_segment = sizeof(Sample) == 1 && halves ? f.segments - 1 : -1;
    constants->table_bytes =
        (f.segments * bytes_of<Sample>::PRODUCTS + f.phases) * (int)(TABLE_CELLS * sizeof(uint4));
}

static void plan_decimated(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->depth == 32) {
        conv_cuda_decimated_floats_plan(stencil, plan);
        return;
    }
    auto *constants = constants_of<struct decimated_constants>(plan);
    struct decimated_filter &f = constants->filter;
    const struct conv_decimated &d = stencil->decimated;
    f.step = d.step;
    f.radius = d.radius;
    f.border = (int32_t)stencil->border;
    f.border_value = stencil->border_value;
    f.pad = stencil->border == CONV_BORDER_REPLICATE ? 1 : d.radius | 1;
    f.block_rows = d.step > 2 ? 8 * ROW_GROUPS : 4 * ROW_GROUPS;
    for (f.seam_rows = f.block_rows; f.seam_rows % d.step;)
        f.seam_rows += f.block_rows;
    f.first_row = floor_div((-3 - f.pad) * d.step, f.seam_rows) * f.seam_rows;
    // Coarse rows of as many blocks and of the two steps around them have different places.
    f.store_blocks = max(((STRIP - 5) * d.step + 2) / f.block_rows, 1);
    for (f.phases = 1; f.phases * f.block_rows % (STRIP * d.step);)
        f.phases++;
    // Windows along rows begin at multiples of 8 coarse samples.
    f.lead = (f.pad - f.radius) & 7;
    f.windows = (STRIP + 2 * f.radius - 1) / WINDOW + 1;
    f.across_windows = (STRIP + 2 * f.radius - 1 + f.lead) / WINDOW + 1;
    f.up_parts = d.step < 4 ? 2 : 1;
    for (f.up_phases = 1; f.up_phases * TILE % (2 * d.step);)
        f.up_phases++;
    for (f.down_phases = 1; f.down_phases * TILE % (GROUP * d.step);)
        f.down_phases++;
    f.amount = d.amount;
    if (d.amount && stencil->keep_below)
        f.least_off = (int32_t)min((stencil->keep_below - 1) / d.amount + 1, (int64_t)INT32_MAX);
    if (stencil->depth == 8)
        stencil->floats ? set_kernels<uint8_t, float>(constants)
                        : set_kernels<uint8_t, uint8_t>(constants);
    else
        stencil->floats ? set_kernels<uint16_t, float>(constants)
                        : set_kernels<uint16_t, uint16_t>(constants);
}

// Blocks take tiles of a plane, `most` of them, in turn. early: before the kernel before has ended.
static void start(void (*kernel)(struct decimated_filter), int threads, int64_t most, int planes,
                  size_t shared, bool early, const struct decimated_filter *f, cudaStream_t stream)
{
    dim3 blocks((unsigned)(most < MOST_BLOCKS ? most : MOST_BLOCKS), (unsigned)planes);
    // A processor has to be idle to divide its memory in another way.
    (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
    launch_early(kernel, blocks, (uint32_t)threads, shared, early, stream, *f);
}

// Columns of a plane's coarse samples that blocks or warps reduce or filter, and their rows.
struct shape {
    int64_t columns, rows;
};

static struct shape find_shape(const struct decimated_filter *f,
                               const struct conv_stencil_plane *plane, bool reduces)
{
    int width = (plane->width - 1) / f->step + 4, height = (plane->height - 1) / f->step + 4;
    int strip, strips;
    if (reduces)
        return {divide_strips(&strip, &strips, -1, plane->width, width + 2 * f->pad, *f),
                count_rows(*f, height + 2 * f->pad)};
    return {(width - 1) / STRIP + 1, height};
}

#define MOST_ROUNDS 4
#define JOINING 24   // rows of pixels that take as long as to join seams
#define LEAST_PART 8 // steps between seams, which conv_stencil_cells relies on

struct division {
    int64_t part, blocks; // rows of a column that a part has; blocks of the largest plane
    double cost;          // rows that take as long as all
};

// Finds parts, of a multiple of `unit` rows, such that blocks of `together` parts, of which `slots`
// run at a time, end early: each begins with rows that others compute, too, and more: `extra`.
static struct division divide_rows(const struct decimated_filter *f,
                                   const struct conv_stencil_plane *planes, int count, bool reduces,
                                   int together, int64_t slots, int unit, double extra)
{
    struct division best = {0, 0, INFINITY};
    int64_t rows = 1, blocks = 0, part = 0;
    int64_t least_part =
        reduces && f->seams ? (LEAST_PART * f->step - 1 + unit) / unit * unit : unit;
    for (int p = 0; p < count; p++)
        rows = max(rows, find_shape(f, &planes[p], reduces).rows);
    for (int parts = 1; part != least_part && blocks <= MOST_ROUNDS * slots; parts++) {
        int64_t largest = 0, own = 0;
        part = max(((rows - 1) / parts + unit) / unit * unit, least_part);
        blocks = 0;
        for (int p = 0; p < count; p++) {
            if (p == 0 || planes[p].width != planes[p - 1].width ||
                planes[p].height != planes[p - 1].height) {
                struct shape shape = find_shape(f, &planes[p], reduces);
                own = (shape.columns * ((shape.rows - 1) / part + 1) - 1) / together + 1;
                largest = max(largest, own);
            }
            blocks += own;
        }
        double cost = (double)((blocks - 1) / slots + 1) * ((double)part + extra);
        if (cost < best.cost)
            best = {part, largest, cost};
    }
    return best;
}

// How blocks reduce: see reduce_integers.
struct reduction {
    int strips, stages, pitch, shared; // the latter in bytes
    bool shares, seams;
    int64_t slots; // blocks that run at a time
    struct division division;
};

// As many strips as fit, as other warps of a block only load, with `least` stages or more.
static struct reduction fit_strips(const struct conv_stencil_plan *plan, int least)
{
    const auto *constants = constants_of<struct decimated_constants>(plan);
    const struct decimated_filter &f = constants->filter;
    int most = plan->cuda.block_shared_bytes;
    int room = min(most, plan->cuda.shared_bytes / constants->reducing_blocks - 1024);
    struct reduction r = {};
    for (r.strips = REDUCE_THREADS / WARP;; r.strips /= 2)
        for (r.stages = MOST_STAGES; r.stages >= (r.strips == 1 ? 2 : least); r.stages--) {
            // Eight lanes read four times 16 bytes of two rows, from different banks.
            int bytes = (r.strips - 1) * STRIP * f.step * constants->sample_bytes;
            if (f.border != CONV_BORDER_REPLICATE)
                bytes += 20; // a shift, and a word after it that load_any reads
            r.pitch = (bytes + f.segments * SEGMENT + 63) / 128 * 128 + 64;
            r.shared =
                BARRIER_BYTES + constants->table_bytes + r.stages * constants->stage_rows * r.pitch;
            // Four warps or more for a strip; two took 2 to 4 % longer than one.
            r.shares = constants->share && r.strips <= REDUCE_THREADS / WARP / 4;
            if (r.shares)
                r.shared += r.strips * constants->sum_bytes;
            if (r.shared <= (r.strips == 1 ? most : room) || (r.strips == 1 && r.stages == 2))
                return r;
        }
}

static struct reduction plan_reduction(const struct conv_stencil_plan *plan,
                                       const struct conv_stencil_plane *planes, int count,
                                       int least_stages)
{
    const auto *constants = constants_of<struct decimated_constants>(plan);
    struct decimated_filter f = constants->filter;
    struct reduction r = fit_strips(plan, least_stages);
    r.slots = max(1, min(plan->cuda.shared_bytes / (r.shared + 1024), constants->reducing_blocks));
    r.slots *= plan->cuda.processors;
    // Seams save the rows around parts and cost a kernel.
    double filling = 8.0 * ROW_GROUPS + 32;
    f.strips = r.strips;
    f.seams = 1;
    struct division joined = divide_rows(&f, planes, count, true, 1, r.slots, f.seam_rows, filling);
    f.seams = 0;
    r.division = divide_rows(&f, planes, count, true, 1, r.slots, 1, 3 + filling / f.step);
    r.division.cost *= f.step;
    r.seams = joined.cost + JOINING < r.division.cost;
    if (r.seams) {
        r.division = joined;
        r.division.cost += JOINING;
    }
    return r;
}

// With two stages rather than three there may be room for twice the strips, which take a row 1.4
// times as long.
#define TWICE_THE_STRIPS 1.36

static enum conv_status reduce_integers(const struct conv_stencil_plan *plan,
                                        const struct conv_stencil_plane *planes, int count,
                                        struct decimated_filter *f, cudaStream_t stream)
{
    const auto *constants = constants_of<struct decimated_constants>(plan);
    struct reduction r = plan_reduction(plan, planes, count, MOST_STAGES);
    if (r.strips < REDUCE_THREADS / WARP) {
        struct reduction other = plan_reduction(plan, planes, count, 2);
        if (other.division.cost * TWICE_THE_STRIPS < r.division.cost)
            r = other;
    }
    f->strips = r.strips;
    f->stages = r.stages;
    f->pitch = r.pitch;
    f->seams = r.seams;
    f->part_rows = (int32_t)r.division.part;
    auto *reduce = r.shares ? constants->share : constants->reduce;
    if (allow_shared_memory(plan, (const void *)reduce) != cudaSuccess)
        return CONV_ERR_DEVICE;
    start(reduce, REDUCE_THREADS, r.division.blocks, count, (size_t)r.shared, false, f, stream);
    if (f->seams)
        start(constants->join, THREADS, (2 * r.slots - 1) / count + 1, count, 0,
              plan->cuda.major >= 9, f, stream);
    return CONV_OK;
}

static enum conv_status run_integers(const struct conv_stencil_plan *plan,
                                     const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct decimated_constants>(plan);
    struct decimated_filter f = constants->filter;
    auto stream = (cudaStream_t)batch->cuda.stream;
    bool early = plan->cuda.major >= 9;
    int64_t processors = plan->cuda.processors, count = batch->count;
    f.planes = batch->cuda.d_planes;
    f.scratch = (uint8_t *)batch->cuda.scratch;
    f.tables =
        (const struct decimated_tables *)plan->cuda.d_taps; // uploaded after the plan was made
    struct division filtered = divide_rows(&f, batch->planes, batch->count, false, FILTER_WARPS,
                                           processors * FILTER_BLOCKS, STRIP, STRIP);
    f.filter_rows = (int32_t)filtered.part;
    // Blocks that all run at the same time share the tiles of planes; of many planes they are more.
    int64_t slots = processors * ENLARGING_BLOCKS(f.amount != 0);
    int64_t enlarged = max(slots < 4 * count ? 4 * slots / count : slots / count, (int64_t)1);
    if (reduce_integers(plan, batch->planes, batch->count, &f, stream) != CONV_OK)
        return CONV_ERR_DEVICE;
    start(constants->filter_image, FILTER_WARPS * WARP, filtered.blocks, batch->count, 0, early, &f,
          stream);
    start(constants->enlarge, THREADS, enlarged, batch->count, 0, early, &f, stream);
    return launch_status();
}

// Up to MOST_BLOCKS planes at a time.
static enum conv_status run_decimated(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    auto *run = plan->stencil->depth == 32 ? conv_cuda_decimated_floats_run : run_integers;
    struct conv_stencil_batch part = *batch;
    enum conv_status status = CONV_OK;
    for (int p = 0; p < batch->count && !status; p += MOST_BLOCKS) {
        part.planes = batch->planes + p;
        part.count = min(MOST_BLOCKS, batch->count - p);
        part.cuda.d_planes = batch->cuda.d_planes + p;
        status = run(plan, &part);
    }
    return status;
}

CONV_CUDA_VARIANT_OF(FLOAT_RESULTS | FLOAT_SAMPLES | THRESHOLDS | DECIMATED, decimated, 75,
                     "large Gaussians, by way of a coarse image", NULL, score_always<50>,
                     plan_decimated, run_decimated, 128, 64);
