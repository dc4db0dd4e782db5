// SPDX-License-Identifier: MIT
// Brings samples to the warps that compute, for the kernels of compute capability 9.0: the warps of
// a block have roles (warp specialisation: Bauer, Cook and Khailany, "CudaDMA", 2011). Of n + 4:
//
//   n consumer warps    filter microtiles of a stage and store them
//   scheduler warp      finds the block's work tiles (tile_schedule.cuh) and queues them
//   producer warp       has the bulk copy engine (TMA) copy their rows into a ring of stages
//   border warp         completes a stage (tile_schedule.cuh)
//   an idle warp        four helpers are a warpgroup, which can release registers
//
// A block is n + 4 warps and all shared memory of its processor that 4 stages can use: the struct
// below, the stages (at most 36 KB each), and after them the memory that a kernel requests.
//
// Every lane arrives at a barrier for its own reads and writes, so that no ordering depends on
// another lane's arrival.
#pragma once

#include "kernels/stencil/cuda/tile_schedule.cuh"

#define PIPELINE_SCRATCH 576 // bytes in which a kernel passes coefficients to its consumers

struct tma_pipeline {
    // Of each stage: the producer's copies have arrived; the border warp has completed it; all
    // consumers have read it.
    uint64_t full[MAX_STAGES], patched[MAX_STAGES], empty[MAX_STAGES];
    // Of each entry of the queue: the scheduler has written it; the producer has read it.
    uint64_t queued[QUEUE_TILES], dequeued[QUEUE_TILES];
    struct work_tile tiles[MAX_STAGES], queue[QUEUE_TILES];
    uint32_t scratch[PIPELINE_SCRATCH / 4];
};
#define PIPELINE_BYTES ((sizeof(struct tma_pipeline) + 127) / 128 * 128)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline uint8_t *stages_of(struct tma_pipeline *pipeline)
{
    return (uint8_t *)pipeline + PIPELINE_BYTES;
}

template <typename Traits>
__device__ inline struct tma_pipeline *init_pipeline(void *memory,
                                                     const struct tile_schedule &schedule)
{
    struct tma_pipeline *pipeline = (struct tma_pipeline *)memory;
    if (threadIdx.x == 0) {
        for (int i = 0; i < schedule.stages; i++) {
            barrier_init(&pipeline->full[i], 1);
            barrier_init(&pipeline->patched[i], WARP);
            barrier_init(&pipeline->empty[i], Traits::CONSUMERS * WARP);
        }
        for (int i = 0; i < QUEUE_TILES; i++) {
            barrier_init(&pipeline->queued[i], 1);
            barrier_init(&pipeline->dequeued[i], WARP);
        }
        fence_for_bulk();
    }
    return pipeline;
}

// --- scheduler warp ------------------------------------------------------------------------------

// Works ahead of the producer, because a read of the table of planes takes a microsecond when
// memory is busy.
template <typename Traits>
__device__ inline void run_scheduler(struct tma_pipeline *pipeline,
                                     const struct tile_schedule &schedule)
{
    struct pipeline_state state = {0, 1}; // parity 1: all entries are free at first
    wait_for_earlier_kernel();            // the other warps wait for this one's first work tile
    schedule_tiles<Traits>(schedule, [&](const struct work_tile &tile) {
        barrier_wait(&pipeline->dequeued[state.stage], state.parity);
        __syncwarp(); // lane 0 must not end a phase that another lane still waits for
        if (threadIdx.x % WARP == 0) {
            pipeline->queue[state.stage] = tile;
            barrier_arrive(&pipeline->queued[state.stage]);
        }
        advance(&state, QUEUE_TILES);
    });
}

// --- producer warp -------------------------------------------------------------------------------

