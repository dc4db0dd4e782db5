// SPDX-License-Identifier: MIT
// How an image is filtered in two passes on tensor cores: a column times a row, up to 31 x 31. The
// bytes into which a sum of the first pass is split, and how the sums of the second are divided,
// are in wide_sums.cuh.
//
// First pass: A is the row of taps as a Toeplitz matrix, B are samples of 8 rows; the product is
// sums of 8 rows and 16 columns. Second pass: A is the column of taps, B are bytes of those sums. A
// lane holds the part of a result that it must hold of the next B (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with integer type" and "... mma.m16n8k32"), except for the order of rows, which is
// free. No lane needs a value of another lane.
//
// A column of 31 taps reaches over 46 rows for 16 results, so a microtile of 64 rows needs the sums
// of 96. With COLUMN_TILES a block filters work tiles below one another, each of its warps filters
// the same 32 columns of all of them, and keeps the sums of the last rows in registers: each row of
// samples is then loaded and summed once.
#pragma once

#include <type_traits>

#include "kernels/stencil/cuda/tma_pipeline.cuh"

#define MICRO_COLUMNS 32 // of a microtile: two products of 16
#define MICRO_ROWS 64    // rows of a microtile
#define GROUP_ROWS 16    // rows of a product of the second pass
#define SHORT_FACTOR 17  // taps of a factor up to which 16 sums read 32 values,
#define LONG_FACTOR 33   // and 48
#define FACTOR_LEAD 32   // zeros before a factor's taps
#define FACTOR_BYTES 96  // a factor with the zeros around it
#define RING 4           // groups of sums that a warp has in registers

// Blocks of 16 columns of the matrix of a factor of LENGTH taps: as a row, as a column.
template <int LENGTH> constexpr int across = LENGTH <= SHORT_FACTOR ? 3 : 4;
template <int LENGTH> constexpr int down = LENGTH <= SHORT_FACTOR ? 2 : 3;

// Microtiles of samples of 16 bits have 32 rows, so that a stage has as many bytes. SHARPENS:
// stages also hold the samples at the positions of results.
template <int TAP_ROWS_, typename Sample_, bool SHARPENS = false>
struct column_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int BYTES = sizeof(Sample), HALO = 16 * BYTES;
    static constexpr int TAP_ROWS = TAP_ROWS_, MICROTILE_ROWS = MICRO_ROWS / BYTES;
    static constexpr bool ODD_PITCH = true;
    static constexpr int CONSUMERS = 12, TILE_WIDTH = CONSUMERS * MICRO_COLUMNS;
    static constexpr int SEGMENT = MICRO_COLUMNS * BYTES, STORE = 8 * BYTES;
    static constexpr int WARP_MICROTILES = 1; // a microtile per warp
    static constexpr int COLUMN_TILES = 32;   // 512 rows
    static constexpr int SKIPPED_ROWS = SHARPENS ? TAP_ROWS / 2 : TAP_ROWS - 1;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A lane's part of a factor as a Toeplitz matrix (A) of 16 rows and BLOCKS * 16 columns.
template <int BLOCKS> struct toeplitz {
    uint32_t words[BLOCKS][2]; // of the rows g and g + 8
};

// to = A * B + start for one block, or for two whose words of B are in adjacent registers.
__device__ inline void multiply_block(int32_t (&to)[4], const uint32_t (&a)[2], uint32_t b,
                                      const int32_t (&start)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(start[0]), "r"(start[1]), "r"(start[2]), "r"(start[3]));
}

__device__ inline void multiply_pair(int32_t (&to)[4], const uint32_t (&a0)[2],
                                     const uint32_t (&a1)[2], uint32_t b0, uint32_t b1,
                                     const int32_t (&start)[4])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a0[0]), "r"(a0[1]), "r"(a1[0]), "r"(a1[1]), "r"(b0), "r"(b1), "r"(start[0]),
          "r"(start[1]), "r"(start[2]), "r"(start[3]));
}

// For all blocks. EVEN: words 0 and 1 of B are in adjacent registers, and 2 and 3; else 1 and 2.
// Rejected: these as a pair, too; moves between registers cost what it saves.
template <bool EVEN, int BLOCKS>
__device__ inline void multiply(int32_t (&to)[4], const struct toeplitz<BLOCKS> &a,
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
__device__ inline void load_matrix(struct toeplitz<BLOCKS> *to, const uint8_t *factor, int upper,
                                   int lower, Order order)
{
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const uint8_t *from = factor + FACTOR_LEAD + 16 * block;
        to->words[block][0] = to->words[block][1] = 0;
        for (int k = 0; k < 4; k++) {
            to->words[block][0] |= (uint32_t)from[order(k) - upper] << 8 * k;
            to->words[block][1] |= (uint32_t)from[order(k) - lower] << 8 * k;
        }
    }
}

