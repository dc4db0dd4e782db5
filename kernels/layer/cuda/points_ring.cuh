// SPDX-License-Identifier: MIT
// How the samples of layers with 1x1 kernels get into shared memory: some warps copy them in bulk
// to a ring of stages. The positions of all images follow each other; a task is COUNT of them,
// whatever the height and width of the images.
//
// A worker, that is the warps that copy and the threads that read, has a ring. All of them visit
// the same sequence of stages: for each task of ring_find one for every RING_CHANNELS channels.
// - A warp that copies waits until the stage is empty, starts its copies and arrives at `full`.
// - A thread that reads waits until the stage is full, reads, and arrives at `empty` when its reads
//   are complete.
// Every warp and every thread does this in every stage, also where it has nothing to copy or read,
// so each phase of a barrier has the same number of arrivals. Neither can be a round of the ring
// ahead of another: a stage becomes empty only after all have read it, and full only after all have
// copied. So a wait for a parity cannot mistake one phase for the next but one.
//
// Bulk copies belong to another proxy than loads: one may overwrite what a load that was issued
// before has yet to read, even if a barrier lies between them. Therefore a thread arrives at
// `empty` only when something that depends on all of its loads is complete, or after a fence, and
// a thread that copies fences after it has waited for `empty`. A load followed at once by the
// arrival gave wrong outputs where all multiprocessors were busy (64 to 256 maps, 56 x 56).
#ifndef CONV_KERNELS_LAYER_CUDA_POINTS_RING_CUH
#define CONV_KERNELS_LAYER_CUDA_POINTS_RING_CUH

#include <cuda_pipeline.h>

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/layer_device.cuh"

#define RING_CHANNELS 16 // of a stage, whose rows are `pitch` floats
#define RING_STAGE(pitch) (RING_CHANNELS * (pitch) * (int)sizeof(float))
#define RING_MOST_STAGES 8

struct ring_source {
    const void *src;
    int64_t src_row, src_plane, src_image; // bytes
    int64_t all;                           // positions of all images
    int64_t workers, rounds;               // rounds: of whole tasks
    int rest;                              // positions of a worker in the last round
    int positions, width;                  // of an image
    int channels, stages;
    bool vector; // planes without gaps, at multiples of 16 bytes, of 4 n positions
};

// `ready`, of the first ring: the weights are complete.
struct ring_barriers {
    uint64_t full[RING_MOST_STAGES], empty[RING_MOST_STAGES], ready[2]; // 2: a multiple of 16 bytes
};

// Positions that a worker gets at least, if it gets any.
#define RING_LEAST 32

