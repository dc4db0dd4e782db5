// SPDX-License-Identifier: MIT
// The sizes of `conv bench kernels --size mix`, which bench_kernels_cuda measures as well.
#ifndef CONV_BENCH_BENCH_MIX_H
#define CONV_BENCH_BENCH_MIX_H

#ifdef __cplusplus
extern "C" {
#endif

#define CONV_BENCH_MIX_IMAGES 500 // unless --batch says otherwise

struct conv_bench_size {
    int width, height;
};

// Always the same sizes from 1 x 1 to 4000 x 3000, each octave of a side as likely as the others
// and the largest size first. Half of 500 are smaller than 0.006 megapixels; all are 139.9.
void conv_bench_mix(struct conv_bench_size *sizes, int count);

#ifdef __cplusplus
}
#endif

#endif