// The order of columns: a lane gets the results of rows g and g + 8 of A in both halves, whose
// outputs are x = 8(g / 2) + g % 2, x + 2, x + 4 and x + 6. In the second pass these are columns of
// B, of which it gets 2t and 2t + 1: 8 neighbours in total.
template <int BLOCKS>
__device__ inline void load_row(struct toeplitz<BLOCKS> (&to)[2], const uint8_t *row)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int x = g / 2 * 8 + g % 2;
    for (int half = 0; half < 2; half++)
        load_matrix(&to[half], row, x + 4 * half, x + 4 * half + 2,
                    [&](int k) { return 4 * t + k; });
}

// The order of rows: a lane's sums of the first pass are of rows 2t, 2t + 1, and those 8 below, so
// the column's taps are in this order.
template <int BLOCKS>
__device__ inline void load_column(struct toeplitz<BLOCKS> *to, const uint8_t *column)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    load_matrix(to, column, g, g + 8, [&](int k) { return 2 * t + k % 2 + k / 2 * 8; });
}

// The products of the first pass for 16 rows: sums[half][r] are columns of half a microtile and the
// rows from 8r on. `from` is the lane's first word of the window.
template <int BLOCKS>
__device__ inline void multiply_samples(int32_t (&sums)[2][2][4], const uint8_t *from, int pitch,
                                        const struct toeplitz<BLOCKS> (&row)[2],
                                        const int32_t (&start)[4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t window[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            window[i] = *(const uint32_t *)(from + r * 8 * pitch + 16 * i);
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply<true>(sums[half][r], row[half], window, start);
    }
}

// Where the lane's samples of a microtile go, and the source samples at the same positions.
struct store_target {
    uint64_t to; // eight samples of the first row, in global memory
    int64_t stride;
    const uint8_t *centre; // the same eight of the source, in shared memory
    int pitch;             // from such a row to the next
    int rows, columns;     // to store from there
    bool whole;            // eight columns, aligned: one store
};

// No "memory" clobber: later loads of samples, which are elsewhere, may move before the store.
template <bool RAGGED>
__device__ inline void store(const struct store_target &target, int row, uint2 samples)
{
    uint64_t to = target.to + (uint64_t)(row * target.stride);
    if (!RAGGED || (target.whole && row < target.rows)) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(samples.x), "r"(samples.y));
    } else if (row < target.rows) {
#pragma unroll 1
        for (int k = 0; k < target.columns; k++) {
            asm volatile("st.global.u8 [%0], %1;" ::"l"(to + k), "r"(samples.x));
            samples.x = __funnelshift_r(samples.x, samples.y, 8);
            samples.y >>= 8;
        }
    }
}

// The sums that a consumer warp keeps. The groups of a microtile begin at one place of the ring, or
// in turn at one of two, so that those it shares with the one above are in the same registers.
template <typename Passes> struct kept_sums {
    typename Passes::Sums ring[RING];
    bool second; // the next microtile begins at the second half
};

// Both passes of the groups AT and below of a microtile of GROUPS groups, whose first one is at
// place FIRST of the ring. RAGGED: there are fewer rows than GROUPS have, or some lane has fewer
// than 8 columns or unaligned ones. If not, each group's first pass precedes the second pass of the
// group above, so that one has instructions while the other waits for its products. `from` are the
// samples below those whose sums are in the ring.
//
// Passes are those of a kernel:
//   WIDTH, HEIGHT  SHORT_FACTOR or LONG_FACTOR
//   Sums           of a group of 16 rows, as words of B
//   sum_rows(Sums *to, const uint8_t *from, int pitch): the first pass
//   sum_columns<EVEN, RAGGED>(const Sums *from, const store_target &, int row): the second one for
//                  16 rows, of which the lane gets the rows g and g + 8, from the first group that
//                  they read on
template <bool RAGGED, int FIRST, int GROUPS, int AT, typename Passes>
__device__ inline void filter_groups(struct kept_sums<Passes> *kept, const uint8_t *from, int pitch,
                                     const struct store_target &target, int rows,
                                     const Passes &passes)
{
    constexpr int BLOCKS = down<Passes::HEIGHT>, PLACE = FIRST + AT;
    if (RAGGED && AT * GROUP_ROWS >= rows)
        return;
    if (RAGGED || AT == 0) {
        passes.sum_rows(&kept->ring[(PLACE + BLOCKS - 1) % RING], from, pitch);
        from += GROUP_ROWS * pitch;
    }
    if (!RAGGED && AT < GROUPS - 1) {
        passes.sum_rows(&kept->ring[(PLACE + BLOCKS) % RING], from, pitch);
        from += GROUP_ROWS * pitch;
    }
    typename Passes::Sums sums[BLOCKS];
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        sums[i] = kept->ring[(PLACE + i) % RING];
    passes.template sum_columns<PLACE % 2 == 0, RAGGED>(sums, target, AT * GROUP_ROWS);
    if constexpr (AT < GROUPS - 1)
        filter_groups<RAGGED, FIRST, GROUPS, AT + 1>(kept, from, pitch, target, rows, passes);
}

