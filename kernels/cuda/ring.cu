// SPDX-License-Identifier: MIT
// The rung below the top: registers as in blocked.cu, samples through the ring of ring.cuh, so that
// the warps that multiply never wait for memory, see a border, or load a tile. For filters up to
// 7 x 7 that the tensor cores cannot take: real ones, 16-bit pictures, large coefficients. From
// compute capability 9.0 on.
//
// A lane makes 8 x 8 samples: per row of the stage it loads 16 samples, unpacks each once and adds
// them to the sums of all the rows they are taps of, in the order of rows that real filters are
// defined by.
//
// What it bought (H200, 8192 x 8192 x 3, share of a device copy of the same bytes; blocked: 0.34
// and 0.25): real filters 0.69 at 3 x 3, 0.36 at 5 x 5 and 0.17 at 7 x 7, 16-bit pictures 0.82 at
// 3 x 3 and 0.56 at 5 x 5. What limits it is instructions: 34 a sample at 5 x 5, 25 of them the
// taps, with which every slot filled would give 0.44.
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/samples.cuh"

#define COLUMNS 8  // samples side by side that a lane makes
#define UNITS WARP // a lane makes one

template <int SIDE> constexpr int workers = SIDE <= 5 ? 16 : 12; // as many as registers allow

// Turns of filter_unit's loop that are unrolled. From 5 x 5 on all of them would be more
// instructions than a processor keeps at hand (real: 0.32 of the copy for 0.36, issue slots 72 %
// full for 88).
template <int SIDE> constexpr int turns = SIDE < 5 ? BAND + SIDE : 1;

template <int SIDE, typename Sample>
using wide_form = form<SIDE, Sample, COLUMNS *(int)sizeof(Sample), COLUMNS *(int)sizeof(Sample)>;

