// SPDX-License-Identifier: MIT
// The exact order as a product of matrices: the outputs of a map of every image (positions) times
// maps, summed over k = (c, u, v). A block computes a tile of P positions x M maps, a thread TP x
// TM of it in registers. The samples of a tile are gathered while they are copied to shared memory,
// some k at a time and asynchronously. The terms of a sum are never split among threads, but a sum
// may pass from one block to another, see gemm_launch.share.
#pragma once

#include <cuda_pipeline.h>
#include <type_traits>

#include "kernels/layer/cuda/layer_device.cuh"

#define GEMM_TAPS 256 // k whose offsets are in shared memory at a time

// Lanes of a warp: 8 along positions, 4 along maps. Neighbours read the same samples, every other
// lane the same weights: 16-byte loads whose lanes agree in pairs take 2 cycles instead of 4.
#define GEMM_LANES_P 8
#define GEMM_LANES_M 4

__device__ inline int gemm_lane_p(int lane)
{
    return lane / 2 % GEMM_LANES_P;
}

__device__ inline int gemm_lane_m(int lane)
{
    return lane % 2 + lane / 16 * 2;
}

struct gemm_launch {
    const void *src;
    void *dst;
    // [group][unit of k][maps of a group, padded to whole tiles][k of the unit]. k beyond the last
    // have weights of -0 and samples of +0, whose product changes no sum.
    const float *weights;
    const float *bias;                     // [group][the same maps]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t tap_row, tap_plane;            // the same in samples, between rows of taps
    int64_t positions;
    int height, width, out_width, plane; // plane: outputs of a map in an image
    int stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
    int padded; // whether there are pads, all of them zeros
    int group_channels, group_maps, maps, padded_maps;
    int taps, kernel_width, depth; // of a plane; products of a sum
    int rows;                      // of weights of a group
    int map_tiles, position_tiles; // of a group
    layer_divider by_plane, by_out_width, by_taps, by_kernel_width, by_map_tiles, by_position_tiles;
    int tiles, chunks; // of all groups; of k of a sum, the last one may be shorter
    // 0: a block computes a tile. Else all blocks compute this many chunks, more than those of a
    // tile: the last tile of a block is completed by the next one, which starts with its own last
    // tile and so finds the sums in `partial` when it needs them. No block waits for ever: blocks
    // take their numbers from a counter when they begin, so that the one before has begun, too, and
    // it computes those sums first and waits for nothing until it has stored them.
    int64_t share;
    float *partial; // [block][sum of a thread][thread]
    uint32_t
        *flags; // the number of blocks that have begun, and for each whether its sums are there
    float divisor;
    int activation, half;
    int vectors; // float32, planes of 4n outputs, and no tanh: threads store what they have
};

// Bits of a tap: of its column and, above those, of its row; or beyond the last k.
#define GEMM_BEYOND 0x80000000u
#define GEMM_MOST_SIDES 31 // rows and columns of a kernel together

template <typename Offset> struct alignas(2 * sizeof(Offset)) gemm_tap {
    Offset offset; // samples from that of tap 0
    uint32_t bits;
};

// The sample of a thread's position at tap 0, and the taps whose samples are zeros.
struct gemm_window {
    const char *at;
    uint32_t outside;
};

// STEP: k of a chunk; STAGES: chunks in shared memory; AHEAD: units of k that a thread reads from
// there before it needs them; BLOCKS: of a multiprocessor of compute capability 9.0; Offset: int,
// or int64_t for images of 2^31 samples and more; UNIT: k that are adjacent in shared memory, so
// that a thread of few sums reads four with one instruction; SPREAD: k that a warp copies at a
// time, more than 1 where neighbouring positions are far apart. Input: float4 if four neighbouring
// positions are copied at a time.
template <typename Input_, int P_, int M_, int WARPS_P_, int WARPS_M_, int STEP_, int STAGES_,
          int AHEAD_, int BLOCKS_, typename Offset_ = int, int UNIT_ = 1, int SPREAD_ = 1>
