// SPDX-License-Identifier: MIT
// What the kernels of large Gaussians of integers share (decimated.cu). Each lets the next one
// start at once: its blocks write their tables while the last ones before end, and then wait for
// cells.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_CUH

#include "kernels/stencil/cuda/stencil_device.cuh"

#define THREADS 128 // of a block, but of those that reduce
#define ENLARGED 4  // columns of a thread that enlarges
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
#define MOST_PHASES 4 // tables of weights of 16 columns
#define MOST_PARTS 2

struct decimated_filter {
    const struct conv_stencil_plane *planes;
    uint8_t *scratch;
    int32_t step, radius, border;
    float border_value;
    // Coarse samples are computed from -1 - pad on, and as many after the last filtered sample.
    // Where the border repeats pixels, those further out are equal to the last one; else pad is
    // radius, or the next odd number.
    int32_t pad;
    int32_t segments, phases, block_rows, store_blocks; // see reduce_bytes
    int32_t part_rows, seams; // rows of a block: coarse ones that it stores; with seams, of pixels
    int32_t first_row;        // of pixels, with seams
    int32_t strips, pitch;    // at most, of a block; of the rows of a stage
    int32_t half_segment;     // that of which 32 bytes are used; -1: there is none
    int32_t filter_rows;      // of a warp that filters integers
    int32_t up_phases, up_parts, down_phases; // its tables: see write_up
    int32_t amount, shifted_amount;           // the latter times 2^32 / 2^23, for 8 bits
    int64_t keep_below;
    uint32_t down[MOST_STEP][4];
    uint16_t halves[MOST_STEP][4]; // of weights to enlarge, as half-precision numbers
    uint32_t line[MOST_RADIUS + 1];
};
static_assert(sizeof(struct decimated_filter) <= 4096, "kernel parameters end at 4 KB");

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

#endif
