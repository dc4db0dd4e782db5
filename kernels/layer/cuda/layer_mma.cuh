// SPDX-License-Identifier: MIT
// Layers on tensor cores: implicit GEMM with float16 operands, scaled by a power of two, and
// float32 sums. Tensor cores multiply float16 twice as fast as TF32, whose mantissa is not longer.
#ifndef CONV_KERNELS_LAYER_CUDA_LAYER_MMA_CUH
#define CONV_KERNELS_LAYER_CUDA_LAYER_MMA_CUH

#include "kernels/layer/cuda/layer_device.cuh"

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

#endif
