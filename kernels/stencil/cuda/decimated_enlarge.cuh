// SPDX-License-Identifier: MIT
// From a filtered coarse image of integers to results (decimated.cu), by products of half-precision
// numbers on tensor cores. A warp has a strip of 64 bytes of results, the warps of a block are side
// by side, and walk down, 16 rows at a time:
//
// First product: A are weights of 8 filtered samples for 16 columns, twice, for two bytes; B are
// bytes of these samples, of 8 rows. Second product: A are weights of 16 filtered rows for 16 rows
// of results; B are parts of the sums of 8 columns, those that a lane has from the first product.
//
// All sums are exact. An integer n below 2^11 is the half n * 2^-24, bit by bit. Sums begin with a
// power of two and stay below twice that, so that their last 23 bits are an integer. Parts of 11
// bits are multiplied separately and added up as integers. Columns have such an order in the first
// product that a lane has four neighbours at the end. Results, and samples that are sharpened, pass
// through shared memory of the warp, so that lanes store and load 16 bytes at a time.
#pragma once

#include "kernels/stencil/cuda/decimated_reduce.cuh"

#define ENLARGED 4 // columns of results of a lane in a product
#define BLOCK_WARPS (THREADS / WARP)
#define STRIP_BYTES 64                                  // of a row of a warp's strip
#define TILES_AHEAD 3                                   // of samples that a warp has asked for
#define ENLARGING_BLOCKS(sharpens) ((sharpens) ? 4 : 5) // of a processor, by their registers
#define PART 11                                         // bits of a number of the second product

// Four samples of a row as they lie in memory; values are 32 bits, of float32 as well, or their
// upper bits count.
template <typename Sample> struct four;
template <> struct four<uint8_t> {
    uint32_t word;

    __device__ uint32_t get(int k) const
    {
        return __byte_perm(word, 0, 0x4440 | k);
    }
    __device__ void set_upper(const uint32_t *values)
    {
        word = __byte_perm(__byte_perm(values[0], values[1], 0x0073),
                           __byte_perm(values[2], values[3], 0x0073), 0x5410);
    }
    __device__ void set_clamped(const uint32_t *values)
    {
        uint32_t high;
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;"
            : "=r"(high)
            : "r"(values[3]), "r"(values[2]), "r"(0));
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;"
            : "=r"(word)
            : "r"(values[1]), "r"(values[0]), "r"(high));
    }
};
template <> struct four<uint16_t> {
    uint2 word;

    __device__ uint32_t get(int k) const
    {
        return __byte_perm(k < 2 ? word.x : word.y, 0, k % 2 ? 0x4432 : 0x4410);
    }
    __device__ void set_upper(const uint32_t *values)
    {
        word.x = __byte_perm(values[0], values[1], 0x7632);
        word.y = __byte_perm(values[2], values[3], 0x7632);
    }
    __device__ void set_clamped(const uint32_t *values)
    {
        asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(word.x) : "r"(values[1]), "r"(values[0]));
        asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(word.y) : "r"(values[3]), "r"(values[2]));
    }
};
template <> struct four<float> {
    uint4 word;

    __device__ uint32_t get(int k) const
    {
        return k == 0 ? word.x : k == 1 ? word.y : k == 2 ? word.z : word.w;
    }
    __device__ void set(const uint32_t *values)
    {
        word.x = values[0], word.y = values[1], word.z = values[2], word.w = values[3];
    }
};

// sum += A * B.
__device__ static inline void multiply_halves(float (&sum)[4], const uint4 &a, uint32_t b0,
                                              uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(sum[0]), "f"(sum[1]),
          "f"(sum[2]), "f"(sum[3]));
#else
    const uint32_t rows[2][2] = {{a.x, a.y}, {a.z, a.w}}, words[2] = {b0, b1};
