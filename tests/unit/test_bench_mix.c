// SPDX-License-Identifier: MIT
// The sizes of `conv bench kernels --image-size mix`: figures of two versions can be compared only
// if they are the same. A second benchmark once had a different mix, of images twelve times as
// large, and reported 0.85 of a copy where conv reported 0.67.
#include "bench/bench_workload.h"
#include "support/unit.h"

UNIT_TEST(test_the_mix_stays)
{
    struct conv_bench_size sizes[CONV_BENCH_MIX_IMAGES];
    int64_t pixels = 0;
    int small = 0, octaves[12] = {0};
    conv_bench_mix(sizes, CONV_BENCH_MIX_IMAGES);
    for (int i = 0; i < CONV_BENCH_MIX_IMAGES; i++) {
        assert_in_range(sizes[i].width, 1, 4000);
        assert_in_range(sizes[i].height, 1, 3000);
        int64_t area = (int64_t)sizes[i].width * sizes[i].height;
        pixels += area;
        small += area < 6000;
        for (int octave = 0; octave < 12; octave++)
            octaves[octave] += sizes[i].width >> octave == 1;
    }
    assert_int_equal(sizes[0].width, 4000);
    assert_int_equal(sizes[0].height, 3000);
    assert_int_equal(pixels, 139882026);
    assert_in_range(small, 240, 260);
    for (int octave = 0; octave < 12; octave++) // a twelfth of 500 is 42
        assert_in_range(octaves[octave], 20, 65);
}

UNIT_MAIN(NULL, NULL)
