// SPDX-License-Identifier: MIT
// Two passes on tensor cores in one kernel: for exact filters of 8-bit images that are a column
// times a row, up to 31 x 31, from compute capability 9.0 on. Samples come through the bulk copy
// engine (tma_pipeline.cuh).
//
// First pass: A is the row of taps as a Toeplitz matrix, B are samples of 8 rows; the product are
// sums of 8 rows and 16 columns. Second pass: A is the column of taps, B are those sums. A lane
// holds of a result what it must hold of the next B (PTX ISA, "Matrix Fragments for mma.m16n8k16
// with integer type" and "... mma.m16n8k32"), except for the order of rows, which is free. No lane
// needs a value of another lane.
//
// The sums of the first pass have 16 bits: one product takes their low bytes, another one the high
// bytes, and lows + 256 * highs is exact. At 31 x 31 a sample takes 192 multiply-adds of bytes
// instead of 961. kernels/README.md has the figures.
//
// Rejected: microtiles of 128 rows leave room for two stages only (31 x 31: 0.46 of a copy for
// 0.60), of 32 rows sum more halo; 16 consumer warps for 12 have no registers to overlap both
// passes (0.54 for 0.58).
#include "kernels/stencil/cuda/round_u8.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define COLUMNS 32 // of a microtile: two products of 16
#define HIGH 64    // rows of a microtile
#define GROUP 16   // rows of a product of the second pass
#define SHORT 17   // taps of a factor up to which 16 sums read 32 values,
#define LONG 33    // and 48
#define LEAD 32    // zeros before a factor's taps

struct factors {
    int32_t row_start;          // start of a row's sums, so that they are 0 to 65535
    int32_t start;              // start of a column's sums, which takes that back
    float scale, offset;        // ROUND_U8: as in struct u8_rounding; else offset is the grid
    int8_t row[96], column[96]; // taps from LEAD on, zeros around them
};

struct tma_mma_separable_filter {
    struct tile_schedule schedule;
    struct factors factors;
};
static_assert(2 * sizeof(((struct factors *)0)->row) <= PIPELINE_SCRATCH,
              "consumer warps load them from there");

// Blocks of 16 columns of the matrix of a factor of LENGTH taps: as a row, as a column.
template <int LENGTH> constexpr int across = LENGTH <= SHORT ? 3 : 4;
template <int LENGTH> constexpr int down = LENGTH <= SHORT ? 2 : 3;

template <int TAP_ROWS_> struct tma_mma_separable_traits : tile_traits {
    typedef uint8_t Sample;
    static constexpr int TILE_WIDTH = 512;
    static constexpr int TAP_ROWS = TAP_ROWS_, MICROTILE_ROWS = HIGH;
    static constexpr bool ODD_PITCH = true;
    static constexpr int CONSUMERS = 12;
    static constexpr int SEGMENT = COLUMNS, STORE = 8;
    static constexpr int WARP_MICROTILES = 1; // a microtile per warp
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A lane's part of a factor as a Toeplitz matrix (A) of 16 rows and BLOCKS * 16 columns.
template <int BLOCKS> struct toeplitz {
    uint32_t words[BLOCKS][2]; // of the rows g and g + 8
};

// to = A * B + start for one block, or for two whose words of B are in adjacent registers.
static __device__ inline void multiply_block(int32_t (&to)[4], const uint32_t (&a)[2], uint32_t b,
                                             const int32_t (&start)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(start[0]), "r"(start[1]), "r"(start[2]), "r"(start[3]));
}

static __device__ inline void multiply_pair(int32_t (&to)[4], const uint32_t (&a0)[2],
                                            const uint32_t (&a1)[2], uint32_t b0, uint32_t b1,
                                            const int32_t (&start)[4])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a0[0]), "r"(a0[1]), "r"(a1[0]), "r"(a1[1]), "r"(b0), "r"(b1), "r"(start[0]),
          "r"(start[1]), "r"(start[2]), "r"(start[3]));
}