struct gemm_config {
    typedef Input_ Input;
    typedef Offset_ Offset;
    typedef typename std::conditional<sizeof(Input) == 16, float, Input>::type Sample;
    typedef gemm_tap<Offset> tap;
    static const int P = P_, M = M_, WARPS_P = WARPS_P_, WARPS_M = WARPS_M_;
    static const int STEP = STEP_, STAGES = STAGES_, AHEAD = AHEAD_, BLOCKS = BLOCKS_;
    static const int UNIT = UNIT_, units = STEP / UNIT, SPREAD = SPREAD_;
    static const int threads = WARPS_P * WARPS_M * 32;
    static const int TP = P / WARPS_P / GEMM_LANES_P, TM = M / WARPS_M / GEMM_LANES_M;
    static const int most = 4 / UNIT;                                        // positions or maps
    static const int VP = TP < most ? TP : most, VM = TM < most ? TM : most; // read at a time
    static const int piece = sizeof(Input) / sizeof(Sample), pieces = P / piece; // copied
    // Neighbouring positions are exchanged in shared memory. Registers of even and of odd numbers
    // are two banks, and a multiply-add whose operands are all in one takes longer: sums are in
    // quads because they are stored so, and a sample is now in the other bank than its sums.
    static const int exchange = VP > 1 && piece == 1;
    // Pieces of a k that all threads copy at the same time.
    static const int turn = SPREAD > 1 ? threads / SPREAD : pieces < threads ? pieces : threads;
    static const int positions = pieces / turn, row_step = threads / turn; // of a thread; k between
    static const int loads = STEP / row_step;                              // of each position
    static const int group = loads * positions > 4 ? 4 / positions : loads; // at a time
    static const int group_step = STEP * group / loads;                     // k between groups
    static const int vectors = STEP * M / 4 / threads, row_vectors = M * UNIT / 4; // of weights
    static const int vector_rows = threads / row_vectors; // units between those of a thread
    // From a k to the next, so that lanes of a warp that copy several write to different banks.
    static const int pitch = P + (SPREAD > 1 ? 32 / SPREAD : 0);
    static const int stage = STEP * (pitch + M);              // floats
    static const int pass_maps = WARPS_M * GEMM_LANES_M * VM; // stored at a time
    static const int shared = STAGES * stage * 4 + GEMM_TAPS * (int)sizeof(tap) + P * 8 +
                              (sizeof(Input) == 1 ? 256 * 4 : 0);
    static_assert(STEP * M / 4 % threads == 0 && threads % row_vectors == 0 &&
                      STEP % row_step == 0 && (UNIT == 1 || row_step % UNIT == 0),
                  "equal loads");
    static_assert(GEMM_TAPS % STEP == 0 && GEMM_TAPS % threads == 0 && units % (AHEAD + 1) == 0 &&
                      group_step % UNIT == 0 && (group == loads || group_step > AHEAD * UNIT),
                  "places of chunks");
    static_assert(pass_maps * P <= STAGES * stage, "outputs pass through the stages");
};

template <typename Config> struct gemm_memory {
    float *stages;              // [stage]: [k][position], [k][map]
    typename Config::tap *taps; // of GEMM_TAPS k
    int64_t *outputs; // of each position: the index of its output of map 0; -1 beyond the last
    float *samples;   // of each byte
};

// Bits of kernel rows (columns) in the padding.
__device__ inline uint32_t gemm_outside(int first, int step, int count, int limit)
{
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++)
        if ((unsigned)(first + i * step) >= (unsigned)limit)
            bits |= 1u << i;
    return bits;
}

