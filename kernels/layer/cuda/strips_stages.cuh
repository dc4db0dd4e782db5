// SPDX-License-Identifier: MIT
// Producers of strips.cuh whose tasks are whole images without gaps: bulk copies bring the samples
// of later tasks to stages in shared memory, from which the producers read them.
#ifndef CONV_KERNELS_LAYER_CUDA_STRIPS_STAGES_CUH
#define CONV_KERNELS_LAYER_CUDA_STRIPS_STAGES_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/layer/cuda/strips_atoms.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline int strips_images(const strips_launch &p, int64_t number)
{
    return (int)min((int64_t)p.group, p.images - number * p.group);
}

// Copies the samples of task `number`, if there is one, to a stage. Called by a whole warp.
__device__ inline void strips_copy(const strips_launch &p, int64_t number, char *stage,
                                   uint64_t *arrived)
{
    if (number >= p.tasks || !elect())
        return;
    uint32_t bytes = (uint32_t)strips_images(p, number) * (uint32_t)p.src_image;
    fence_for_bulk();
    barrier_arrive_expect(arrived, bytes);
    bulk_copy(shared_address(stage), (uint64_t)p.src + (uint64_t)(number * p.stage_bytes), bytes,
              shared_address(arrived));
}

// Writes all atoms of a task of `images` images from a stage, as strips_fill does. The positions of
// whole images are numbered like their samples.
template <int PRODUCTS, int THREADS>
__device__ inline wgmma_range strips_fill_from(const strips_launch &p, const char *stage,
                                               int images, char *atoms, int thread)
{
    wgmma_range range = {0, 0xffffffffu};
    int end = p.positions * p.planes;
#pragma unroll 1
    for (int q = thread; q < end; q += THREADS) {
        int plane = (int)__umulhi((uint32_t)q, p.positions_inverse);
        int position = q - plane * p.positions;
        int image = (int)__umulhi((uint32_t)position, p.image_inverse);
        const char *at =
            stage + image * (int)p.src_image + (position - image * p.image_positions) * 4;
        float v[8];
        if (plane * 8 + 8 <= p.channels) {
            at += plane * 8 * (int)p.src_plane;
#pragma unroll
            for (int i = 0; i < 8; i++, at += (int)p.src_plane)
                v[i] = image < images ? *(const float *)(const void *)at : 0;
        } else {
            int line = (int)__umulhi((uint32_t)position, p.pitch_inverse);
            int columns = image < images ? p.pitch - (position - line * p.pitch) : 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = p.last_pixel[i] < columns
                           ? *(const float *)(const void *)(at + (int)p.last_offset[i])
                           : 0;
        }
        strips_fill_atom<PRODUCTS>(p, v, WGMMA_SCALE, atoms + q * 16, range);
    }
    return range;
}

// The producers' loop, like strips_produce. Their first warp refills a stage as soon as all
// producers have read it, which is when a buffer of atoms is full.
template <int PRODUCTS, int PRODUCERS>
__device__ inline void strips_produce_from(const strips_launch &p, char *atoms,
                                           strips_shared *shared)
{
    int buffer = 0, thread = (int)threadIdx.x - STRIPS_CONSUMERS;
    uint32_t parity = 1;
    char *stages = atoms + p.stages_at;
    bool copies = uniform((uint32_t)thread / 32) == 0;
    pipeline_state state = {0, 0};
    if (copies)
        for (int i = 0; i < p.stages; i++)
            strips_copy(p, blockIdx.x + (int64_t)i * gridDim.x, stages + i * p.stage_bytes,
                        &shared->arrived[i]);
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        char *stage = stages + state.stage * p.stage_bytes;
        barrier_wait(&shared->empty[buffer], parity);
        barrier_wait(&shared->arrived[state.stage], state.parity);
        wgmma_range range = strips_fill_from<PRODUCTS, PRODUCERS>(
            p, stage, strips_images(p, number), atoms + buffer * p.buffer_bytes, thread);
        bool unfit = !__all_sync(0xffffffffu, wgmma_is_within<PRODUCTS>(range, WGMMA_SCALE));
        if (thread % 32 == 0)
            shared->unfit[buffer][thread / 32] = unfit;
        barrier_arrive(&shared->full[buffer]);
        if (copies) {
            barrier_wait(&shared->full[buffer], parity ^ 1);
            strips_copy(p, number + (int64_t)p.stages * gridDim.x, stage,
                        &shared->arrived[state.stage]);
        }
        advance(&state, p.stages);
        buffer ^= 1;
        parity ^= buffer == 0;
    }
}

#endif

#endif
