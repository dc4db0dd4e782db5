// SPDX-License-Identifier: MIT
// The samples of a layer as wgmma reads them: atoms of float16 numbers in shared memory. A float32
// value times a power of two is hi + lo / 2048, two float16 numbers of 11 bits each, as in
// mma.cu.
#ifndef CONV_KERNELS_LAYER_CUDA_WGMMA_ATOMS_CUH
#define CONV_KERNELS_LAYER_CUDA_WGMMA_ATOMS_CUH

#include "kernels/layer/cuda/layer_device.cuh"

// A factor whose product with a small dividend has the quotient in its upper 32 bits; divisor > 1.
static inline uint32_t wgmma_inverse(int divisor)
{
    return (uint32_t)(((uint64_t)1 << 32) / (uint64_t)divisor + 1);
}

// A block consists of consumers, warpgroups that multiply and store, and two warpgroups of
// producers, which meanwhile write the samples of the next task.
#define WGMMA_GROUPS 3 // of consumers
#define WGMMA_CONSUMERS (WGMMA_GROUPS * 128)
#define WGMMA_PRODUCERS 256
#define WGMMA_THREADS (WGMMA_CONSUMERS + WGMMA_PRODUCERS)
#define WGMMA_BUFFERS 2
// Registers per thread. All threads start with equal shares of 65536; then producers release some
// and consumers request them. A request for more than were released never returns.
#define WGMMA_REGISTERS (65536 / WGMMA_THREADS / 8 * 8)
#define WGMMA_CONSUMER_REGISTERS 112
#define WGMMA_PRODUCER_REGISTERS 72
#define WGMMA_MOST_STEPS 128
// Scale of the low parts: as large as the high ones, so that none underflows.
#define WGMMA_LO 2048.0f

// Samples are scaled by WGMMA_SCALE. If the scaled magnitude of a sample that is not 0 is not from
// WGMMA_LEAST to WGMMA_MOST, the task gets its own scale. Below, float16 has fewer bits.
#define WGMMA_SCALE 128.0f
#define WGMMA_LEAST(products) ((products) == 3 ? 0x1p-16f : 0x1p-14f)
#define WGMMA_MOST 65000.0f

// A task is a tile of one image's outputs, or several whole images. Shared memory holds its samples
// as atoms of 16 bytes, the 8 float16 numbers of a row of a matrix. The atom at a position (row *
// pitch + column) holds 8 channels of that position. If C % 8 channels are left, the last plane of
// atoms holds these channels of several neighbouring positions, as many as fit. 8 consecutive atoms
// are a core matrix of wgmma, so a tap is an offset of the matrix's address, and nothing is copied
// per tap.
struct wgmma_launch {
    const void *src;
    void *dst;
    const uint16_t *weights;               // [chunk][step][atom of 2][hi, lo][8 maps][map][8]
    const float *bias;                     // [maps padded], then the inverse scale of each map
    const float *exact;                    // [map][channel][kernel row][kernel column]
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
    int planes, plane_bytes, part_bytes;    // part_bytes: of all planes of high, or of low, parts
    int buffer_bytes, positions;            // positions of a plane
    int m_tiles, m_across, m_row, m_column; // a tile's matrices: number, positions between
    int steps;                              // of two atoms
    uint2 offsets[WGMMA_MOST_STEPS / 2];    // low words of descriptors, without the address
};

// Sets the members that the launches of wgmma.cu and strips.cu share.
template <typename Launch, typename Config>
static void wgmma_set_launch(Launch *p, const struct conv_layer_plan *plan,
                             const struct conv_layer_batch *batch, const Config *c)
{
    const struct conv_layer *layer = &plan->layer;
    layer_set_sizes(p, plan, batch);
    p->dst = batch->dst;
    p->images = batch->images;
    p->tasks = ceil_div64(batch->images, c->group) * c->down * c->across;
    p->kernel_width = layer->kernel_width;
    p->activation = (int)layer->activation;
    p->half = layer->output == CONV_ELEMENT_F16;
    p->group = c->group;
    p->tile_rows = c->tile_rows;
    p->tile_columns = c->tile_columns;
    p->down = c->down;
    p->across = c->across;
    p->in_rows = c->in_rows;
    p->positions = c->group * c->in_rows * c->pitch;
    p->positions_inverse = wgmma_inverse(p->positions);
    p->pitch = c->pitch;
    p->pitch_inverse = wgmma_inverse(c->pitch);
    p->rows_inverse = wgmma_inverse(c->in_rows);
    p->planes = c->planes;
    p->plane_bytes = c->plane_bytes;
    p->part_bytes = c->planes * c->plane_bytes;
    p->buffer_bytes = c->buffer_bytes;
    int channels = p->channels % 8;
    for (int i = 0; i < 8; i++) {
        int pixel = channels ? i / channels : 0, k = channels ? i % channels : 0;
        bool exists = channels && pixel < c->last_pixels;
        p->last_pixel[i] = exists ? pixel : INT32_MAX;
        p->last_offset[i] = (p->channels / 8 * 8 + k) * batch->src_plane +
                            (exists ? pixel : 0) * (int64_t)sizeof(float);
    }
}

