// SPDX-License-Identifier: MIT
// The PTX instructions of kernels/stencil/cuda/ as functions. translate.py derives their names from
// the instructions; operands are in the order of the PTX ISA. An instruction that is missing here
// does not compile.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "block.h"
#include "bulk.h"
#include "shared.h"
#include "tensor/element.h"

namespace ptx
{

struct none {
}; // the operand _

static inline void selp_u32(uint32_t &to, uint32_t a, uint32_t b, bool p)
{
    to = p ? a : b;
}

// Each nibble of `selector` picks a byte of b:a; its top bit spreads the byte's sign instead.
static inline void prmt_b32(uint32_t &to, uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    to = 0;
    for (int i = 0; i < 32; i += 8) {
        uint32_t nibble = selector >> i / 2, byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 0xff;
        to |= (nibble & 8 ? (byte >> 7) * 0xff : byte) << i;
    }
}

static inline void prefetch_global_L2(const void *)
{
}

static inline void szext_wrap_u32(uint32_t &to, uint32_t bits, uint32_t count)
{
    to = bits & ((1u << (count & 31)) - 1);
}

static inline void dp4a_u32_s32(int32_t &to, uint32_t a, uint32_t b, int32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (int32_t)(a >> 8 * i & 0xff) * (int8_t)(b >> 8 * i);
    to = c;
}

static inline void vabsdiff4_u32_u32_u32_add(uint32_t &to, uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 32; i += 8)
        c += (uint32_t)abs((int)(uint8_t)(a >> i) - (int)(uint8_t)(b >> i));
    to = c;
}

static inline void vabsdiff4_u32_s32_s32_add(uint32_t &to, uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 32; i += 8)
        c += (uint32_t)abs((int)(int8_t)(a >> i) - (int)(int8_t)(b >> i));
    to = c;
}

// Rounds half to even, clamped to the range of 32 bits; NaN becomes 0.
static inline void cvt_rni_s32_f32(int32_t &to, float from)
{
    to = std::isnan(from)        ? 0
         : from >= 2147483648.0f ? INT32_MAX
         : from < -2147483648.0f ? INT32_MIN
                                 : (int32_t)rintf(from);
}

// Off by as much as the instruction may be, a relative 2^-23, up or down.
static inline void sqrt_approx_ftz_f32(float &to, float from)
{
    to = sqrtf(from);
    if (from > 0)
        to *= (long)from % 2 ? 1 + 0x1p-23f : 1 - 0x1p-24f;
}

// 16-bit floats to 32 bits, which represent all of them exactly, subnormal ones included.
static inline float float_of_half(uint32_t pair, int k)
{
    int from = (int)(pair >> 16 * k), exponent = from >> 10 & 31, mantissa = from & 0x3ff;
    float size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                 : exponent == 0 ? ldexpf((float)mantissa, -24)
                                 : ldexpf((float)(mantissa + 0x400), exponent - 25);
    return from & 0x8000 ? -size : size;
}

static inline void cvt_f32_f16(float &to, uint16_t from)
{
    to = float_of_half(from, 0);
}

static inline void cvt_rn_f16_f32(uint16_t &to, float from)
{
    to = conv_half_from_float(from);
}

static inline void mad_wide_s32(int64_t &to, int32_t a, int32_t b, int64_t c)
{
    to = (int64_t)a * b + c;
}