#pragma unroll
    for (int k = 0; k < 2; k++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%7,%8,%9,%10};"
            : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
            : "r"(rows[k][0]), "r"(rows[k][1]), "r"(words[k]), "f"(sum[0]), "f"(sum[1]),
              "f"(sum[2]), "f"(sum[3]));
#endif
}

__device__ static inline uint32_t subtract_halves(uint32_t a, uint32_t b)
{
    uint32_t result;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// --- along rows ----------------------------------------------------------------------------------

// What differs by the type of samples: two filtered samples, and parts of the sums of their rows.
template <typename Sample> struct enlarged;
template <> struct enlarged<uint8_t> {
    typedef uint32_t two;
    static constexpr int TILES = 4; // of a strip, from left to right
    static constexpr int PARTS = 2;
    static constexpr int FRACTION = 24; // bits after the point of a result's sum
};
template <> struct enlarged<uint16_t> {
    typedef uint2 two;
    static constexpr int TILES = 2, PARTS = 3;
    static constexpr int FRACTION = 16; // 8 bits are dropped
};

#define STRIP_COLUMNS (STRIP_BYTES / (int)sizeof(Sample))
#define BLOCK_COLUMNS (BLOCK_WARPS * STRIP_COLUMNS)

// The parts of a warp's 8 enlarged rows, by the tile and its half.
template <typename Sample>
using row_parts = uint32_t[enlarged<Sample>::TILES][2][enlarged<Sample>::PARTS];

// The sums of weights times two bytes, in the last 23 bits. `pairs`: 16 bits of two samples,
// of which 12 are used: as the halves 1024 + upper byte, less 1024, and 4 + lower byte / 256.
template <int UP_PARTS>
__device__ static inline void multiply_pairs(uint32_t (&sums)[4], const uint32_t (&pairs)[UP_PARTS],
                                             const uint4 *weights)
{
    constexpr float START = 0x1p15f - 4 * 1024;
    float products[4] = {START, START, START, START};
#pragma unroll
    for (int part = 0; part < UP_PARTS; part++) {
        multiply_halves(products, weights[part * WARP],
                        subtract_halves(__byte_perm(pairs[part], 0x64, 0x4341), 0x64006400),
                        __byte_perm(pairs[part], 0x44, 0x4240));
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        sums[k] = __float_as_uint(products[k]);
}

template <int UP_PARTS>
__device__ static inline void enlarge_pairs(uint32_t (&sums)[4], const uint32_t (&pairs)[UP_PARTS],
                                            const uint4 *weights)
{
    multiply_pairs<UP_PARTS>(sums, pairs, weights);
}

// Of 20 bits: the upper 12, then the lower 8.
template <int UP_PARTS>
__device__ static inline void enlarge_pairs(uint32_t (&sums)[4], const uint2 (&pairs)[UP_PARTS],
                                            const uint4 *weights)
{
    uint32_t upper[UP_PARTS], lower[UP_PARTS], others[4];
#pragma unroll
    for (int part = 0; part < UP_PARTS; part++) {
        upper[part] = __byte_perm(pairs[part].x, pairs[part].y, 0x6521);
        lower[part] = __byte_perm(pairs[part].x, pairs[part].y, 0x5410) & 0x00ff00ff;
    }
    multiply_pairs<UP_PARTS>(sums, upper, weights);
    multiply_pairs<UP_PARTS>(others, lower, weights);
#pragma unroll
    for (int k = 0; k < 4; k++)
        sums[k] = ((sums[k] & 0x7fffff) << 8) + (others[k] & 0x7fffff);
}

// A warp's columns, and the filtered samples that a lane has asked for: rows `group` * 8 on.
template <typename Sample, int UP_PARTS> struct enlarged_columns {
    typedef typename enlarged<Sample>::two two;
    static constexpr int TILES = enlarged<Sample>::TILES;
    uint32_t cells[TILES]; // bytes before the first sample of a tile, which is even
    const uint8_t *row;    // of the lane's samples
    int y;
    int phase; // of the first tile's tables
    two samples[TILES][UP_PARTS];

    __device__ void load(const struct grid<Sample> &grid)
    {
#pragma unroll
        for (int k = 0; k < TILES * UP_PARTS; k++)
            samples[k / UP_PARTS][k % UP_PARTS] =
                *(const two *)(row + cells[k / UP_PARTS] + k % UP_PARTS * 8 * sizeof(two) / 2);
        int next = min(y + GROUP, grid.height - 1);
        row += (next - y) * grid.pitch * (int)sizeof *grid.filtered;
        y = next;
    }

    // The rows that were loaded, and asks for the next ones.
    __device__ void enlarge(row_parts<Sample> &parts, const struct enlarge_tables &tables,
                            const struct grid<Sample> &grid, int phases)
    {
        int table = phase;
#pragma unroll
        for (int k = 0; k < TILES; k++) {
            uint32_t sums[4];
            enlarge_pairs<UP_PARTS>(sums, samples[k],
                                    &tables.across[table * UP_PARTS][threadIdx.x % WARP]);
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int p = 0; p < enlarged<Sample>::PARTS; p++) // from bits PART * p on
                    parts[k][half][p] =
                        __byte_perm(sums[2 * half], sums[2 * half + 1], 0x5410 + 0x1111 * p) >>
                            (PART - 8) * p &
                        (p < 2 ? 0x07ff07ff : 0x01ff01ff);
            table = table == phases - 1 ? 0 : table + 1;
        }
        load(grid);
    }
};

// --- results -------------------------------------------------------------------------------------

// SOME: of 8 bits, by an amount up to 1, so that 32 bits hold it: 255 * 2^12 * 2^11 + 2^22.
enum sharpening { NONE, SOME, MUCH };

// As the sample is an integer, only the change is rounded. Half a unit has been added to the sums.
template <typename Sample, typename Result, enum sharpening SHARPENS>
__device__ static inline struct four<Result> finish_sharpened(const uint32_t (&sums)[ENLARGED],
                                                              const struct four<Sample> &source,
                                                              const struct decimated_filter &f)
{
    constexpr int ONE = samples_of<Sample>::ONE, BITS = ONE + 11; // 2^11 is CONV_DECIMATED_AMOUNT
    constexpr int MORE = enlarged<Sample>::FRACTION - ONE;
    uint32_t values[ENLARGED];
    int32_t off[ENLARGED];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++) {
        int32_t sample = (int32_t)source.get(k);
        off[k] = (sample << ONE) - (int32_t)(sums[k] >> MORE);
        if constexpr (sizeof(Result) == 4) {
            int64_t total = ((int64_t)sample << BITS) + (int64_t)f.amount * off[k];
            values[k] = __float_as_uint((float)((double)total * (1.0 / (1 << BITS))));
        } else if (SHARPENS == SOME) {
            values[k] = (uint32_t)(sample + ((f.amount * off[k] + (1 << (BITS - 1))) >> BITS));
        } else if (sizeof(Sample) == 1) { // the upper half of 64 bits
            int64_t change;
            asm("mad.wide.s32 %0, %1, %2, %3;"
                : "=l"(change)
                : "r"(f.amount << (32 - BITS)), "r"(off[k]), "l"(1ll << 31));
            values[k] = (uint32_t)(sample + (int32_t)(change >> 32));
        } else {
            int64_t change = (int64_t)f.amount * off[k] + (1 << (BITS - 1));
            values[k] = (uint32_t)(sample + (int32_t)(change >> BITS));
        }
    }
    if (f.least_off) {
#pragma unroll
        for (int k = 0; k < ENLARGED; k++)
            if (abs(off[k]) < f.least_off)
                values[k] =
                    sizeof(Result) == 4 ? __float_as_uint((float)source.get(k)) : source.get(k);
    }
    struct four<Result> results;
    if constexpr (sizeof(Result) == 4)
        results.set(values);
    else
        results.set_clamped(values);
    return results;
}