// For all blocks. EVEN: words 0 and 1 of B are in adjacent registers, and 2 and 3; else 1 and 2.
template <bool EVEN, int BLOCKS>
static __device__ inline void multiply(int32_t (&to)[4], const struct toeplitz<BLOCKS> &a,
                                       const uint32_t (&b)[BLOCKS], const int32_t (&start)[4])
{
    if (EVEN) {
        multiply_pair(to, a.words[0], a.words[1], b[0], b[1], start);
        if (BLOCKS == 3)
            multiply_block(to, a.words[BLOCKS - 1], b[BLOCKS - 1], to);
        if (BLOCKS == 4)
            multiply_pair(to, a.words[BLOCKS - 2], a.words[BLOCKS - 1], b[BLOCKS - 2],
                          b[BLOCKS - 1], to);
    } else {
        multiply_block(to, a.words[0], b[0], start);
#pragma unroll
        for (int i = 1; i < BLOCKS; i++)
            multiply_block(to, a.words[i], b[i], to);
    }
}

// The matrix whose rows g and g + 8 have tap 0 at the columns `upper` and `lower`. order(0 ... 3)
// are the columns of the lane's four bytes in a block.
template <int BLOCKS, typename Order>
static __device__ inline void load_matrix(struct toeplitz<BLOCKS> *to, const int8_t *factor,
                                          int upper, int lower, Order order)
{
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const int8_t *from = factor + LEAD + 16 * block;
        to->words[block][0] = to->words[block][1] = 0;
        for (int k = 0; k < 4; k++) {
            to->words[block][0] |= (uint32_t)(uint8_t)from[order(k) - upper] << 8 * k;
            to->words[block][1] |= (uint32_t)(uint8_t)from[order(k) - lower] << 8 * k;
        }
    }
}

// What a lane of a consumer warp keeps in registers.
template <int WIDTH, int HEIGHT> struct separable_registers {
    struct toeplitz<across<WIDTH>> row[2]; // for each half of the columns
    struct toeplitz<down<HEIGHT>> column;
    int32_t row_start[4], start[4];
    float scale, offset;
};

// The order of columns: a lane gets the results of rows g and g + 8 of A in both halves, whose
// outputs are x = 8(g / 2) + g % 2, x + 2, x + 4 and x + 6. In the second pass these are columns of
// B, of which it gets 2t and 2t + 1: 8 neighbours in total. The order of rows: a lane's sums of the
// first pass are of rows 2t, 2t + 1, and those 8 below, so the column's taps are in this order.
template <int WIDTH, int HEIGHT>
static __device__ inline void load_registers(struct separable_registers<WIDTH, HEIGHT> *to,
                                             const int8_t *row, const int8_t *column,
                                             const struct factors &f)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int x = g / 2 * 8 + g % 2;
    for (int half = 0; half < 2; half++)
        load_matrix(&to->row[half], row, x + 4 * half, x + 4 * half + 2,
                    [&](int k) { return 4 * t + k; });
    load_matrix(&to->column, column, g, g + 8, [&](int k) { return 2 * t + k % 2 + k / 2 * 8; });
    // Four values that the compiler knew to be equal, or uniform, would be moved into place for
    // every product. It cannot see that the bytes before a row's taps are zeros.
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

// The first pass. `from` is the lane's first word of the window.
template <int WIDTH, int HEIGHT>
static __device__ inline void sum_rows(struct row_sums *to, const uint8_t *from, int pitch,
                                       const struct separable_registers<WIDTH, HEIGHT> &f)
{
    constexpr int BLOCKS = across<WIDTH>;
    int32_t made[2][2][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t window[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            window[i] = *(const uint32_t *)(from + r * 8 * pitch + 16 * i);
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply<true>(made[half][r], f.row[half], window, f.row_start);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int half = i / 2, k = i % 2 * 2;
        uint32_t upper = __byte_perm(made[half][0][k], made[half][0][k + 1], 0x5410);
        uint32_t lower = __byte_perm(made[half][1][k], made[half][1][k + 1], 0x5410);
        to->low[i] = __byte_perm(upper, lower, 0x6420);
        to->high[i] = __byte_perm(upper, lower, 0x7531);
    }
}

// ROUND_U8: see round_u8.cuh. Else the sum is an integer of at most 24 bits: see round_sum.
template <bool ROUND_U8, int WIDTH, int HEIGHT>
static __device__ inline float divide(int32_t sum,
                                      const struct separable_registers<WIDTH, HEIGHT> &f)
{
    if (ROUND_U8)
        return __fmaf_rn(__int_as_float(sum), f.scale, f.offset);
    return __fadd_rn(__fmaf_rn((float)sum, f.scale, f.offset), -f.offset);
}

// Where the lane's samples of a microtile are stored.
struct store_target {
    uint64_t to; // eight samples of the first row, in global memory
    int64_t stride;
    int rows, columns; // to store from there
    bool whole;        // eight columns, aligned: one store
};

// No "memory" clobber: later loads of samples, which are elsewhere, may move before the store.
static __device__ inline void store_eight(uint64_t to, uint2 samples)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(samples.x), "r"(samples.y));
}

