// SPDX-License-Identifier: MIT
// What one warp adds to a tile in shared memory: samples that bulk copies cannot read, and the
// columns and constant rows beyond the edge of the image.
#ifndef CONV_KERNELS_STENCIL_CUDA_BORDERS_CUH
#define CONV_KERNELS_STENCIL_CUDA_BORDERS_CUH

#include "kernels/stencil/cuda/tiles.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The columns of the plane that a piece's rows hold, halo included, where they exist: samples.
template <typename Traits> __device__ inline int first_column(const struct piece &piece)
{
    return max(piece.x - halo_samples<Traits>, 0);
}

template <typename Traits> __device__ inline int end_column(const struct piece &piece)
{
    return min(piece.x + piece.columns + halo_samples<Traits>, piece.plane_width);
}

// The plane's row behind a row of the stage; -1: constant.
template <typename Traits>
__device__ inline int source_row(const struct piece &piece, const struct supply &s, int row)
{
    return conv_stencil_border((enum conv_border)s.border, piece.y - Traits::TAP_ROWS / 2 + row,
                               piece.plane_height);
}

// The aligned word at `words`, of which bytes from `end` on are not there.
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

// A plane that bulk copies cannot read: words put together from aligned ones. A word is read only
// if it holds a sample of the row, and no byte behind the row.
template <typename Traits>
__device__ inline void load_piece(uint8_t *samples, const struct piece &piece,
                                  const struct supply &s)
{
    int lane = (int)threadIdx.x % WARP;
    int from = first_column<Traits>(piece),
        bytes = (end_column<Traits>(piece) - from) * sample_bytes<Traits>;
    uint8_t *to = samples + Traits::HALO + (from - piece.x) * sample_bytes<Traits>;
    for (int row = 0; row < piece.rows + Traits::TAP_ROWS - 1; row++) {
        int y = source_row<Traits>(piece, s, row);
        if (y < 0)
            continue;
        const uint8_t *line = piece.src + y * piece.src_stride + from * sample_bytes<Traits>;
        uint32_t skip = (uint32_t)((uintptr_t)line % 4);
        const uint32_t *words = (const uint32_t *)(line - skip);
#pragma unroll 4
        for (int i = lane; i * 4 < bytes; i += WARP) {
            uint32_t low = load_word(words + i, line + bytes), high = low;
            if (skip && i * 4 + 4 - (int)skip < bytes)
                high = load_word(words + i + 1, line + bytes);
            *(uint32_t *)(to + row * piece.pitch + i * 4) = __funnelshift_r(low, high, skip * 8);
        }
    }
}

// Rows of a constant border.
template <typename Traits>
__device__ inline void fill_rows(uint8_t *samples, const struct piece &piece,
                                 const struct supply &s)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t word =
        (uint32_t)s.border_value * (sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u);
    for (int row = 0; row < piece.rows + Traits::TAP_ROWS - 1; row++)
        if (source_row<Traits>(piece, s, row) < 0)
            for (int i = lane * 4; i < piece.pitch; i += WARP * 4)
                *(uint32_t *)(samples + row * piece.pitch + i) = word;
}

// Columns left and right of the image. What they repeat is mostly in the stage already.
template <typename Traits>
__device__ inline void patch_columns(uint8_t *samples, const struct piece &piece,
                                     const struct supply &s)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int left = max(s.radius - piece.x, 0);
    int right = max(piece.x + piece.columns + s.radius - piece.plane_width, 0);
    int rows = piece.rows + Traits::TAP_ROWS - 1;
    int from = first_column<Traits>(piece), end = end_column<Traits>(piece);
    int step = WARP * piece.pitch / sample_bytes<Traits>; // samples from a lane's row to its next
    Sample *first = (Sample *)(samples + lane * piece.pitch + Traits::HALO) - piece.x;
    for (int k = 0; k < left + right; k++) {
        int x = k < left ? k - left : piece.plane_width + k - left;
        int sx = conv_stencil_border((enum conv_border)s.border, x, piece.plane_width);
        Sample *line = first;
        if (sx >= from && sx < end) {
#pragma unroll 4
            for (int row = lane; row < rows; row += WARP, line += step)
                line[x] = line[sx];
        } else {
            for (int row = lane; row < rows; row += WARP, line += step) {
                int sy = sx < 0 ? -1 : source_row<Traits>(piece, s, row);
                line[x] = sy < 0 ? (Sample)s.border_value
                                 : ((const Sample *)(piece.src + sy * piece.src_stride))[sx];
            }
        }
    }
}

// The same for a wide border, words at a time, of which each byte comes from where it should.
template <typename Traits>
__device__ inline void patch_words(uint8_t *samples, const struct piece &piece,
                                   const struct supply &s, int first, int end)
{
    int lane = (int)threadIdx.x % WARP;
    int rows = piece.rows + Traits::TAP_ROWS - 1;
    int from = first_column<Traits>(piece), stop = end_column<Traits>(piece);
    uint8_t *line = samples + Traits::HALO - piece.x;
    for (int x = first; x < end; x += 4) {
        int at[4];
        bool here = true;
        for (int k = 0; k < 4; k++) {
            at[k] = conv_stencil_border((enum conv_border)s.border, x + k, piece.plane_width);
            here = here && at[k] >= from && at[k] < stop;
        }
        for (int row = lane; row < rows; row += WARP) {
            uint8_t *to = line + row * piece.pitch;
            int y = here ? 0 : source_row<Traits>(piece, s, row);
            uint32_t word = 0;
            for (int k = 0; k < 4; k++) {
                uint32_t sample = (uint32_t)s.border_value;
                if (here)
                    sample = to[at[k]];
                else if (at[k] >= 0 && y >= 0)
                    sample = piece.src[y * piece.src_stride + at[k]];
                word |= sample << 8 * k;
            }
            *(uint32_t *)(to + x) = word;
        }
    }
}

// And where it repeats the last samples: 16 bytes to the left, words to the right.
template <typename Traits>
__device__ inline void patch_replicated(uint8_t *samples, const struct piece &piece,
                                        const struct supply &s, bool left, bool right)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int rows = piece.rows + Traits::TAP_ROWS - 1, border = s.radius * sample_bytes<Traits>;
    int end = piece.plane_width * sample_bytes<Traits>,
        inside = end % 4; // bytes of the word at the edge
    uint32_t edge = (1u << 8 * inside) - 1,
             times = sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u;
    uint8_t *line = samples + Traits::HALO - piece.x * sample_bytes<Traits>;
#pragma unroll 4
    for (int row = lane; row < rows; row += WARP) {
        uint8_t *to = line + row * piece.pitch;
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

template <typename Traits>
__device__ inline void patch_wide(uint8_t *samples, const struct piece &piece,
                                  const struct supply &s)
{
    int last = piece.x + piece.columns + s.radius;
    bool left = piece.x < s.radius;
    bool right = last > piece.plane_width;
    if (s.border == CONV_BORDER_REPLICATE) {
        patch_replicated<Traits>(samples, piece, s, left, right);
    } else if (sample_bytes<Traits> == 2) {
        patch_columns<Traits>(samples, piece, s);
    } else {
        if (left)
            patch_words<Traits>(samples, piece, s, -(s.radius + 3) / 4 * 4, 0);
        if (right)
            patch_words<Traits>(samples, piece, s, piece.plane_width / 4 * 4, last);
    }
}

#endif

#endif
