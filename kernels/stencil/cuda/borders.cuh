// SPDX-License-Identifier: MIT
// The border warp's part of a TMA kernel. It completes a work tile in shared memory: rows that bulk
// copies cannot read, constant rows, and the columns beyond the edge of the image. Rows beyond the
// edge are copied as the border defines. Consumer warps therefore never test for a border.
#ifndef CONV_KERNELS_STENCIL_CUDA_BORDERS_CUH
#define CONV_KERNELS_STENCIL_CUDA_BORDERS_CUH

#include "kernels/stencil/cuda/tile_schedule.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The columns of the plane in a work tile, from first_column to before end_column, in samples:
// including those of the halo that are in the plane.
template <typename Traits> __device__ inline int first_column(const struct work_tile &tile)
{
    return max(tile.x - halo_samples<Traits>, 0);
}

template <typename Traits> __device__ inline int end_column(const struct work_tile &tile)
{
    return min(tile.x + tile.columns + halo_samples<Traits>, tile.plane_width);
}

// The row of the plane whose copy a row of the stage is; -1: the constant.
template <typename Traits>
__device__ inline int source_row(const struct work_tile &tile, const struct tile_schedule &schedule,
                                 int row)
{
    return conv_border_index((enum conv_border)schedule.border, stage_top<Traits>(tile) + row,
                             tile.plane_height);
}

// The aligned word at `words`; bytes from `end` on are not read.
__device__ inline uint32_t load_word(const uint32_t *words, const uint8_t *end)
{
    const uint8_t *from = (const uint8_t *)words;
    if (from + 4 <= end)
        return *words;
    uint32_t word = 0;
    for (int b = 0; from + b < end; b++)
        word |= (uint32_t)from[b] << 8 * b;
    return word;
}

// Loads a work tile whose rows are not aligned to 16 bytes: each word of the stage is combined from
// two aligned ones. Only words that contain a sample of the row are read, and no byte after it.
template <typename Traits>
__device__ inline void load_unaligned(uint8_t *samples, const struct work_tile &tile,
                                      const struct tile_schedule &schedule)
{
    int lane = (int)threadIdx.x % WARP;
    int from = first_column<Traits>(tile),
        bytes = (end_column<Traits>(tile) - from) * sample_bytes<Traits>;
    uint8_t *to = samples + Traits::HALO + (from - tile.x) * sample_bytes<Traits>;
    for (int row = 0; row < stage_rows<Traits>(tile); row++) {
        int y = source_row<Traits>(tile, schedule, row);
        if (y < 0)
            continue;
        const uint8_t *line = tile.src + y * tile.src_stride + from * sample_bytes<Traits>;
        uint32_t skip = (uint32_t)((uintptr_t)line % 4);
        const uint32_t *words = (const uint32_t *)(line - skip);
#pragma unroll 4
        for (int i = lane; i * 4 < bytes; i += WARP) {
            uint32_t low = load_word(words + i, line + bytes), high = low;
            if (skip && i * 4 + 4 - (int)skip < bytes)
                high = load_word(words + i + 1, line + bytes);
            *(uint32_t *)(to + row * tile.pitch + i * 4) = __funnelshift_r(low, high, skip * 8);
        }
    }
}

// Fills the rows of a constant border.
template <typename Traits>
__device__ inline void fill_rows(uint8_t *samples, const struct work_tile &tile,
                                 const struct tile_schedule &schedule)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t word =
        (uint32_t)schedule.border_value * (sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u);
    for (int row = 0; row < stage_rows<Traits>(tile); row++)
        if (source_row<Traits>(tile, schedule, row) < 0)
            for (int i = lane * 4; i < tile.pitch; i += WARP * 4)
                *(uint32_t *)(samples + row * tile.pitch + i) = word;
}

// Fills the columns left and right of the image, one lane per row. The samples that they repeat are
// in the stage, or are read from the plane.
template <typename Traits>
__device__ inline void patch_columns(uint8_t *samples, const struct work_tile &tile,
                                     const struct tile_schedule &schedule)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int left = max(schedule.radius - tile.x, 0);
    int right = max(tile.x + tile.columns + schedule.radius - tile.plane_width, 0);
    int rows = stage_rows<Traits>(tile);
    int from = first_column<Traits>(tile), end = end_column<Traits>(tile);
    int step = WARP * tile.pitch / sample_bytes<Traits>; // samples from a lane's row to its next
    Sample *first = (Sample *)(samples + lane * tile.pitch + Traits::HALO) - tile.x;
    for (int k = 0; k < left + right; k++) {
        int x = k < left ? k - left : tile.plane_width + k - left;
        int sx = conv_border_sample((enum conv_border)schedule.border, x, tile.plane_width,
                                    schedule.channels);
        Sample *line = first;
        if (sx >= from && sx < end) {
#pragma unroll 4
            for (int row = lane; row < rows; row += WARP, line += step)
                line[x] = line[sx];
        } else {
            for (int row = lane; row < rows; row += WARP, line += step) {
                int sy = sx < 0 ? -1 : source_row<Traits>(tile, schedule, row);
                line[x] = sy < 0 ? (Sample)schedule.border_value
                                 : ((const Sample *)(tile.src + sy * tile.src_stride))[sx];
            }
        }
    }
}