// Starts the copies of a work tile into a free stage. Adjacent rows are copied by one lane in a
// loop: a bulk copy is one instruction of a warp, and copies in several lanes are serialised at a
// higher cost. A copy may read bytes after the row's last sample, up to the next multiple of 16;
// the stride of such a plane is a multiple of 16, too.
template <typename Traits>
__device__ inline void copy_tile(struct tma_pipeline *pipeline, uint8_t *samples, int stage,
                                 const struct work_tile &tile, const struct tile_schedule &schedule)
{
    int lane = (int)threadIdx.x % WARP;
    uint64_t *full = &pipeline->full[stage];
    int from = first_column<Traits>(tile);
    uint32_t bytes =
        (uint32_t)(((end_column<Traits>(tile) - from) * sample_bytes<Traits> + 15) / 16 * 16);
    int rows = stage_rows<Traits>(tile), top = stage_top<Traits>(tile);
    int first = max(-top, 0), end = min(rows, tile.plane_height - top); // rows of the image
    if (Traits::COLUMN_TILES)
        end = max(end, 0); // a last tile so low that all its rows are beyond the edge
    int outside = schedule.border != CONV_BORDER_CONSTANT ? rows - (end - first) : 0;
    int copies = tile.bulk ? end - first + outside : 0;
    if (lane == 0) {
        pipeline->tiles[stage] = tile;
        uint32_t between = tile.whole ? (uint32_t)((end - first - 1) * tile.pitch) : 0;
        uint32_t lines = tile.whole ? (uint32_t)(1 + outside) : (uint32_t)copies;
        barrier_arrive_expect(full, lines * bytes + between);
    }
    __syncwarp();
    if (!copies)
        return;
    fence_for_bulk();
    uint32_t to = shared_address(samples + Traits::HALO + (from - tile.x) * sample_bytes<Traits>);
    uint32_t barrier = uniform(shared_address(full));
    uint64_t line = __cvta_generic_to_global(tile.src) + (uint64_t)(from * sample_bytes<Traits>);
    uint64_t row = uniform(line + (uint64_t)((top + first) * tile.src_stride));
    uint64_t stride = uniform((uint64_t)tile.src_stride);
    uint32_t at = uniform(to + (uint32_t)(first * tile.pitch));
    uint32_t pitch = uniform((uint32_t)tile.pitch);
    bytes = uniform(bytes);
    int count = (int)uniform((uint32_t)(end - first));
    uint32_t size = bytes;
    if (uniform((uint32_t)tile.whole)) {
        size += (uint32_t)(count - 1) * pitch;
        count = 1;
    }
    if (elect()) {
#pragma unroll 4
        for (int i = 0; i < count; i++) {
            bulk_copy(at, row, size, barrier);
            at += pitch;
            row += stride;
        }
    }
    __syncwarp();
    if (lane < outside) {
        int i = lane < first ? lane : end + lane - first;
        bulk_copy(to + (uint32_t)(i * tile.pitch),
                  line + (uint64_t)(source_row<Traits>(tile, schedule, i) * tile.src_stride), bytes,
                  barrier);
    }
}

template <typename Traits>
__device__ inline void run_producer(struct tma_pipeline *pipeline, uint8_t *stages,
                                    const struct tile_schedule &schedule)
{
    struct pipeline_state state = {0, 1}, next = {0, 0}; // of the stages, of the queue
    for (;;) {
        barrier_wait(&pipeline->queued[next.stage], next.parity);
        struct work_tile tile = pipeline->queue[next.stage];
        barrier_arrive(&pipeline->dequeued[next.stage]);
        advance(&next, QUEUE_TILES);
        barrier_wait(&pipeline->empty[state.stage], state.parity);
        __syncwarp(); // as in run_scheduler
        if (tile.rows == 0)
            break;
        copy_tile<Traits>(pipeline, stages + state.stage * schedule.stage_bytes, state.stage, tile,
                          schedule);
        advance(&state, schedule.stages);
    }
    if (threadIdx.x % WARP == 0) {
        pipeline->tiles[state.stage].rows = 0;
        barrier_arrive(&pipeline->full[state.stage]);
    }
}

// --- border warp ---------------------------------------------------------------------------------

template <typename Traits>
__device__ inline void run_border(struct tma_pipeline *pipeline, uint8_t *stages,
                                  const struct tile_schedule &schedule)
{
    struct pipeline_state state = {0, 0};
    for (;;) {
        barrier_wait(&pipeline->full[state.stage], state.parity);
        struct work_tile tile = pipeline->tiles[state.stage];
        uint8_t *samples = stages + state.stage * schedule.stage_bytes;
        if (tile.rows) {
            if (!tile.bulk)
                load_unaligned<Traits>(samples, tile, schedule);
            if (schedule.border == CONV_BORDER_CONSTANT)
                fill_rows<Traits>(samples, tile, schedule);
            __syncwarp(); // columns repeat what other lanes have loaded
            if constexpr (borders_by_words<Traits>)
                patch_wide<Traits>(samples, tile, schedule);
            else
                patch_columns<Traits>(samples, tile, schedule);
        }
        barrier_arrive(&pipeline->patched[state.stage]);
        if (!tile.rows)
            return;
        advance(&state, schedule.stages);
    }
}

// --- consumer warps ------------------------------------------------------------------------------

// Helper warps need few registers and consumers more than an equal share. Warpgroups of 4 warps can
// release and take them (PTX ISA: "setmaxnreg"). A block of 20 warps begins with 96 registers per
// thread, one of 16 with 128; the numbers below have the same sum: 16 * 104 + 4 * 64 = 20 * 96, and
// 12 * 152 + 4 * 56 = 16 * 128.
template <int CONSUMERS> __device__ inline void take_registers(void)
{
    static_assert(CONSUMERS == 16 || CONSUMERS == 12, "the numbers below are for these");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMERS == 16 ? 104 : 152));
