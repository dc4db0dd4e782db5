// SPDX-License-Identifier: MIT
// Images of many sizes for `conv bench kernels --image-size mix` and `uniform`.
#ifndef CONV_BENCH_BENCH_MIX_H
#define CONV_BENCH_BENCH_MIX_H

#define CONV_BENCH_MIX_IMAGES 500 // unless --images says otherwise

struct conv_bench_size {
    int width, height;
};

// Always the same sizes from 1 x 1 to 4000 x 3000, each octave of a side equally likely, the
// largest size first. Half of 500 are smaller than 0.006 megapixels; their sum is 139.9.
void conv_bench_mix(struct conv_bench_size *sizes, int count);

// The same with each side equally likely; the smallest size first, then the largest. Half of 500
// are larger than 2.7 megapixels; their sum is 1,668.
void conv_bench_mix_uniform(struct conv_bench_size *sizes, int count);

#endif
