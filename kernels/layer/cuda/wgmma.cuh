// SPDX-License-Identifier: MIT
// wgmma of compute capability 9.0a: d (64 x N, float32) += a (64 x 16) * b (16 x N), float16 in
// shared memory, for the 128 threads of a warpgroup. PTX ISA: "Asynchronous Warpgroup Level
// Matrix". tests/emulated/include has the same functions in C++.
#ifndef CONV_KERNELS_LAYER_CUDA_WGMMA_CUH
#define CONV_KERNELS_LAYER_CUDA_WGMMA_CUH

#include <stdint.h>

// Precedes the first of a series of wgmma, so that earlier writes to the registers of d are
// complete.
__device__ inline void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all committed groups are complete: then d can be read and operands can be
// overwritten.
__device__ inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Waits until all committed groups but the last are complete.
__device__ inline void wgmma_wait_but_one(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// Orders wgmma after earlier ordinary writes to shared memory, in each thread that wrote.
__device__ inline void wgmma_fence_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- operands ------------------------------------------------------------------------------------
// The 64 x N sums of a warpgroup are N / 2 of each thread: as operands of asm, each given by HOW,
// and by their numbers in its text.

#define WGMMA_ADD(x) "+f"(x)
#define WGMMA_SET(x) "=f"(x)

#define WGMMA_4(how, i) how(d[i]), how(d[(i) + 1]), how(d[(i) + 2]), how(d[(i) + 3])
#define WGMMA_SUMS_8(how) WGMMA_4(how, 0)
#define WGMMA_SUMS_16(how) WGMMA_SUMS_8(how), WGMMA_4(how, 4)
#define WGMMA_SUMS_24(how) WGMMA_SUMS_16(how), WGMMA_4(how, 8)
#define WGMMA_SUMS_32(how) WGMMA_SUMS_24(how), WGMMA_4(how, 12)
#define WGMMA_SUMS_48(how) WGMMA_SUMS_32(how), WGMMA_4(how, 16), WGMMA_4(how, 20)
#define WGMMA_SUMS_64(how) WGMMA_SUMS_48(how), WGMMA_4(how, 24), WGMMA_4(how, 28)
#define WGMMA_SUMS_96(how)                                                                         \
    WGMMA_SUMS_64(how), WGMMA_4(how, 32), WGMMA_4(how, 36), WGMMA_4(how, 40), WGMMA_4(how, 44)
#define WGMMA_SUMS_128(how)                                                                        \
    WGMMA_SUMS_96(how), WGMMA_4(how, 48), WGMMA_4(how, 52), WGMMA_4(how, 56), WGMMA_4(how, 60)

#define WGMMA_NAMES_8 "%0, %1, %2, %3"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define WGMMA_NAMES_32 WGMMA_NAMES_24 ", %12, %13, %14, %15"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_96                                                                             \
    WGMMA_NAMES_64                                                                                 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_128                                                                            \
    WGMMA_NAMES_96                                                                                 \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// --- operands in shared memory -------------------------------------------------------------------

// `a` and `b` are descriptors of matrices in shared memory. Thread t of the warpgroup holds in
// d[4 j + k] row t / 32 * 16 + t % 32 / 4 + k / 2 * 8, column 8 j + t % 4 * 2 + k % 2. Without
// `accumulate`, d is set instead of added to.
template <int N> __device__ void wgmma(float *d, uint64_t a, uint64_t b, int accumulate);

// The numbers of the operands that follow the sums are given, too.
#define WGMMA(N, A, B, ACCUMULATE)                                                                 \
    template <> __device__ inline void wgmma<N>(float *d, uint64_t a, uint64_t b, int accumulate)  \
    {                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ACCUMULATE ", 0; "                         \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 "                     \
                     "{" WGMMA_NAMES_##N "}, %" #A ", %" #B ", p, 1, 1, 0, 0;}"                    \
                     : WGMMA_SUMS_##N(WGMMA_ADD)                                                   \
                     : "l"(a), "l"(b), "r"(accumulate));                                           \
    }

WGMMA(8, 4, 5, 6)
WGMMA(16, 8, 9, 10)
WGMMA(24, 12, 13, 14)
WGMMA(32, 16, 17, 18)
WGMMA(48, 24, 25, 26)
WGMMA(64, 32, 33, 34)
WGMMA(96, 48, 49, 50)
WGMMA(128, 64, 65, 66)

// --- operands in registers -----------------------------------------------------------------------
// The same with the first operand `a` (64 x 16) in registers.

// Loads the warp's 16 rows of `a`, as four matrices of 8 rows of 8 numbers: rows 0 to 7 and 8 to 15
// of columns 0 to 7, then of columns 8 to 15. Each lane gives the address of row lane % 8 of matrix
// lane / 8.
__device__ inline void wgmma_load_rows(uint32_t (&a)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

// `b` is the descriptor of a matrix in shared memory. Thread t of the warpgroup holds in
// d[4 j + k] row t / 32 * 16 + t % 32 / 4 + k / 2 * 8, column 8 j + t % 4 * 2 + k % 2.
// Without ACCUMULATE, d is set instead of added to.
template <int N, int ACCUMULATE = 1>
__device__ void wgmma_rows(float *d, const uint32_t (&a)[4], uint64_t b);

#define WGMMA_ROWS(N, ACCUMULATE, HOW, A0, A1, A2, A3, B)                                          \
    template <>                                                                                    \
    __device__ inline void wgmma_rows<N, ACCUMULATE>(float *d, const uint32_t(&a)[4], uint64_t b)  \
    {                                                                                              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 "                     \
                     "{" WGMMA_NAMES_##N "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B       \
                                         ", " #ACCUMULATE ", 1, 1, 0;"                             \
                     : WGMMA_SUMS_##N(HOW)                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
    }

WGMMA_ROWS(8, 1, WGMMA_ADD, 4, 5, 6, 7, 8)
WGMMA_ROWS(8, 0, WGMMA_SET, 4, 5, 6, 7, 8)
WGMMA_ROWS(16, 1, WGMMA_ADD, 8, 9, 10, 11, 12)
WGMMA_ROWS(16, 0, WGMMA_SET, 8, 9, 10, 11, 12)
WGMMA_ROWS(24, 1, WGMMA_ADD, 12, 13, 14, 15, 16)
WGMMA_ROWS(24, 0, WGMMA_SET, 12, 13, 14, 15, 16)
WGMMA_ROWS(32, 1, WGMMA_ADD, 16, 17, 18, 19, 20)
WGMMA_ROWS(32, 0, WGMMA_SET, 16, 17, 18, 19, 20)
WGMMA_ROWS(48, 1, WGMMA_ADD, 24, 25, 26, 27, 28)
WGMMA_ROWS(48, 0, WGMMA_SET, 24, 25, 26, 27, 28)
WGMMA_ROWS(64, 1, WGMMA_ADD, 32, 33, 34, 35, 36)
WGMMA_ROWS(64, 0, WGMMA_SET, 32, 33, 34, 35, 36)

// --- TF32 ----------------------------------------------------------------------------------------
// The same on TF32 numbers: d (64 x N, float32) += a (64 x 8, registers) * b (8 x N, shared
// memory).

// `b` is the descriptor of a matrix in shared memory, N rows of 8 numbers. Thread t of the
// warpgroup has in a[k] row t / 32 * 16 + t % 32 / 4 + k % 2 * 8, column t % 4 + k / 2 * 4, and in
// d[4 j + k] row t / 32 * 16 + t % 32 / 4 + k / 2 * 8, column 8 j + t % 4 * 2 + k % 2. The lower 13
// bits of all numbers are 0.
template <int N> __device__ void wgmma_tf32(float *d, const uint32_t (&a)[4], uint64_t b);

#define WGMMA_TF32(N, A0, A1, A2, A3, B)                                                           \
    template <> __device__ inline void wgmma_tf32<N>(float *d, const uint32_t(&a)[4], uint64_t b)  \
    {                                                                                              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 "                    \
                     "{" WGMMA_NAMES_##N "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B       \
                                         ", 1, 1, 1;"                                              \
                     : WGMMA_SUMS_##N(WGMMA_ADD)                                                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
    }

WGMMA_TF32(16, 8, 9, 10, 11, 12)
WGMMA_TF32(32, 16, 17, 18, 19, 20)
WGMMA_TF32(64, 32, 33, 34, 35, 36)
WGMMA_TF32(128, 64, 65, 66, 67, 68)

#endif