template <int SIDE> struct filter {
    struct supply supply;
    struct rounding rounding;
    int32_t coef[SIDE * SIDE]; // padded with zeros; integers, or the bits of floats for SUM_FLOAT
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// --- the arithmetic ------------------------------------------------------------------------------

// 16 samples, of which the middle 8 stand above the lane's own.
template <typename Operand> __device__ inline void load_line(Operand *to, const uint8_t *from)
{
    uint2 middle = *(const uint2 *)(from + 4);
    unpack(to, *(const uint32_t *)from);
    unpack(to + 4, middle.x);
    unpack(to + 8, middle.y);
    unpack(to + 12, *(const uint32_t *)(from + 12));
}

template <typename Operand> __device__ inline void load_line(Operand *to, const uint16_t *from)
{
    uint4 middle = *(const uint4 *)(from + 4);
    unpack(to, *(const uint2 *)from);
    unpack(to + 4, make_uint2(middle.x, middle.y));
    unpack(to + 8, make_uint2(middle.z, middle.w));
    unpack(to + 12, *(const uint2 *)(from + 12));
}

// Rounds four sums to samples.
template <bool EXACT>
__device__ inline void make_quad(uint32_t &to, const float *sums, const struct rounding &r)
{
    float v[4];
    for (int k = 0; k < 4; k++) {
        v[k] = sums[k];
        if (EXACT) // round_sum's steps; the second rounding is the conversion's
            v[k] = __fadd_rn(__fmaf_rn(sums[k], r.scale, r.grid), -r.grid);
    }
    to = round_to_bytes(v[0], v[1], v[2], v[3]);
}

template <bool EXACT, typename Sum, typename Quad>
__device__ inline void make_quad(Quad &to, const Sum *sums, const struct rounding &r)
{
    uint32_t samples[4];
    for (int k = 0; k < 4; k++)
        samples[k] = round_sum(sums[k], r);
    pack(to, samples);
}

// Stores a row of a unit: all of it at once, or the `bytes` that there are.
template <typename Sample>
__device__ inline void store_row(uint8_t *to, const quad<Sample> (&samples)[2], int bytes,
                                 bool whole)
{
    if (whole) {
        typedef typename std::conditional<sizeof(Sample) == 1, uint2, uint4>::type Row;
        *(Row *)to = *(const Row *)samples;
        return;
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        if (k * (int)sizeof(Sample) < bytes)
            ((Sample *)to)[k] = ((const Sample *)samples)[k];
}

template <int SIDE, typename Sample, typename Sum, bool EXACT>
__device__ inline void filter_unit(const struct piece &piece, const uint8_t *samples, int unit,
                                   const struct filter<SIDE> &f)
{
    if (unit >= piece.units)
        return;
    constexpr int SEGMENT = COLUMNS * (int)sizeof(Sample);
    int band = band_of(piece, unit);
    int x = (unit - band * piece.segments) * SEGMENT, y = band * BAND; // x in bytes
    const uint8_t *from = samples + y * piece.pitch + HALO + x - 4 * (int)sizeof(Sample);
    uint8_t *to = piece.dst + (int64_t)y * piece.dst_stride + x;
    int bytes = min(piece.stored - x, SEGMENT), rows = min(piece.rows - y, BAND);
    bool whole = bytes == SEGMENT && piece.aligned;
    Sum sums[SIDE][COLUMNS]; // of the rows that the next row of the stage adds to
    // As many rows a turn as there are sums, so that each has its registers.
#pragma unroll(turns <SIDE>)
    for (int first = 0; first < BAND + SIDE - 1; first += SIDE) {
#pragma unroll
        for (int s = 0; s < SIDE; s++) {
            if (first + s >= BAND + SIDE - 1)
                break;
            operand<Sum> line[2 * COLUMNS];
            load_line(line, (const Sample *)from);
            from += piece.pitch;
#pragma unroll
            for (int j = SIDE - 1; j >= 0; j--) { // the row that this one completes comes first
                Sum(&sum)[COLUMNS] = sums[(s - j + SIDE) % SIDE];
                if (first + s < j || first + s >= j + BAND)
                    continue;
#pragma unroll
                for (int k = 0; k < COLUMNS; k++) {
                    if (j == 0)
                        start_sum(sum[k], f.rounding);
#pragma unroll
                    for (int t = 0; t < SIDE; t++)
                        add_tap(sum[k], f.coef[j * SIDE + t], line[4 - SIDE / 2 + k + t]);
                }
            }
            int row = first + s - (SIDE - 1);
            if (row < 0)
                continue;
            const Sum *done = sums[(s + 1) % SIDE];
            quad<Sample> made[2];
            make_quad<EXACT>(made[0], done, f.rounding);
            make_quad<EXACT>(made[1], done + 4, f.rounding);
            if (row < rows)
                store_row<Sample>(to, made, bytes, whole);
            to += piece.dst_stride;
        }
    }
}

#endif

// EXACT means something for sums in floats only: real filters need no division.
template <int SIDE, typename Sample, typename Sum, bool EXACT>
static __global__ void __launch_bounds__(ring_threads<workers<SIDE>>, 1)
    ring_blocked(const __grid_constant__ struct filter<SIDE> f)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t memory[];
    struct ring *ring = open_ring<workers<SIDE>>(memory, f.supply);
    __syncthreads(); // barriers are there
    int warp = (int)uniform(threadIdx.x / WARP);
    if (warp >= workers<SIDE>) {
        help<wide_form<SIDE, Sample>, workers<SIDE>>(warp - workers<SIDE>, ring, f.supply);
    } else {
        take_registers<workers<SIDE>>();
        work<workers<SIDE>, UNITS>(
            ring, f.supply, [&](const struct piece &piece, const uint8_t *samples, int job) {
                int unit = job * UNITS + (int)threadIdx.x % WARP;
                filter_unit<SIDE, Sample, Sum, EXACT>(piece, samples, unit, f);
            });
    }
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE, typename Sample, typename Sum, bool EXACT>
static enum conv_status start(struct filter<SIDE> *f, const struct conv_stencil *stencil,
                              const struct conv_stencil_batch *batch)
{
    uint32_t grid;
    size_t bytes;
    auto kernel = ring_blocked<SIDE, Sample, Sum, EXACT>;
    if (plan_ring<wide_form<SIDE, Sample>>(&f->supply, stencil, batch, (const void *)kernel,
                                           {MAX_STAGES, MAX_STAGES}, &grid, &bytes))
        return CONV_ERR_DEVICE;
    kernel<<<grid, ring_threads<workers<SIDE>>, bytes, (cudaStream_t)batch->stream>>>(*f);
    return launch_status();
}

template <int SIDE, typename Sample>
static enum conv_status launch(const struct conv_stencil *stencil,
                               const struct conv_stencil_batch *batch)
{
    struct filter<SIDE> f = {
    };
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    int left = SIDE / 2 - stencil->width / 2, top = SIDE / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[(top + j) * SIDE + left + i] = conv_cuda_coef(stencil, kind, i, j);
    if (kind == SUM_INT32)
        return start<SIDE, Sample, int32_t, true>(&f, stencil, batch);
    if (stencil->exact)
        return start<SIDE, Sample, float, true>(&f, stencil, batch);
    return start<SIDE, Sample, float, false>(&f, stencil, batch);
}

template <int SIDE>
static enum conv_status launch_side(const struct conv_stencil *stencil,
                                    const struct conv_stencil_batch *batch)
{
    if (stencil->depth == 8)
        return launch<SIDE, uint8_t>(stencil, batch);
    return launch<SIDE, uint16_t>(stencil, batch);
}

static enum conv_status run_ring(const struct conv_stencil *stencil,
                                 const struct conv_stencil_batch *batch)
{
    int side = max(stencil->width, stencil->height);
    if (side <= 3)
        return launch_side<3>(stencil, batch);
    if (side <= 5)
        return launch_side<5>(stencil, batch);
    return launch_side<7>(stencil, batch);
}

static bool fits_ring(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    return max(stencil->width, stencil->height) <= 7 &&
           conv_cuda_rounding(&rounding, stencil) != SUM_INT64;
}

const struct conv_variant conv_cuda_ring = {
    /* name */ "cuda_ring",
    /* summary */ "as blocked, samples through the bulk copy engine",
    /* where */ CONV_ON_CUDA,
    /* needs */ 90,
    /* fits */ fits_ring,
    /* scratch */ NULL,
    /* tile */ TILE_WIDTH,
    TILE_HEIGHT,
    run_ring,
};