// The sum of a result from those of its parts, by their bits. The sums of the most significant part
// begin such that what all of them begin with adds up to 0, or to half a unit where results are the
// upper bits of their sums; what is sharpened needs that as well.
template <typename Sample, typename Result, enum sharpening SHARPENS>
struct result_sum {
    static constexpr int PARTS = enlarged<Sample>::PARTS, LAST = PARTS - 1;
    static constexpr bool UPPER = sizeof(Result) == sizeof(Sample) && SHARPENS == NONE;
    static constexpr uint32_t START = 0x3f000000; // bits of 0.5, the last of which is 2^-24
    static constexpr int DROPPED = 24 - enlarged<Sample>::FRACTION, SHIFT = LAST *PART - DROPPED;
    static constexpr uint32_t OTHERS =
        (PARTS == 2 ? 0 : START << (PART - DROPPED)) + (START >> DROPPED);
    static constexpr uint32_t UNIT = 1u << (enlarged<Sample>::FRACTION - samples_of<Sample>::ONE);
    static constexpr uint32_t ROUND = UPPER ? 1u << (31 - 8 * sizeof(Sample))
                                      : SHARPENS != NONE && PARTS == 2 ? UNIT / 2
                                                                       : 0;

    __device__ static float start(int part){
        return 0.5f + (part < LAST ? 0 : (float)((ROUND - OTHERS) >> SHIFT) * 0x1p-24f);}

__device__ static uint32_t add(const uint32_t (&parts)[PARTS])
{
    uint32_t sum = (parts[LAST] << SHIFT) + (parts[0] >> DROPPED);
    if (PARTS == 3)
        sum += (parts[1] << (PART - DROPPED)) + (SHARPENS != NONE ? UNIT / 2 : 0);
    return sum;
}

// With all bits after the point.
__device__ static uint64_t add_all(const uint32_t (&parts)[PARTS])
{
    uint64_t sum = 0;
#pragma unroll
    for (int p = LAST; p >= 0; p--)
        sum = (sum << PART) + parts[p] - __float_as_uint(start(p));
    return sum;
}
}
;

