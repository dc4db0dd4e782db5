// SPDX-License-Identifier: MIT
// Barriers in shared memory and the bulk copy engine of compute capability 9.0: PTX that CUDA C++
// has no words for.
#ifndef CONV_KERNELS_STENCIL_CUDA_BULK_CUH
#define CONV_KERNELS_STENCIL_CUDA_BULK_CUH

#include <stdint.h>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

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

__device__ inline void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

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

__device__ inline void bulk_copy(uint32_t to, uint64_t from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// What all lanes hold alike, in a way that the compiler sees it, and one lane of them: what a bulk
// copy is told lies in uniform registers. Without this, a loop over the lanes surrounds each copy.
__device__ inline uint32_t uniform(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}

__device__ inline uint64_t uniform(uint64_t value)
{
    return (uint64_t)uniform((uint32_t)(value >> 32)) << 32 | uniform((uint32_t)value);
}

__device__ inline bool elect(void)
{
    uint32_t elected;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(elected));
    return elected;
}

// Bulk copies and ordinary accesses to shared memory are ordered by this alone.
__device__ inline void fence_for_bulk(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A place in the ring, of which every role keeps its own.
struct place {
    int stage;
    uint32_t parity;
};

__device__ inline void advance(struct place *place, int stages)
{
    if (++place->stage == stages) {
        place->stage = 0;
        place->parity ^= 1;
    }
}

#endif

#endif
