// SPDX-License-Identifier: MIT
// Chooses the code for separable filters that suits this processor.
#include "kernels/bank/separable.h"

#include "base/features.h"

// Any processor; separable_avx2.c and separable_avx512.c are the same for others.
#define SEPARABLE_RUN conv_separable_portable
#include "kernels/bank/separable_body.h"

size_t conv_separable_scratch(const struct conv_separable *filters, int out_width)
{
    size_t rows = (size_t)(CONV_SEPARABLE_BAND + filters->height - 1);
    return (size_t)filters->lines * rows * (size_t)conv_separable_pitch(out_width);
}

static conv_separable_fn choose(void)
{
#ifdef __x86_64__
    unsigned have = conv_cpu_features();
    if (have & CONV_CPU_AVX512)
        return conv_separable_avx512;
    if (have & CONV_CPU_AVX2)
        return conv_separable_avx2;
#endif
    return conv_separable_portable;
}

void conv_separable_run(const struct conv_separable *filters,
                        const struct conv_separable_batch *batch)
{
    choose()(filters, batch);
}
