// SPDX-License-Identifier: MIT
// Like channels.cu, with a separate kernel for each of some layers: all sizes are known to
// the compiler, which unrolls the loops over taps and makes every index a constant, and the blocks
// are cut so that they cover the plane without idle threads.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of WIDTH x HEIGHT outputs of one of the maps from `first` on: all channels of their input
// are in shared memory.
template <int CHANNELS, int KERNEL, int SIDE, int WIDTH, int HEIGHT>
static __global__ void
specialised(struct ladder ladder, const __grid_constant__ struct ladder_constant weights, int first)
{
    constexpr int out = SIDE - KERNEL + 1, tiles_x = out / WIDTH;
    constexpr int width = WIDTH + KERNEL - 1, height = HEIGHT + KERNEL - 1;
    static_assert(out % WIDTH == 0 && out % HEIGHT == 0, "no thread is idle");
    extern __shared__ float tiles[]; // [CHANNELS][height][width]
    int top = (int)blockIdx.x / tiles_x * HEIGHT, left = (int)blockIdx.x % tiles_x * WIDTH;
    int m = (int)blockIdx.y;
    const float *weight = weights.weights + m * (CHANNELS * KERNEL * KERNEL);
    const float *from = ladder.x + top * ladder.row + left;
    const float *sample = tiles + threadIdx.y * width + threadIdx.x;
    float bias = ladder.bias[first + m];
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        const float *image = from + b * ladder.image;
        __syncthreads();
        for (int t = (int)(threadIdx.y * WIDTH + threadIdx.x); t < CHANNELS * height * width;
             t += WIDTH * HEIGHT) {
            int c = t / (height * width), y = t / width % height, x = t % width;
            tiles[t] = image[c * ladder.plane + y * ladder.row + x];
        }
        __syncthreads();
        float sum = bias;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
#pragma unroll
            for (int u = 0; u < KERNEL; u++)
#pragma unroll
                for (int v = 0; v < KERNEL; v++)
                    sum = fmaf(weight[(c * KERNEL + u) * KERNEL + v],
                               sample[(c * height + u) * width + v], sum);
        ladder_store(ladder, b, first + m, top + (int)threadIdx.y, left + (int)threadIdx.x, sum);
    }
}

// Channels, kernel, side of the plane; width and height of the blocks.
#define LAYERS(X)                                                                                  \
    X(1, 5, 28, 24, 8)                                                                             \
    X(6, 5, 12, 8, 8)                                                                              \
    X(1, 5, 64, 60, 4)                                                                             \
    X(1, 5, 70, 33, 6)                                                                             \
    X(12, 5, 33, 29, 29)                                                                           \
    X(3, 3, 224, 74, 3)                                                                            \
    X(3, 7, 224, 109, 2)

static bool can_specialised(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    bool known = false;
#define MATCHES(CHANNELS, KERNEL, SIDE, WIDTH, HEIGHT)                                             \
    known = known || (layer->channels == (CHANNELS) && layer->kernel_height == (KERNEL) &&         \
                      layer->kernel_width == (KERNEL) && shape->height == (SIDE) &&                \
                      shape->width == (SIDE));
    LAYERS(MATCHES)
#undef MATCHES
    return known && layer->stride_x == 1 && ladder_can(layer, shape);
}

// Launches the kernel if it is the one for the layer.
template <int CHANNELS, int KERNEL, int SIDE, int WIDTH, int HEIGHT>
static void launch_if(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                      const struct ladder_constant &weights, int first, int count)
{
    const struct conv_layer *layer = &plan->layer;
    if (layer->channels != CHANNELS || layer->kernel_height != KERNEL || plan->shape.height != SIDE)
        return;
    // Of one layer 51 KB: more than arrays of a fixed size may have, except on 90a.
    constexpr size_t bytes =
        sizeof(float) * CHANNELS * (WIDTH + KERNEL - 1) * (HEIGHT + KERNEL - 1);
    const auto kernel = specialised<CHANNELS, KERNEL, SIDE, WIDTH, HEIGHT>;
    if (bytes > LADDER_SHARED &&
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes))
        return; // ladder_status reports it
    struct ladder ladder = ladder_of(plan, batch, WIDTH);
    dim3 grid = ladder_grid(&ladder, HEIGHT, count), block(WIDTH, HEIGHT);
    kernel<<<grid, block, bytes, (cudaStream_t)batch->stream>>>(ladder, weights, first);
}

static enum conv_status run_specialised(const struct conv_layer_plan *plan,
                                        const struct conv_layer_batch *batch)
{
    return ladder_groups(plan, [&](const struct ladder_constant &weights, int first, int count) {
#define LAUNCH(...) launch_if<__VA_ARGS__>(plan, batch, weights, first, count);
        LAYERS(LAUNCH)
#undef LAUNCH
    });
}

LADDER_VARIANT(specialised, "as before, a kernel of its own for each of some layers", EXACT, 0,
               ladder_plan<can_specialised>, 17, run_specialised);
