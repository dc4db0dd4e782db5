// SPDX-License-Identifier: MIT
// Two passes on tensor cores in one kernel: for exact filters of 8-bit images that are a column
// times a row, up to 31 x 31, from compute capability 9.0 on. Samples come through the bulk copy
// engine (tma_pipeline.cuh). The passes are explained in separable_mma.cuh.
//
// The sums of the first pass have 16 bits: one product takes their low bytes, another one the high
// bytes, and lows + 256 * highs is exact. At 31 x 31 a sample takes 192 multiply-adds of bytes
// instead of 961. kernels/README.md has the figures.
//
// Rejected: microtiles of 128 rows, which leave room for two stages only (31 x 31: 0.46 of a copy's
// speed instead of 0.60), and 16 consumer warps, without registers to overlap both passes (0.54).
#include "kernels/stencil/cuda/pack.cuh"
#include "kernels/stencil/cuda/separable_mma.cuh"

struct factors {
    int32_t row_start;   // start of a row's sums, so that they are 0 to 65535
    int32_t start;       // start of a column's sums, which compensates for that
    float scale, offset; // ROUND_U8: as in struct u8_rounding; else offset is the grid
    int8_t row[FACTOR_BYTES], column[FACTOR_BYTES]; // taps from FACTOR_LEAD on, zeros around them
};

struct tma_mma_separable_filter {
    struct tile_schedule schedule;
    struct factors factors;
};
static_assert(2 * sizeof(((struct factors *)0)->row) <= PIPELINE_SCRATCH,
              "consumer warps load them from there");

template <int HEIGHT> using byte_tiles = separable_mma_traits<HEIGHT, uint8_t>;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The values that a lane of a consumer warp keeps in registers.
template <int WIDTH, int HEIGHT> struct separable_registers {
    struct toeplitz<int8_t, across<WIDTH>> row[2]; // for each half of the columns
    struct toeplitz<int8_t, down<HEIGHT>> column;
    int32_t row_start[4], start[4];
    float scale, offset;
};

template <int WIDTH, int HEIGHT>
static __device__ inline void load_registers(struct separable_registers<WIDTH, HEIGHT> *to,
                                             const int8_t *row, const int8_t *column,
                                             const struct factors &f)
{
    int t = (int)threadIdx.x % 4;
    load_row(to->row, row);
    load_column(&to->column, column);
    // If the compiler knew that four values are equal, or uniform, it would move them into place
    // for every product. It cannot see that the bytes before a row's taps are zeros.
    for (int k = 0; k < 4; k++) {
        to->row_start[k] = f.row_start ^ row[t + k];
        to->start[k] = f.start ^ row[t + k];
    }
    to->scale = f.scale;
    to->offset = f.offset;
}

// The sums of a group of 16 rows as words of B: for each 8 columns the low and the high bytes.
struct row_sums {
    uint32_t low[4], high[4];
};

// ROUND_U8: see pack.cuh. Else the sum is an integer of at most 24 bits: see round_sum.
template <bool ROUND_U8, int WIDTH, int HEIGHT>
static __device__ inline float divide(int32_t sum,
                                      const struct separable_registers<WIDTH, HEIGHT> &f)
{
    if (ROUND_U8)
        return __fmaf_rn(__int_as_float(sum), f.scale, f.offset);
    return __fadd_rn(__fmaf_rn((float)sum, f.scale, f.offset), -f.offset);
}

template <int WIDTH_, int HEIGHT_, bool ROUND_U8> struct separable_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct row_sums Sums;
    struct separable_registers<WIDTH, HEIGHT> f;

    __device__ void sum_rows(struct row_sums *to, const uint8_t *from, int pitch) const
    {
        int32_t made[2][2][4];
        multiply_samples(made, from, pitch, f.row, f.row_start);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int half = i / 2, k = i % 2 * 2;
            uint32_t upper = __byte_perm(made[half][0][k], made[half][0][k + 1], 0x5410);
            uint32_t lower = __byte_perm(made[half][1][k], made[half][1][k + 1], 0x5410);
            to->low[i] = __byte_perm(upper, lower, 0x6420);
            to->high[i] = __byte_perm(upper, lower, 0x7531);
        }
    }

    template <bool EVEN, bool RAGGED>
    __device__ void sum_columns(const struct row_sums *sums, const struct store_target &target,
                                int row) const
    {
        constexpr int BLOCKS = down<HEIGHT>;
        int32_t made[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low[BLOCKS], high[BLOCKS];
#pragma unroll
            for (int k = 0; k < BLOCKS; k++) {
                low[k] = sums[k].low[i];
                high[k] = sums[k].high[i];
            }
            const int32_t zero[4] = {};
            int32_t lows[4], highs[4];
            multiply<EVEN>(lows, f.column, low, f.start);
            multiply<EVEN>(highs, f.column, high, zero);
#pragma unroll
            for (int k = 0; k < 4; k++)
                made[i][k] = lows[k] + 256 * highs[k];
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t words[2];
#pragma unroll
            for (int w = 0; w < 2; w++)
                words[w] = round_to_bytes(divide<ROUND_U8>(made[2 * w][2 * r], f),
                                          divide<ROUND_U8>(made[2 * w][2 * r + 1], f),
                                          divide<ROUND_U8>(made[2 * w + 1][2 * r], f),
                                          divide<ROUND_U8>(made[2 * w + 1][2 * r + 1], f));
            store<RAGGED>(target, row + 8 * r, make_uint2(words[0], words[1]));
        }
    }
};

