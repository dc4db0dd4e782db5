// SPDX-License-Identifier: MIT
// Prepares a stencil for the device: chooses the cheapest arithmetic that computes the defined
// result, with the proof of that, and copies the filter to device memory. Host code only.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/stencil/cuda/decimated.cuh"

static_assert(sizeof(struct taps) <= 4096 - 16,
              "taps and a launch's table fit in kernel parameters");

static bool is_power_of_two(int64_t value)
{
    return (value & (value - 1)) == 0;
}

// True if sums can be held in float32 and divided by a multiplication. With B = log2(max + 1), N
// the sum and bias, d the divisor, q = N / d, every |N| <= 2^24 and scale = fl(1/d), off by at most
// 2^-24 of itself, so that N * scale is off by less than e = 2^(B-24) wherever |q| < 2^B. (Beyond
// that, the result is clamped, and stays on its side.)
//
// d a power of two: N * scale is exact, and fma(N, scale, 1.5 * 2^23) rounds it once, half to even.
// d odd: there are no ties, q is at least 1 / (2d) away from one, and the same fma cannot cross it
//   if e < 1 / (2d), that is d < 2^(23-B): 32768 for 8 bits, 128 for 16.
// d even: a tie must be met exactly. fma(N, scale, 3 * 2^B) rounds to a grid of 2^(B-22), where
// ties
//   lie on the grid and, as e is less than half a grid step, come out exact. Adding the difference
//   to 1.5 * 2^23 then rounds to integers, half to even. Any other quotient is at least 1 / d away
//   from a tie and moves by less than e + 2^(B-23) = 3 * 2^(B-24), so it keeps its side if d <=
//   2^(24-B) / 3: 21845 for 8 bits, 85 for 16.
static bool float_is_exact(const struct conv_stencil *stencil)
{
    double bound = fabs((double)stencil->bias);
    if (stencil->keeps) // the sample times the divisor, and its difference from the sum
        bound += (double)stencil->max * (double)stencil->divisor;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        bound += (double)stencil->max * fabs((double)stencil->icoef[i]);
    if (bound > 16777216.0)
        return false;
    int64_t levels = (int64_t)stencil->max + 1, divisor = stencil->divisor;
    if (is_power_of_two(divisor))
        return true;
    return divisor < (divisor % 2 ? 8388608 / levels : 16777216 / levels / 3);
}

// Real filters: the coefficients include the scale, fma(sum, 1, 1.5 * 2^23) is rintf.
static void round_float(struct rounding *r, const struct conv_stencil *stencil)
{
    r->fbias = stencil->exact ? (float)stencil->bias : stencil->fbias;
    r->scale = stencil->exact ? 1.0f / (float)stencil->divisor : 1.0f;
    bool ties_need_grid =
        stencil->exact && stencil->divisor % 2 == 0 && !is_power_of_two(stencil->divisor);
    r->grid = ties_need_grid ? 3.0f * (float)(stencil->max + 1) : INTEGER_FLOATS;
    r->restore = INTEGER_FLOATS - r->grid;
}

// Division of u = N + half < 2^31 by a multiplication (Granlund and Montgomery, 1994). With l =
// ceil(log2 d) and factor m = floor(2^(31+l) / d) + 1, m*d = 2^(31+l) + e where 0 < e <= d <= 2^l,
// so u*m / 2^(31+l) exceeds u/d by u*e / (d * 2^(31+l)) < 1/d: too little to reach the next
// integer. m fits in 32 bits since d > 2^(l-1). The kernel takes the high word of (2u) * m and
// shifts it by l.
static void round_int32(struct rounding *r, int64_t divisor)
{
    uint32_t shift = 0;
    while (((int64_t)1 << shift) < divisor)
        shift++;
    r->shift = shift;
    r->factor = (uint32_t)(((uint64_t)1 << (31 + shift)) / (uint64_t)divisor + 1);
    r->half = (uint32_t)(divisor / 2);
    r->even = divisor % 2 == 0;
}

enum sum_kind conv_cuda_rounding(struct rounding *rounding, const struct conv_stencil *stencil)
{
    *rounding = {};
    rounding->max = stencil->max;
    rounding->bias = stencil->bias;
    rounding->divisor = stencil->divisor; // 0 for real filters
    if (!stencil->exact || float_is_exact(stencil)) {
        round_float(rounding, stencil);
        return SUM_FLOAT;
    }
    if (!stencil->fits_int32) {
        rounding->scale = 1.0f / (float)stencil->divisor;
        return SUM_INT64;
    }
    round_int32(rounding, stencil->divisor);
    return SUM_INT32;
}

int32_t conv_cuda_coef(const struct conv_stencil *stencil, enum sum_kind kind, int i, int j)
{
    int at = j * stencil->width + i;
    if (kind != SUM_FLOAT)
        return stencil->icoef[at];
    union {
        float value;
        int32_t bits;
    } coef;
    coef.value = stencil->exact ? (float)stencil->icoef[at] : stencil->fcoef[at];
    return coef.bits;
}

enum sum_kind conv_cuda_taps(struct taps *taps, const struct conv_stencil *stencil)
{
    enum sum_kind kind = conv_cuda_rounding(&taps->rounding, stencil);
    taps->width = stencil->width;
    taps->height = stencil->height;
    taps->border = stencil->border;
    taps->border_value = stencil->border_value;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            taps->coef[j * stencil->width + i] = conv_cuda_coef(stencil, kind, i, j);
    return kind;
}

// What kernels read from device memory.
union uploaded {
    struct taps taps;
    struct decimated_tables tables;
};

size_t conv_cuda_upload_bytes(void)
{
    return (sizeof(union uploaded) + 255) / 256 * 256;
}

static cudaError_t query_limits(struct conv_stencil_plan *plan)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error =
            cudaDeviceGetAttribute(&plan->cuda.major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error)
        error =
            cudaDeviceGetAttribute(&plan->cuda.processors, cudaDevAttrMultiProcessorCount, device);
    if (!error)
        error = cudaDeviceGetAttribute(&plan->cuda.shared_bytes,
                                       cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    if (!error)
        error = cudaDeviceGetAttribute(&plan->cuda.block_shared_bytes,
                                       cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return error;
}

enum conv_status conv_cuda_upload(struct conv_stencil_plan *plan, void *d_memory)
{
    union uploaded data;
    bool tables = plan->stencil->decimated.step > 0;
    memset(&data, 0, sizeof data);
    // Coefficients of `real`, which has more taps than fcoef, are in the plan's constants.
    if (!tables && !plan->stencil->real.side)
        conv_cuda_taps(&data.taps, plan->stencil);
    else if (plan->stencil->depth < 32)
        conv_cuda_decimated_tables(&data.tables, plan);
    // A copy from pageable memory may still be under way when cudaMemcpy returns.
    size_t bytes = tables ? sizeof data.tables : sizeof data.taps;
    if (cudaMemcpy(d_memory, &data, bytes, cudaMemcpyHostToDevice) != cudaSuccess ||
        cudaStreamSynchronize(cudaStreamLegacy) != cudaSuccess || query_limits(plan) != cudaSuccess)
        return CONV_ERR_DEVICE;
    plan->cuda.d_taps = d_memory;
    return CONV_OK;
}