// A lane's four results of a row of a tile: 0, or 1 for that which is 8 rows below.
template <typename Sample, typename Result, enum sharpening SHARPENS>
__device__ static inline struct four<Result>
finish_four(const float (&sums)[2][enlarged<Sample>::PARTS][4], int row,
            const struct four<Sample> &source, const struct decimated_filter &f)
{
    typedef struct result_sum<Sample, Result, SHARPENS> sum;
    uint32_t values[ENLARGED];
#pragma unroll
    for (int k = 0; k < ENLARGED; k++) {
        uint32_t parts[sum::PARTS];
#pragma unroll
        for (int p = 0; p < sum::PARTS; p++)
            parts[p] = __float_as_uint(sums[k / 2][p][2 * row + k % 2]);
        if constexpr (sum::UPPER || SHARPENS != NONE)
            values[k] = sum::add(parts);
        else
            values[k] = __float_as_uint((float)((double)sum::add_all(parts) * 0x1p-24));
    }
    struct four<Result> results;
    if constexpr (SHARPENS != NONE)
        results = finish_sharpened<Sample, Result, SHARPENS>(values, source, f);
    else if constexpr (sum::UPPER)
        results.set_upper(values);
    else
        results.set(values);
    return results;
}

// --- rows of a strip -----------------------------------------------------------------------------

