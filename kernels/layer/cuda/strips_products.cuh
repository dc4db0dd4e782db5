// SPDX-License-Identifier: MIT
// The products of a strip in strips.cuh: a warpgroup multiplies rows of samples, which it loads
// into registers, by the weights of a step, which stay in shared memory.
#ifndef CONV_KERNELS_LAYER_CUDA_STRIPS_PRODUCTS_CUH
#define CONV_KERNELS_LAYER_CUDA_STRIPS_PRODUCTS_CUH

#include "kernels/layer/cuda/wgmma.cuh"
#include "kernels/layer/cuda/wgmma_atoms.cuh"

// --- atoms ---------------------------------------------------------------------------------------
// How strips.cuh stores samples in shared memory: as atoms of float16 numbers, like
// wgmma_atoms.cuh.

// A block consists of consumers, warpgroups that multiply and store, and one or two warpgroups of
// producers, which meanwhile write the samples of the next task.
#define STRIPS_GROUPS 2 // of consumers
#define STRIPS_CONSUMERS (STRIPS_GROUPS * 128)
#define STRIPS_MOST_PRODUCERS 256
#define STRIPS_BUFFERS 2
#define STRIPS_STAGES 2 // at most: memory for samples of later tasks
// Instances that load the rows of the next set while a set is multiplied. Their consumers need the
// registers of the second warpgroup of producers.
#define STRIPS_AHEAD(NB, PRODUCTS, U) ((PRODUCTS) == 3 && (NB) == 8 && (U) == 7)
#define STRIPS_PRODUCERS(NB, PRODUCTS, U)                                                          \
    (STRIPS_AHEAD(NB, PRODUCTS, U) ? 128 : STRIPS_MOST_PRODUCERS)
#define STRIPS_THREADS(NB, PRODUCTS, U) (STRIPS_CONSUMERS + STRIPS_PRODUCERS(NB, PRODUCTS, U))
// Registers per thread. All threads start with equal shares of 65536; then producers release some
// and consumers request them. A request for more than were released never returns.
#define STRIPS_REGISTERS(NB, PRODUCTS, U) (65536 / STRIPS_THREADS(NB, PRODUCTS, U) / 8 * 8)
#define STRIPS_CONSUMER_REGISTERS(NB, PRODUCTS, U) (STRIPS_AHEAD(NB, PRODUCTS, U) ? 232 : 208)
#define STRIPS_PRODUCER_REGISTERS(NB, PRODUCTS, U) (STRIPS_AHEAD(NB, PRODUCTS, U) ? 40 : 48)
#define STRIPS_ROOM 144 // a consumer's registers for sums and samples
// What fits in these registers with three products. WIDE: a third sum, so that one wgmma multiplies
// high rows by both parts of the weights. BOTH: the high and the low parts of a set's rows at the
// same time; otherwise one is loaded after the other.
#define STRIPS_WIDE(NB, PRODUCTS, T, U)                                                            \
    ((PRODUCTS) == 3 && (NB) <= 4 && 12 * (NB) * (T) + 4 * ((T) + (U)-1) <= STRIPS_ROOM)
#define STRIPS_BOTH(NB, PRODUCTS, T, U)                                                            \
    ((PRODUCTS) == 3 &&                                                                            \
     (STRIPS_WIDE(NB, 3, T, U) ? 12 : 8) * (NB) * (T) + 8 * ((T) + (U)-1) <= STRIPS_ROOM)