template <typename Config>
__device__ inline void gemm_fill_taps(const gemm_launch &p, const gemm_memory<Config> &memory,
                                      int first)
{
    typedef typename Config::Offset Offset;
    // At the same time unless they are many and registers scarce: 128 x 32 would spill some.
    const int EACH = GEMM_TAPS / Config::threads;
    [[maybe_unused]] const int AT_ONCE = EACH <= 2 || Config::TP * Config::TM <= 8 ? EACH : 1;
#pragma unroll AT_ONCE
    for (int n = 0; n < EACH; n++) {
        int i = (int)threadIdx.x + n * Config::threads;
        int k = first + i, c = layer_divide(k, p.by_taps), rest = k - c * p.taps;
        int u = layer_divide(rest, p.by_kernel_width), v = rest - u * p.kernel_width;
        typename Config::tap tap;
        tap.offset = c * (Offset)p.tap_plane + u * (Offset)p.tap_row + v * p.dilation_x;
        tap.bits = k >= p.depth ? GEMM_BEYOND : p.padded ? 1u << (p.kernel_width + u) | 1u << v : 1;
        memory.taps[i] = tap;
    }
}

// What a thread loads, and where the outputs of its positions go.
template <typename Config>
__device__ inline void gemm_place(const gemm_launch &p, const gemm_memory<Config> &memory,
                                  int64_t position, int group, int load_row, int load_column,
                                  gemm_window (&windows)[Config::positions])
{
    int64_t image =
        position <= INT32_MAX ? layer_divide((int)position, p.by_plane) : position / p.plane;
    int before = (int)(position - image * p.plane);
    int left = (int)min(p.positions - position, (int64_t)Config::P);
    const char *src =
        (const char *)p.src + image * p.src_image + (int64_t)group * p.group_channels * p.src_plane;
#pragma unroll
    for (int n = 0; n < Config::positions; n++) {
        const int PIECE = Config::piece;
        int t = (load_column + n * Config::turn) * PIECE;
        int at = before + min(t, left - PIECE), next = layer_divide(at, p.by_plane);
        int q = at - next * p.plane, i = layer_divide(q, p.by_out_width);
        int y = i * p.stride_y - p.pad_top, x = (q - i * p.out_width) * p.stride_x - p.pad_left;
        windows[n].at =
            src + next * p.src_image + y * p.src_row + x * (int64_t)sizeof(typename Config::Sample);
        // Zeros for positions beyond the last: one sample to many places takes a cycle for each.
        windows[n].outside = t < left ? GEMM_BEYOND : ~0u;
        if (p.padded)
            windows[n].outside |= gemm_outside(y, p.dilation_y, p.taps / p.kernel_width, p.height)
                                      << p.kernel_width |
                                  gemm_outside(x, p.dilation_x, p.kernel_width, p.width);
        asm volatile("" : "+l"(windows[n].at)); // kept in registers instead of derived per copy
        if (load_row == 0)
#pragma unroll
            for (int k = 0; k < PIECE; k++)
                memory.outputs[t + k] = t < left ? (image + next) * p.maps * p.plane + q + k : -1;
    }
}

// Starts copying the thread's samples `first` to `first + group` - 1 of a chunk to their stage.
// Several at a time: ptxas puts three more instructions before each group of copies.
template <typename Config>
__device__ inline void gemm_load_samples(const gemm_memory<Config> &memory,
                                         const gemm_window (&windows)[Config::positions], float *to,
                                         const typename Config::tap *taps, int first)
{
    typedef typename Config::Input Input;
    typedef typename Config::Sample Sample;
    const int N = Config::positions, COUNT = Config::group;
    const Sample *from[COUNT][N];
    bool outside[COUNT][N];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        typename Config::tap tap = taps[(first + i) * Config::row_step];
#pragma unroll
        for (int n = 0; n < N; n++) {
            from[i][n] = (const Sample *)(const void *)windows[n].at + tap.offset;
            outside[i][n] = (tap.bits & windows[n].outside) != 0;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            float *place = to + (first + i) * Config::row_step * Config::pitch +
                           n * Config::turn * Config::piece;
            if constexpr (sizeof(Input) == 16)
                __pipeline_memcpy_async(place, from[i][n], 16, outside[i][n] ? 16 : 0);
            else if constexpr (sizeof(Input) == 4)
                layer_copy(place, from[i][n], outside[i][n]);
            else
                *place = outside[i][n] ? 0 : memory.samples[*from[i][n]];
        }
    }
}