// A tile's rows of a strip in shared memory. Chunks of 16 bytes have such an order that eight lanes
// reach different banks, in both ways: with 16 bytes each, or with the four results that a product
// leaves in each.
template <typename Sample> struct staged {
    uint8_t bytes[TILE * STRIP_BYTES];

    __device__ static int swizzle(int row)
    {
        return sizeof(Sample) == 1 ? row / 2 % 4 : row & 2;
    }
    // Of the lane's 16 bytes of the first 8 rows.
    __device__ static int lane_chunk(void)
    {
        int row = (int)threadIdx.x % WARP / 4;
        return row * STRIP_BYTES + ((int)threadIdx.x % 4 ^ swizzle(row)) * 16;
    }
    // Of its four samples of the first 8 rows of the first tile; those of tile k are at this place
    // ^ k * TILE * sizeof(Sample).
    __device__ static int lane_four(void)
    {
        int row = (int)threadIdx.x % WARP / 4;
        return row * STRIP_BYTES +
               ((int)threadIdx.x % 4 * ENLARGED * (int)sizeof(Sample) ^ swizzle(row) * 16);
    }
};

template <typename Sample, typename Result, enum sharpening SHARPENS>
struct enlarge_shared {
    struct enlarge_tables tables; struct staged<Result> results[BLOCK_WARPS][2];
    struct staged<Sample>
        samples[BLOCK_WARPS][SHARPENS != NONE ? TILES_AHEAD + 1 : 1];
};

// What a lane loads and stores of a strip: 16 bytes of two rows of a tile.
struct lane_rows {
    int64_t stride;
    int y, height; // of the next tile's first row
    int count;     // samples from here to the end of the row
};

__device__ static inline struct lane_rows find_rows(int left, int tile, int64_t stride, int size,
                                                    const struct conv_stencil_plane &plane)
{
    struct lane_rows rows;
    rows.stride = stride;
    rows.y = tile * TILE + (int)threadIdx.x % WARP / 4;
    rows.height = plane.height;
    rows.count = plane.width - left - (int)threadIdx.x % 4 * (16 / size);
    return rows;
}

// Asks for the samples of the next tile, of which the lane's are at *from.
template <typename Sample>
__device__ static inline void ask_tile(struct staged<Sample> *stage, const uint8_t **from,
                                       struct lane_rows *rows, bool asks)
{
    for (int half = 0; half < 2; half++)
        if (asks && rows->count > 0 && rows->y + half * GROUP < rows->height)
            __pipeline_memcpy_async(
                &stage->bytes[staged<Sample>::lane_chunk() + half * GROUP * STRIP_BYTES],
                *from + half * GROUP * rows->stride, 16);
    __pipeline_commit();
    *from += TILE * rows->stride;
    rows->y += TILE;
}

template <typename Result>
__device__ static inline void store_staged(const uint8_t *chunk, uint8_t **to,
                                           struct lane_rows *rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const Result *from = (const Result *)(chunk + half * GROUP * STRIP_BYTES);
        Result *row = (Result *)(*to + half * GROUP * rows->stride);
        if (rows->y + half * GROUP >= rows->height)
            continue;
        if (rows->count >= 16 / (int)sizeof(Result))
            __stcs((uint4 *)row, *(const uint4 *)from);
        else
#pragma unroll 1
            for (int i = 0; i < rows->count; i++)
                row[i] = from[i];
    }
    *to += TILE * rows->stride;
    rows->y += TILE;
}

// A lane's four samples at (x, y), and results, where these are not staged.
template <typename Sample>
__device__ static inline struct four<Sample> load_four(int x, int y, bool words,
                                                       const struct conv_stencil_plane &plane) {
    const Sample *from = (const Sample *)(plane.src + y * plane.src_stride) + x;
    struct four<Sample> result = {
    };
    if (y >= plane.height)
        return result;
    if (words && x + ENLARGED <= plane.width)
        return *(const struct four<Sample> *)from;
    for (int k = 0; k < ENLARGED && x + k < plane.width; k++)
        ((Sample *)&result)[k] = from[k];
    return result;
}