#define STRIPS_MOST_STEPS 128
// A task is a tile of one image's outputs, or several whole images. Shared memory holds its samples
// as atoms of 16 bytes, the 8 float16 numbers of a row of a matrix. The atom at a position (row *
// pitch + column) holds 8 channels of that position. If C % 8 channels are left, the last plane of
// atoms holds these channels of several neighbouring positions, as many as fit. 8 consecutive atoms
// are a matrix for ldmatrix, so a tap is an offset of the matrix's address, and nothing is copied
// per tap.
//
// A warp computes a strip of a tile: T rows of 16 columns, or 2 T rows of 8 columns. Matrix t of
// the warpgroup has 64 positions: row t of each warp's strip, or rows t and T + t. A warp that has
// read row i of the samples uses it for all matrices t and kernel rows u with t + u = i. A set
// consists of U kernel rows with two atoms each, any two; each row is a step. If kernel rows have
// an odd number of atoms, the last sets have one atom per row, and a step is two rows.
struct strips_launch {
    const void *src;
    void *dst;
    const uint16_t *weights; // [chunk][set][kernel row][atom of 2][hi, lo][8 maps][map][8]
    const float *bias;       // [maps padded], then the inverse scale of each map
    const float *exact;      // [map][channel][kernel row][kernel column]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t last_offset[8];                // bytes to each number of an atom of the last plane
    int last_pixel[8];                     // the number's column in the atom; INT32_MAX: none
    int64_t images, tasks;
    int height, width, out_height, out_width, channels, maps;
    int kernel_height, kernel_width, activation, half;
    int group;                                               // images of a task
    int tile_rows, tile_columns, down, across;               // outputs of a tile, tiles of an image
    int in_rows, pitch;                                      // positions of a tile
    uint32_t positions_inverse, pitch_inverse, rows_inverse; // from wgmma_inverse()
    int planes, plane_bytes, part_bytes; // part_bytes: of all planes of high, or of low, parts
    int buffer_bytes, positions;         // positions of a plane
    int stages, stage_bytes, stages_at;  // stages (strips.cuh), or 0; where they begin
    int image_positions;                 // positions of an image, if there are stages
    uint32_t image_inverse;              // from wgmma_inverse()
    int strips_down;                     // strips of a column of a tile
    int split;                           // 1: each warpgroup has maps of its own
    int strip_rows, strip_columns;       // of a strip
    int second_row;                      // row of a strip's second 8 outputs per row; 0: columns
    layer_divider columns_divider;       // by tile_columns
    int sets, single_sets, steps;        // sets with two atoms per row, with one; all steps
    // Per set: bytes to its first atom, and from there to its second. Reading ahead needs one more.
    uint2 offsets[STRIPS_MOST_STEPS + 1];
};

// What the warps of a block share besides weights and atoms.
struct strips_shared {
    uint64_t full[STRIPS_BUFFERS], empty[STRIPS_BUFFERS]; // barriers of the buffers of atoms
    uint64_t arrived[STRIPS_STAGES];                      // barriers of the stages
    uint64_t together;                                    // barrier of all consumers
    uint32_t unfit[STRIPS_BUFFERS]
                  [STRIPS_MOST_PRODUCERS / 32]; // 1: WGMMA_SCALE does not suit the warp's samples
    uint32_t largest[STRIPS_CONSUMERS / 32], least[STRIPS_CONSUMERS / 32];
};

#define STRIPS_SHARED_BYTES ((int)(sizeof(strips_shared) + 127) / 128 * 128)

struct strips_task {
    const char *src;       // of the first sample
    int64_t first_image;   // of the group of images
    int images, top, left; // images of the group; first row and column
};

__device__ inline strips_task strips_find_task(const strips_launch &p, int64_t number)
{
    int tiles = p.down * p.across;
    int64_t group = number / tiles;
    int tile = (int)(number - group * tiles);
    strips_task task;
    task.first_image = group * p.group;
    task.images = (int)min((int64_t)p.group, p.images - task.first_image);
    task.top = tile / p.across * p.tile_rows;
    task.left = tile % p.across * p.tile_columns;
    task.src = (const char *)p.src + task.first_image * p.src_image + task.top * p.src_row +
               task.left * (int64_t)sizeof(float);
    return task;
}

// Reads the samples of an atom. Outside the image they are 0, which affects no output that is
// stored.
__device__ inline void strips_read_atom(const strips_launch &p, const strips_task &task, int atom,
                                        float (&v)[8])
{
    int plane = (int)__umulhi((uint32_t)atom, p.positions_inverse);
    int position = atom - plane * p.positions;
    int line = (int)__umulhi((uint32_t)position, p.pitch_inverse), x = position - line * p.pitch;
    int image = (int)__umulhi((uint32_t)line, p.rows_inverse), y = line - image * p.in_rows;
    int columns = p.width - task.left - x; // from this position to the image's end
    if (image >= task.images || task.top + y >= p.height)
        columns = 0;
    const char *at = task.src + image * p.src_image + y * p.src_row + x * (int64_t)sizeof(float);
    if (plane * 8 + 8 <= p.channels) {
        at += plane * 8 * p.src_plane;
#pragma unroll
        for (int i = 0; i < 8; i++, at += p.src_plane)
            v[i] = columns > 0 ? __ldg((const float *)(const void *)at) : 0;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = p.last_pixel[i] < columns
                       ? __ldg((const float *)(const void *)(at + p.last_offset[i]))
                       : 0;
    }
}

template <int PRODUCTS>
__device__ inline void strips_fill_atom(const strips_launch &p, const float (&v)[8], float scale,
                                        char *to, wgmma_range &range)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_widen(range, v[i]);
    wgmma_write_atom<PRODUCTS>(v, scale, to, p.part_bytes);
}

