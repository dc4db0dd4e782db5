// SPDX-License-Identifier: MIT
// The top rung: tensor cores do the taps, the bulk copy engine brings the samples, and what is left
// for a thread is to round and to store. For exact filters of 8-bit pictures up to 17 x 9 whose
// coefficients fit in 8 bits, from compute capability 9.0 on.
//
// Taps: one mma m16n8k32 of 8-bit numbers multiplies 16 segments of a row (A: 32 bytes each, of
// which the middle 16 are samples to make) by one row of taps, laid out for 8 of the 16 (B: as a
// Toeplitz matrix). A row of the stage is loaded once and added to all the rows it is a tap of. B's
// columns are in such an order that a lane ends up with four neighbours: a word to store, without
// a shuffle.
// Rounding: sums start at the bits of 2^23, are floats therefore, and one FMA divides them; the
// conversion to a byte rounds half-even and clamps. See fits_division for the proof.
// Samples: a block stays on its processor and walks through pieces of planes, of up to 1024 x 32
// samples. A scout finds them, ahead of time; a producer has their rows copied into a ring of six
// stages; a patcher writes the columns beyond the picture's edge into the stage (rows are chosen
// when they are copied), so that the 17 warps that work never see a border, nor wait for memory.
//
// What it bought (H200, share of a device copy of the same bytes; the shared-memory tile: 0.34 and
// 0.23 at 8192 x 8192):
//                              3 x 3   5 x 5                          3 x 3   5 x 5
//   8192 x 8192 x 3             0.82    0.77     1000 x 300 x 300 x 3  0.83    0.76
//   32 x 2880 x 1800 x 3        0.84    0.81     500 sizes x 3         0.81    0.78
// What did not help: two blocks a processor (5 x 5: 0.69; a ring each, and fewer warps that work),
// bands of 16 rows, pieces of 64 rows, cache hints (0.74). What mattered most: one instruction a
// bulk copy (see uniform), a scout (a look into the table of planes takes a microsecond when memory
// is busy), and whole sectors at the ends of rows (dst_spare: 0.56 to 0.83 at 300 x 300).
#include <math.h>

#include "kernels/cuda/pieces.cuh"

// Workers, as many as registers allow: a lane has the taps and the sums of all rows in them.
template <int ROWS> constexpr int workers = ROWS <= 5 ? 17 : ROWS <= 7 ? 13 : 9;
template <int ROWS> constexpr int threads = (workers<ROWS> + HELPERS) * WARP;

// Sums start at the bits of 2^23: as a float, a sum N from 0 to 2^23 - 1 then reads 2^23 + N. What
// is below 0 reads as less than 2^23, and any such sum gives the sample 0.
#define SUM_START 0x4b000000
#define SUM_LIMIT 8388608
#define TIES_GRID 3072.0f // floats around it are the multiples of 2^-12

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// --- workers: multiply, round, store -------------------------------------------------------------

// One row of taps for one half of the samples: to = A * B + sum.
__device__ inline void multiply(int32_t (&to)[4], const uint32_t (&a)[4], uint2 b,
                                const int32_t *sum)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(sum[0]), "r"(sum[1]),
          "r"(sum[2]), "r"(sum[3]));
}

// Four sums to four samples: ptxas makes two instructions (F2IP) of the six conversions.
template <bool TIES>
__device__ inline uint32_t round_sums(int32_t s0, int32_t s1, int32_t s2, int32_t s3,
                                      const struct filter &f)
{
    int32_t sums[4] = {s0, s1, s2, s3}, q[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float v = __fmaf_rn(__int_as_float(sums[k]), f.scale, f.offset);
        if (TIES)
            v = __fadd_rn(v, -TIES_GRID);
        asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q[k]) : "f"(v));
    }
    uint32_t high, all;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(q[3]), "r"(q[2]), "r"(0));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(q[1]), "r"(q[0]), "r"(high));
    return all;
}

// Where a lane's four columns of a unit are.
struct lane_unit {
    const uint8_t *from; // the lane's first bytes of the window, in the unit's first row
    uint64_t to;         // in global memory
    int rows, columns;   // to store
};

