// SPDX-License-Identifier: MIT
// cuda_layer_mma_half: layers on tensor cores: implicit GEMM with float16 operands, scaled by a
// power of two, and float32 sums. Tensor cores multiply float16 twice as fast as TF32, whose
// mantissa is not longer.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "tensor/element.h"

// --- the kernel ----------------------------------------------------------------------------------

#define MMA_THREADS 256
#define MMA_WARPS (MMA_THREADS / 32)

// Shared memory holds atoms: 16 bytes, the 8 float16 numbers that a row of a matrix operand takes.
// An atom at pixel x holds 8 channels, or the last C % 8 channels of as many neighbouring pixels as
// fit. A step of the product over taps is two atoms.
struct mma_launch {
    const void *src;
    void *dst;
    const uint16_t *weights; // [chunk][step][8 maps][atom][map][8]
    const float *bias;       // [maps padded], then the inverse scale of each map
    const float *exact;      // [map][channel][kernel row][kernel column]
    const int *offsets;      // [step][2]: from the atom of an output's first sample, in bytes
    int64_t src_row, src_plane, src_image; // bytes
    int height, width, out_height, out_width, channels, maps;
    int kernel_height, kernel_width, stride, pad_top, pad_left, border;
    float border_value, divisor;
    int activation, half, bytes, padded;
    int strip_rows, image_strips;
    int in_rows, in_width;          // of a strip, in_width in atoms
    int planes, last_pixels;        // planes of atoms; pixels of an atom of the last plane
    int steps, chunks, plane_bytes; // plane_bytes: of all planes
};

__device__ inline float mma_read(const mma_launch &p, const char *image, int c, int y, int x)
{
    y = y * 1 - p.pad_top;
    x -= p.pad_left;
    if (p.padded) {
        y = conv_border_index((enum conv_border)p.border, y, p.height);
        x = conv_border_index((enum conv_border)p.border, x, p.width);
        if (x < 0 || y < 0)
            return p.border_value;
    } else if (y >= p.height || x >= p.width) {
        return 0; // outside the last output's window
    }
    const char *row = image + c * p.src_plane + y * p.src_row;
    return p.bytes ? layer_sample((const uint8_t *)row + x, p.divisor)
                   : __ldg((const float *)(const void *)row + x);
}

__device__ inline uint16_t mma_to_half(float value)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ inline void mma_load_matrices(uint32_t (&to)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// sum += a * b
__device__ inline void mma_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(sum[0]),
                   "f"(sum[1]), "f"(sum[2]), "f"(sum[3]));
#endif
}

