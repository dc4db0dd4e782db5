// SPDX-License-Identifier: MIT
// Shared by the kernels of large Gaussians (decimated.cu).
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_DEVICE_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_DEVICE_CUH

#include <type_traits>

#include <cuda_pipeline.h>

#include "kernels/common/bulk.cuh"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define THREADS 128 // of a block, but of those that reduce
#define ENLARGED 4  // columns of a thread that enlarges
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
#define MOST_PHASES 4 // tables of weights of 16 columns
#define MOST_PARTS 2
#define FRACTION 24 // bits after the point of a blurred sample's sum, of integers

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    // Coarse samples are computed from -1 - pad on, and as many after the last filtered sample.
    // Where the border repeats pixels, those further out are equal to the last one; else pad is
    // radius.
    int32_t pad;
    int32_t segments, phases, block_rows, store_blocks, strip_rows; // decimated_reduce.cuh
    int32_t tile_columns, tile_rows; // coarse samples of a block that reduces floats
    int32_t block_steps;             // coarse rows of a block that enlarges
    int32_t filter_rows;             // of a warp that filters integers
    int32_t up_phases, up_parts;     // its tables: see write_up
    int32_t amount, shifted_amount;  // the latter times 2^32 / 2^23, for 8 bits
    int64_t keep_below;
    float keep_floats;
    uint32_t down[MOST_STEP][4], up[MOST_STEP][4];
    uint32_t line[MOST_RADIUS + 1];
};
static_assert(sizeof(struct decimated_filter) <= 4096, "kernel parameters end at 4 KB");

// What differs by the type of samples.
template <typename Sample> struct samples_of;
template <> struct samples_of<uint8_t> {
    typedef uint16_t coarse_type, filtered_type;
    static constexpr int FILTERED = 12; // bits of a filtered sample
    static constexpr int ONE = 12;      // bits after the point in the arithmetic of sharpening
};
template <> struct samples_of<uint16_t> {
    typedef uint16_t coarse_type;
    typedef uint32_t filtered_type;
    static constexpr int FILTERED = 20, ONE = 4;
};
template <> struct samples_of<float> {
    typedef float coarse_type, filtered_type;
    static constexpr int FILTERED = 0, ONE = 0;
};

// The cells of a plane.
template <typename Sample> struct grid {
    int coarse_width, coarse_height, width, height;
    int coarse_pitch, pitch; // of rows: of integers a multiple of 8, and even
    typename samples_of<Sample>::coarse_type *coarse;
    typename samples_of<Sample>::filtered_type *filtered;
    float *columns; // floats filtered by columns
};

template <typename Sample>
__device__ static inline struct grid<Sample> find_grid(const struct decimated_filter &f,
                                                       const struct conv_stencil_plane &plane) {
    struct grid<Sample> grid;
    grid.width = (plane.width - 1) / f.step + 4;
    grid.height = (plane.height - 1) / f.step + 4;
    grid.coarse_width = grid.width + 2 * f.pad;
    grid.coarse_height = grid.height + 2 * f.pad;
    grid.coarse_pitch = sizeof(Sample) == 4 ? grid.coarse_width : (grid.coarse_width + 7) / 8 * 8;
    grid.pitch = (grid.width + 1) / 2 * 2;
    uint8_t *cells = f.scratch + (size_t)plane.cuda.work_counter * CONV_DECIMATED_CELLS_ALIGN;
    size_t coarse = (size_t)grid.coarse_width * grid.coarse_height;
    size_t columns = (size_t)grid.coarse_width * grid.height;
    grid.coarse = (typename samples_of<Sample>::coarse_type *)cells;
    grid.columns = (float *)cells + coarse;
    grid.filtered = (typename samples_of<Sample>::filtered_type *)cells +
                    (coarse + columns + 1) / 2 * 2 * sizeof(float) / sizeof *grid.filtered;
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

// Each kernel lets the next one start, whose blocks then write their tables while the last blocks
// of the one before end, and wait for its cells.
__device__ static inline void start_next(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    start_next_kernel();
#endif
}

__device__ static inline void wait_for_cells(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    wait_for_earlier_kernel();
#endif
}

#endif