// The source of a launch with that many workers, whose tasks have `count` positions.
static inline ring_source ring_source_of(const struct conv_layer_plan *plan,
                                         const struct conv_layer_batch *batch, int stages,
                                         int64_t workers, int count)
{
    ring_source s = {};
    s.src = batch->src;
    s.src_row = batch->src_row;
    s.src_plane = batch->src_plane;
    s.src_image = batch->src_image;
    s.width = plan->shape.width;
    s.positions = plan->shape.height * s.width;
    s.all = batch->images * s.positions;
    s.workers = workers;
    s.rounds = s.all / (workers * count);
    int64_t left = s.all - s.rounds * workers * count;
    s.rest = (int)ceil_div64(ceil_div64(left, workers), RING_LEAST) * RING_LEAST;
    s.channels = plan->layer.channels;
    s.stages = stages;
    s.vector = s.positions % 4 == 0 && s.src_row == s.width * (int64_t)sizeof(float) &&
               s.src_plane % 16 == 0 && s.src_image % 16 == 0;
    return s;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Readies the barriers of a stage with this many threads that read, and warps that copy: one thread
// of a warp arrives for its bulk copies, every thread for others. Called by one thread.
__device__ inline void ring_init(const ring_source &s, ring_barriers *ring, int stage, int readers,
                                 int warps)
{
    barrier_init(&ring->full[stage], s.vector ? warps : warps * 32);
    barrier_init(&ring->empty[stage], readers);
}

// A position: image, and place in its planes.
struct ring_position {
    int64_t image;
    int at;
};

struct ring_task {
    ring_position first;
    int count; // of positions; 0: the worker has no task left
};

template <int COUNT>
__device__ inline ring_task ring_find(const ring_source &s, int64_t worker, int64_t round)
{
    ring_task task;
    int64_t q = (round * s.workers + worker) * COUNT;
    task.count = COUNT;
    if (round >= s.rounds) {
        q = s.rounds * s.workers * COUNT + worker * s.rest;
        task.count = round > s.rounds ? 0 : (int)max((int64_t)0, min((int64_t)s.rest, s.all - q));
    }
    task.first.image = q / s.positions;
    task.first.at = (int)(q - task.first.image * s.positions);
    return task;
}

// `more` positions after that one.
__device__ inline ring_position ring_after(const ring_source &s, ring_position position, int more)
{
    int at = position.at + more, images = at / s.positions;
    position.image += images;
    position.at = at - images * s.positions;
    return position;
}

// The address of a position's sample in the first channel.
__device__ inline const char *ring_sample(const ring_source &s, ring_position position)
{
    int row = position.at / s.width;
    return (const char *)s.src + position.image * s.src_image + row * s.src_row +
           (position.at - row * s.width) * (int64_t)sizeof(float);
}

// Copies `bytes` of each of `channels` planes; `all`: there are CHANNELS of them.
template <int CHANNELS, int PITCH>
__device__ inline void ring_copy(const ring_source &s, uint64_t from, uint32_t bytes, bool all,
                                 int channels, uint32_t to, uint32_t barrier)
{
    if (all) {
#pragma unroll
        for (int c = 0; c < CHANNELS; c++, from += (uint64_t)s.src_plane)
            bulk_copy(to + (uint32_t)(c * PITCH * (int)sizeof(float)), from, bytes, barrier);
    } else {
#pragma unroll 1
        for (int c = 0; c < channels; c++, from += (uint64_t)s.src_plane)
            bulk_copy(to + (uint32_t)(c * PITCH * (int)sizeof(float)), from, bytes, barrier);
    }
}

// Where four neighbouring outputs are in a map, and the elements from the first of them to each.
struct ring_place {
    int64_t at;
    int step[4], count; // count: of positions that exist
};

// `local`: the first position, from the task's first one on; `maps`: of an image.
__device__ inline ring_place ring_find_place(const ring_source &s, const ring_task &task, int local,
                                             int maps, int map)
{
    ring_place place;
    ring_position first = ring_after(s, task.first, local);
    place.at = (first.image * maps + map) * s.positions + first.at;
    place.count = min(4, task.count - local);
#pragma unroll
    for (int k = 0; k < 4; k++)
        place.step[k] =
            k + (s.vector ? 0 : (first.at + k) / s.positions * (maps - 1) * s.positions);
    return place;
}

// Copies weights in bulk and arrives at `ready`, whose phase cannot end before they are complete.
// Called by one thread; addresses and `bytes` are multiples of 16.
__device__ inline void ring_fill_weights(const void *from, void *to, int bytes, uint64_t *ready)
{
    const int piece = 32 << 10;
    fence_for_bulk(); // after other threads have initialized the barrier
    barrier_arrive_expect(ready, (uint32_t)bytes);
    for (int done = 0; done < bytes; done += piece)
        bulk_copy(shared_address(to) + (uint32_t)done, (uint64_t)from + (uint64_t)done,
                  (uint32_t)min(piece, bytes - done), shared_address(ready));
}

// Copies the samples of a task in bulk: a piece of each plane of each image that it belongs to.
// Called by WARPS warps, each of which copies some channels of each stage; `warp`: which one.
template <int WARPS, int PITCH>
__device__ inline void ring_fill(const ring_source &s, const ring_task &task, char *stages,
                                 ring_barriers *ring, pipeline_state &state, int warp)
{
    const int each = RING_CHANNELS / WARPS;
    uint64_t src = (uint64_t)s.src + (uint64_t)(task.first.image * s.src_image) +
                   (uint64_t)(warp * each * s.src_plane);
#pragma unroll 1
    for (int c = 0; c < s.channels; c += RING_CHANNELS) {
        // From the warp's first channel on, so perhaps negative or too many. Do not compare
        // max(0, min(left, each)) with `each`: ptxas of CUDA 13.0 compiles that for sm_90 to the
        // same instructions as the comparison with `left`, so warps copied planes that do not
        // exist, and waited for ever.
        int left = s.channels - c - warp * each;
        bool all = left >= each;
        int channels = all ? each : left > 0 ? left : 0;
        barrier_wait(&ring->empty[state.stage], state.parity);
        if (elect()) { // not before all lanes have seen that the stage is empty
            uint64_t *full = &ring->full[state.stage];
            uint32_t to = shared_address(stages) + (uint32_t)(state.stage * RING_STAGE(PITCH)) +
                          (uint32_t)(warp * each * PITCH * (int)sizeof(float));
            fence_for_bulk(); // after the reads before the arrivals at `empty`
            // Before the copies, so that the phase cannot end without them.
            barrier_arrive_expect(full,
                                  (uint32_t)(channels * task.count) * (uint32_t)sizeof(float));
            uint64_t from = src + (uint64_t)task.first.at * sizeof(float);
            int piece = min(s.positions - task.first.at, task.count);
            ring_copy<each, PITCH>(s, from, (uint32_t)piece * (uint32_t)sizeof(float), all,
                                   channels, to, shared_address(full));
            from = src;
#pragma unroll 1
            for (int done = piece; done < task.count; done += piece) {
                from += (uint64_t)s.src_image;
                piece = min(s.positions, task.count - done);
                ring_copy<each, PITCH>(s, from, (uint32_t)piece * (uint32_t)sizeof(float), all,
                                       channels, to + (uint32_t)done * (uint32_t)sizeof(float),
                                       shared_address(full));
            }
        }
        __syncwarp();
        src += (uint64_t)(RING_CHANNELS * s.src_plane);
        advance(&state, s.stages);
    }
}

// Arrives once the thread's earlier asynchronous copies (not those in bulk) have been written.
__device__ inline void barrier_arrive_after_copies(uint64_t *barrier)
{
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
        : "memory");
}

