// SPDX-License-Identifier: MIT
// As ladder_fused.cu, with a tile of outputs per thread in registers: each value from shared memory
// is used for several outputs, so that multiply-adds, not loads, are what a thread does most.
#include "kernels/layer/cuda/ladder.cuh"

#define DEPTH 8 // taps of a step

// A block of THREADS threads has MAPS x 32 * POSITIONS * (THREADS / 32 / (MAPS / MAPS_EACH))
// outputs, a thread MAPS_EACH maps x POSITIONS positions that are 32 apart: a warp's loads and
// stores are adjacent. Its warps are rows of maps first.
template <int MAPS, int MAPS_EACH, int POSITIONS, int THREADS> struct shape {
    static constexpr int groups = MAPS / MAPS_EACH; // of maps
    static constexpr int width = THREADS / 32 / groups * 32 * POSITIONS;
    static_assert(MAPS % MAPS_EACH == 0 && THREADS / 32 % groups == 0, "warps cover the tile");
};

template <int MAPS, int MAPS_EACH, int POSITIONS, int THREADS>
static __global__ __launch_bounds__(THREADS) void tiled(struct ladder ladder)
{
    using tile = shape<MAPS, MAPS_EACH, POSITIONS, THREADS>;
    __shared__ float a[DEPTH][MAPS];
    __shared__ float b[DEPTH][tile::width];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int group = warp % tile::groups * MAPS_EACH;
    int column = warp / tile::groups * (32 * POSITIONS) + lane;
    int first_map = (int)blockIdx.y * MAPS, first = (int)blockIdx.x * tile::width;
    int positions = ladder.out_height * ladder.out_width;
    int kernel_size = ladder.kernel_height * ladder.kernel_width;
    int taps = ladder.channels * kernel_size;
    for (int64_t image = blockIdx.z; image < ladder.images; image += gridDim.z) {
        const float *samples = ladder.x + image * ladder.image;
        float sums[MAPS_EACH][POSITIONS];
#pragma unroll
        for (int r = 0; r < MAPS_EACH; r++)
#pragma unroll
            for (int s = 0; s < POSITIONS; s++)
                sums[r][s] =
                    first_map + group + r < ladder.maps ? ladder.bias[first_map + group + r] : 0;
        for (int k = 0; k < taps; k += DEPTH) {
            for (int t = (int)threadIdx.x; t < DEPTH * MAPS; t += THREADS) {
                int m = first_map + t / DEPTH, tap = k + t % DEPTH;
                a[t % DEPTH][t / DEPTH] =
                    m < ladder.maps && tap < taps ? ladder.weights[(int64_t)m * taps + tap] : 0;
            }
            for (int t = (int)threadIdx.x; t < DEPTH * tile::width; t += THREADS) {
                int tap = k + t / tile::width, p = first + t % tile::width;
                int c = tap / kernel_size, rest = tap - c * kernel_size;
                int u = rest / ladder.kernel_width, v = rest - u * ladder.kernel_width;
                int i = p / ladder.out_width, j = p - i * ladder.out_width;
                b[t / tile::width][t % tile::width] =
                    tap < taps && p < positions
                        ? samples[c * ladder.plane + (i * ladder.stride + u) * ladder.row +
                                  j * ladder.stride + v]
                        : 0;
            }
            __syncthreads();
            int end = min(DEPTH, taps - k);
            for (int t = 0; t < end; t++) {
                float x[POSITIONS];
#pragma unroll
                for (int s = 0; s < POSITIONS; s++)
                    x[s] = b[t][column + 32 * s];
#pragma unroll
                for (int r = 0; r < MAPS_EACH; r++) {
                    float w = a[t][group + r];
#pragma unroll
                    for (int s = 0; s < POSITIONS; s++)
                        sums[r][s] = fmaf(w, x[s], sums[r][s]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int s = 0; s < POSITIONS; s++) {
            int p = first + column + 32 * s;
            if (p >= positions)
                continue;
            int i = p / ladder.out_width, j = p - i * ladder.out_width;
#pragma unroll
            for (int r = 0; r < MAPS_EACH; r++)
                if (first_map + group + r < ladder.maps)
                    ladder_store(ladder, image, first_map + group + r, i, j, sums[r][s]);
        }
    }
}

template <int MAPS, int MAPS_EACH, int POSITIONS, int THREADS>
static enum conv_status run_tiled(const struct conv_layer_plan *plan,
                                  const struct conv_layer_batch *batch)
{
    constexpr int width = shape<MAPS, MAPS_EACH, POSITIONS, THREADS>::width;
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    int positions = ladder.out_height * ladder.out_width;
    dim3 grid((unsigned)((positions - 1) / width + 1), (unsigned)((ladder.maps - 1) / MAPS + 1),
              (unsigned)(ladder.images < 65535 ? ladder.images : 65535));
    tiled<MAPS, MAPS_EACH, POSITIONS, THREADS>
        <<<grid, THREADS, 0, (cudaStream_t)batch->stream>>>(ladder);
    return ladder_status();
}

#define SUMMARY(MAPS, MAPS_EACH, POSITIONS, THREADS)                                               \
#MAPS " maps per block, " #MAPS_EACH " x " #POSITIONS " outputs per thread, " #THREADS         \
          " threads"
#define ROW(NAME, TEXT, SCORE, ...)                                                                \
    {                                                                                              \
        NAME, TEXT, CONV_ON_CUDA, 75, CONV_PRECISION_EXACT, 0, false, ladder_can,                  \
            ladder_score<SCORE>, ladder_packed_bytes, ladder_plan, run_tiled<__VA_ARGS__>          \
    }

const struct conv_layer_variant conv_cuda_layer_register = ROW(
    "cuda_layer_register", "as fused, 12 x 4 outputs per thread in registers", 18, 12, 12, 4, 128);

#define NAMED(NAME, ...) ROW("cuda_layer_register_" NAME, SUMMARY(__VA_ARGS__), 9, __VA_ARGS__)
const struct conv_layer_variant conv_cuda_layer_register_shapes[] = {
    NAMED("4x4", 4, 4, 4, 128), NAMED("8x4", 8, 8, 4, 128),      NAMED("16x4", 16, 16, 4, 128),
    NAMED("8x8", 8, 8, 8, 64),  NAMED("2_12x4", 24, 12, 4, 128), NAMED("4_8x4", 32, 8, 4, 128),
};
