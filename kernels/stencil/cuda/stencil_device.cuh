// SPDX-License-Identifier: MIT
// Shared by the CUDA kernels: the division of a launch of many planes into blocks, the conversion
// of a sum of taps to a sample, and the choice of the arithmetic that makes it exact.
#pragma once

#include <stdint.h>
#include <type_traits>

#include "kernels/stencil/cuda/cuda_variants.h"

#define WARP 32

// --- variants ------------------------------------------------------------------------------------

// Kinds of stencils that a variant supports: see struct conv_variant.
enum variant_kinds {
    MAGNITUDES = 1,
    FLOAT_RESULTS = 2,
    FLOAT_SAMPLES = 4,
    THRESHOLDS = 8,
    SEVERAL_CHANNELS = 16,
    DECIMATED = 32,
    SYMMETRIC = 64
};

// A variant of the table; `method` is its name without "cuda_". tile: samples that a block writes.
// The first one has no kinds.
#define CONV_CUDA_VARIANT(method, ...) CONV_CUDA_VARIANT_OF(0, method, __VA_ARGS__)
#define CONV_CUDA_VARIANT_VALUE(...) CONV_CUDA_VARIANT_OF_VALUE(0, __VA_ARGS__)
#define CONV_CUDA_VARIANT_OF(kinds, method, ...)                                                   \
    const struct conv_variant conv_cuda_##method =                                                 \
        CONV_CUDA_VARIANT_OF_VALUE(kinds, method, __VA_ARGS__)

#define CONV_CUDA_VARIANT_OF_VALUE(kinds, method, capability, summary, can, score, plan, run,      \
                                   tile_width, tile_height)                                        \
    {                                                                                              \
        "cuda_" #method, summary, CONV_ON_CUDA, capability, can, score, plan, run, tile_width,     \
            tile_height, ((kinds)&MAGNITUDES) != 0, ((kinds)&FLOAT_RESULTS) != 0,                  \
            ((kinds)&FLOAT_SAMPLES) != 0, ((kinds)&THRESHOLDS) != 0,                               \
            ((kinds)&SEVERAL_CHANNELS) != 0, ((kinds)&DECIMATED) != 0, ((kinds)&SYMMETRIC) != 0    \
    }

// The constants of a plan, zeroed by conv_stencil_plan_init.
template <typename Constants> static Constants *constants_of(struct conv_stencil_plan *plan)
{
    static_assert(sizeof(Constants) <= CONV_STENCIL_PLAN_BYTES && alignof(Constants) <= 16,
                  "a plan holds them");
    return (Constants *)plan->constants;
}

template <typename Constants>
static const Constants *constants_of(const struct conv_stencil_plan *plan)
{
    return (const Constants *)plan->constants;
}

typedef enum conv_status (*launch_fn)(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch);

// The constants of a variant that has several kernels: the one for this stencil, with everything of
// its parameter that does not depend on the planes. `launch` comes first, for run_planned.
template <typename Filter> struct kernel_constants {
    launch_fn launch; // fills in the rest of a copy of `filter` and launches
    void (*kernel)(Filter);
    size_t shared_bytes; // dynamic shared memory that the stencil needs
    Filter filter;
};

static inline enum conv_status run_planned(const struct conv_stencil_plan *plan,
                                           const struct conv_stencil_batch *batch)
{
    return (*constants_of<launch_fn>(plan))(plan, batch);
}

// The score of a method that suits every stencil that it can do.
template <int SCORE> static int score_always(const struct conv_stencil *, size_t)
{
    return SCORE;
}

// --- arithmetic ----------------------------------------------------------------------------------

// The type of sums. FLOAT is for real filters, by definition, and for exact ones whose partial sums
// are all integers of at most 24 bits, which float32 represents exactly.
enum sum_kind { SUM_FLOAT, SUM_INT32, SUM_INT64 };