// Both passes of a microtile; separable_mma.cuh explains RAGGED and Passes. Its filter_microtile
// takes 9 % longer for blur:9 and blur:15 (H200, 6000 x 4000 x 3).
template <bool RAGGED, typename Passes>
static __device__ inline void filter_rows(const uint8_t *from, int pitch,
                                          const struct store_target &target, int rows,
                                          const Passes &passes)
{
    constexpr int BLOCKS = down<Passes::HEIGHT>, GROUPS = MICRO_ROWS / GROUP_ROWS + BLOCKS - 1;
    typename Passes::Sums sums[GROUPS];
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        passes.sum_rows(&sums[i], from + i * GROUP_ROWS * pitch, pitch);
    from += BLOCKS * GROUP_ROWS * pitch;
#pragma unroll
    for (int group = 0; group < MICRO_ROWS / GROUP_ROWS; group++) {
        if (RAGGED && group * GROUP_ROWS >= rows)
            break;
        if (!RAGGED && group + BLOCKS < GROUPS) {
            passes.sum_rows(&sums[group + BLOCKS], from, pitch);
            from += GROUP_ROWS * pitch;
        }
        if (group % 2 == 0)
            passes.template sum_columns<true, RAGGED>(&sums[group], target, group * GROUP_ROWS);
        else
            passes.template sum_columns<false, RAGGED>(&sums[group], target, group * GROUP_ROWS);
        if (RAGGED && group + BLOCKS < GROUPS && (group + 1) * GROUP_ROWS < rows) {
            passes.sum_rows(&sums[group + BLOCKS], from, pitch);
            from += GROUP_ROWS * pitch;
        }
    }
}