// The least and the largest magnitude of a strip's samples that are not 0, as float bits.
__device__ inline void mma_range(const mma_launch &p, const char *image, int top, uint32_t *range)
{
    uint32_t least = 0xffffffffu, largest = 0;
    int lines = p.channels * p.in_rows;
    for (int line = (int)threadIdx.x / 32; line < lines; line += MMA_WARPS) {
        int c = line / p.in_rows, y = top + line - c * p.in_rows;
        for (int x = (int)threadIdx.x % 32; x < p.in_width; x += 32) {
            uint32_t bits = __float_as_uint(mma_read(p, image, c, y, x)) & 0x7fffffffu;
            largest = max(largest, bits);
            least = min(least, bits - 1); // 0 becomes the largest
        }
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
        least = min(least, __shfl_xor_sync(0xffffffffu, least, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        range[threadIdx.x / 32] = largest;
        range[MMA_WARPS + threadIdx.x / 32] = least;
    }
}

// Writes all atoms of a strip.
__device__ inline void mma_fill(const mma_launch &p, const char *image, int top, float scale,
                                char *atoms)
{
    int lines = p.planes * p.in_rows;
    for (int line = (int)threadIdx.x / 32; line < lines; line += MMA_WARPS) {
        int plane = line / p.in_rows, y = top + line - plane * p.in_rows;
        int channels = min(8, p.channels - plane * 8);
        int pixels = channels < 8 ? p.last_pixels : 1;
        for (int x = (int)threadIdx.x % 32; x < p.in_width; x += 32) {
            uint32_t atom[4];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int pixel = pixels == 1 ? 0 : i / channels, c = i - pixel * channels;
                float v = c < channels && pixel < pixels && x + pixel < p.in_width
                              ? mma_read(p, image, plane * 8 + c, y, x + pixel) * scale
                              : 0;
                uint32_t half = mma_to_half(v);
                atom[i / 2] = i % 2 ? atom[i / 2] | half << 16 : half;
            }
            char *to = atoms + (line * p.in_width + x) * 16;
            *(uint4 *)(void *)to = make_uint4(atom[0], atom[1], atom[2], atom[3]);
        }
    }
}

// The exact order for a strip whose samples differ too much in magnitude, or are not finite.
__device__ inline void mma_exact(const mma_launch &p, const char *image, int64_t first, int top,
                                 int outputs)
{
    int64_t plane = (int64_t)p.out_height * p.out_width;
    for (int m = 0; m < p.maps; m++) {
        for (int q = (int)threadIdx.x; q < outputs; q += MMA_THREADS) {
            int i = q / p.out_width, j = q - i * p.out_width;
            const float *weight =
                p.exact + (int64_t)m * p.channels * p.kernel_height * p.kernel_width;
            float sum = p.bias[m];
            for (int c = 0; c < p.channels; c++)
                for (int u = 0; u < p.kernel_height; u++)
                    for (int v = 0; v < p.kernel_width; v++)
                        sum = fmaf(*weight++,
                                   mma_read(p, image, c, top + i * p.stride + u, j * p.stride + v),
                                   sum);
            sum = layer_activate(p.activation, sum);
            if (p.half)
                layer_store((uint16_t *)p.dst + first + m * plane + q, sum);
            else
                layer_store((float *)p.dst + first + m * plane + q, sum);
        }
    }
}

// A warp: MF * 16 outputs that follow each other in the strip, NF * 8 maps.
template <int MF, int NF>
__device__ inline void mma_task(const mma_launch &p, uint32_t atoms, uint32_t weights,
                                const int *offsets, int first_output, int outputs, int chunk,
                                int64_t dst, float unscale)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t at[MF];
    float sum[MF][NF][4];
#pragma unroll
    for (int f = 0; f < MF; f++) {
        int q = min(first_output + f * 16 + lane % 16, outputs - 1);
        int i = q / p.out_width, j = q - i * p.out_width;
        at[f] = atoms + (uint32_t)((i * p.stride * p.in_width + j * p.stride) * 16);
#pragma unroll
        for (int n = 0; n < NF; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[f][n][k] = 0;
    }
    uint32_t b_at = weights + (uint32_t)lane * 16;
    const int matrices = NF * 2;
    const int *offset = offsets + lane / 16;
#pragma unroll 1
    for (int step = 0; step < p.steps; step++) {
        // Matrix n * 2 + atom, four at a time.
        uint32_t b[(matrices + 3) / 4][4];
#pragma unroll
        for (int k = 0; k < (matrices + 3) / 4; k++)
            mma_load_matrices(b[k], b_at + k * 512);
        b_at += matrices * 128;
        uint32_t tap = (uint32_t)offset[step * 2];
#pragma unroll
        for (int f = 0; f < MF; f++) {
            uint32_t a[4];
            mma_load_matrices(a, at[f] + tap);
#pragma unroll
            for (int n = 0; n < NF; n++)
                mma_multiply(sum[f][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
    int64_t plane = (int64_t)p.out_height * p.out_width;
    int padded_maps = p.chunks * NF * 8;
#pragma unroll
    for (int n = 0; n < NF; n++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int m = (chunk * NF + n) * 8 + lane % 4 * 2 + k;
            if (m >= p.maps)
                continue;
            float bias = __ldg(p.bias + m), back = __ldg(p.bias + padded_maps + m);
#pragma unroll
            for (int f = 0; f < MF; f++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int q = first_output + f * 16 + h * 8 + lane / 4;
                    float y = fmaf(sum[f][n][h * 2 + k] * unscale, back, bias);
                    y = layer_activate(p.activation, y);
                    if (q < outputs) {
                        if (p.half)
                            layer_store((uint16_t *)p.dst + dst + m * plane + q, y);
                        else
                            layer_store((float *)p.dst + dst + m * plane + q, y);
                    }
                }
            }
        }
    }
}

// One block per strip of an image. Shared memory: atoms, a chunk's weights, offsets of the steps,
// room for mma_range(), and 256 bytes that the last load of weights may read.
template <int MF, int NF>
static __global__ __launch_bounds__(MMA_THREADS, 2) void mma(const __grid_constant__ mma_launch p)
{
    extern __shared__ __align__(128) char mma_memory[];
    int64_t image = blockIdx.x / (unsigned)p.image_strips;
    int strip = (int)(blockIdx.x % (unsigned)p.image_strips);
    const char *src = (const char *)p.src + image * p.src_image;
    int first_row = strip * p.strip_rows, top = first_row * p.stride;
    int outputs = min(p.strip_rows, p.out_height - first_row) * p.out_width;
    int64_t dst = image * p.maps * p.out_height * p.out_width + (int64_t)first_row * p.out_width;
    char *atoms = mma_memory, *weights = atoms + p.plane_bytes;
    int weight_bytes = p.steps * NF * 256;
    int *offsets = (int *)(void *)(weights + weight_bytes);
    uint32_t *range = (uint32_t *)(void *)(offsets + p.steps * 2);

    for (int i = (int)threadIdx.x; i < p.steps * 2; i += MMA_THREADS)
        offsets[i] = __ldg(p.offsets + i);
    mma_range(p, src, top, range);
    __syncthreads();
    uint32_t largest = 0, least = 0xffffffffu;
#pragma unroll
    for (int i = 0; i < MMA_WARPS; i++) {
        largest = max(largest, range[i]);
        least = min(least, range[MMA_WARPS + i]);
    }
    // A power of two that makes the largest magnitude 2^14 to 2^15. The least one must stay above
    // 2^-12, where float16 has all its bits.
    int exponent = min(268 - (int)(largest >> 23), 253);
    float scale = largest ? __uint_as_float((uint32_t)exponent << 23) : 1;
    float unscale = largest ? __uint_as_float((uint32_t)(254 - exponent) << 23) : 1;
    if (largest >= 0x7f800000u || (largest && __uint_as_float(least + 1) * scale < 1 / 4096.0f)) {
        mma_exact(p, src, dst, top, outputs);
        return;
    }
    mma_fill(p, src, top, scale, atoms);
    for (int chunk = 0; chunk < p.chunks; chunk++) {
        const uint4 *from = (const uint4 *)(const void *)p.weights + chunk * (weight_bytes / 16);
        for (int i = (int)threadIdx.x; i < weight_bytes / 16; i += MMA_THREADS)
            ((uint4 *)(void *)weights)[i] = __ldg(from + i);
        __syncthreads(); // weights, and at first the atoms, are complete
        for (int q = (int)threadIdx.x / 32 * MF * 16; q < outputs; q += MMA_WARPS * MF * 16)
            mma_task<MF, NF>(p, (uint32_t)__cvta_generic_to_shared(atoms),
                             (uint32_t)__cvta_generic_to_shared(weights), offsets, q, outputs,
                             chunk, dst, unscale);
        __syncthreads(); // weights may be overwritten
    }
}

// --- the choice and the launch -------------------------------------------------------------------

#define MOST_SHARED (98 << 10) // two blocks on compute capability 9.0, one on 8.6 and later

struct mma_shape {
    int outputs, maps; // of a warp, in units of 16 and 8
    void (*kernel)(mma_launch);
};

static const struct mma_shape shapes[] = {
    {4, 4, mma<4, 4>},
    {4, 3, mma<4, 3>},
    {4, 2, mma<4, 2>},
    {4, 1, mma<4, 1>},
};

struct mma_config {
    int shape, chunks, planes, last_pixels, atoms, steps;
    int strip_rows, image_strips, in_rows, in_width, plane_bytes, shared_bytes;
};

// The taps that an atom covers: plane, kernel row and first column, and how many columns.
static int row_atoms(const struct conv_layer *layer, const struct mma_config *c)
{
    int full = layer->channels / 8 * layer->kernel_width;
    return full + (layer->channels % 8 ? ceil_div(layer->kernel_width, c->last_pixels) : 0);
}

static bool fill_config(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        int index, struct mma_config *c)
{
    const struct mma_shape *s = &shapes[index];
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width), rest = layer->channels % 8;
    c->shape = index;
    c->chunks = ceil_div(layer->maps, s->maps * 8);
    c->planes = ceil_div(layer->channels, 8);
    c->last_pixels = rest ? 8 / rest : 1;
    c->atoms = row_atoms(layer, c) * layer->kernel_height;
    c->steps = ceil_div(c->atoms, 2);
    c->in_width = (out_width - 1) * layer->stride_x + layer->kernel_width;
    int64_t weights = (int64_t)c->steps * s->maps * 256;
    for (int strips = 1; strips <= out_height; strips++) {
        c->strip_rows = ceil_div(out_height, strips);
        c->image_strips = ceil_div(out_height, c->strip_rows);
        c->in_rows = (c->strip_rows - 1) * layer->stride_x + layer->kernel_height;
        int64_t plane = (int64_t)c->planes * c->in_rows * c->in_width * 16;
        int64_t bytes = plane + weights + c->steps * 8 + 2 * MMA_WARPS * 4 + 256;
        // Blocks of a wide image are as large as possible.
        if (bytes <= MOST_SHARED) {
            c->plane_bytes = (int)plane;
            c->shared_bytes = (int)bytes;
            return true;
        }
    }
    return false;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct mma_config *best)
{
    bool found = false;
    float least = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct mma_config c;
        const struct mma_shape *s = &shapes[i];
        if (!fill_config(layer, shape, (int)i, &c))
            continue;
        int outputs = c.strip_rows * conv_layer_out_width(layer, shape->width);
        int rounds = ceil_div(outputs, s->outputs * 16);
        float cost =
            (float)(c.chunks * s->maps) * (float)c.image_strips *
            (float)((rounds < MMA_WARPS ? rounds : ceil_div(rounds, MMA_WARPS) * MMA_WARPS) *
                    s->outputs) *
            (1 + 1.0f / (float)s->maps + 0.5f / (float)s->outputs);
        if (!found || cost < least) {
            found = true;
            least = cost;
            *best = c;
        }
    }
    return found;
}

// Bytes of each part of the packed weights.
struct mma_parts {
    size_t weights, bias, exact, offsets;
};

static struct mma_parts parts_of(const struct conv_layer *layer, const struct mma_config *c)
{
    const struct mma_shape *s = &shapes[c->shape];
    struct mma_parts parts;
    parts.weights = (size_t)c->chunks * (size_t)c->steps * (size_t)s->maps * 256;
    parts.bias = (size_t)(c->chunks * s->maps * 8) * 2 * sizeof(float);
    parts.exact = (size_t)layer->maps * layer_tap_count(layer) * sizeof(float);
    parts.offsets = (size_t)c->steps * 2 * sizeof(int);
    return parts;
}

static bool plan_mma(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct mma_config *c = layer_constants<struct mma_config>(plan);
    if (conv_layer_out_height(layer, shape->height) <= 0 ||
        conv_layer_out_width(layer, shape->width) <= 0 || !configure(layer, shape, c) ||
        c->steps > 64 || !half_scales_exist(layer))
        return false;
    struct mma_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact + parts.offsets;
    return true;
}

// Atom `index` of the layer: its place, and the tap of each of its 8 numbers (-1: none).
static int find_atom(const struct conv_layer *layer, const struct mma_config *c, int index,
                     int (&taps)[8])
{
    int across = row_atoms(layer, c), u = index / across, rest = index % across;
    int full = layer->channels / 8 * layer->kernel_width;
    int pixels = rest < full ? 1 : c->last_pixels;
    int plane = rest < full ? rest / layer->kernel_width : layer->channels / 8;
    int v = rest < full ? rest % layer->kernel_width : (rest - full) * pixels;
    int channels = rest < full ? 8 : layer->channels % 8;
    for (int i = 0; i < 8; i++) {
        int pixel = pixels == 1 ? 0 : i / channels, k = i - pixel * channels;
        bool is_tap =
            index < c->atoms && k < channels && pixel < pixels && v + pixel < layer->kernel_width;
        taps[i] =
            is_tap ? ((plane * 8 + k) * layer->kernel_height + u) * layer->kernel_width + v + pixel
                   : -1;
    }
    return index < c->atoms ? ((plane * c->in_rows + u) * c->in_width + v) * 16 : 0;
}

static void pack_mma(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct mma_config *c = layer_constants<struct mma_config>(plan);
    const struct mma_shape *s = &shapes[c->shape];
    struct mma_parts parts = parts_of(layer, c);
    uint16_t *weights = (uint16_t *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    float *exact = (float *)(void *)((char *)bias + parts.bias);
    int *offsets = (int *)(void *)((char *)exact + parts.exact);
    size_t all = layer_tap_count(layer);
    int padded = c->chunks * s->maps * 8;
    memcpy(exact, layer->weights, parts.exact);
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        bias[padded + m] = 1 / half_scale(layer->weights + (size_t)m * all, all);
    }
    for (int index = 0; index < c->steps * 2; index++) {
        int taps[8], step = index / 2;
        offsets[index] = find_atom(layer, c, index, taps);
        for (int m = 0; m < layer->maps; m++) {
            int chunk = m / (s->maps * 8), n = m / 8 % s->maps;
            uint16_t *to =
                weights +
                ((((size_t)chunk * (size_t)c->steps + (size_t)step) * (size_t)s->maps + (size_t)n) *
                     2 +
                 (size_t)(index % 2)) *
                    64 +
                m % 8 * 8;
            for (int i = 0; i < 8; i++)
                if (taps[i] >= 0)
                    to[i] = conv_half_from_float(layer->weights[(size_t)m * all + (size_t)taps[i]] /
                                                 bias[padded + m]);
        }
    }
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct mma_config *c, struct mma_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    struct mma_parts parts = parts_of(layer, c);
    const char *packed = (const char *)plan->d_packed;
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->dst = batch->dst;
    p->weights = (const uint16_t *)(const void *)packed;
    p->bias = (const float *)(const void *)(packed + parts.weights);
    p->exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    p->offsets = (const int *)(const void *)(packed + parts.weights + parts.bias + parts.exact);
    p->kernel_width = layer->kernel_width;
    p->stride = layer->stride_x;
    p->padded = layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right;
    p->activation = (int)layer->activation;
    p->half = layer->output == CONV_ELEMENT_F16;
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->strip_rows = c->strip_rows;
    p->image_strips = c->image_strips;
    p->in_rows = c->in_rows;
    p->in_width = c->in_width;
    p->planes = c->planes;
    p->last_pixels = c->last_pixels;
    p->steps = c->steps;
    p->chunks = c->chunks;
    p->plane_bytes = c->plane_bytes;
}

static enum conv_status run_mma(const struct conv_layer_plan *plan,
                                const struct conv_layer_batch *batch)
{
    const struct mma_config *c = layer_constants<struct mma_config>(plan);
    const struct mma_shape *s = &shapes[c->shape];
    if (batch->images <= 0)
        return CONV_OK;
    struct mma_launch p;
    fill_launch(plan, batch, c, &p);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    dim3 grid((unsigned)(batch->images * c->image_strips));
    void (*kernel)(mma_launch) = s->kernel;
    kernel<<<grid, MMA_THREADS, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// Filling shared memory takes as long as the exact order: it is worth it if each sample is used
// often.
static int score_half(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    return layer->channels <= 4 && layer->maps >= 32 && layer_tap_count(layer) >= 120 ? 110 : 30;
}

// Operands of 11 bits, like TF32's: an error of 2^-11 each; 4 units of 2^-24 for each of at most 64
// additions of tensor cores, which truncate.
const struct conv_layer_variant conv_cuda_layer_mma_half = {
    "cuda_layer_mma_half",
    "tensor cores, one float16 product of scaled operands",
    CONV_ON_CUDA,
    80,
    CONV_PRECISION_TF32,
    16400 + 4 * 64,
    CONV_LAYER_PADS,
    plan_mma,
    score_half,
    pack_mma,
    run_mma,
};
