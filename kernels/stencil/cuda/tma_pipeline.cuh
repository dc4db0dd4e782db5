// SPDX-License-Identifier: MIT
// How samples come to the warps that work: a block stays on its processor and walks through pieces
// of planes (pieces.cuh). A scout finds them, ahead of time; a producer has the bulk copy engine
// bring their rows into a ring of stages in shared memory; a patcher writes the columns beyond the
// image's edge into the stage (rows are chosen when they are copied), so that workers never see a
// border, nor wait for memory.
//
// Barriers, each a count of lanes: every lane arrives for what it has itself read or written, so
// that no order depends on another lane's arrival.
#ifndef CONV_KERNELS_STENCIL_CUDA_TMA_PIPELINE_CUH
#define CONV_KERNELS_STENCIL_CUDA_TMA_PIPELINE_CUH

#include "kernels/stencil/cuda/borders.cuh"

#define RING_SCRATCH 576 // bytes for what a kernel hands its workers

struct ring {
    uint64_t landed[MAX_STAGES], ready[MAX_STAGES], empty[MAX_STAGES];
    uint64_t cut[QUEUE], taken[QUEUE];
    struct piece pieces[MAX_STAGES], queue[QUEUE];
    uint32_t scratch[RING_SCRATCH / 4];
};
#define RING_BYTES ((sizeof(struct ring) + 127) / 128 * 128)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline uint8_t *stages_of(struct ring *ring)
{
    return (uint8_t *)ring + RING_BYTES;
}

template <typename Traits>
__device__ inline struct ring *open_ring(void *memory, const struct supply &s)
{
    struct ring *ring = (struct ring *)memory;
    if (threadIdx.x == 0) {
        for (int i = 0; i < s.stages; i++) {
            barrier_init(&ring->landed[i], 1);
            barrier_init(&ring->ready[i], WARP);
            barrier_init(&ring->empty[i], Traits::CONSUMERS * WARP);
        }
        for (int i = 0; i < QUEUE; i++) {
            barrier_init(&ring->cut[i], 1);
            barrier_init(&ring->taken[i], WARP);
        }
        fence_for_bulk();
    }
    return ring;
}

// --- scout: cuts the launch into pieces, ahead of the producer -----------------------------------

template <typename Traits> __device__ inline void scout(struct ring *ring, const struct supply &s)
{
    struct place place = {0, 1}; // a barrier nobody has arrived at lets waiters for parity 1 pass
    cut_pieces<Traits>(s, [&](const struct piece &piece) {
        barrier_wait(&ring->taken[place.stage], place.parity);
        __syncwarp(); // behind lane 0, the phase ends that a lane may still wait for
        if (threadIdx.x % WARP == 0) {
            ring->queue[place.stage] = piece;
            barrier_arrive(&ring->cut[place.stage]);
        }
        advance(&place, QUEUE);
    });
}

// --- producer: has the rows of pieces copied -----------------------------------------------------

// The stage is free; its rows are copied. One lane takes the rows that lie below one another, in a
// loop of its own: a copy is one instruction of a warp, and lanes with a copy each would have to
// take turns, at a high price. A row's copy may take bytes behind the image along, up to the next
// multiple of 16: they never leave what rows are aligned to.
template <typename Traits>
__device__ inline void copy_piece(struct ring *ring, uint8_t *samples, int stage,
                                  const struct piece &piece, const struct supply &s)
{
    int lane = (int)threadIdx.x % WARP;
    uint64_t *landed = &ring->landed[stage];
    int from = first_column<Traits>(piece);
    uint32_t bytes =
        (uint32_t)(((end_column<Traits>(piece) - from) * sample_bytes<Traits> + 15) / 16 * 16);
    int rows = piece.rows + Traits::TAP_ROWS - 1, top = piece.y - Traits::TAP_ROWS / 2;
    int first = max(-top, 0), end = min(rows, piece.plane_height - top); // rows of the image
    int outside = s.border != CONV_BORDER_CONSTANT ? rows - (end - first) : 0;
    int copies = piece.bulk ? end - first + outside : 0;
    if (lane == 0) {
        ring->pieces[stage] = piece;
        uint32_t between = piece.whole ? (uint32_t)((end - first - 1) * piece.pitch) : 0;
        uint32_t lines = piece.whole ? (uint32_t)(1 + outside) : (uint32_t)copies;
        barrier_arrive_expect(landed, lines * bytes + between);
    }
    __syncwarp();
    if (!copies)
        return;
    fence_for_bulk();
    uint32_t to = shared_address(samples + Traits::HALO + (from - piece.x) * sample_bytes<Traits>);
    uint32_t barrier = uniform(shared_address(landed));
    uint64_t line = __cvta_generic_to_global(piece.src) + (uint64_t)(from * sample_bytes<Traits>);
    uint64_t row = uniform(line + (uint64_t)((top + first) * piece.src_stride));
    uint64_t stride = uniform((uint64_t)piece.src_stride);
    uint32_t at = uniform(to + (uint32_t)(first * piece.pitch));
    uint32_t pitch = uniform((uint32_t)piece.pitch);
    bytes = uniform(bytes);
    int count = (int)uniform((uint32_t)(end - first));
    uint32_t size = bytes;
    if (uniform((uint32_t)piece.whole)) {
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
        bulk_copy(to + (uint32_t)(i * piece.pitch),
                  line + (uint64_t)(source_row<Traits>(piece, s, i) * piece.src_stride), bytes,
                  barrier);
    }
}