template <typename Config>
__device__ inline void gemm_load_weights(const gemm_launch &p, const float *weights, float *to)
{
    const int ROWS = Config::vector_rows * Config::UNIT; // k between vectors
#pragma unroll
    for (int i = 0; i < Config::vectors; i++)
        __pipeline_memcpy_async(to + i * ROWS * Config::M,
                                weights + i * ROWS * (int64_t)p.padded_maps, 16);
}

// A thread's samples or weights of a unit of k, those of N positions or maps: V at a time, as many
// lanes apart.
template <typename Config, int N, int V, int LANES>
__device__ inline void gemm_read(float (&to)[N * Config::UNIT], const float *from)
{
    const int READ = V * Config::UNIT;
#pragma unroll
    for (int i = 0; i < N; i += V) {
        float part[READ];
        layer_read<READ, READ>(part, from + i * LANES * Config::UNIT);
#pragma unroll
        for (int k = 0; k < READ; k++)
            to[i * Config::UNIT + k] = part[k];
    }
}

// The activation has been applied, except tanh.
__device__ inline void gemm_store_one(const gemm_launch &p, int64_t place, float y)
{
    if (p.activation == CONV_ACTIVATION_TANH)
        y = layer_tanh<0>(y);
    if (p.half)
        layer_store((uint16_t *)p.dst + place, y);
    else
        layer_store((float *)p.dst + place, y);
}

// Stores four neighbouring outputs of a map at a time; of a thread with fewer, one.
template <typename Config>
__device__ inline void gemm_store_own(const gemm_launch &p, const gemm_memory<Config> &memory,
                                      float (&sum)[Config::TM][Config::TP], int map, int group,
                                      int first)
{
    const int VP = Config::VP, V = VP == 4 ? 4 : 1;
#pragma unroll
    for (int t = 0; t < Config::TP; t += V) {
        int64_t at = memory.outputs[first + t / VP * VP * GEMM_LANES_P + t % VP];
        int64_t to = at + (int64_t)(group * p.group_maps + map) * p.plane;
#pragma unroll
        for (int m = 0; m < Config::TM; m++) {
            int ahead = m / Config::VM * GEMM_LANES_M * Config::VM + m % Config::VM;
            if (at < 0 || map + ahead >= p.group_maps)
                continue;
            int64_t place = to + (int64_t)ahead * p.plane;
            if constexpr (V == 4)
                layer_store4((float *)p.dst + place,
                             make_float4(sum[m][t], sum[m][t + 1], sum[m][t + 2], sum[m][t + 3]));
            else
                gemm_store_one(p, place, sum[m][t]);
        }
    }
}

// Stores the outputs at `at` of every WARPS-th map from `map` on, which passed through shared
// memory. All are read before, so that no store waits for the next read.
template <typename Config>
__device__ inline void gemm_store_column(const gemm_launch &p, const float *from, int64_t at,
                                         int group, int map)
{
    const int WARPS = Config::threads / 32, MAPS = GEMM_LANES_M * Config::VM; // of a warp at a time
    const int COUNT = Config::pass_maps / WARPS;
    float y[COUNT];
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        y[n] = from[n * WARPS * Config::P];
    at += (int64_t)(group * p.group_maps + map) * p.plane;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const int r = n * WARPS, AHEAD = r / MAPS * (Config::M / Config::WARPS_M) + r % MAPS;
        if (map + AHEAD < p.group_maps)
            gemm_store_one(p, at + AHEAD * (int64_t)p.plane, y[n]);
    }
}