// Writes all atoms of a task. Called by THREADS threads, of which this is number `thread`. Samples
// are read one atom ahead.
template <int PRODUCTS, int THREADS>
__device__ inline wgmma_range strips_fill(const strips_launch &p, const strips_task &task,
                                          float scale, char *atoms, int thread)
{
    wgmma_range range = {0, 0xffffffffu};
    float a[8], b[8];
    int end = p.positions * p.planes, q = thread;
    if (q < end)
        strips_read_atom(p, task, q, a);
#pragma unroll 1
    for (; q < end; q += 2 * THREADS) {
        if (q + THREADS < end)
            strips_read_atom(p, task, q + THREADS, b);
        strips_fill_atom<PRODUCTS>(p, a, scale, atoms + q * 16, range);
        if (q + 2 * THREADS < end)
            strips_read_atom(p, task, q + 2 * THREADS, a);
        if (q + THREADS < end)
            strips_fill_atom<PRODUCTS>(p, b, scale, atoms + (q + THREADS) * 16, range);
    }
    return range;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The descriptor of a step's weights: matrices of 8 maps x 8 numbers, one after the other. `low`:
// the address and, from bit 16 on, the distance to the second atom's weights, both in units of 16
// bytes.
__device__ inline uint64_t strips_descriptor(uint32_t low)
{
    return (uint64_t)8 << 32 | low;
}

// The sums of a strip. With three products (sample x weight) `high` has hi x hi and `low` has
// hi x lo + lo x hi; if `wide` is 2, hi x lo is the second half of `high` instead.
template <int NB, int PRODUCTS, int T, int U> struct strips_sums {
    static const int wide = STRIPS_WIDE(NB, PRODUCTS, T, U) ? 2 : 1;
    float high[T][wide * NB * 4], low[PRODUCTS == 3 ? T : 1][NB * 4];
};

template <int COUNT, int SIZE>
__device__ inline void strips_load_rows(uint32_t (&rows)[SIZE][4], uint32_t at, int row_bytes)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++, at += (uint32_t)row_bytes)
        wgmma_load_rows(rows[i], at);
}

// Multiplies T rows of samples, for kernel row `u`, by N columns of a step's weights. If
// `is_first`, a constant, the sums are set instead of added to.
template <int N, int T, int ROWS>
__device__ inline void strips_multiply_rows(float (&sum)[T][N / 2], const uint32_t (&rows)[ROWS][4],
                                            uint32_t weights, int u, bool is_first = false)
{
#pragma unroll
    for (int t = 0; t < T; t++)
        if (is_first)
            wgmma_rows<N, 0>(sum[t], rows[t + u], strips_descriptor(weights));
        else
            wgmma_rows<N>(sum[t], rows[t + u], strips_descriptor(weights));
}

// Adds the products of a set of U / STEP steps (rounded up); those of the FIRST set are the first
// sums. All rows are loaded before the first wgmma: the compiler would wait after each one if
// registers were written while others run.
template <int NB, int PRODUCTS, int T, int U, int STEP, bool FIRST>
__device__ inline void strips_multiply_set(const strips_launch &p, uint32_t at, uint32_t weights,
                                           strips_sums<NB, PRODUCTS, T, U> &sums)
{
    const int maps = NB * 8, step = (PRODUCTS == 3 ? 4 : 2) * maps, steps = (U + STEP - 1) / STEP;
    const bool both = STRIPS_BOTH(NB, PRODUCTS, T, U);
    const int wide = strips_sums<NB, PRODUCTS, T, U>::wide;
    uint32_t rows[both ? 2 : 1][T + U - 1][4];
    int row_bytes = p.pitch * 16;
    weights = uniform(weights); // so that descriptors are computed in uniform registers, once
    strips_load_rows<T + U - STEP>(rows[0], at, row_bytes);
    if (both)
        strips_load_rows<T + U - STEP>(rows[both ? 1 : 0], at + (uint32_t)p.part_bytes, row_bytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; i++) {
        int u = min(i * STEP, U - STEP);
        uint32_t w = weights + (uint32_t)(i * step);
        bool is_first = FIRST && i == 0;
        strips_multiply_rows<maps * wide>(sums.high, rows[0], w, u, is_first);
        if constexpr (PRODUCTS == 3) {
            if constexpr (wide == 1)
                strips_multiply_rows<maps>(sums.low, rows[0], w + maps, u, is_first);
            if (both)
                strips_multiply_rows<maps>(sums.low, rows[both ? 1 : 0], w, u,
                                           is_first && wide == 2);
        }
    }
    wgmma_commit();
    wgmma_wait();
    if constexpr (PRODUCTS == 3 && !both) {
        strips_load_rows<T + U - STEP>(rows[0], at + (uint32_t)p.part_bytes, row_bytes);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < steps; i++)
            strips_multiply_rows<maps>(sums.low, rows[0], weights + (uint32_t)(i * step),
                                       min(i * STEP, U - STEP), FIRST && i == 0 && wide == 2);
        wgmma_commit();
        wgmma_wait();
    }
}

