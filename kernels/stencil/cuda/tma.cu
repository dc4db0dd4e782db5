// SPDX-License-Identifier: MIT
// The rung below the top: registers as in blocked.cu, samples through the ring of ring.cuh, so that
// the warps that multiply never wait for memory, see a border, or load a tile. For filters up to
// 7 x 7 that the tensor cores cannot take: real ones, 16-bit images, large coefficients. From
// compute capability 9.0 on.
//
// A lane makes 8 samples of 8 rows, or of 16. Per row of the stage it loads 16 samples, unpacks
// each that it needs once and adds them to the sums of all the rows they are taps of, in the order
// of rows that real filters are defined by. Coefficients lie in uniform registers, as an operand of
// the multiply-add; scaled.cuh says how samples become floats, and sums samples, in few
// instructions.
//
// What it bought (H200, 8192 x 8192 x 3, share of a device copy of the same bytes; blocked: 0.34
// and 0.25): real filters 0.80 at 3 x 3, 0.43 at 5 x 5 and 0.17 at 7 x 7, 16-bit images 0.82 at
// 3 x 3 and 0.67 at 5 x 5. What limits it is instructions: 30.8 a sample at 5 x 5 (real, 8 bits),
// 25 of them the taps, 2.8 to unpack and 0.5 to round, with which every slot filled would give
// 0.49. Bytes unpacked by matrix products and rounded as 16-bit floats gave 0.41.
#include "kernels/stencil/cuda/denormal_unpack.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define COLUMNS 8 // samples side by side that a lane makes

// Rows that a lane makes. 16 take 20 rows of the stage at 5 x 5 where twice 8 take 24. At 16 bits
// that leaves too few units in a piece for all workers: 0.58 of the copy for 0.63 (2880 x 1800).
template <int SIDE, typename Sample>
constexpr int lane_rows = SIDE == 5 && sizeof(Sample) == 1 ? 16 : 8;

// Turns of a unit's loop that are unrolled. From 5 x 5 on all of them would be more instructions
// than a processor keeps at hand: a turn of 5 x 5 is 800 multiply-adds, with all else 16 KB.
template <int SIDE> constexpr int unrolled_turns = SIDE < 5 ? 8 : 1;

template <int SIDE, typename Sample_> struct tma_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int TAP_ROWS = SIDE, MICROTILE_ROWS = lane_rows<SIDE, Sample>;
    static constexpr int CONSUMERS = SIDE <= 5 ? 16 : 12; // as many as registers allow
    static constexpr int SEGMENT = COLUMNS * (int)sizeof(Sample), STORE = SEGMENT;
    static constexpr int JOB = WARP; // a microtile per lane
};