// Like patch_columns, for the columns from `first` to before `end`, a word at a time.
template <typename Traits>
__device__ inline void patch_words(uint8_t *samples, const struct work_tile &tile,
                                   const struct tile_schedule &schedule, int first, int end)
{
    int lane = (int)threadIdx.x % WARP;
    int rows = stage_rows<Traits>(tile);
    int from = first_column<Traits>(tile), stop = end_column<Traits>(tile);
    uint8_t *line = samples + Traits::HALO - tile.x;
    for (int x = first; x < end; x += 4) {
        int at[4];
        bool here = true;
        for (int k = 0; k < 4; k++) {
            at[k] = conv_border_sample((enum conv_border)schedule.border, x + k, tile.plane_width,
                                       schedule.channels);
            here = here && at[k] >= from && at[k] < stop;
        }
        for (int row = lane; row < rows; row += WARP) {
            uint8_t *to = line + row * tile.pitch;
            int y = here ? 0 : source_row<Traits>(tile, schedule, row);
            uint32_t word = 0;
            for (int k = 0; k < 4; k++) {
                uint32_t sample = (uint32_t)schedule.border_value;
                if (here)
                    sample = to[at[k]];
                else if (at[k] >= 0 && y >= 0)
                    sample = tile.src[y * tile.src_stride + at[k]];
                word |= sample << 8 * k;
            }
            *(uint32_t *)(to + x) = word;
        }
    }
}

// Like patch_columns, for CONV_BORDER_REPLICATE: 16 bytes at a time to the left, words to the
// right.
template <typename Traits>
__device__ inline void patch_replicated(uint8_t *samples, const struct work_tile &tile,
                                        const struct tile_schedule &schedule, bool left, bool right)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int rows = stage_rows<Traits>(tile), border = schedule.radius * sample_bytes<Traits>;
    int end = tile.plane_width * sample_bytes<Traits>,
        inside = end % 4; // image bytes of the word at the edge
    uint32_t edge = (1u << 8 * inside) - 1,
             times = sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u;
    uint8_t *line = samples + Traits::HALO - tile.x * sample_bytes<Traits>;
#pragma unroll 4
    for (int row = lane; row < rows; row += WARP) {
        uint8_t *to = line + row * tile.pitch;
        if (left) {
            uint32_t word = *(const Sample *)to * times;
            for (int x = -16; x >= -Traits::HALO; x -= 16)
                *(uint4 *)(to + x) = make_uint4(word, word, word, word);
        }
        if (right) {
            uint32_t word = *(const Sample *)(to + end - sample_bytes<Traits>)*times;
            uint32_t *words = (uint32_t *)(to + end - inside);
            if (inside)
                words[0] = (words[0] & edge) | (word & ~edge);
            for (int i = inside != 0; i < (inside + border + 3) / 4; i++)
                words[i] = word;
        }
    }
}

// Like patch_columns, for borders wider than 2 columns.
template <typename Traits>
__device__ inline void patch_wide(uint8_t *samples, const struct work_tile &tile,
                                  const struct tile_schedule &schedule)
{
    int last = tile.x + tile.columns + schedule.radius;
    bool left = tile.x < schedule.radius;
    bool right = last > tile.plane_width;
    if (schedule.border == CONV_BORDER_REPLICATE && schedule.channels == 1) {
        patch_replicated<Traits>(samples, tile, schedule, left, right);
    } else if (sample_bytes<Traits> == 2) {
        patch_columns<Traits>(samples, tile, schedule);
    } else {
        if (left)
            patch_words<Traits>(samples, tile, schedule, -(schedule.radius + 3) / 4 * 4, 0);
        if (right)
            patch_words<Traits>(samples, tile, schedule, tile.plane_width / 4 * 4, last);
    }
}

#endif

#endif