// The same for planes that bulk copies cannot read. Called by WARPS warps; `thread`: of all of
// them. Threads read four positions at a time, so those after the task's last one become 0:
// otherwise what is left in shared memory would decide how points_wgmma computes its neighbours.
template <int WARPS, int COUNT, int PITCH>
__device__ inline void ring_fill_each(const ring_source &s, const ring_task &task, char *stages,
                                      ring_barriers *ring, pipeline_state &state, int thread)
{
    const int threads = WARPS * 32, each = COUNT / threads;
    static_assert(each * threads == COUNT, "positions of a thread");
    int end = (task.count + 3) / 4 * 4;
    const char *sample[each]; // in the next channel
#pragma unroll
    for (int i = 0; i < each; i++) {
        int k = thread + i * threads;
        sample[i] = ring_sample(s, ring_after(s, task.first, k < task.count ? k : 0));
    }
#pragma unroll 1
    for (int c = 0; c < s.channels; c += RING_CHANNELS) {
        int channels = min(RING_CHANNELS, s.channels - c);
        float *stage = (float *)(void *)(stages + state.stage * RING_STAGE(PITCH)) + thread;
        barrier_wait(&ring->empty[state.stage], state.parity);
#pragma unroll
        for (int i = 0; i < each; i++) {
            int k = thread + i * threads;
            size_t zeros = k < task.count ? 0 : sizeof(float);
            float *to = stage + i * threads;
            if (k >= end)
                break;
#pragma unroll 4
            for (int m = 0; m < channels; m++, sample[i] += s.src_plane, to += PITCH)
                __pipeline_memcpy_async(to, sample[i], sizeof(float), zeros);
        }
        barrier_arrive_after_copies(&ring->full[state.stage]);
        advance(&state, s.stages);
    }
}

// The loop of the WARPS warps that copy the samples of a worker.
template <int WARPS, int COUNT, int PITCH>
__device__ inline void ring_produce(const ring_source &s, int64_t worker, char *stages,
                                    ring_barriers *ring, int thread)
{
    pipeline_state state = {0, 1};
    int warp = (int)uniform((uint32_t)thread / 32);
    for (int64_t round = 0; round <= s.rounds; round++) {
        ring_task task = ring_find<COUNT>(s, worker, round);
        if (task.count == 0)
            break;
        if (s.vector)
            ring_fill<WARPS, PITCH>(s, task, stages, ring, state, warp);
        else
            ring_fill_each<WARPS, COUNT, PITCH>(s, task, stages, ring, state, thread);
    }
}

#endif

#endif
