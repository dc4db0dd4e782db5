// SPDX-License-Identifier: MIT
// Shared by the kernels of two passes (separable_mma.cuh) that keep sums from one tile to the next.
// A column of 31 taps reaches over 46 rows for 16 results, so a microtile of 64 rows needs the sums
// of 96. Where a block filters work tiles below one another, each of its warps filters the same 32
// columns of all of them, and keeps the sums of the last rows in registers: each row of samples is
// then loaded and summed once.
#ifndef CONV_KERNELS_STENCIL_CUDA_SEPARABLE_COLUMNS_CUH
#define CONV_KERNELS_STENCIL_CUDA_SEPARABLE_COLUMNS_CUH

#include "kernels/stencil/cuda/separable_mma.cuh"

#define RING 4 // groups of sums that a warp has in registers

// Microtiles of samples of 16 bits have 32 rows, so that a stage has as many bytes.
template <int TAP_ROWS_, typename Sample_> struct column_traits : tile_traits {
    typedef Sample_ Sample;
    static constexpr int CONSUMERS = 12, TILE_WIDTH = CONSUMERS * MICRO_COLUMNS;
    static constexpr int COLUMN_TILES = 32; // 512 rows
    static constexpr int TAP_ROWS = TAP_ROWS_, MICROTILE_ROWS = MICRO_ROWS / (int)sizeof(Sample);
    static constexpr int HALO = 16 * (int)sizeof(Sample);
    static constexpr bool ODD_PITCH = true;
    static constexpr int SEGMENT = MICRO_COLUMNS * (int)sizeof(Sample);
    static constexpr int STORE = 8 * (int)sizeof(Sample);
    static constexpr int WARP_MICROTILES = 1; // a microtile per warp
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The sums that a consumer warp keeps. The first groups of the next microtile are the last ones of
// this one, in the same registers: the groups of a microtile begin at one place of the ring, or in
// turn at one of two.
template <typename Passes> struct kept_sums {
    typename Passes::Sums ring[RING];
    bool second; // the next microtile begins at the second half
};

// Both passes of the groups AT and below of a microtile of GROUPS groups, whose first one is at
// place FIRST of the ring. RAGGED as for filter_rows; if not, each group's first pass precedes the
// second pass of the group above. `from` are the samples below those whose sums are in the ring.
// Passes as for filter_rows.
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

// The loop of a consumer warp, as consume_tiles: where a tile is filtered by columns, the warp
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

#endif