// Stores the sums of a tile: where planes are not of whole vectors some maps at a time, through
// shared memory, so that a warp's outputs are adjacent.
template <typename Config>
__device__ inline void gemm_store(const gemm_launch &p, const gemm_memory<Config> &memory,
                                  float (&sum)[Config::TM][Config::TP], int group, int first_map)
{
    int thread = (int)threadIdx.x;
    asm volatile("" : "+r"(thread)); // derived anew, not kept in registers during the sums
    const int lane = thread % 32, warp = thread / 32;
    const int lane_p = gemm_lane_p(lane), lane_m = gemm_lane_m(lane);
    const int warp_p = warp % Config::WARPS_P, warp_m = warp / Config::WARPS_P;
    const int maps = GEMM_LANES_M * Config::VM; // of a warp at a time
    const int first = warp_p * (Config::P / Config::WARPS_P) + lane_p * Config::VP;
    bool own = Config::VP < 4 || p.vectors; // else, of constants, the rest were unreachable
    activate_outputs<Config::TP, Config::TM>(p.activation, sum);
    if (own) {
        int map = first_map + warp_m * (Config::M / Config::WARPS_M) + lane_m * Config::VM;
        gemm_store_own<Config>(p, memory, sum, map, group, first);
        return;
    }
#pragma unroll
    for (int h = 0; h < Config::TM; h += Config::VM) {
        if (h > 0)
            __syncthreads(); // the maps before have been read
#pragma unroll
        for (int m = 0; m < Config::VM; m++) {
            float *to =
                memory.stages + (warp_m * maps + lane_m * Config::VM + m) * Config::P + first;
#pragma unroll
            for (int t = 0; t < Config::TP; t++)
                to[t / Config::VP * Config::VP * GEMM_LANES_P + t % Config::VP] = sum[h + m][t];
        }
        __syncthreads();
#pragma unroll 1
        for (int x = lane; x < Config::P; x += 32) {
            int64_t at = memory.outputs[x];
            if (at < 0)
                continue;
            const float *from = memory.stages + warp * Config::P + x;
            int map = first_map + h * GEMM_LANES_M + warp;
            gemm_store_column<Config>(p, from, at, group, map);
        }
    }
}