#endif
}

template <int CONSUMERS> __device__ inline void give_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(CONSUMERS == 16 ? 64 : 56));
#endif
}

// The loop of a consumer warp: calls run(tile, samples, job) for jobs of WARP_MICROTILES
// microtiles, which the consumer warps take in turn, across work tiles. `samples` is the stage. It
// waits for `full`, too: bulk copies are visible only to a thread that has seen their barrier
// complete.
template <typename Traits, typename Run>
__device__ inline void consume_tiles(struct tma_pipeline *pipeline,
                                     const struct tile_schedule &schedule, Run run)
{
    const uint8_t *stages = stages_of(pipeline);
    struct pipeline_state state = {0, 0};
    int job = (int)uniform(threadIdx.x / WARP);
    for (;;) {
        barrier_wait(&pipeline->patched[state.stage], state.parity);
        barrier_wait(&pipeline->full[state.stage], state.parity);
        struct work_tile tile = pipeline->tiles[state.stage];
        if (!uniform((uint32_t)tile.rows))
            return;
        int jobs = (int)((uniform((uint32_t)tile.microtiles) + Traits::WARP_MICROTILES - 1) /
                         Traits::WARP_MICROTILES);
        for (; job < jobs; job += Traits::CONSUMERS)
            run(tile, stages + state.stage * schedule.stage_bytes, job);
        job -= jobs;
        barrier_arrive(&pipeline->empty[state.stage]);
        advance(&state, schedule.stages);
    }
}

// The body of a TMA kernel. All threads call prepare(pipeline), which may write pipeline->scratch
// and the shared memory after the stages. Consumer warps then call consume(pipeline), which loads
// what they need into registers and calls consume_tiles.
template <typename Traits, typename Prepare, typename Consume>
__device__ inline void tma_pipeline_main(const struct tile_schedule &schedule, Prepare prepare,
                                         Consume consume)
{
    extern __shared__ __align__(128) uint8_t memory[];
    struct tma_pipeline *pipeline = init_pipeline<Traits>(memory, schedule);
    prepare(pipeline);
    __syncthreads(); // barriers are initialised, and prepare's writes are complete
    int warp = (int)uniform(threadIdx.x / WARP);
    if (warp >= Traits::CONSUMERS) {
        int helper = warp - Traits::CONSUMERS;
        give_registers<Traits::CONSUMERS>();
        if (helper == 0)
            run_scheduler<Traits>(pipeline, schedule);
        else if (helper == 1)
            run_producer<Traits>(pipeline, stages_of(pipeline), schedule);
        else if (helper == 2)
            run_border<Traits>(pipeline, stages_of(pipeline), schedule);
    } else {
        take_registers<Traits::CONSUMERS>();
        consume(pipeline);
    }
}

#endif

// --- host ----------------------------------------------------------------------------------------

// Plans the distribution of tiles to `blocks` blocks. In a fixed order blocks would not end at the
// same time, because some are farther from memory (8192 x 8192, 3 x 3: 0.84 of the speed of a copy
// instead of 0.86), so the work counter decides; smaller groups at the end shorten the wait for the
// last block.
// `unit`: tiles of a band of microtiles; a group that ends within one leaves consumers half a job.
static void plan_groups(struct tile_schedule *schedule, uint32_t blocks, uint32_t unit)
{
    uint32_t tiles_per_plane = schedule->tiles / (uint32_t)schedule->count;
    bool small = tiles_per_plane <= SMALL_PLANE_TILES;
    uint32_t tiles = small ? min(schedule->tiles / (blocks * 20), tiles_per_plane)
                           : min(schedule->tiles / (blocks * 40), (uint32_t)MAX_GROUP_TILES);
    if (!small)
        tiles = max(tiles - tiles % unit, unit);
    schedule->group_tiles = max(tiles, 1u);
    uint32_t rounds = schedule->tiles / (blocks * schedule->group_tiles);
    schedule->full_groups = rounds > 1 ? (rounds - 1) * blocks : 0;
    schedule->last_group_tiles = small ? schedule->group_tiles : schedule->merged_tiles;
}