template <int SIDE> struct filter {
    struct supply supply;
    struct rounding rounding;
    int32_t coef[SIDE * SIDE]; // padded with zeros; integers, or the bits of floats for SUM_FLOAT
    int32_t zero;              // for hold
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// --- samples -------------------------------------------------------------------------------------

// 16 samples as they lie in the stage, of which the middle 8 stand above the lane's own.
__device__ inline void load_line(uint32_t (&line)[4], const uint8_t *from)
{
    uint2 middle = *(const uint2 *)(from + 4);
    line[0] = *(const uint32_t *)from;
    line[1] = middle.x;
    line[2] = middle.y;
    line[3] = *(const uint32_t *)(from + 12);
}

__device__ inline void load_line(uint2 (&line)[4], const uint8_t *from)
{
    uint4 middle = *(const uint4 *)(from + 8);
    line[0] = *(const uint2 *)from;
    line[1] = make_uint2(middle.x, middle.y);
    line[2] = make_uint2(middle.z, middle.w);
    line[3] = *(const uint2 *)(from + 24);
}

template <typename Quad> __device__ inline void unpack_line(float *to, const Quad (&line)[4])
{
    for (int q = 0; q < 4; q++)
        unpack_scaled(to + 4 * q, line[q]);
}

template <typename Quad> __device__ inline void unpack_line(int32_t *to, const Quad (&line)[4])
{
    for (int q = 0; q < 4; q++)
        unpack(to + 4 * q, line[q]);
}

// Four sums in integers to samples; scaled.cuh has those in floats.
template <bool EXACT, typename Quad>
__device__ inline void round_quad(Quad &to, const int32_t *sums, const struct rounding &r)
{
    uint32_t samples[4];
    for (int k = 0; k < 4; k++)
        samples[k] = round_sum(sums[k], r);
    pack(to, samples);
}

__device__ inline void drop_sample(uint32_t (&samples)[2])
{
    samples[0] = __funnelshift_r(samples[0], samples[1], 8);
    samples[1] >>= 8;
}

__device__ inline void drop_sample(uint2 (&samples)[2])
{
    samples[0].x = __funnelshift_r(samples[0].x, samples[0].y, 16);
    samples[0].y = __funnelshift_r(samples[0].y, samples[1].x, 16);
    samples[1].x = __funnelshift_r(samples[1].x, samples[1].y, 16);
    samples[1].y >>= 16;
}

// Stores a row of which there are only `bytes`, or which is not aligned. In a loop, to be short:
// most images have no such rows, or few.
template <typename Sample>
__device__ inline void store_part(uint8_t *to, quad<Sample> (&samples)[2], int bytes)
{
#pragma unroll 1
    for (int k = 0; k < bytes; k += (int)sizeof(Sample)) {
        *(Sample *)(to + k) = *(const Sample *)samples;
        drop_sample(samples);
    }
}

// Where a lane makes its samples: the places of the next rows, and how many are left.
struct unit {
    const uint8_t *from; // in the stage
    uint8_t *to;
    int pitch, stride;
    int bytes, rows;
    bool whole; // rows can be stored at once
};

// Stores the unit's next rows, as far as there are any left.
template <typename Sample, int ROWS>
__device__ inline void store_rows(struct unit &u, quad<Sample> (&made)[ROWS][2])
{
    typedef typename std::conditional<sizeof(Sample) == 1, uint2, uint4>::type Row;
    int whole = u.whole ? u.rows : 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < whole)
            *(Row *)(u.to + (int64_t)u.stride * r) = *(const Row *)made[r];
    if (!u.whole)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < u.rows)
                store_part<Sample>(u.to + (int64_t)u.stride * r, made[r], u.bytes);
    u.to += (int64_t)u.stride * ROWS;
    u.rows -= ROWS;
}

// --- sums ----------------------------------------------------------------------------------------

// The filter in uniform registers: the same for all lanes, so they cost a lane none of its own.
template <int SIDE> struct held {
    int32_t coef[SIDE * SIDE];
    struct rounding rounding;
};

// Once a kernel. Parameters as they are the compiler would rather load again, for every part of a
// turn; what an operation has made of them it keeps, as it cannot know that zero is 0.
template <int SIDE> __device__ inline struct held<SIDE> hold(const struct filter<SIDE> &f) {
    struct held<SIDE> held;
    held.rounding = f.rounding;
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++)
        held.coef[i] = f.coef[i] ^ f.zero;
    return held;
}

// Adds a row of taps to the sums of a row.
template <int SIDE, typename Sum>
__device__ inline void add_row(Sum (&sums)[COLUMNS], int tap_row, const operand<Sum> *line,
                               const struct held<SIDE> &f)
{
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        if (tap_row == 0)
            start_sum(sums[k], f.rounding);
#pragma unroll
        for (int t = 0; t < SIDE; t++)
            add_tap(sums[k], f.coef[tap_row * SIDE + t], line[4 - SIDE / 2 + k + t]);
    }
}

template <bool EXACT, typename Sum, typename Quad>
__device__ inline void round_row(Quad (&made)[2], const Sum (&sums)[COLUMNS],
                                 const struct rounding &r)
{
    round_quad<EXACT>(made[0], sums, r);
    round_quad<EXACT>(made[1], sums + 4, r);
}

