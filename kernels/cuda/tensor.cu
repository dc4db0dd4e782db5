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
// Samples: through the ring of ring.cuh, so that the warps that work never see a border, nor wait
// for memory.
//
// What it bought (H200, share of a device copy of the same bytes; dp4a: 0.44 and 0.34 at 8192 x
// 8192; bench_kernels_cuda):
//                              3 x 3   5 x 5                          3 x 3   5 x 5
//   8192 x 8192 x 3             0.83    0.82     1000 x 300 x 300 x 3  0.87    0.75
//   32 x 2880 x 1800 x 3        0.84    0.83     500 sizes x 3         0.81    0.78
// and 0.66 and 0.57 for 7 x 7 and 9 x 9. Without the arithmetic, the ring itself reaches 0.86.
// What did not help: two blocks a processor (5 x 5: 0.69; a ring each, and fewer warps that work),
// bands of 16 rows, pieces of 64 rows, cache hints (0.74), rows of a piece carried over to the next
// one instead of read again (the order of memory that this asks for costs more: 0.81), the last
// rows of samples in registers instead of the sums (5 x 5: 0.76), rows of a length that is no power
// of two. What mattered most: one instruction a bulk copy (see uniform), a scout (a look into the
// table of planes takes a microsecond when memory is busy), whole sectors at the ends of rows
// (dst_spare: 0.56 to 0.83 at 300 x 300), and not one register spilled (5 x 5: 0.66 to 0.82; hence
// setmaxnreg).
#include <math.h>

#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/samples.cuh"

#define SEGMENT 16 // samples of a row that one row of the matrix A makes
#define UNITS 16   // segments of a band that a worker takes at a time
#define MAX_WIDTH 17

// Workers, as many as registers allow: a lane has the taps and the sums of all rows in them.
template <int ROWS> constexpr int workers = ROWS <= 5 ? 16 : 12;
template <int ROWS> using bytes_form = form<ROWS, uint8_t, SEGMENT, 4>;

// Sums start at the bits of 2^23: as a float, a sum N from 0 to 2^23 - 1 then reads 2^23 + N. What
// is below 0 reads as less than 2^23, and any such sum gives the sample 0.
#define SUM_START 0x4b000000
#define SUM_LIMIT 8388608
#define TIES_GRID 3072.0f // floats around it are the multiples of 2^-12

struct filter {
    struct supply supply;
    int32_t start;               // of a sum: SUM_START + bias
    float scale, offset;         // sample = (2^23 + N) * scale + offset, rounded half-even
    int8_t coef[MAX_HEIGHT][64]; // tap 0 of a row lies at 24 - radius: zeros around
};

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

template <bool TIES>
__device__ inline uint32_t round_sums(int32_t s0, int32_t s1, int32_t s2, int32_t s3,
                                      const struct filter &f)
{
    int32_t sums[4] = {s0, s1, s2, s3};
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = __fmaf_rn(__int_as_float(sums[k]), f.scale, f.offset);
        if (TIES)
            v[k] = __fadd_rn(v[k], -TIES_GRID);
    }
    return round_to_bytes(v[0], v[1], v[2], v[3]);
}

// Where a lane's four columns of a unit are.
struct lane_unit {
    const uint8_t *from; // the lane's first bytes of the window, in the unit's first row
    uint64_t to;         // in global memory
    int size;            // rows to store << 8 | columns, or WORD if all four may go at once
};
#define WORD 0x80

__device__ inline struct lane_unit find_unit(const struct piece &piece, const uint8_t *samples,
                                             int unit)
{
    int quarter = (int)threadIdx.x % 4;
    bool exists = unit < piece.units;
    unit = exists ? unit : 0;
    int band = band_of(piece, unit);
    int x = (unit - band * piece.segments) * SEGMENT, y = band * BAND;
    struct lane_unit result;
    result.from = samples + y * piece.pitch + x + HALO - 8 + 4 * quarter;
    x += 4 * quarter;
    result.to = __cvta_generic_to_global(piece.dst) + (int64_t)y * piece.dst_stride + x;
    int columns = min(max(piece.stored - x, 0), 4);
    int rows = exists && columns ? min(piece.rows - y, BAND) : 0;
    result.size = rows << 8 | (columns == 4 && piece.aligned ? WORD : columns);
    return result;
}