// The sums that block `block` - 1 has begun; and those that this block leaves to the next one.
template <typename Config>
__device__ inline void gemm_resume(const gemm_launch &p, float (&sum)[Config::TM][Config::TP],
                                   int block)
{
    const int COUNT = Config::TM * Config::TP;
    if (threadIdx.x == 0) {
        while (atomicAdd(&p.flags[block], 0u) == 0)
            __nanosleep(64);
        __threadfence();
    }
    __syncthreads();
    const float *from = p.partial + (int64_t)(block - 1) * (COUNT * Config::threads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum[i / Config::TP][i % Config::TP] = __ldcg(from + i * Config::threads);
}

template <typename Config>
__device__ inline void gemm_leave(const gemm_launch &p, const float (&sum)[Config::TM][Config::TP],
                                  int block)
{
    const int COUNT = Config::TM * Config::TP;
    float *to = p.partial + (int64_t)block * (COUNT * Config::threads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        __stcg(to + i * Config::threads, sum[i / Config::TP][i % Config::TP]);
    __threadfence();
    __syncthreads(); // the sums of all threads are visible
    if (threadIdx.x == 0)
        atomicExch(&p.flags[block + 1], 1u);
}

// The chunks `first` to `last` - 1 of one tile.
template <typename Config>
__device__ inline void gemm_part(const gemm_launch &p, const gemm_memory<Config> &memory, int tile,
                                 int first, int last, int block)
{
    const int P = Config::P, M = Config::M, STEP = Config::STEP, STAGES = Config::STAGES;
    const int PITCH = Config::pitch, SPREAD = Config::SPREAD;
    const int TP = Config::TP, TM = Config::TM, AHEAD = Config::AHEAD, UNIT = Config::UNIT;
    const int COUNT = Config::units;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    int rest = layer_divide(tile, p.by_map_tiles), first_map = (tile - rest * p.map_tiles) * M;
    int group = layer_divide(rest, p.by_position_tiles);
    gemm_window windows[Config::positions];
    // The first k of a chunk that the thread loads, and its first piece.
    const int load_row = SPREAD > 1 ? thread % SPREAD : thread / Config::turn;
    const int load_column = SPREAD > 1 ? thread / SPREAD : thread % Config::turn;
    gemm_place<Config>(p, memory, (int64_t)(rest - group * p.position_tiles) * P, group, load_row,
                       load_column, windows);
    int vector_row = thread / Config::row_vectors, vector_column = thread % Config::row_vectors * 4;
    const float *weights =
        p.weights + ((int64_t)group * p.rows + first * STEP + vector_row * UNIT) * p.padded_maps +
        first_map * UNIT + vector_column;

    const int warp_p = warp % Config::WARPS_P, warp_m = warp / Config::WARPS_P;
    const int thread_p = warp_p * (P / Config::WARPS_P) + gemm_lane_p(lane) * Config::VP;
    const int thread_m = warp_m * (M / Config::WARPS_M) + gemm_lane_m(lane) * Config::VM;
    float sum[TM][TP];
    if (first == 0) {
        const float *bias = p.bias + (int64_t)group * p.padded_maps + first_map + thread_m;
#pragma unroll
        for (int m = 0; m < TM; m++) {
            float b = __ldg(bias + m / Config::VM * (GEMM_LANES_M * Config::VM) + m % Config::VM);
#pragma unroll
            for (int t = 0; t < TP; t++)
                sum[m][t] = b;
        }
    } else {
        gemm_resume<Config>(p, sum, block);
    }

    float *samples_to = memory.stages + load_row / UNIT * UNIT * PITCH + load_row % UNIT +
                        (load_column ^ Config::exchange) * Config::piece * UNIT;
    float *weights_to = memory.stages + STEP * PITCH + vector_row * UNIT * M + vector_column;
    const typename Config::tap *taps = memory.taps + load_row;
    int load = first; // the next chunk to load
    gemm_fill_taps<Config>(p, memory, first * STEP / GEMM_TAPS * GEMM_TAPS);
    __syncthreads(); // offsets are complete
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++, load++) {
        if (s > 0 && load * STEP % GEMM_TAPS == 0) {
            __syncthreads(); // the offsets before have been read
            gemm_fill_taps<Config>(p, memory, load * STEP);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < Config::loads; i += Config::group)
            gemm_load_samples<Config>(memory, windows, samples_to + s * Config::stage,
                                      taps + load * STEP % GEMM_TAPS, i);
        gemm_load_weights<Config>(p, weights, weights_to + s * Config::stage);
        weights += (int64_t)STEP * p.padded_maps;
        __pipeline_commit();
    }
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads(); // the first chunk of all threads has arrived

    const float *read_x = memory.stages + thread_p * UNIT;
    const float *read_w = memory.stages + STEP * PITCH + thread_m * UNIT;
    int stage = 0, to_stage = STAGES - 1;
    float x[AHEAD + 1][TP * UNIT], w[AHEAD + 1][TM * UNIT];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        gemm_read<Config, TP, Config::VP, GEMM_LANES_P>(x[u], read_x + u * UNIT * PITCH);
        gemm_read<Config, TM, Config::VM, GEMM_LANES_M>(w[u], read_w + u * UNIT * M);
    }
#pragma unroll 1
    for (int chunk = first; chunk < last; chunk++, load++) {
        if (load * STEP % GEMM_TAPS == 0) {
            // All threads have passed the barrier below since they last read an offset.
            gemm_fill_taps<Config>(p, memory, load * STEP);
            __syncthreads();
        }
        const typename Config::tap *load_taps = taps + load * STEP % GEMM_TAPS;
        const int next_stage = stage == STAGES - 1 ? 0 : stage + 1;
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            if (u == COUNT - AHEAD) {
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads(); // the next chunk has arrived, and all of this one was read
            }
            const int ahead = (u + AHEAD) % COUNT, slot = (u + AHEAD) % (AHEAD + 1);
            const int from = (u < COUNT - AHEAD ? stage : next_stage) * Config::stage;
            gemm_read<Config, TP, Config::VP, GEMM_LANES_P>(x[slot],
                                                            read_x + from + ahead * UNIT * PITCH);
            gemm_read<Config, TM, Config::VM, GEMM_LANES_M>(w[slot],
                                                            read_w + from + ahead * UNIT * M);
            // A later chunk. Those beyond the last one are loaded, too, but never computed.
            const int group_at = u * UNIT / Config::group_step * Config::group;
            if (u * UNIT % Config::group_step == 0 && group_at < Config::loads)
                gemm_load_samples<Config>(memory, windows, samples_to + to_stage * Config::stage,
                                          load_taps, group_at);
            if (u == 0)
                gemm_load_weights<Config>(p, weights, weights_to + to_stage * Config::stage);
            if (u == COUNT - AHEAD - 1)
                __pipeline_commit();
                // Alternates the direction, so that neighbouring multiply-adds share an operand:
                // one that reads three new registers takes two cycles.
#pragma unroll
            for (int k = 0; k < UNIT; k++) {
#pragma unroll
                for (int m = 0; m < TM; m++) {
#pragma unroll
                    for (int i = 0; i < TP; i++) {
                        const int t = m % 2 ? TP - 1 - i : i, now = u % (AHEAD + 1);
                        const int at = (t ^ Config::exchange) * UNIT + k;
                        sum[m][t] = fmaf(w[now][m * UNIT + k], x[now][at], sum[m][t]);
                    }
                }
            }
        }
        weights += (int64_t)STEP * p.padded_maps;
        to_stage = stage;
        stage = next_stage;
    }
    __pipeline_wait_prior(0);
    __syncthreads(); // nothing arrives at the stages any more
    if (last == p.chunks)
        gemm_store<Config>(p, memory, sum, group, first_map);
    else
        gemm_leave<Config>(p, sum, block);
}