// From a sum to a sample; conv_cuda_rounding (arithmetic.cu) fills it, with the proof.
struct rounding {
    int64_t bias, divisor;      // integer sums; INT64: scale is 1 / divisor
    float fbias;                // FLOAT: sample = (sum * scale + grid) + restore, rounded half-even
    float scale, grid, restore; //        by the addition itself
    uint32_t half, factor, shift; // INT32: quotient = (sum + half) * factor >> (31 + shift)
    uint32_t even;                //        1 if the divisor is even: ties exist
    int32_t max;
};

// 1.5 * 2^23: floats around it are the integers, so that an addition rounds to the nearest one,
// half to even, and leaves it in the low bits of the mantissa.
#define INTEGER_FLOATS 12582912.0f

// A filter in global memory.
struct taps {
    struct rounding rounding;
    int32_t width, height;
    int32_t border;
    float border_value;
    int32_t coef[CONV_FILTER_MAX_TAPS]; // row by row: integers, or the bits of floats for SUM_FLOAT
};

extern "C" {
// Chooses the arithmetic of a stencil and fills *rounding.
enum sum_kind conv_cuda_rounding(struct rounding *rounding, const struct conv_stencil *stencil);
// The same, with everything else of the filter. The unused end of coef stays unset.
enum sum_kind conv_cuda_taps(struct taps *taps, const struct conv_stencil *stencil);
// Tap (i, j) as struct taps holds it.
int32_t conv_cuda_coef(const struct conv_stencil *stencil, enum sum_kind kind, int i, int j);
}

__device__ inline void start_sum(float &sum, const struct rounding &r)
{
    sum = r.fbias;
}

__device__ inline void start_sum(int32_t &sum, const struct rounding &r)
{
    sum = (int32_t)r.bias;
}

__device__ inline void start_sum(int64_t &sum, const struct rounding &r)
{
    sum = r.bias;
}

// The type of a sample when it is multiplied by a coefficient.
template <typename Sum>
using operand = typename std::conditional<std::is_same<Sum, float>::value, float, int32_t>::type;

__device__ inline void add_tap(float &sum, int32_t coef, float sample)
{
    sum = __fmaf_rn(__int_as_float(coef), sample, sum);
}

__device__ inline void add_tap(int32_t &sum, int32_t coef, int32_t sample)
{
    sum += coef * sample;
}

__device__ inline void add_tap(int64_t &sum, int32_t coef, int32_t sample)
{
    sum += (int64_t)coef * sample;
}

// The sample is the low 8 or 16 bits of the return value; the bits above are undefined.
__device__ inline uint32_t round_sum(float sum, const struct rounding &r)
{
    float v = __fadd_rn(__fmaf_rn(sum, r.scale, r.grid), r.restore);
    // fmaxf drops a NaN, which can only result from coefficients beyond float32's range.
    v = fminf(fmaxf(v, INTEGER_FLOATS), INTEGER_FLOATS + (float)r.max);
    return __float_as_uint(v);
}

__device__ inline uint32_t round_sum(int32_t sum, const struct rounding &r)
{
    uint32_t up = (uint32_t)max(sum + (int32_t)r.half, 0);
    uint32_t quotient = __umulhi(up << 1, r.factor) >> r.shift;
    // No remainder: sum / divisor was a tie and was rounded up; it belongs on the even side.
    if (quotient * (uint32_t)r.divisor == up)
        quotient -= quotient & r.even;
    return min(quotient, (uint32_t)r.max);
}

__device__ inline uint32_t round_sum(int64_t sum, const struct rounding &r)
{
    if (sum <= 0)
        return 0;
    if (sum >= r.max * r.divisor)
        return (uint32_t)r.max;
    // Less than 2^16, and off by less than 2^-6 before it is truncated: three roundings.
    uint32_t quotient = (uint32_t)((float)sum * r.scale);
    int64_t rest = sum - (int64_t)quotient * r.divisor;
    if (rest < 0 || rest >= r.divisor) {
        int step = rest < 0 ? -1 : 1;
        quotient += (uint32_t)step;
        rest -= step * r.divisor;
    }
    int64_t missing = r.divisor - rest;
    return quotient + (rest > missing || (rest == missing && (quotient & 1)));
}