// A descriptor of a matrix without swizzle: 8 rows of 16 bytes are 128 bytes. `low` has the address
// and, from bit 16, the distance of the second 8 columns, both / 16; `rows`: that of the next 8
// rows.
__device__ inline uint64_t wgmma_descriptor(uint32_t low, int rows)
{
    return (uint64_t)(uint32_t)rows << 32 | low;
}

__device__ inline uint32_t wgmma_pack(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ inline float wgmma_half_to_float(uint16_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// The largest magnitude of samples, and the least one of those that are not 0: float bits without
// the sign, times 2, - 1. NaN is the largest magnitude.
struct wgmma_range {
    float largest;
    uint32_t least;
};

__device__ inline uint32_t wgmma_magnitude(float value)
{
    uint32_t bits = __float_as_uint(value);
    return bits + bits - 1; // of 0 it is the largest number
}

__device__ inline void wgmma_widen(wgmma_range &range, float value)
{
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(range.largest) : "f"(range.largest), "f"(fabsf(value)));
    range.least = min(range.least, wgmma_magnitude(value));
}

template <int PRODUCTS>
__device__ inline bool wgmma_is_within(const wgmma_range &range, float scale)
{
    return range.largest <= WGMMA_MOST / scale &&
           range.least >= wgmma_magnitude(WGMMA_LEAST(PRODUCTS) / scale);
}

// Writes an atom's parts.
template <int PRODUCTS>
__device__ inline void wgmma_write_atom(const float (&v)[8], float scale, char *to, int part_bytes)
{
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
        hi[i] = wgmma_pack(a, b);
        if (PRODUCTS == 3)
            lo[i] = wgmma_pack((a - wgmma_half_to_float((uint16_t)hi[i])) * WGMMA_LO,
                               (b - wgmma_half_to_float((uint16_t)(hi[i] >> 16))) * WGMMA_LO);
    }
    *(uint4 *)(void *)to = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    if (PRODUCTS == 3)
        *(uint4 *)(void *)(to + part_bytes) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
}

struct wgmma_task {
    const char *src;       // of the first sample
    int64_t first_image;   // its group of images
    int images, top, left; // images of the group; first row and column
};

__device__ inline wgmma_task wgmma_find_task(const wgmma_launch &p, int64_t number)
{
    int tiles = p.down * p.across;
    int64_t group = number / tiles;
    int tile = (int)(number - group * tiles);
    wgmma_task task;
    task.first_image = group * p.group;
    task.images = (int)min((int64_t)p.group, p.images - task.first_image);
    task.top = tile / p.across * p.tile_rows;
    task.left = tile % p.across * p.tile_columns;
    task.src = (const char *)p.src + task.first_image * p.src_image + task.top * p.src_row +
               task.left * (int64_t)sizeof(float);
    return task;
}

// Reads the samples of an atom. Outside the image they are 0; they are only multiplied by weights
// of 0, or contribute to outputs that are skipped.
__device__ inline void wgmma_read_atom(const wgmma_launch &p, const wgmma_task &task, int atom,
                                       float (&v)[8])
{
    int plane = (int)__umulhi((uint32_t)atom, p.positions_inverse);
    int position = atom - plane * p.positions;
    int line = (int)__umulhi((uint32_t)position, p.pitch_inverse), x = position - line * p.pitch;
    int image = (int)__umulhi((uint32_t)line, p.rows_inverse), y = line - image * p.in_rows;
    int columns = p.width - task.left - x; // left in the image
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
__device__ inline void wgmma_fill_atom(const wgmma_launch &p, const float (&v)[8], float scale,
                                       char *to, wgmma_range &range)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma_widen(range, v[i]);
    wgmma_write_atom<PRODUCTS>(v, scale, to, p.part_bytes);
}

// Writes all atoms of a task, with 256 threads of which `thread` is the number. Samples are
// read an atom ahead.
template <int PRODUCTS>
__device__ inline wgmma_range wgmma_fill(const wgmma_launch &p, const wgmma_task &task, float scale,
                                         char *atoms, int thread)
{
    wgmma_range range = {0, 0xffffffffu};
    float a[8], b[8];
    int end = p.positions * p.planes, q = thread;
    if (q < end)
        wgmma_read_atom(p, task, q, a);
#pragma unroll 1
    for (; q < end; q += 512) {
        if (q + 256 < end)
            wgmma_read_atom(p, task, q + 256, b);
        wgmma_fill_atom<PRODUCTS>(p, a, scale, atoms + q * 16, range);
        if (q + 512 < end)
            wgmma_read_atom(p, task, q + 512, a);
        if (q + 256 < end)
            wgmma_fill_atom<PRODUCTS>(p, b, scale, atoms + q * 16 + 4096, range);
    }
    return range;
}

#endif