template <bool RAGGED>
static __device__ inline void store(const struct store_target &target, int row, uint2 samples)
{
    uint64_t to = target.to + (uint64_t)(row * target.stride);
    if (!RAGGED || (target.whole && row < target.rows)) {
        store_eight(to, samples);
    } else if (row < target.rows) {
#pragma unroll 1
        for (int k = 0; k < target.columns; k++) {
            asm volatile("st.global.u8 [%0], %1;" ::"l"(to + k), "r"(samples.x));
            samples.x = __funnelshift_r(samples.x, samples.y, 8);
            samples.y >>= 8;
        }
    }
}

// The second pass: 16 rows, of which the lane gets the rows g and g + 8. sums[0] is the first group
// that they read.
template <bool EVEN, bool RAGGED, bool ROUND_U8, int WIDTH, int HEIGHT>
static __device__ inline void sum_columns(const struct row_sums *sums,
                                          const struct store_target &target, int row,
                                          const struct separable_registers<WIDTH, HEIGHT> &f)
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

// Both passes of a microtile. Each group's first pass precedes the second pass of the group above,
// so that one has instructions while the other waits for its products. RAGGED: there are fewer than
// HIGH rows, or some lane has fewer than 8 columns or unaligned ones.
template <bool RAGGED, bool ROUND_U8, int WIDTH, int HEIGHT>
static __device__ inline void filter_rows(const uint8_t *from, int pitch,
                                          const struct store_target &target, int rows,
                                          const struct separable_registers<WIDTH, HEIGHT> &f)
{
    constexpr int BLOCKS = down<HEIGHT>, GROUPS = HIGH / GROUP + BLOCKS - 1;
    struct row_sums sums[GROUPS];
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        sum_rows(&sums[i], from + i * GROUP * pitch, pitch, f);
    from += BLOCKS * GROUP * pitch;
#pragma unroll
    for (int group = 0; group < HIGH / GROUP; group++) {
        if (RAGGED && group * GROUP >= rows)
            break;
        if (!RAGGED && group + BLOCKS < GROUPS) {
            sum_rows(&sums[group + BLOCKS], from, pitch, f);
            from += GROUP * pitch;
        }
        if (group % 2 == 0)
            sum_columns<true, RAGGED, ROUND_U8>(&sums[group], target, group * GROUP, f);
        else
            sum_columns<false, RAGGED, ROUND_U8>(&sums[group], target, group * GROUP, f);
        if (RAGGED && group + BLOCKS < GROUPS && (group + 1) * GROUP < rows) {
            sum_rows(&sums[group + BLOCKS], from, pitch, f);
            from += GROUP * pitch;
        }
    }
}