// A turn of 3 x 3 or 5 x 5: SIDE - 1 rows of the stage. Every row first goes to the sums that the
// turn before began, of which it completes a row, and then to new ones, of which it begins a row in
// the registers that have become free. A row that is begun is completed SIDE - 1 rows later, so
// each turn leaves its sums where it found those of the one before, and the loop needs no moves.
// And turns of 2 or 4 rows fill a unit of 8 or 16 exactly, which those of SIDE rows
// (filter_rotating) would not.
//
// The first turn completes nothing, the last begins nothing. Two rows are taken at a time, and the
// next two loaded before their arithmetic, which hides the way to the stage.
template <int SIDE, typename Sample, typename Sum, bool EXACT>
__device__ inline void take_turn(bool finishes, bool begins, struct unit &u,
                                 quad<Sample> (&next)[2][4], Sum (&sums)[SIDE - 1][COLUMNS],
                                 const struct held<SIDE> &f)
{
    constexpr int ROWS = SIDE - 1;
    quad<Sample> made[ROWS][2];
#pragma unroll
    for (int row = 0; row < ROWS; row += 2) {
        operand<Sum> lines[2][2 * COLUMNS];
        unpack_line(lines[0], next[0]);
        unpack_line(lines[1], next[1]);
        if (row + 2 < ROWS || begins) { // there are more rows
            load_line(next[0], u.from);
            load_line(next[1], u.from + u.pitch);
            u.from += 2 * u.pitch;
        }
        if (finishes) {
#pragma unroll
            for (int r = row; r < row + 2; r++) {
#pragma unroll
                for (int i = r; i < ROWS; i++)
                    add_row<SIDE>(sums[i], r + ROWS - i, lines[r - row], f);
                round_row<EXACT>(made[r], sums[r], f.rounding);
            }
            if (row + 2 == ROWS)
                store_rows<Sample>(u, made);
        }
        if (begins) {
#pragma unroll
            for (int r = row; r < row + 2; r++)
#pragma unroll
                for (int i = 0; i <= r; i++)
                    add_row<SIDE>(sums[i], r - i, lines[r - row], f);
        }
    }
}

template <int SIDE, typename Sample, typename Sum, bool EXACT>
__device__ inline void filter_turns(struct unit &u, const struct held<SIDE> &f)
{
    constexpr int ROWS = lane_rows<SIDE, Sample>, TURNS = ROWS / (SIDE - 1);
    static_assert(TURNS * (SIDE - 1) == ROWS, "turns fill a unit");
    quad<Sample> next[2][4];
    load_line(next[0], u.from);
    load_line(next[1], u.from + u.pitch);
    u.from += 2 * u.pitch;
    Sum sums[SIDE - 1][COLUMNS];
#pragma unroll(unrolled_turns <SIDE>)
    for (int turn = 0; turn <= TURNS; turn++)
        take_turn<SIDE, Sample, Sum, EXACT>(turn > 0, turn < TURNS, u, next, sums, f);
}

// 7 x 7: turns of 6 rows would fill no unit, but a unit of 8 takes 14 rows of the stage, which are
// two turns of 7. So there are sums of SIDE rows, and their registers go round once a turn.
template <int SIDE, typename Sample, typename Sum, bool EXACT>
__device__ inline void filter_rotating(struct unit &u, const struct held<SIDE> &f)
{
    constexpr int ROWS = lane_rows<SIDE, Sample>, LINES = ROWS + SIDE - 1;
    static_assert(LINES % SIDE == 0, "turns fill a unit");
    quad<Sample> next[4];
    load_line(next, u.from);
    u.from += u.pitch;
    Sum sums[SIDE][COLUMNS]; // of the rows that the next row of the stage adds to
#pragma unroll(unrolled_turns <SIDE>)
    for (int first = 0; first < LINES; first += SIDE) {
#pragma unroll
        for (int s = 0; s < SIDE; s++) {
            operand<Sum> line[2 * COLUMNS];
            unpack_line(line, next);
            if (first + s + 1 < LINES)
                load_line(next, u.from);
            u.from += u.pitch;
#pragma unroll
            for (int j = SIDE - 1; j >= 0; j--) // the row that this one completes comes first
                if (first + s >= j && first + s < j + ROWS)
                    add_row<SIDE>(sums[(s - j + SIDE) % SIDE], j, line, f);
            if (first + s < SIDE - 1)
                continue;
            quad<Sample> made[1][2];
            round_row<EXACT>(made[0], sums[(s + 1) % SIDE], f.rounding);
            store_rows<Sample>(u, made);
        }
    }
}

