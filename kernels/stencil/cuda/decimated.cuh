// SPDX-License-Identifier: MIT
// What the kernels of large Gaussians of integers share (decimated.cu). Each lets the next one
// start at once: its blocks ask for their tables while the last ones before end, and then wait for
// cells.
#pragma once

#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/stencil_device.cuh"

#define THREADS 128 // of a block, but of those that reduce
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
#define STRIP 16               // coarse columns of a warp, and coarse rows under way
#define ROW_GROUPS 4           // of 8 rows of pixels, for a second product
#define SEGMENT 64             // bytes of a row of pixels: 16 of a lane
#define TABLE_CELLS (2 * WARP) // uint4 of A of a product: both bytes of weights

#define WINDOW 32 // coarse columns of a product of rows, and rows of one of columns
#define MOST_WINDOWS ((STRIP + 2 * MOST_RADIUS - 1) / WINDOW + 1)

#define GROUP 8       // filtered rows of a first product that enlarges
#define TILE 16       // rows and columns of results of a product
#define MOST_PHASES 4 // tables of weights of 16 columns
#define MOST_PARTS 2

// A of the products that enlarge tiles, which repeat.
struct enlarge_tables {
    uint4 across[MOST_PHASES * MOST_PARTS][WARP];
    uint4 down[MOST_STEP / 2][WARP];
};

// The weights of the three kernels in device memory, as lanes hold them. The products of a strip
// that is reduced are first those along rows, at most 20, then those along columns, at most 16.
struct decimated_tables {
    uint4 reduce[36 * TABLE_CELLS];
    uint4 filter[2 * MOST_WINDOWS * TABLE_CELLS]; // along rows, along columns
    struct enlarge_tables enlarge;
};

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    const struct decimated_tables *tables;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    // Coarse samples are computed from -1 - pad on, and as many after the last filtered sample.
    // Where the border repeats pixels, those further out are equal to the last one; else pad is
    // radius, or the next odd number.
    int32_t pad;
    int32_t segments, phases, block_rows, store_blocks; // see reduce_bytes
    int32_t part_rows, seams; // rows of a block: coarse ones that it stores; with seams, of pixels
    int32_t first_row, seam_rows;  // of pixels, with seams; these are at multiples of the latter
    int32_t strips, stages, pitch; // at most, of a block; of rows; of the rows of a stage
    int32_t half_segment;          // that of which 32 bytes are used; -1: there is none
    int32_t filter_rows;           // of a warp that filters integers
    int32_t lead, across_windows, windows;    // see write_lines
    int32_t up_phases, up_parts, down_phases; // see write_up
    int32_t amount, least_off; // differences from the Gaussian below the latter change nothing
};

// Writes the tables of a plan for integers (decimated_tables.cu).
extern "C" void conv_cuda_decimated_tables(struct decimated_tables *tables,
                                           const struct conv_stencil_plan *plan);

// Asks for a part of the tables, for the whole block.
__device__ static inline void ask_tables(uint4 *to, const uint4 *from, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        __pipeline_memcpy_async(to + i, from + i, sizeof *to);
}

// What differs by the type of samples.
template <typename Sample> struct samples_of;
template <> struct samples_of<uint8_t> {
    typedef uint16_t filtered_type;
    static constexpr int FILTERED = 12; // bits of a filtered sample
    static constexpr int ONE = 12;      // bits after the point in the arithmetic of sharpening
};
template <> struct samples_of<uint16_t> {
    typedef uint32_t filtered_type;
    static constexpr int FILTERED = 20, ONE = 4;
};

// The cells of a plane.
template <typename Sample> struct grid {
    int coarse_width, coarse_height, width, height;
    int coarse_pitch, pitch; // of rows: multiples of 8 samples, and of 32 bytes
    uint16_t *coarse;
    typename samples_of<Sample>::filtered_type *filtered;
    uint64_t *seams; // rows of sums, as long as there are no filtered samples: see join_seams
};

template <typename Sample>
__device__ static inline struct grid<Sample> find_grid(const struct decimated_filter &f,
                                                       const struct conv_stencil_plane &plane) {
    struct grid<Sample> grid;
    grid.width = (plane.width - 1) / f.step + 4;
    grid.height = (plane.height - 1) / f.step + 4;
    grid.coarse_width = grid.width + 2 * f.pad;
    grid.coarse_height = grid.height + 2 * f.pad;
    grid.coarse_pitch = (grid.coarse_width + 7) / 8 * 8;
    constexpr int SECTOR = 32 / (int)sizeof *grid.filtered;
    grid.pitch = (grid.width + SECTOR - 1) / SECTOR * SECTOR;
    uint8_t *cells = f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN;
    size_t coarse = (size_t)grid.coarse_width * grid.coarse_height;
    grid.coarse = (uint16_t *)cells;
    grid.filtered = (typename samples_of<Sample>::filtered_type *)cells +
                    (coarse + 7) / 8 * 8 * sizeof(float) / sizeof *grid.filtered;
    grid.seams = (uint64_t *)(grid.coarse + (size_t)grid.coarse_pitch * grid.coarse_height);
    return grid;
}

// The place of the coarse sample that counts as number i of those that filtered samples have:
// result x has 2 * radius + 1 of these, from x on.
__device__ static inline int
coarse_place(const struct decimated_filter &f, int i, int count)
{
    return min(max(i - f.radius + f.pad, 0), count - 1);
}

__device__ static inline uint4 as_uint4(const uint32_t *values)
{
    return make_uint4(values[0], values[1], values[2], values[3]);
}

template <typename Word>
__device__ static inline bool has_words(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % sizeof(Word) == 0;
}
