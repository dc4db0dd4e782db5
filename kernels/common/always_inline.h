// SPDX-License-Identifier: MIT
// ALWAYS_INLINE: for functions that are compiled once for each set of constant arguments. Under a
// sanitizer (CONV_COMPILE_ONCE) the arguments are variables and each function is compiled once:
// clang takes 2.7 s of processor time for cpu_portable instead of 17, at the same speed of the
// checks, and each access is checked in either case. Tiles of layers, whose sums have to be in
// registers, are always inlined: otherwise they ran ten times as long.
#ifndef CONV_KERNELS_COMMON_ALWAYS_INLINE_H
#define CONV_KERNELS_COMMON_ALWAYS_INLINE_H

#ifdef CONV_COMPILE_ONCE
#define ALWAYS_INLINE static inline __attribute__((unused))
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

#endif