__device__ inline struct lane_unit find_unit(const struct piece &piece, const uint8_t *samples,
                                             int unit)
{
    int quarter = (int)threadIdx.x % 4;
    bool exists = unit < piece.units;
    unit = exists ? unit : 0;
    int band = (int)((uint32_t)unit * piece.reciprocal >> 16);
    int x = (unit - band * piece.segments) * SEGMENT, y = band * BAND;
    struct lane_unit result;
    result.from = samples + y * piece.pitch + x + HALO - 8 + 4 * quarter;
    x += 4 * quarter;
    result.to = __cvta_generic_to_global(piece.dst) + y * piece.dst_stride + x;
    result.columns = min(max(piece.stored - x, 0), 4);
    result.rows = exists && result.columns ? min(piece.rows - y, BAND) : 0;
    return result;
}

template <bool RAGGED>
__device__ inline void store(struct lane_unit *unit, int row, uint32_t samples,
                             const struct piece &piece)
{
    if (row < unit->rows) {
        if (!RAGGED || (unit->columns == 4 && piece.words))
            asm volatile("st.global.u32 [%0], %1;" ::"l"(unit->to), "r"(samples) : "memory");
        else
#pragma unroll 1
            for (int k = 0; k < unit->columns; k++)
                asm volatile("st.global.u8 [%0], %1;" ::"l"(unit->to + k), "r"(samples >> 8 * k)
                             : "memory");
    }
    unit->to += piece.dst_stride;
}

template <int ROWS, bool TIES, bool RAGGED>
__device__ inline void filter_units(struct lane_unit u0, struct lane_unit u1,
                                    const uint2 (&taps)[ROWS][2], const struct piece &piece,
                                    const struct filter &f)
{
    const int32_t start[4] = {f.start, f.start, f.start, f.start};
    int32_t even[ROWS][4], odd[ROWS][4]; // of the rows that the next row of the stage adds to
#pragma unroll
    for (int i = 0; i < BAND + ROWS - 1; i++) {
        uint32_t window[4] = {*(const uint32_t *)u0.from, *(const uint32_t *)u1.from,
                              *(const uint32_t *)(u0.from + 16), *(const uint32_t *)(u1.from + 16)};
        u0.from += piece.pitch;
        u1.from += piece.pitch;
#pragma unroll
        for (int j = ROWS - 1; j >= 0; j--) { // the row that this one completes comes first
            int row = i - j;
            if (row < 0 || row >= BAND)
                continue;
            multiply(even[row % ROWS], window, taps[j][0], j ? even[row % ROWS] : start);
            multiply(odd[row % ROWS], window, taps[j][1], j ? odd[row % ROWS] : start);
        }
        int row = i - (ROWS - 1);
        if (row < 0)
            continue;
        const int32_t *e = even[row % ROWS], *o = odd[row % ROWS];
        store<RAGGED>(&u0, row, round_sums<TIES>(e[0], e[1], o[0], o[1], f), piece);
        store<RAGGED>(&u1, row, round_sums<TIES>(e[2], e[3], o[2], o[3], f), piece);
    }
}

// The lane's part of B for each row of taps: bytes 4t ... 4t + 3 and 16 behind them meet the
// outputs 4(g/2) + g%2 and, in the second matrix, those + 2.
template <int ROWS>
__device__ inline void load_taps(uint2 (&taps)[ROWS][2], const struct ring *ring)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int8_t *from = ring->coef[j] + 24 + 4 * t - 8 - (g / 2 * 4 + g % 2 + 2 * half);
            uint32_t word[2];
            for (int w = 0; w < 2; w++) {
                word[w] = 0;
                for (int k = 0; k < 4; k++)
                    word[w] |= (uint32_t)(uint8_t)from[16 * w + k] << 8 * k;
            }
            taps[j][half] = make_uint2(word[0], word[1]);
        }
    }
}