template <bool ROUND_U8, int WIDTH, int HEIGHT>
static __device__ inline void filter_microtile(const struct work_tile &tile, const uint8_t *samples,
                                               int microtile,
                                               const struct separable_registers<WIDTH, HEIGHT> &f)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int band = band_of(tile, microtile);
    int x = (microtile - band * tile.segments) * COLUMNS, y = band * HIGH;
    int rows = min(tile.rows - y, HIGH);
    const uint8_t *from = samples + (y + g) * tile.pitch + tile_traits::HALO + x - WIDTH / 2 +
                          4 * t; // WIDTH / 2 is 8 or 16
    struct store_target target;
    target.stride = tile.dst_stride;
    target.to =
        __cvta_generic_to_global(tile.dst) + (uint64_t)((y + g) * target.stride + x + 8 * t);
    target.columns = min(tile.stored - x - 8 * t, 8);
    target.rows = target.columns > 0 ? rows - g : 0;
    target.whole = target.columns == 8 && tile.aligned;
    if (rows == HIGH && __all_sync(0xffffffffu, target.whole))
        filter_rows<false, ROUND_U8>(from, tile.pitch, target, rows, f);
    else
        filter_rows<true, ROUND_U8>(from, tile.pitch, target, rows, f);
}

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time. The factors
// pass through the pipeline's scratch, because a lane indexes them by its position.
template <int WIDTH, int HEIGHT, bool ROUND_U8>
static __global__ void __launch_bounds__(block_threads<tma_mma_separable_traits<HEIGHT>>, 1)
    tma_mma_separable(const __grid_constant__ struct tma_mma_separable_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_mma_separable_traits<HEIGHT> Traits;
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
        struct separable_registers<WIDTH, HEIGHT> registers;
        load_registers(&registers, row, column, f.factors);
        consume_tiles<Traits>(pipeline, f.schedule,
                              [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                                  filter_microtile<ROUND_U8>(tile, samples, job, registers);
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
        f->row[LEAD + width / 2 - stencil->width / 2 + i] = (int8_t)row[i];
        *(row[i] < 0 ? &least : &most) += 255 * row[i];
    }
    for (int j = 0; j < stencil->height; j++) {
        if (column[j] < -128 || column[j] > 127)
            return false;
        f->column[LEAD + height / 2 - stencil->height / 2 + j] = (int8_t)column[j];
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
    constants->launch =
        tma_pipeline_run<tma_mma_separable_traits<HEIGHT>, struct tma_mma_separable_filter>;
}

static void plan_tma_mma_separable(const struct conv_stencil *stencil,
                                   struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT && stencil->height <= SHORT)
        plan_sized<SHORT, SHORT>(stencil, plan);
    else if (stencil->width <= SHORT)
        plan_sized<SHORT, LONG>(stencil, plan);
    else if (stencil->height <= SHORT)
        plan_sized<LONG, SHORT>(stencil, plan);
    else
        plan_sized<LONG, LONG>(stencil, plan);
}

static bool can_tma_mma_separable(const struct conv_stencil *stencil)
{
    struct factors factors = {};
    bool quick = false;
    return find_factors(&factors, &quick, stencil, LONG, LONG);
}

// Two passes multiply less than one, but start and end more slowly. One pass takes at most 9 rows
// of SHORT taps whose coefficients are bytes; at 9 x 9 two are faster only in large launches (8192
// x 8192: 0.76 of a copy for 0.65; but four images of 2880 x 1800: 79 us for 62, one: 26 for 20).
// Where coefficients are no bytes, two passes are next (one image: 25 us for 61 of cuda_tma at 7 x
// 7, for 31 at 5 x 5).
#define ONE_PASS_HEIGHT 9
#define LARGE_LAUNCH ((size_t)128 << 20)
#define LEAST_SIDE 5

static int score_tma_mma_separable(const struct conv_stencil *stencil, size_t launch_bytes)
{
    bool large_launch = launch_bytes >= LARGE_LAUNCH;
    if (stencil->width > SHORT || stencil->height > ONE_PASS_HEIGHT ||
        (stencil->height == ONE_PASS_HEIGHT && large_launch))
        return 90;
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 75 : CONV_SCORE_UNSUITED;
}

CONV_CUDA_VARIANT(tma_mma_separable, 90,
                  "two passes on int8 tensor cores, for a column times a row",
                  can_tma_mma_separable, score_tma_mma_separable, plan_tma_mma_separable,
                  run_planned, tma_mma_separable_traits<SHORT>::TILE_WIDTH,
                  tma_mma_separable_traits<SHORT>::TILE_HEIGHT);