template <typename Config>
static __global__ __launch_bounds__(Config::threads,
                                    Config::BLOCKS) void gemm(const __grid_constant__ gemm_launch p)
{
    extern __shared__ __align__(16) char gemm_shared[];
    gemm_memory<Config> memory;
    memory.stages = (float *)(void *)gemm_shared;
    memory.taps = (typename Config::tap *)(void *)(memory.stages + Config::STAGES * Config::stage);
    memory.outputs = (int64_t *)(void *)(memory.taps + GEMM_TAPS);
    memory.samples = (float *)(void *)(memory.outputs + Config::P);
    if constexpr (sizeof(typename Config::Input) == 1)
        for (int i = (int)threadIdx.x; i < 256; i += Config::threads)
            memory.samples[i] = __fdiv_rn((float)i, p.divisor);
    int tile = (int)blockIdx.x, first = 0, last = p.chunks, block = 0;
    int64_t begin = 0, end = 0; // chunks of all tiles that are left to this block
    if (p.share > 0) {
        // In the order in which blocks begin, see `share`.
        if (threadIdx.x == 0)
            memory.outputs[0] = atomicAdd(p.flags, 1u);
        __syncthreads();
        block = (int)memory.outputs[0];
        begin = block * p.share;
        end = min(begin + p.share, (int64_t)p.tiles * p.chunks);
    }
    do {
        if (p.share > 0) {
            __syncthreads(); // the memory may be overwritten
            tile = (int)((end - 1) / p.chunks);
            int64_t start = (int64_t)tile * p.chunks;
            first = (int)max(begin - start, (int64_t)0);
            last = (int)(end - start);
            end = start + first;
        }
        gemm_part<Config>(p, memory, tile, first, last, block);
    } while (end > begin);
}