template <typename Traits>
__device__ inline void produce(struct ring *ring, uint8_t *stages, const struct supply &s)
{
    struct place place = {0, 1}, next = {0, 0};
    for (;;) {
        barrier_wait(&ring->cut[next.stage], next.parity);
        struct piece piece = ring->queue[next.stage];
        barrier_arrive(&ring->taken[next.stage]);
        advance(&next, QUEUE);
        barrier_wait(&ring->empty[place.stage], place.parity);
        __syncwarp(); // as in scout
        if (piece.rows == 0)
            break;
        copy_piece<Traits>(ring, stages + place.stage * s.stage_bytes, place.stage, piece, s);
        advance(&place, s.stages);
    }
    if (threadIdx.x % WARP == 0) {
        ring->pieces[place.stage].rows = 0;
        barrier_arrive(&ring->landed[place.stage]);
    }
}

// --- patcher: makes the border, so that workers never see one ------------------------------------

template <typename Traits>
__device__ inline void patch(struct ring *ring, uint8_t *stages, const struct supply &s)
{
    struct place place = {0, 0};
    for (;;) {
        barrier_wait(&ring->landed[place.stage], place.parity);
        struct piece piece = ring->pieces[place.stage];
        uint8_t *samples = stages + place.stage * s.stage_bytes;
        if (piece.rows) {
            if (!piece.bulk)
                load_piece<Traits>(samples, piece, s);
            if (s.border == CONV_BORDER_CONSTANT)
                fill_rows<Traits>(samples, piece, s);
            __syncwarp(); // columns repeat what other lanes have loaded
            if constexpr (borders_by_words<Traits>)
                patch_wide<Traits>(samples, piece, s);
            else
                patch_columns<Traits>(samples, piece, s);
        }
        barrier_arrive(&ring->ready[place.stage]);
        if (!piece.rows)
            return;
        advance(&place, s.stages);
    }
}

// --- workers -------------------------------------------------------------------------------------

// Helpers need few registers, and workers could use more than an equal share: warpgroups of 4 warps
// can pass them on. The numbers use up what a launch of 20 or 16 warps begins with, 96 or 128 each.
template <int WORKERS> __device__ inline void take_registers(void)
{
    static_assert(WORKERS == 16 || WORKERS == 12, "the numbers below are for these");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (WORKERS == 16)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
#endif
}

template <int WORKERS> __device__ inline void give_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (WORKERS == 16)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
#endif
}

// A worker's way: run(piece, samples, job) for jobs of UNITS units, which go round the workers,
// from piece to piece. What is the same for all lanes stays in uniform registers.
template <typename Traits, typename Run>
__device__ inline void work(struct ring *ring, const struct supply &s, Run run)
{
    const uint8_t *stages = stages_of(ring);
    struct place place = {0, 0};
    int job = (int)uniform(threadIdx.x / WARP);
    for (;;) {
        barrier_wait(&ring->ready[place.stage], place.parity);
        barrier_wait(&ring->landed[place.stage], place.parity);
        struct piece piece = ring->pieces[place.stage];
        if (!uniform((uint32_t)piece.rows))
            return;
        int jobs = (int)((uniform((uint32_t)piece.units) + Traits::JOB - 1) / Traits::JOB);
        for (; job < jobs; job += Traits::CONSUMERS)
            run(piece, stages + place.stage * s.stage_bytes, job);
        job -= jobs;
        barrier_arrive(&ring->empty[place.stage]);
        advance(&place, s.stages);
    }
}

// The body of a kernel. All threads call prepare(ring), which may fill ring->scratch and the shared
// memory after the stages; what it wrote is then visible to all. The consumer warps call
// consume(ring), which loads what they need into registers and calls work().
template <typename Traits, typename Prepare, typename Consume>
__device__ inline void tma_pipeline_main(const struct supply &s, Prepare prepare, Consume consume)
{
    extern __shared__ __align__(128) uint8_t memory[];
    struct ring *ring = open_ring<Traits>(memory, s);
    prepare(ring);
    __syncthreads(); // barriers are initialised, what prepare wrote is complete
    int warp = (int)uniform(threadIdx.x / WARP);
    if (warp >= Traits::CONSUMERS) {
        int helper = warp - Traits::CONSUMERS;
        give_registers<Traits::CONSUMERS>();
        if (helper == 0)
            scout<Traits>(ring, s);
        else if (helper == 1)
            produce<Traits>(ring, stages_of(ring), s);
        else if (helper == 2)
            patch<Traits>(ring, stages_of(ring), s);
    } else {
        take_registers<Traits::CONSUMERS>();
        consume(ring);
    }
}