template <bool RAGGED>
__device__ inline void store(struct lane_unit *unit, int row, uint32_t samples,
                             const struct piece &piece)
{
    if (!RAGGED || row < unit->size >> 8) {
        int columns = unit->size & 0xff;
        if (!RAGGED || columns == WORD)
            asm volatile("st.global.u32 [%0], %1;" ::"l"(unit->to), "r"(samples) : "memory");
        else
#pragma unroll 1
            for (int k = 0; k < columns; k++)
                asm volatile("st.global.u8 [%0], %1;" ::"l"(unit->to + k), "r"(samples >> 8 * k)
                             : "memory");
    }
    unit->to += (uint64_t)(int64_t)piece.dst_stride;
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

#endif

template <int ROWS, bool TIES>
static __global__ void __launch_bounds__(ring_threads<workers<ROWS>>, 1)
    tensor(const __grid_constant__ struct filter f)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t memory[];
    struct ring *ring = open_ring<workers<ROWS>>(memory, f.supply);
    if (threadIdx.x < sizeof f.coef / 4)
        ((uint32_t *)ring->coef)[threadIdx.x] = ((const uint32_t *)f.coef)[threadIdx.x];
    __syncthreads(); // barriers and coefficients are there
    int warp = (int)uniform(threadIdx.x / WARP);
    if (warp >= workers<ROWS>) {
        help<bytes_form<ROWS>, workers<ROWS>>(warp - workers<ROWS>, ring, f.supply);
    } else {
        take_registers<workers<ROWS>>();
        uint2 taps[ROWS][2];
        load_taps<ROWS>(taps, ring);
        work<workers<ROWS>, UNITS>(
            ring, f.supply, [&](const struct piece &piece, const uint8_t *samples, int job) {
                int lane = (int)threadIdx.x % WARP, unit = job * UNITS + lane / 4;
                struct lane_unit u0 = find_unit(piece, samples, unit);
                struct lane_unit u1 = find_unit(piece, samples, unit + UNITS / 2);
                bool whole = (u0.size & u1.size) == (BAND << 8 | WORD);
                if (__all_sync(0xffffffffu, whole))
                    filter_units<ROWS, TIES, false>(u0, u1, taps, piece, f);
                else
                    filter_units<ROWS, TIES, true>(u0, u1, taps, piece, f);
            });
    }
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

template <int ROWS, bool TIES>
static enum conv_status launch(struct filter *f, const struct conv_stencil *stencil,
                               const struct conv_stencil_batch *batch)
{
    uint32_t grid;
    size_t bytes;
    if (plan_ring<bytes_form<ROWS>>(&f->supply, stencil, batch, (const void *)tensor<ROWS, TIES>,
                                    &grid, &bytes))
        return CONV_ERR_DEVICE;
    tensor<ROWS, TIES>
        <<<grid, ring_threads<workers<ROWS>>, bytes, (cudaStream_t)batch->stream>>>(*f);
    return launch_status();
}

template <int ROWS>
static enum conv_status pack(const struct conv_stencil *stencil,
                             const struct conv_stencil_batch *batch)
{
    struct filter f = {};
    f.start = SUM_START + (int32_t)stencil->bias;
    bool ties;
    f.scale = choose_scale(stencil->divisor, &ties);
    // Exact: 2^23 * scale has 24 bits and is at least 1536 where there are ties.
    f.offset = (ties ? TIES_GRID : 0.0f) - 8388608.0f * f.scale;
    int top = ROWS / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[top + j][24 - stencil->width / 2 + i] =
                (int8_t)stencil->icoef[j * stencil->width + i];
    return ties ? launch<ROWS, true>(&f, stencil, batch) : launch<ROWS, false>(&f, stencil, batch);
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
