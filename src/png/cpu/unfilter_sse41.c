// SPDX-License-Identifier: MIT
// unfilter_x86.h compiled for SSE4.1.
#ifdef __x86_64__
#include "base/features.h"

#include "png/cpu/unfilter_x86.h"

static void up(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)
{
    for (size_t i = 0; i < size; i += 16)
        store16(dst + i, _mm_add_epi8(load16(src + i), load16(above + i)));
}

const struct conv_unfilter conv_unfilter_sse41 = {
    .name = "sse41",
    .needs = CONV_CPU_SSE41,
    .reverse = CONV_UNFILTER_ALL,
    .pair = PAIRS,
    .split = split,
};
#endif