template <int ROWS, bool TIES>
__device__ inline void work(struct ring *ring, const uint8_t *stages, const struct filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    uint2 taps[ROWS][2];
    load_taps<ROWS>(taps, ring);
    struct place place = {0, 0};
    // Jobs of 16 units go round the workers, from piece to piece.
    int job = (int)threadIdx.x / WARP;
    for (;;) {
        barrier_wait(&ring->ready[place.stage], place.parity);
        barrier_wait(&ring->landed[place.stage], place.parity);
        struct piece piece = ring->pieces[place.stage];
        if (!piece.rows)
            return;
        const uint8_t *samples = stages + place.stage * f.stage_bytes;
        int jobs = (piece.units + 15) / 16;
        for (; job < jobs; job += workers<ROWS>) {
            struct lane_unit u0 = find_unit(piece, samples, job * 16 + lane / 4);
            struct lane_unit u1 = find_unit(piece, samples, job * 16 + lane / 4 + 8);
            bool ragged = (u0.columns | u1.columns) % 4 != 0 || !piece.words;
            if (__any_sync(0xffffffffu, ragged))
                filter_units<ROWS, TIES, true>(u0, u1, taps, piece, f);
            else
                filter_units<ROWS, TIES, false>(u0, u1, taps, piece, f);
        }
        job -= jobs;
        __syncwarp();
        if (lane == 0)
            barrier_arrive(&ring->empty[place.stage]);
        advance(&place, f.stages);
    }
}

#endif

template <int ROWS, bool TIES>
static __global__ void __launch_bounds__(threads<ROWS>, 1)
    tensor(const __grid_constant__ struct filter f)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t memory[];
    struct ring *ring = (struct ring *)memory;
    uint8_t *stages = memory + RING_BYTES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < f.stages; i++) {
            barrier_init(&ring->landed[i], 1);
            barrier_init(&ring->ready[i], WARP);
            barrier_init(&ring->empty[i], workers<ROWS>);
        }
        for (int i = 0; i < QUEUE; i++) {
            barrier_init(&ring->cut[i], 1);
            barrier_init(&ring->taken[i], 1);
        }
        fence_for_bulk();
    }
    if (threadIdx.x < sizeof f.coef / 4)
        ((uint32_t *)ring->coef)[threadIdx.x] = ((const uint32_t *)f.coef)[threadIdx.x];
    __syncthreads(); // barriers and coefficients are there
    int warp = (int)uniform(threadIdx.x / WARP);
    if (warp < workers<ROWS>)
        work<ROWS, TIES>(ring, stages, f);
    else if (warp == workers<ROWS>)
        scout<ROWS>(ring, f);
    else if (warp == workers<ROWS> + 1)
        produce<ROWS>(ring, stages, f);
    else
        patch<ROWS>(ring, stages, f);
#endif
}

// --- host ----------------------------------------------------------------------------------------

static bool is_power_of_two(int64_t value)
{
    return (value & (value - 1)) == 0;
}

// Does N * scale, rounded to a float, give every tie between samples exactly?
static bool meets_ties(int64_t divisor, float scale)
{
    for (int k = 0; k < 256; k++) {
        double tie = (double)(divisor / 2 * (2 * k + 1)); // times 24 bits: exact
        if ((float)(tie * scale) != (float)k + 0.5f)
            return false;
    }
    return true;
}

// 1 / divisor, to the nearest float, or to one beside it that meets ties where that does not.
static float choose_scale(int64_t divisor, bool *ties)
{
    float nearest = 1.0f / (float)divisor;
    float candidates[3] = {nearest, nextafterf(nearest, 1), nextafterf(nearest, 0)};
    *ties = divisor % 2 == 0 && !is_power_of_two(divisor);
    for (int i = 0; *ties && i < 3; i++) {
        if (meets_ties(divisor, candidates[i])) {
            *ties = false;
            return candidates[i];
        }
    }
    return nearest;
}

// 2^23 * scale is a float, so that one FMA rounds N * scale, once. scale is off by at most 1.5 *
// 2^-23 of itself: up to 256, N * scale is off from q = N / d by less than 1.5 * 2^-15, and
// rounding it to a float adds 2^-17. What is beyond stays beyond, and is clamped. d a power of two:
// all of this is exact. d odd: there are no ties, and q is at least 1 / (2d) away from one: enough
// for d < 5462. d even: what is no tie is at least 1 / d away from one. Ties come out exact with a
// scale that was
//   found to do that (choose_scale). For the other divisors, the FMA rounds to a grid of 2^-12,
//   where ties come out exact as well, and what is no tie moves by less than 2^-14 + 2^-13 < 1 / d.
static bool fits_division(int64_t divisor)
{
    return is_power_of_two(divisor) || divisor < 5462;
}