// The same for traits with COLUMN_TILES. A group is best a whole column, because sums are not kept
// from one group to the next; its first work tile takes half as long again. The last quarter of the
// tiles is distributed in smaller groups, so that blocks end at the same time.
#define LARGE_SHARE 128 // tiles of a block from which groups are whole columns
#define SMALL_GROUP 4   // tiles of a group at the end; twice as many of a large share
static void plan_columns(struct tile_schedule *schedule, uint32_t blocks, uint32_t column)
{
    uint32_t share = (schedule->tiles - 1) / blocks + 1, merged = schedule->merged_tiles;
    uint32_t most = share - share / 4, rounds = 0;
    schedule->group_tiles = schedule->last_group_tiles = share;
    if (share >= LARGE_SHARE) {
        rounds = most / column;
        schedule->group_tiles = column;
        schedule->last_group_tiles = 2 * SMALL_GROUP;
    } else if (share > column) {
        rounds = (most - 1) / column + 1;
        schedule->group_tiles = most / rounds / merged * merged;
        schedule->last_group_tiles = SMALL_GROUP;
    }
    schedule->full_groups = rounds * blocks;
}

// Fills *schedule for a launch, sets the grid and the shared memory of a block, of which `extra`
// bytes lie after the stages, and allows the kernel as much.
template <typename Traits>
static cudaError_t plan_pipeline(struct tile_schedule *schedule,
                                 const struct conv_stencil_plan *plan,
                                 const struct conv_stencil_batch *batch, const void *kernel,
                                 size_t extra, uint32_t *grid, size_t *bytes)
{
    const struct conv_stencil *stencil = plan->stencil;
    schedule->planes = batch->cuda.d_planes;
    schedule->count = batch->count;
    schedule->tiles = batch->cuda.tiles;
    for (int i = 0; i < batch->count && batch->count <= FEW_PLANES; i++)
        schedule->few[i] = batch->planes[i];
    schedule->border = stencil->border;
    schedule->border_value = stencil->border_value;
    schedule->channels = stencil->channels;
    schedule->radius = stencil->width / 2;
    schedule->work_counter = &batch->cuda.d_planes->cuda.work_counter;
    schedule->finished_blocks = &batch->cuda.d_planes->cuda.finished_blocks;

    // At most 4 stages of 36 KB: with more copies in flight per processor, memory serves them in a
    // worse order; with fewer, the consumers wait (1000 of 300 x 300, 3 x 3: 0.84 of the speed of a
    // copy with 6 stages, 0.87 with 4, 0.76 with 3). Rows of large planes come in a better order.
    schedule->merged_tiles =
        max(2 / sample_bytes<Traits>, Traits::MICROTILE_ROWS / Traits::TILE_HEIGHT);
    schedule->stage_bytes =
        (uint32_t)pitch_of<Traits>(Traits::TILE_WIDTH * sample_bytes<Traits>) *
            (uint32_t)(schedule->merged_tiles * Traits::TILE_HEIGHT + Traits::TAP_ROWS - 1) +
        2 * Traits::HALO;
    // One block per processor; the system reserves 1 KB of its shared memory.
    int most = min(plan->cuda.block_shared_bytes, plan->cuda.shared_bytes - 1024) -
               (int)(PIPELINE_BYTES + extra);
    bool large = schedule->tiles / (uint32_t)schedule->count > SMALL_PLANE_TILES;
    schedule->stages = min(most / (int)schedule->stage_bytes,
                           large ? Traits::STAGES_FOR_LARGE_PLANES : MAX_STAGES);
    *grid = min((uint32_t)plan->cuda.processors, schedule->tiles);
    if (Traits::COLUMN_TILES && large)
        plan_columns(schedule, *grid, Traits::COLUMN_TILES);
    else
        plan_groups(schedule, *grid, max(1, Traits::MICROTILE_ROWS / Traits::TILE_HEIGHT));
    *bytes = PIPELINE_BYTES + (size_t)schedule->stages * schedule->stage_bytes + extra;
    return allow_shared_memory(plan, kernel);
}

// Launches the planned kernel with *f, a copy of its constants, as its only parameter, after
// filling f->schedule. shared_bytes of the constants lie after the stages.
template <typename Traits, typename Filter>
static enum conv_status tma_pipeline_launch(const struct conv_stencil_plan *plan, Filter *f,
                                            const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct kernel_constants<Filter>>(plan);
    auto kernel = constants->kernel;
    uint32_t grid;
    size_t bytes;
    if (plan_pipeline<Traits>(&f->schedule, plan, batch, (const void *)kernel,
                              constants->shared_bytes, &grid, &bytes))
        return CONV_ERR_DEVICE;
    launch_early(kernel, dim3(grid), block_threads<Traits>, bytes, true,
                 (cudaStream_t)batch->cuda.stream, *f);
    return launch_status();
}

template <typename Traits, typename Filter>
static enum conv_status tma_pipeline_run(const struct conv_stencil_plan *plan,
                                         const struct conv_stencil_batch *batch)
{
    Filter f = constants_of<struct kernel_constants<Filter>>(plan)->filter;
    return tma_pipeline_launch<Traits>(plan, &f, batch);
}