// A float32 result, as stencil.h defines it. A real filter's sum is the result: its divisor is 0.
template <typename Sum> __device__ inline float divide_sum(Sum sum, const struct rounding &r)
{
    if (r.divisor == 0)
        return (float)sum;
    // Both are floats here, and 53 bits >= 2 * 24 + 2: rounding the quotient twice changes nothing
    // (Figueroa, "When is double rounding innocuous?", 1995).
    if (std::is_same<Sum, float>::value)
        return __fdiv_rn((float)sum, (float)r.divisor);
    return __double2float_rn(__ddiv_rn((double)sum, (double)r.divisor));
}

// Constants of the kernels that use any filter unchanged.
struct taps_constants {
    enum sum_kind kind;
    struct taps filter;
};

static inline void plan_taps(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    struct taps_constants *constants = constants_of<struct taps_constants>(plan);
    constants->kind = conv_cuda_taps(&constants->filter, stencil);
}

// --- where a block works -------------------------------------------------------------------------

struct tile {
    struct conv_stencil_plane plane;
    int index; // of the plane in the table
    int x, y;  // its first sample
};

// The plane that block blockIdx.x belongs to and its tile there. first_tile ascends strictly, so
// each warp searches by ballot, 32 planes a step: two or three dependent loads for thousands of
// planes where a binary search needs a dozen. All 32 lanes of a warp must call.
__device__ inline struct tile find_tile(const struct conv_stencil_plane *planes, int count,
                                        int tile_width, int tile_height)
{
    int lane = (int)(threadIdx.y * blockDim.x + threadIdx.x) % WARP;
    int first = 0; // the plane is one of first ... first + count - 1
    while (count > 1) {
        int step = (count + WARP - 1) / WARP;
        int probe = lane * step;
        bool reached = probe < count && planes[first + probe].cuda.first_tile <= blockIdx.x;
        int last = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
        first += last * step;
        count = min(step, count - last * step);
    }
    struct tile tile;
    tile.plane = planes[first];
    tile.index = first;
    uint32_t index = blockIdx.x - tile.plane.cuda.first_tile;
    uint32_t across = ((uint32_t)tile.plane.width + tile_width - 1) / tile_width;
    tile.x = (int)(index % across) * tile_width;
    tile.y = (int)(index / across) * tile_height;
    return tile;
}

// --- launches ------------------------------------------------------------------------------------

// Calls launch(sample, sum) with values of the types that this depth and arithmetic need.
template <typename Launch> static void with_types(int depth, enum sum_kind kind, Launch launch)
{
    if (depth == 8) {
        if (kind == SUM_FLOAT)
            launch(uint8_t(), float());
        else if (kind == SUM_INT32)
            launch(uint8_t(), int32_t());
        else
            launch(uint8_t(), int64_t());
    } else {
        if (kind == SUM_FLOAT)
            launch(uint16_t(), float());
        else if (kind == SUM_INT32)
            launch(uint16_t(), int32_t());
        else
            launch(uint16_t(), int64_t());
    }
}

// Allows each launch of a kernel as much dynamic shared memory as a block can have. The limit
// belongs to the kernel, not to the launch, and several threads launch at the same time, each on
// its own stream: a limit set to the need of one launch would be too low for another one in
// between, which then fails as "invalid argument". The kernel has no static shared memory.
static inline cudaError_t allow_shared_memory(const struct conv_stencil_plan *plan,
                                              const void *kernel)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                plan->cuda.block_shared_bytes);
}

// Launches a kernel. early: its blocks may start before the preceding kernel of the stream has
// ended (programmatic dependent launch; from compute capability 9.0 on).
template <typename Filter>
static void launch_early(void (*kernel)(Filter), dim3 grid, uint32_t threads, size_t bytes,
                         bool early, cudaStream_t stream, const Filter &f)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {grid, dim3(threads), bytes, stream, &attribute, early ? 1u : 0u};
    (void)cudaLaunchKernelEx(&config, kernel, f); // launch_status() returns the failure
}

// The status of a launch. It peeks, so that the caller can still ask cudaGetLastError for the
// cause.
static inline enum conv_status launch_status(void)
{
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