// The samples of a set's rows, high and low parts.
template <int T, int U> struct strips_rows {
    uint32_t high[T + U - 1][4], low[T + U - 1][4];
};

// Starts the products of a set of U steps whose rows are loaded.
template <int NB, int T, int U>
__device__ inline void strips_start_set(const strips_rows<T, U> &rows, uint32_t weights,
                                        strips_sums<NB, 3, T, U> &sums)
{
    constexpr int maps = NB * 8, wide = strips_sums<NB, 3, T, U>::wide;
    weights = uniform(weights);
    wgmma_fence();
#pragma unroll
    for (int u = 0; u < U; u++, weights += 4 * maps) {
        strips_multiply_rows<maps * wide>(sums.high, rows.high, weights, u);
        if constexpr (wide == 1)
            strips_multiply_rows<maps>(sums.low, rows.high, weights + maps, u);
        strips_multiply_rows<maps>(sums.low, rows.low, weights, u);
    }
    wgmma_commit();
}

// Adds the products of all sets with two atoms per row. The rows of a set are loaded while the set
// before is multiplied. `next`: the offsets of the first set, then those after the last one.
template <int NB, int T, int U>
__device__ inline void strips_multiply_ahead(const strips_launch &p, uint32_t atoms,
                                             uint32_t is_second, uint32_t weights, uint2 &next,
                                             strips_sums<NB, 3, T, U> &sums)
{
#pragma unroll
    for (int t = 0; t < T; t++) {
#pragma unroll
        for (int i = 0; i < NB * 4 * sums.wide; i++)
            sums.high[t][i] = 0;
#pragma unroll
        for (int i = 0; i < NB * 4; i++)
            sums.low[t][i] = 0;
    }
    const uint32_t step = U * 4 * NB * 8;
    int row_bytes = p.pitch * 16;
    strips_rows<T, U> even, odd;
    auto load = [&](strips_rows<T, U> &rows, int set) {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[set + 1];
        strips_load_rows<T + U - 1>(rows.high, at, row_bytes);
        strips_load_rows<T + U - 1>(rows.low, at + (uint32_t)p.part_bytes, row_bytes);
    };
    load(even, 0); // there is one: a branch costs registers that are then spilled
#pragma unroll 1
    for (int set = 0; set < p.sets; set += 2) {
        strips_start_set(even, weights + (uint32_t)set * step, sums);
        wgmma_wait_but_one(); // the products that read `odd` are complete
        if (set + 1 < p.sets) {
            load(odd, set + 1);
            strips_start_set(odd, weights + (uint32_t)(set + 1) * step, sums);
            wgmma_wait_but_one();
            if (set + 2 < p.sets)
                load(even, set + 2);
        }
    }
    wgmma_wait();
}

// Computes the sums of one strip per warp of a warpgroup. `atoms`: the address of the lane's first
// atom; `weights`: the address of all sets' weights, in units of 16 bytes.
template <int NB, int PRODUCTS, int T, int U>
__device__ inline void strips_multiply(const strips_launch &p, uint32_t atoms, uint32_t weights,
                                       strips_sums<NB, PRODUCTS, T, U> &sums)
{
    const int step = (PRODUCTS == 3 ? 4 : 2) * NB * 8;
    uint32_t is_second = threadIdx.x / 16 % 2;
    uint2 next = p.offsets[0]; // read one set ahead: reading takes as long as a step
    weights |= (uint32_t)(step / 2) << 16;
    if constexpr (STRIPS_AHEAD(NB, PRODUCTS, U)) {
        strips_multiply_ahead(p, atoms, is_second, weights, next, sums);
    } else {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[1];
        strips_multiply_set<NB, PRODUCTS, T, U, 1, true>(p, at, weights, sums); // there is one
#pragma unroll 1
        for (int set = 1; set < p.sets; set++) {
            at = atoms + next.x + is_second * next.y;
            next = p.offsets[set + 1];
            strips_multiply_set<NB, PRODUCTS, T, U, 1, false>(
                p, at, weights + (uint32_t)(set * U * step), sums);
        }
    }
    if (U == 1)
        return;
    weights += (uint32_t)(p.sets * U * step);
#pragma unroll 1
    for (int set = 0; set < p.single_sets; set++) {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[p.sets + set + 1];
        strips_multiply_set<NB, PRODUCTS, T, U, U == 1 ? 1 : 2, false>(
            p, at, weights + (uint32_t)(set * ((U + 1) / 2) * step), sums);
    }
}

#endif

#endif