static bool fits_tensor(const struct conv_stencil *stencil)
{
    if (!stencil->exact || stencil->depth != 8 || stencil->width > MAX_WIDTH ||
        stencil->height > MAX_HEIGHT)
        return false;
    int64_t low = stencil->bias, high = stencil->bias;
    for (int i = 0; i < stencil->width * stencil->height; i++) {
        int32_t coef = stencil->icoef[i];
        if (coef < -128 || coef > 127)
            return false;
        *(coef < 0 ? &low : &high) += 255 * coef;
    }
    if (low <= -SUM_LIMIT || high >= SUM_LIMIT)
        return false;
    return fits_division(stencil->divisor);
}

// What the device has room for.
struct room {
    int processors, bytes, block_bytes; // shared memory of a processor, of a block
};

static cudaError_t ask_room(struct room *room)
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

template <int ROWS, bool TIES> static enum conv_status launch(struct filter *f, void *stream)
{
    struct room room;
    if (ask_room(&room))
        return CONV_ERR_DEVICE;
    f->stage_bytes = (TILE_WIDTH + 2 * HALO) * (MERGE * TILE_HEIGHT + ROWS - 1) + 2 * HALO;
    // A block a processor: its shared memory is the ring's. 1 KB of it is the system's.
    int bytes = min(room.block_bytes, room.bytes - 1024);
    f->stages = min((bytes - (int)RING_BYTES) / (int)f->stage_bytes, MAX_STAGES);
    bytes = (int)RING_BYTES + f->stages * (int)f->stage_bytes;
    uint32_t grid = min((uint32_t)room.processors, f->tiles);
    // As many tiles as have a common plane, or a few, but many rounds for all blocks.
    uint32_t common = f->tiles / (uint32_t)f->count;
    f->group = common <= MAX_COMMON ? min(f->tiles / (grid * 20), common)
                                    : min(f->tiles / (grid * 40), (uint32_t)MAX_GROUP);
    f->group = max(f->group, 1u);
    if (cudaFuncSetAttribute(tensor<ROWS, TIES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             bytes))
        return CONV_ERR_DEVICE;
    tensor<ROWS, TIES><<<grid, threads<ROWS>, (size_t)bytes, (cudaStream_t)stream>>>(*f);
    return launch_status();
}

template <int ROWS>
static enum conv_status pack(const struct conv_stencil *stencil,
                             const struct conv_stencil_batch *batch)
{
    struct filter f = {};
    f.planes = batch->d_planes;
    f.count = batch->count;
    f.tiles = batch->tiles;
    for (int i = 0; i < batch->count && batch->count <= FEW_PLANES; i++)
        f.few[i] = batch->planes[i];
    f.border = stencil->border;
    f.border_value = stencil->border_value;
    f.radius = stencil->width / 2;
    f.start = SUM_START + (int32_t)stencil->bias;
    bool ties;
    f.scale = choose_scale(stencil->divisor, &ties);
    // Exact: 2^23 * scale has 24 bits and is at least 1536 where there are ties.
    f.offset = (ties ? TIES_GRID : 0.0f) - 8388608.0f * f.scale;
    int top = ROWS / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[top + j][24 - f.radius + i] = (int8_t)stencil->icoef[j * stencil->width + i];
    return ties ? launch<ROWS, true>(&f, batch->stream) : launch<ROWS, false>(&f, batch->stream);
}

static enum conv_status run_tensor(const struct conv_stencil *stencil,
                                   const struct conv_stencil_batch *batch)
{
    if (stencil->height <= 3)
        return pack<3>(stencil, batch);
    if (stencil->height <= 5)
        return pack<5>(stencil, batch);
    if (stencil->height <= 7)
        return pack<7>(stencil, batch);
    return pack<9>(stencil, batch);
}

const struct conv_variant conv_cuda_tensor = {
    /* name */ "cuda_tensor",
    /* summary */ "taps on int8 tensor cores, samples through the bulk copy engine",
    /* where */ CONV_ON_CUDA,
    /* needs */ 90,
    /* fits */ fits_tensor,
    /* scratch */ NULL,
    /* tile */ TILE_WIDTH,
    TILE_HEIGHT,
    run_tensor,
};