template <typename Result>
__device__ static inline void store_four(const struct four<Result> &results, int x, int y,
                                         bool words, const struct conv_stencil_plane &plane)
{
    Result *to = (Result *)(plane.dst + y * plane.dst_stride) + x;
    if (y >= plane.height)
        return;
    if (words && x + ENLARGED <= plane.width)
        *(struct four<Result> *)to = results;
    else
        for (int k = 0; k < ENLARGED && x + k < plane.width; k++)
            to[k] = ((const Result *)&results)[k];
}

// Tiles of rows `first` to `last` - 1 of a strip, from column `left` on. STAGED: 16 bytes of rows
// may be read and stored at once. words: four samples may.
template <typename Sample, typename Result, enum sharpening SHARPENS, bool STAGED, int UP_PARTS>
__device__ static inline void
enlarge_tiles(struct enlarge_shared<Sample, Result, SHARPENS> &shared, int left, int first,
              int last, bool reads_words, bool stores_words, const struct conv_stencil_plane &plane,
              const struct grid<Sample> &grid, const struct decimated_filter &f)
{
    constexpr int PARTS = enlarged<Sample>::PARTS, TILES = enlarged<Sample>::TILES;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int rest = 2 * first % f.step, phase = first % f.down_phases;
    struct enlarged_columns<Sample, UP_PARTS> columns;
    row_parts<Sample> near, far;
    struct lane_rows asked = find_rows(left, first, plane.src_stride, sizeof(Sample), plane);
    struct lane_rows stored = find_rows(left, first, plane.dst_stride, sizeof(Result), plane);
    int column = left * (int)sizeof(Sample) + lane % 4 * 16; // STAGED
    int place = staged<Sample>::lane_four(), at = place, chunk = staged<Sample>::lane_chunk();
    uint8_t *results = shared.results[warp][0].bytes;
    const uint8_t *from = plane.src + stored.y * plane.src_stride + column;
    uint8_t *to = plane.dst + stored.y * plane.dst_stride + column;
    columns.phase = left / TILE % f.up_phases;
#pragma unroll
    for (int k = 0; k < TILES; k++)
        columns.cells[k] = (uint32_t)(min(left + k * TILE, plane.width - 1) / f.step & ~1) *
                           (uint32_t)sizeof *grid.filtered;
    for (int k = 0; SHARPENS != NONE && STAGED && k < TILES_AHEAD; k++)
        ask_tile(&shared.samples[warp][(first + k) % (TILES_AHEAD + 1)], &from, &asked,
                 first + k < last);
    columns.y = min(2 * first / f.step * GROUP + lane / 4, grid.height - 1);
    columns.row = (const uint8_t *)(grid.filtered + (int64_t)columns.y * grid.pitch + lane % 4 * 2);
    columns.load(grid);
    columns.enlarge(near, shared.tables, grid, f.up_phases);
    columns.enlarge(far, shared.tables, grid, f.up_phases);
    for (int tile = first; tile < last; tile++) {
        uint4 weights = shared.tables.down[phase][lane];
        phase = phase == f.down_phases - 1 ? 0 : phase + 1;
        struct staged<Sample> *samples = shared.samples[warp];
        if (SHARPENS != NONE && STAGED) {
            __pipeline_wait_prior(TILES_AHEAD - 1);
            __syncwarp(); // samples of other lanes; all have read those of the tile before
            ask_tile(&samples[(tile + TILES_AHEAD) % (TILES_AHEAD + 1)], &from, &asked,
                     tile + TILES_AHEAD < last);
            samples += tile % (TILES_AHEAD + 1);
        }
#pragma unroll
        for (int k = 0; k < TILES; k++) {
            float sums[2][PARTS][4];
#pragma unroll
            for (int n = 0; n < 2 * PARTS; n++) {
                int half = n / PARTS, p = n % PARTS;
                float start = result_sum<Sample, Result, SHARPENS>::start(p);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    sums[half][p][c] = start;
                multiply_halves(sums[half][p], weights, near[k][half][p], far[k][half][p]);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int x = left + k * TILE + lane % 4 * ENLARGED;
                int y = tile * TILE + lane / 4 + half * GROUP, skipped = half * GROUP * STRIP_BYTES;
                struct four<Sample> source = {
                };
                if (SHARPENS != NONE && STAGED)
                    source = *(const struct four<Sample> *)&samples
                                  ->bytes[(place ^ k * TILE * (int)sizeof(Sample)) + skipped];
                else if (SHARPENS != NONE)
                    source = load_four<Sample>(x, y, reads_words, plane);
                struct four<Result> made =
                    finish_four<Sample, Result, SHARPENS>(sums, half, source, f);
                if (STAGED)
                    *(struct four<Result>
                          *)&results[(at ^ k * TILE * (int)sizeof(Sample)) + skipped] = made;
                else
                    store_four(made, x, y, stores_words, plane);
            }
        }
        if (STAGED) {
            __syncwarp(); // results of other lanes; all have stored the tile before
            store_staged<Result>(results + chunk, &to, &stored);
            at ^= TILE * STRIP_BYTES; // the other stage
            chunk ^= TILE * STRIP_BYTES;
        }
        rest += 2;
        if (rest >= f.step && tile + 1 < last) {
            rest -= f.step;
            memcpy(near, far, sizeof near);
            columns.enlarge(far, shared.tables, grid, f.up_phases);
        }
    }
    if (SHARPENS != NONE && STAGED)
        __pipeline_wait_prior(0);
    __syncwarp(); // all have stored the last tile
}