static inline uint32_t saturate_u8(int32_t value)
{
    return (uint32_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static inline void cvt_pack_sat_u8_s32_b32(uint32_t &to, int32_t a, int32_t b, uint32_t c)
{
    to = c << 16 | saturate_u8(a) << 8 | saturate_u8(b);
}

static inline void cvt_pack_sat_u16_s32(uint32_t &to, int32_t a, int32_t b)
{
    auto saturate = [](int32_t value) {
        return (uint32_t)(value < 0 ? 0 : value > 65535 ? 65535 : value);
    };
    to = saturate(a) << 16 | saturate(b);
}

static inline int32_t dot4(int32_t sum, uint32_t a, bool a_signed, uint32_t b, bool b_signed)
{
    for (int i = 0; i < 32; i += 8) {
        int32_t x = (uint8_t)(a >> i), y = (uint8_t)(b >> i);
        sum += (a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y);
    }
    return sum;
}

// The lane's part of a matrix product, by the layout of fragments: with g = lane / 4 and t = lane %
// 4, A's registers hold rows g, g + 8, g, g + 8 at columns 4t (the last two: 16 + 4t), B's column g
// at rows 4t and 16 + 4t, C and D row g (then g + 8) at columns 2t and 2t + 1.
struct fragments {
    uint32_t a[4], b[2];
};

static inline int32_t dot(const emulated::lanes<fragments> &all, bool a_signed, bool b_signed,
                          int row, int column)
{
    int32_t sum = 0;
    for (int t = 0; t < 4; t++)
        for (int half = 0; half < 2; half++)
            sum = dot4(sum, all[row % 8 * 4 + t].a[row / 8 + 2 * half], a_signed,
                       all[column * 4 + t].b[half], b_signed);
    return sum;
}

static inline void multiply(int32_t *const (&d)[4], const fragments &own, bool a_signed,
                            bool b_signed, const int32_t (&c)[4], emulated::site place)
{
    auto all = emulated::exchange<fragments>(place, 0xffffffffu, own);
    int lane = emulated::lane(), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++)
        *d[i] = c[i] + dot(all, a_signed, b_signed, g + i / 2 * 8, 2 * t + i % 2);
}

// Products of bytes with sums of 32 bits: with 32 columns of A, then with 16.
#define MULTIPLY_BYTES(types, a_signed, b_signed)                                                  \
    static inline void mma_sync_aligned_m16n8k32_row_col_##types(                                  \
        int32_t &d0, int32_t &d1, int32_t &d2, int32_t &d3, uint32_t a0, uint32_t a1, uint32_t a2, \
        uint32_t a3, uint32_t b0, uint32_t b1, int32_t c0, int32_t c1, int32_t c2, int32_t c3,     \
        EMULATED_HERE)                                                                             \
    {                                                                                              \
        multiply({&d0, &d1, &d2, &d3}, {{a0, a1, a2, a3}, {b0, b1}}, a_signed, b_signed,           \
                 {c0, c1, c2, c3}, where);                                                         \
    }                                                                                              \
    static inline void mma_sync_aligned_m16n8k16_row_col_##types(                                  \
        int32_t &d0, int32_t &d1, int32_t &d2, int32_t &d3, uint32_t a0, uint32_t a1, uint32_t b0, \
        int32_t c0, int32_t c1, int32_t c2, int32_t c3, EMULATED_HERE)                             \
    {                                                                                              \
        multiply({&d0, &d1, &d2, &d3}, {{a0, a1, 0, 0}, {b0, 0}}, a_signed, b_signed,              \
                 {c0, c1, c2, c3}, where);                                                         \
    }
MULTIPLY_BYTES(s32_u8_s8_s32, false, true)
MULTIPLY_BYTES(s32_s8_u8_s32, true, false)
MULTIPLY_BYTES(s32_u8_u8_s32, false, false)

static inline void sub_f16x2(uint32_t &to, uint32_t a, uint32_t b)
{
    to = conv_half_from_float(float_of_half(a, 0) - float_of_half(b, 0));
    to |= (uint32_t)conv_half_from_float(float_of_half(a, 1) - float_of_half(b, 1)) << 16;
}

// Of 16-bit floats, two in a register: bits of products below 2^-24 are lost, as on an H200.
static inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(
    float &d0, float &d1, float &d2, float &d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3, EMULATED_HERE)
{
    auto all = emulated::exchange<fragments>(where, 0xffffffffu, {{a0, a1, a2, a3}, {b0, b1}});
    int lane = emulated::lane(), g = lane / 4, t = lane % 4;
    float *const d[] = {&d0, &d1, &d2, &d3};
    const double c[] = {c0, c1, c2, c3};
    for (int i = 0; i < 4; i++) {
        double sum = c[i] * 0x1p24;
        for (int k = 0; k < 16; k++) {
            const fragments &a = all[g * 4 + k % 8 / 2], &b = all[(2 * t + i % 2) * 4 + k % 8 / 2];
            sum += trunc(0x1p24 * float_of_half(a.a[i / 2 + k / 8 * 2], k % 2) *
                         float_of_half(b.b[k / 8], k % 2));
        }
        *d[i] = (float)(sum * 0x1p-24);
    }
}