template <int SIDE, typename Sample, typename Sum, bool EXACT>
__device__ inline void filter_unit(const struct piece &piece, const uint8_t *samples, int unit,
                                   const struct held<SIDE> &f)
{
    bool exists = unit < piece.units;
    unit = exists ? unit : 0; // lanes stay together
    typedef tma_traits<SIDE, Sample> Traits;
    constexpr int SEGMENT = Traits::SEGMENT, ROWS = Traits::MICROTILE_ROWS;
    int band = band_of(piece, unit);
    int x = (unit - band * piece.segments) * SEGMENT, y = band * ROWS; // x in bytes
    struct unit u;
    u.from = samples + y * piece.pitch + Traits::HALO + x - 4 * (int)sizeof(Sample);
    u.to = piece.dst + (int64_t)y * piece.dst_stride + x;
    u.pitch = piece.pitch;
    u.stride = piece.dst_stride;
    u.bytes = min(piece.stored - x, SEGMENT);
    u.rows = exists ? min(piece.rows - y, ROWS) : 0;
    u.whole = u.bytes == SEGMENT && piece.aligned;
    if constexpr (SIDE < 7)
        filter_turns<SIDE, Sample, Sum, EXACT>(u, f);
    else
        filter_rotating<SIDE, Sample, Sum, EXACT>(u, f);
}

#endif

// EXACT means something for sums in floats only: real filters need no division.
template <int SIDE, typename Sample, typename Sum, bool EXACT>
static __global__ void __launch_bounds__(block_threads<tma_traits<SIDE, Sample>>, 1)
    ring_blocked(const __grid_constant__ struct filter<SIDE> f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_traits<SIDE, Sample> Traits;
    auto prepare = [](struct ring *) {};
    tma_pipeline_main<Traits>(f.supply, prepare, [&](struct ring *ring) {
        struct held<SIDE> held = hold(f);
        work<Traits>(ring, f.supply,
                     [&](const struct piece &piece, const uint8_t *samples, int job) {
                         int unit = job * Traits::JOB + (int)(threadIdx.x % WARP);
                         filter_unit<SIDE, Sample, Sum, EXACT>(piece, samples, unit, held);
                     });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE, typename Sample, typename Sum, bool EXACT>
static enum conv_status start(struct filter<SIDE> *f, const struct conv_stencil *stencil,
                              const struct conv_stencil_batch *batch)
{
    if (std::is_same<Sum, float>::value)
        scale_filter<Sample>(f->coef, SIDE * SIDE, &f->rounding);
    return tma_pipeline_launch<tma_traits<SIDE, Sample>>(ring_blocked<SIDE, Sample, Sum, EXACT>, f,
                                                         stencil, batch);
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

static enum conv_status run_ring(const struct conv_stencil_plan *plan,
                                 const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    int side = max(stencil->width, stencil->height);
    if (side <= 3)
        return launch_side<3>(stencil, batch);
    if (side <= 5)
        return launch_side<5>(stencil, batch);
    return launch_side<7>(stencil, batch);
}

static bool can_ring(const struct conv_stencil *stencil)
{
    struct rounding rounding;
    return max(stencil->width, stencil->height) <= 7 &&
           conv_cuda_rounding(&rounding, stencil) != SUM_INT64 && fits_scaled(stencil);
}

CONV_CUDA_VARIANT(tma, 90, "as blocked, samples through the bulk copy engine", can_ring,
                  score_always<50>, run_ring, tile_traits::TILE_WIDTH, tile_traits::TILE_HEIGHT);
