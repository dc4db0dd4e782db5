// SPDX-License-Identifier: MIT
// Conversion between four packed samples and four registers.
#ifndef CONV_KERNELS_STENCIL_CUDA_PACK_CUH
#define CONV_KERNELS_STENCIL_CUDA_PACK_CUH

#include "kernels/stencil/cuda/stencil_device.cuh"

// Four samples as in memory.
template <typename Sample>
using packed4 = typename std::conditional<
    sizeof(Sample) == 1, uint32_t,
    typename std::conditional<sizeof(Sample) == 2, uint2, float4>::type>::type;

// A float 2^23 + p has p in its low bits: two instructions at the full rate instead of a
// conversion.
__device__ inline float biased_to_float(uint32_t bits)
{
    return __fadd_rn(__uint_as_float(bits), -8388608.0f);
}

__device__ inline void unpack(float *to, uint32_t from)
{
    to[0] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7440));
    to[1] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7441));
    to[2] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7442));
    to[3] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7443));
}

__device__ inline void unpack(float *to, uint2 from)
{
    to[0] = biased_to_float(__byte_perm(from.x, 0x4b000000u, 0x7410));
    to[1] = biased_to_float(__byte_perm(from.x, 0x4b000000u, 0x7432));
    to[2] = biased_to_float(__byte_perm(from.y, 0x4b000000u, 0x7410));
    to[3] = biased_to_float(__byte_perm(from.y, 0x4b000000u, 0x7432));
}

__device__ inline void unpack(int32_t *to, uint32_t from)
{
    to[0] = from & 0xff;
    to[1] = from >> 8 & 0xff;
    to[2] = from >> 16 & 0xff;
    to[3] = from >> 24;
}

__device__ inline void unpack(int32_t *to, uint2 from)
{
    to[0] = from.x & 0xffff;
    to[1] = from.x >> 16;
    to[2] = from.y & 0xffff;
    to[3] = from.y >> 16;
}

__device__ inline void unpack(float *to, float4 from)
{
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

__device__ inline void pack(uint32_t &to, const uint32_t *from)
{
    to = __byte_perm(__byte_perm(from[0], from[1], 0x0040), __byte_perm(from[2], from[3], 0x0040),
                     0x5410);
}

__device__ inline void pack(uint2 &to, const uint32_t *from)
{
    to.x = __byte_perm(from[0], from[1], 0x5410);
    to.y = __byte_perm(from[2], from[3], 0x5410);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

// Four floats to four bytes, rounded half-even and clamped. ptxas compiles the six conversions to
// two instructions (F2IP).
__device__ inline uint32_t round_to_bytes(float v0, float v1, float v2, float v3)
{
    int32_t q0, q1, q2, q3;
    uint32_t high, all;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q0) : "f"(v0));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q1) : "f"(v1));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q2) : "f"(v2));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q3) : "f"(v3));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(q3), "r"(q2), "r"(0));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(q1), "r"(q0), "r"(high));
    return all;
}

#endif

#endif