template <typename Passes>
static __device__ inline void filter_microtile(const struct work_tile &tile, const uint8_t *samples,
                                               int microtile, const Passes &passes)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int band = band_of(tile, microtile);
    int x = (microtile - band * tile.segments) * MICRO_COLUMNS, y = band * MICRO_ROWS;
    int rows = min(tile.rows - y, MICRO_ROWS);
    const uint8_t *line = samples + (y + g) * tile.pitch + tile_traits::HALO + x;
    struct store_target target;
    target.stride = tile.dst_stride;
    target.to =
        __cvta_generic_to_global(tile.dst) + (uint64_t)((y + g) * target.stride + x + 8 * t);
    target.columns = min(tile.stored - x - 8 * t, 8);
    target.rows = target.columns > 0 ? rows - g : 0;
    target.whole = target.columns == 8 && tile.aligned;
    const uint8_t *from = line - Passes::WIDTH / 2 + 4 * t; // WIDTH / 2 is 8 or 16
    if (rows == MICRO_ROWS && __all_sync(0xffffffffu, target.whole))
        filter_rows<false>(from, tile.pitch, target, rows, passes);
    else
        filter_rows<true>(from, tile.pitch, target, rows, passes);
}

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time. The factors
// pass through the pipeline's scratch, because a lane indexes them by its position.
template <int WIDTH, int HEIGHT, bool ROUND_U8>
static __global__ void __launch_bounds__(block_threads<byte_tiles<HEIGHT>>, 1)
    tma_mma_separable(const __grid_constant__ struct tma_mma_separable_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef byte_tiles<HEIGHT> Traits;
    int8_t *row, *column;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        row = (int8_t *)pipeline->scratch;
        column = row + sizeof f.factors.row;
        for (uint32_t i = threadIdx.x; i < sizeof f.factors.row; i += block_threads<Traits>) {
            row[i] = f.factors.row[i];
            column[i] = f.factors.column[i];
        }
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct separable_passes<WIDTH, HEIGHT, ROUND_U8> passes;
        load_registers(&passes.f, row, column, f.factors);
        consume_tiles<Traits>(pipeline, f.schedule,
                              [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                                  filter_microtile(tile, samples, job, passes);
                              });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

// The factors of a stencil for a kernel of width x height taps; false if they do not fit in bytes
// or the sums of a row not in 16 bits, offset by the least one. The result of both passes is an
// integer that float32 holds exactly, because conv_cuda_rounding chose SUM_FLOAT. *quick: see
// ROUND_U8.
static bool find_factors(struct factors *f, bool *quick, const struct conv_stencil *stencil,
                         int width, int height)
{
    struct rounding rounding;
    int32_t row[CONV_FILTER_MAX_SIDE], column[CONV_FILTER_MAX_SIDE];
    if (!stencil->exact || stencil->depth != 8 ||
        conv_cuda_rounding(&rounding, stencil) != SUM_FLOAT ||
        !conv_stencil_factors(stencil, column, row))
        return false;
    int32_t least = 0, most = 0, sum = 0;
    for (int i = 0; i < stencil->width; i++) {
        if (row[i] < -128 || row[i] > 127)
            return false;
        f->row[FACTOR_LEAD + width / 2 - stencil->width / 2 + i] = (int8_t)row[i];
        *(row[i] < 0 ? &least : &most) += 255 * row[i];
    }
    for (int j = 0; j < stencil->height; j++) {
        if (column[j] < -128 || column[j] > 127)
            return false;
        f->column[FACTOR_LEAD + height / 2 - stencil->height / 2 + j] = (int8_t)column[j];
        sum += column[j];
    }
    f->row_start = -least;
    f->start = least * sum + (int32_t)stencil->bias;
    f->scale = rounding.scale;
    f->offset = rounding.grid;
    *quick = false;
    struct u8_rounding r;
    bool ties = true;
    if (fits_u8_rounding(stencil))
        pack_rounding(&r, &ties, stencil);
    if (!ties) {
        *quick = true;
        f->start += SUM_START;
        f->scale = r.scale;
        f->offset = r.offset;
    }
    return most - least <= 65535;
}

template <int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_separable_filter>>(plan);
    bool quick = false;
    find_factors(&constants->filter.factors, &quick, stencil, WIDTH, HEIGHT);
    constants->kernel =
        quick ? tma_mma_separable<WIDTH, HEIGHT, true> : tma_mma_separable<WIDTH, HEIGHT, false>;
    constants->launch = tma_pipeline_run<byte_tiles<HEIGHT>, struct tma_mma_separable_filter>;
}

static void plan_tma_mma_separable(const struct conv_stencil *stencil,
                                   struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<SHORT_FACTOR, SHORT_FACTOR>(stencil, plan);
    else if (stencil->width <= SHORT_FACTOR)
        plan_sized<SHORT_FACTOR, LONG_FACTOR>(stencil, plan);
    else if (stencil->height <= SHORT_FACTOR)
        plan_sized<LONG_FACTOR, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<LONG_FACTOR, LONG_FACTOR>(stencil, plan);
}

static bool can_tma_mma_separable(const struct conv_stencil *stencil)
{
    struct factors factors = {};
    bool quick = false;
    return find_factors(&factors, &quick, stencil, LONG_FACTOR, LONG_FACTOR);
}

// Two passes multiply less than one, but start more slowly: at 9 x 9 they are faster for large
// images alone. One takes 9 rows of SHORT_FACTOR taps of a byte at most; for others two are the
// next best.
#define ONE_PASS_HEIGHT 9
#define LARGE_LAUNCH ((size_t)128 << 20)
#define LEAST_SIDE 5

static int score_tma_mma_separable(const struct conv_stencil *stencil, size_t launch_bytes)
{
    bool large_launch = launch_bytes >= LARGE_LAUNCH;
    if (stencil->width > SHORT_FACTOR || stencil->height > ONE_PASS_HEIGHT ||
        (stencil->height == ONE_PASS_HEIGHT && large_launch))
        return 90;
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 75 : CONV_SCORE_UNSUITED;
}

CONV_CUDA_VARIANT(tma_mma_separable, 90,
                  "two passes on int8 tensor cores, for a column times a row",
                  can_tma_mma_separable, score_tma_mma_separable, plan_tma_mma_separable,
                  run_planned, byte_tiles<SHORT_FACTOR>::TILE_WIDTH,
                  byte_tiles<SHORT_FACTOR>::TILE_HEIGHT);
