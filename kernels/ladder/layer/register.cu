// SPDX-License-Identifier: MIT
// Like fused.cu, with a tile of outputs per thread in registers: each value from shared
// memory is used for several outputs, so that most of a thread's instructions are multiply-adds,
// not loads. The index arithmetic of the columns is hoisted: a thread always makes the same
// columns, and the tap is the same for all threads.
#include "kernels/ladder/layer/ladder.cuh"

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
    constexpr int loads = tile::width / THREADS; // columns that a thread makes
    static_assert(tile::width % THREADS == 0, "each thread has its own columns");
    __shared__ float a[DEPTH][MAPS];
    __shared__ float b[DEPTH][tile::width];
    int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    int group = warp % tile::groups * MAPS_EACH;
    int column = warp / tile::groups * (32 * POSITIONS) + lane;
    int first_map = (int)blockIdx.y * MAPS, first = (int)blockIdx.x * tile::width;
    int positions = ladder.out_height * ladder.out_width;
    int taps = ladder.channels * ladder.kernel_height * ladder.kernel_width;
    int64_t next_row = ladder.row - ladder.kernel_width; // from a row's last tap on
    int64_t next_plane = ladder.plane - ladder.kernel_height * ladder.row;
    // Where the thread's columns begin; those beyond the last output repeat it.
    const float *corners[loads];
#pragma unroll
    for (int s = 0; s < loads; s++) {
        int p = min(first + thread + s * THREADS, positions - 1);
        int i = p / ladder.out_width, j = p - i * ladder.out_width;
        corners[s] = ladder.x + i * ladder.stride * ladder.row + j * ladder.stride;
    }
    for (int64_t image = blockIdx.z; image < ladder.images; image += gridDim.z) {
        float sums[MAPS_EACH][POSITIONS];
#pragma unroll
        for (int r = 0; r < MAPS_EACH; r++)
#pragma unroll
            for (int s = 0; s < POSITIONS; s++)
                sums[r][s] =
                    first_map + group + r < ladder.maps ? ladder.bias[first_map + group + r] : 0;
        int64_t offset = image * ladder.image; // of the next tap
        int u = 0, v = 0;
        for (int k = 0; k < taps; k += DEPTH) {
            int end = min(DEPTH, taps - k);
            for (int t = thread; t < DEPTH * MAPS; t += THREADS) {
                int m = first_map + t / DEPTH, tap = k + t % DEPTH;
                a[t % DEPTH][t / DEPTH] =
                    m < ladder.maps && tap < taps ? ladder.weights[(int64_t)m * taps + tap] : 0;
            }
#pragma unroll
            for (int t = 0; t < DEPTH; t++) {
                if (t >= end)
                    break;
#pragma unroll
                for (int s = 0; s < loads; s++)
                    b[t][thread + s * THREADS] = corners[s][offset];
                offset++;
                if (++v == ladder.kernel_width) {
                    v = 0;
                    offset += next_row;
                    if (++u == ladder.kernel_height) {
                        u = 0;
                        offset += next_plane;
                    }
                }
            }
            __syncthreads();
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

// Faster than all other variants that support kernels of any size (16→32, 32², 2×2, batch 1,000:
// 0.34 instead of 0.65 ms; 1→8, 96², 15×15: 1.35 instead of 1.79), unless its blocks of 128 outputs
// are a third empty (64→128, 14², 2×2: 1.85 instead of 1.61) or the layer must be padded first.
static int score_register(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int64_t outputs = (int64_t)conv_layer_out_height(layer, plan->shape.height) *
                      conv_layer_out_width(layer, plan->shape.width);
    bool full = outputs * 10 >= (outputs + 127) / 128 * 128 * 7;
    return full && layer->stride_x == 1 && !plan->pads ? 45 : 18;
}

#define SUMMARY(MAPS, MAPS_EACH, POSITIONS, THREADS)                                               \
#MAPS " maps per block, " #MAPS_EACH " x " #POSITIONS " outputs per thread, " #THREADS         \
          " threads"
#define ROW(NAME, TEXT, SCORE, ...)                                                                \
    {                                                                                              \
        NAME, TEXT, CONV_ON_CUDA, 75, CONV_PRECISION_EXACT, 0, 0, ladder_plan<ladder_can>, SCORE,  \
            ladder_pack, run_tiled<__VA_ARGS__>                                                    \
    }

const struct conv_layer_variant conv_cuda_layer_register =
    ROW("cuda_layer_register", "as fused, 8 x 4 outputs per thread in registers", score_register, 8,
        8, 4, 128);

#define NAMED(NAME, ...)                                                                           \
    ROW("cuda_layer_register_" NAME, SUMMARY(__VA_ARGS__), ladder_score<9>, __VA_ARGS__)
const struct conv_layer_variant conv_cuda_layer_register_shapes[] = {
    NAMED("4x4", 4, 4, 4, 128), NAMED("12x4", 12, 12, 4, 128),   NAMED("16x4", 16, 16, 4, 128),
    NAMED("8x8", 8, 8, 8, 64),  NAMED("2_12x4", 24, 12, 4, 128), NAMED("4_8x4", 32, 8, 4, 128),
};
