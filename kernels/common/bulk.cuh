// SPDX-License-Identifier: MIT
// Barriers in shared memory and bulk copies (TMA) of compute capability 9.0, which CUDA C++ has no
// intrinsics for. PTX ISA: "mbarrier", "cp.async.bulk", "elect.sync", "Async proxy".
#pragma once

#include <stdint.h>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// A phase of the barrier ends after this many arrivals and the arrival of all bytes expected.
__device__ inline void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives, and lets the phase end only after bulk copies have written `bytes`.
__device__ inline void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

// Waits until the phase of this parity has ended. In a new barrier, the phase before the first one
// has parity 1 and counts as ended.
__device__ inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}

// Copies `bytes` from global to shared memory; addresses and size are multiples of 16.
__device__ inline void bulk_copy(uint32_t to, uint64_t from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// A value that is equal in all lanes, made known to the compiler as such. The operands of a bulk
// copy lie in uniform registers; without uniform() and elect() the compiler surrounds each copy
// with a loop over the lanes.
__device__ inline uint32_t uniform(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}

__device__ inline uint64_t uniform(uint64_t value)
{
    return (uint64_t)uniform((uint32_t)(value >> 32)) << 32 | uniform((uint32_t)value);
}

// True for one lane of the warp.
__device__ inline bool elect(void)
{
    uint32_t elected;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(elected));
    return elected;
}

// Orders bulk copies after earlier ordinary accesses to shared memory; nothing else does.
__device__ inline void fence_for_bulk(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A position in a ring of stages and the parity of its phase. Each warp keeps its own.
struct pipeline_state {
    int stage;
    uint32_t parity;
};

__device__ inline void advance(struct pipeline_state *state, int stages)
{
    if (++state->stage == stages) {
        state->stage = 0;
        state->parity ^= 1;
    }
}

#endif

// Waits until the kernel before this one in the stream has ended and its writes are visible: for
// kernels launched by launch_early (stencil_device.cuh). A thread must call this, or wait for a
// thread that has, before it accesses memory that another kernel may use. PTX ISA:
// "griddepcontrol".
__device__ inline void wait_for_earlier_kernel(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start, if launch_early launched it, once all blocks have
// called this or ended.
__device__ inline void start_next_kernel(void)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