template <int FIRST, int GROUPS, typename Passes>
__device__ inline void filter_ring(struct kept_sums<Passes> *kept, const uint8_t *from, int pitch,
                                   const struct store_target &target, int rows,
                                   const Passes &passes)
{
    if (rows == GROUPS * GROUP_ROWS && __all_sync(0xffffffffu, target.whole))
        filter_groups<false, FIRST, GROUPS, 0>(kept, from, pitch, target, rows, passes);
    else
        filter_groups<true, FIRST, GROUPS, 0>(kept, from, pitch, target, rows, passes);
}

// follows: the warp's last microtile was the one above.
template <typename Traits, typename Passes>
__device__ inline void filter_microtile(struct kept_sums<Passes> *kept,
                                        const struct work_tile &tile, const uint8_t *samples,
                                        int microtile, bool follows, const Passes &passes)
{
    constexpr int ROWS = Traits::MICROTILE_ROWS, GROUPS = ROWS / GROUP_ROWS;
    constexpr int MORE = down<Passes::HEIGHT> - 1, BYTES = sample_bytes<Traits>;
    static_assert(GROUPS == RING || GROUPS == RING / 2, "see kept_sums");
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int band = band_of(tile, microtile);
    int x = (microtile - band * tile.segments) * Traits::SEGMENT, y = band * ROWS;
    int rows = min(tile.rows - y, ROWS);
    const uint8_t *line =
        samples + (y + g - skipped_rows<Traits>(tile)) * tile.pitch + Traits::HALO + x;
    struct store_target target;
    target.stride = tile.dst_stride;
    target.to = __cvta_generic_to_global(tile.dst) +
                (uint64_t)((y + g) * target.stride + x + 8 * t * BYTES);
    target.centre = line + Passes::HEIGHT / 2 * tile.pitch + 8 * t * BYTES;
    target.pitch = tile.pitch;
    target.columns = min(tile.stored - x - 8 * t * BYTES, 8 * BYTES);
    target.rows = target.columns > 0 ? rows - g : 0;
    target.whole = target.columns == 8 * BYTES && tile.aligned;
    const uint8_t *from = line + (4 * t - Passes::WIDTH / 2) * BYTES; // WIDTH / 2 is 8 or 16
    if (!follows)
#pragma unroll
        for (int i = 0; i < MORE; i++)
            passes.sum_rows(&kept->ring[i], from + i * GROUP_ROWS * tile.pitch, tile.pitch);
    from += MORE * GROUP_ROWS * tile.pitch;
    if constexpr (GROUPS < RING) {
        bool second = follows && kept->second;
        kept->second = !second;
        if (second) {
            filter_ring<RING / 2, GROUPS>(kept, from, tile.pitch, target, rows, passes);
            return;
        }
    }
    filter_ring<0, GROUPS>(kept, from, tile.pitch, target, rows, passes);
}

// The loop of a consumer warp, as consume_tiles; where a tile is filtered by columns, the warp
// takes all microtiles of one.
template <typename Traits, typename Passes>
__device__ inline void consume_columns(struct tma_pipeline *pipeline,
                                       const struct tile_schedule &schedule, const Passes &passes)
{
    const uint8_t *stages = stages_of(pipeline);
    struct pipeline_state state = {0, 0};
    struct kept_sums<Passes> kept;
    int warp = (int)uniform(threadIdx.x / WARP), job = warp;
    for (;;) {
        barrier_wait(&pipeline->patched[state.stage], state.parity);
        barrier_wait(&pipeline->full[state.stage], state.parity);
        struct work_tile tile = pipeline->tiles[state.stage];
        if (!uniform((uint32_t)tile.rows))
            return;
        int jobs = (int)uniform((uint32_t)tile.microtiles);
        int columns = (int)uniform((uint32_t)tile.segments);
        bool by_columns = uniform((uint32_t)tile.by_columns);
        int microtile = by_columns ? (warp < columns ? warp : jobs) : job;
        int step = by_columns ? columns : Traits::CONSUMERS;
        for (; microtile < jobs; microtile += step)
            filter_microtile<Traits>(&kept, tile, stages + state.stage * schedule.stage_bytes,
                                     microtile,
                                     by_columns && (microtile >= columns || tile.follows), passes);
        if (!by_columns)
            job = microtile - jobs;
        barrier_arrive(&pipeline->empty[state.stage]);
        advance(&state, schedule.stages);
    }
}

#endif