#endif

// --- host ----------------------------------------------------------------------------------------

// What the device has room for.
struct room {
    int processors, bytes, block_bytes; // shared memory of a processor, of a block
};

static inline cudaError_t ask_room(struct room *room)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&room->processors, cudaDevAttrMultiProcessorCount, device);
    if (!error)
        error = cudaDeviceGetAttribute(&room->bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                       device);
    if (!error)
        error = cudaDeviceGetAttribute(&room->block_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                       device);
    return error;
}

// Fills *s for a launch of a kernel, readies the kernel for it and sets the grid and the block's
// shared memory, of which `extra` bytes lie behind the stages.
template <typename Traits>
static cudaError_t plan_ring(struct supply *s, const struct conv_stencil *stencil,
                             const struct conv_stencil_batch *batch, const void *kernel,
                             size_t extra, uint32_t *grid, size_t *bytes)
{
    struct room room;
    cudaError_t error = ask_room(&room);
    if (error)
        return error;
    s->planes = batch->d_planes;
    s->count = batch->count;
    s->tiles = batch->tiles;
    for (int i = 0; i < batch->count && batch->count <= FEW_PLANES; i++)
        s->few[i] = batch->planes[i];
    s->border = stencil->border;
    s->border_value = stencil->border_value;
    s->radius = stencil->width / 2;

    // At most four stages of 36 KB. With more pieces on their way to a processor memory reads them
    // in a worse order (1000 images of 300 x 300, 3 x 3: 0.84 of a copy with 6 stages, 0.87 with
    // 4), with fewer workers wait (3: 0.76, 2: 0.73). Rows of large planes come in better order,
    // and a kernel with little to do waits for less: 3 x 3 has 0.852 with 3 stages where 4 have
    // 0.843 (2880 x 1800; at 8192 x 8192 0.836 and 0.833). Pieces of 16 rows are better for
    // images of unequal sizes (0.82 for 0.81) and worse for all others (0.76 for 0.87 at 300 x
    // 300).
    s->merge = max(2 / sample_bytes<Traits>, Traits::MICROTILE_ROWS / Traits::TILE_HEIGHT);
    s->stage_bytes = (uint32_t)pitch_of<Traits>(Traits::TILE_WIDTH * sample_bytes<Traits>) *
                         (uint32_t)(s->merge * Traits::TILE_HEIGHT + Traits::TAP_ROWS - 1) +
                     2 * Traits::HALO;
    // A block a processor. 1 KB of its shared memory is the system's.
    int most = min(room.block_bytes, room.bytes - 1024) - (int)(RING_BYTES + extra);
    *grid = min((uint32_t)room.processors, s->tiles);
    // As many tiles as have a common plane, or a few, but many rounds for all blocks.
    uint32_t common = s->tiles / (uint32_t)s->count;
    int wanted = common > MAX_COMMON ? Traits::STAGES_FOR_LARGE_PLANES : MAX_STAGES;
    s->stages = min(most / (int)s->stage_bytes, wanted);
    s->group = common <= MAX_COMMON ? min(s->tiles / (*grid * 20), common)
                                    : min(s->tiles / (*grid * 40), (uint32_t)MAX_GROUP);
    s->group = max(s->group, 1u);
    // Whoever is free takes the next group, and at last less than that. In turns blocks are not
    // done at the same time, as some are farther from memory: 8192 x 8192 at 3 x 3 has 0.836 of a
    // copy then, 0.848 if three rounds are not in turn, and 0.86 if none is. 500 images of
    // unequal sizes have 0.80 and 0.85, 1000 of 300 x 300 0.87 and 0.86.
    uint32_t rounds = s->tiles / (*grid * s->group);
    s->groups = rounds > 1 ? (rounds - 1) * *grid : 0;
    s->last = common <= MAX_COMMON ? s->group : s->merge;
    s->tickets = &batch->d_planes->tickets;
    s->finished = &batch->d_planes->finished;
    *bytes = RING_BYTES + (size_t)s->stages * s->stage_bytes + extra;
    return allow_shared_memory(kernel);
}

// Launches a kernel whose only parameter is *f, after filling f->supply. `extra` bytes of shared
// memory lie after the stages.
template <typename Traits, typename Filter>
static enum conv_status
tma_pipeline_launch(void (*kernel)(Filter), Filter *f, const struct conv_stencil *stencil,
                    const struct conv_stencil_batch *batch, size_t extra = 0)
{
    uint32_t grid;
    size_t bytes;
    if (plan_ring<Traits>(&f->supply, stencil, batch, (const void *)kernel, extra, &grid, &bytes))
        return CONV_ERR_DEVICE;
    kernel<<<grid, block_threads<Traits>, bytes, (cudaStream_t)batch->stream>>>(*f);
    return launch_status();
}

#endif