static inline void elect_sync(none, bool &elected, uint32_t mask, EMULATED_HERE)
{
    emulated::exchange<int>(where, mask, 0);
    elected = emulated::lane() == emulated::leader(mask);
}

template <typename Word> static inline void store_global(uint64_t to, Word value)
{
    emulated::check_global((const void *)to, sizeof value, sizeof value);
    *(Word *)to = value;
}

static inline void st_global_u32(uint64_t to, uint32_t value)
{
    store_global<uint32_t>(to, value);
}

static inline void st_global_v2_u32(uint64_t to, uint32_t x, uint32_t y)
{
    store_global<uint64_t>(to, (uint64_t)y << 32 | x);
}

static inline void st_relaxed_gpu_global_u64(uint64_t to, uint64_t value)
{
    __atomic_store_n((uint64_t *)to, value, __ATOMIC_RELAXED);
}

static inline void ld_relaxed_gpu_global_u64(uint64_t &to, uint64_t from)
{
    emulated::look();
    to = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
}

static inline void st_global_v4_u32(uint64_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    store_global<uint64_t>(to, (uint64_t)y << 32 | x);
    store_global<uint64_t>(to + 8, (uint64_t)w << 32 | z);
}

static inline void st_relaxed_gpu_global_u32(uint64_t to, uint32_t value)
{
    __atomic_store_n((uint32_t *)to, value, __ATOMIC_RELAXED);
}

static inline void ld_relaxed_gpu_global_u32(uint32_t &to, uint64_t from)
{
    emulated::look();
    to = __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
}

static inline void st_global_u8(uint64_t to, uint32_t value)
{
    store_global<uint8_t>(to, (uint8_t)value);
}

static inline void st_global_u16(uint64_t to, uint32_t value)
{
    store_global<uint16_t>(to, (uint16_t)value);
}

static inline void mbarrier_init_shared_cta_b64(uint32_t barrier, uint32_t arrivals)
{
    emulated::init_barrier(barrier, arrivals);
}

static inline void mbarrier_arrive_shared_cta_b64(none, uint32_t barrier)
{
    emulated::arrive_at(barrier, 0);
}

static inline void mbarrier_arrive_expect_tx_shared_cta_b64(none, uint32_t barrier, uint32_t bytes)
{
    emulated::arrive_at(barrier, bytes);
}

static inline void mbarrier_try_wait_parity_shared_cta_b64(bool &done, uint32_t barrier,
                                                           uint32_t parity)
{
    emulated::wait_for(barrier, parity);
    done = true;
}

static inline void cp_async_ca_shared_global(uint32_t to, const void *from, int size, int read)
{
    emulated::copy_later(emulated::shared_at(to, (size_t)size, (size_t)size), from, (size_t)size,
                         (size_t)(size - read));
}

static inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to,
                                                                                  uint64_t from,
                                                                                  uint32_t bytes,
                                                                                  uint32_t barrier)
{
    emulated::copy_bulk(to, (const void *)from, bytes, barrier);
}

// Of the order of accesses by different proxies only this is checked: a thread has to fence
// between a barrier and a bulk copy.
static inline void fence_proxy_async_shared_cta()
{
    emulated::fence_bulk();
}

// Does nothing: emulated kernels of a stream run one after the other.
static inline void griddepcontrol_wait()
{
}

static inline void griddepcontrol_launch_dependents()
{
}

// Register counts are not emulated.
static inline void setmaxnreg_inc_sync_aligned_u32(uint32_t)
{
}

static inline void setmaxnreg_dec_sync_aligned_u32(uint32_t)
{
}

// Only a hint: does nothing.
template <typename Pointer> static inline void prefetch_global_L2(Pointer)
{
}

} // namespace ptx