// Blocks have equal shares of a plane's tiles, one strip of columns after the other.
template <typename Sample, typename Result, enum sharpening SHARPENS, int UP_PARTS>
static __global__ void __launch_bounds__(THREADS, ENLARGING_BLOCKS(SHARPENS != NONE))
    enlarge(const __grid_constant__ struct decimated_filter f)
{
    typedef struct enlarge_shared<Sample, Result, SHARPENS> shared_type;
    __shared__ shared_type memory[1];
    shared_type &shared = memory[0];
    const struct conv_stencil_plane plane = f.planes[blockIdx.y];
    const struct grid<Sample> grid = find_grid<Sample>(f, plane);
    int across = (plane.width - 1) / BLOCK_COLUMNS + 1, tiles = (plane.height - 1) / TILE + 1;
    int64_t all = (int64_t)across * tiles;
    int64_t at = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
    bool reads_words = has_words<struct four<Sample>>(plane.src, plane.src_stride);
    bool stores_words = has_words<struct four<Result>>(plane.dst, plane.dst_stride);
    bool stages = sizeof(Result) == sizeof(Sample) &&
                  has_words<uint4>(plane.dst, plane.dst_stride) &&
                  (SHARPENS == NONE || has_words<uint4>(plane.src, plane.src_stride));
    ask_tables(shared.tables.across[0], f.tables->enlarge.across[0],
               f.up_phases * f.up_parts * WARP);
    ask_tables(shared.tables.down[0], f.tables->enlarge.down[0], f.down_phases * WARP);
    __pipeline_commit();
    wait_for_earlier_kernel();
    __pipeline_wait_prior(0);
    __syncthreads(); // tables
    while (at < end) {
        int strip = (int)(at / tiles), first = (int)(at - (int64_t)strip * tiles);
        int last = (int)min((int64_t)tiles, first + end - at);
        int left = strip * BLOCK_COLUMNS + (int)threadIdx.x / WARP * STRIP_COLUMNS;
        at += last - first;
        if (left >= plane.width)
            continue;
        if (stages)
            enlarge_tiles<Sample, Result, SHARPENS, sizeof(Result) == sizeof(Sample), UP_PARTS>(
                shared, left, first, last, reads_words, stores_words, plane, grid, f);
        else
            enlarge_tiles<Sample, Result, SHARPENS, false, UP_PARTS>(
                shared, left, first, last, reads_words, stores_words, plane, grid, f);
    }
}
