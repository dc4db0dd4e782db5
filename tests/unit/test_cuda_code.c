// SPDX-License-Identifier: MIT
// The kernels that a device runs, where the program was compiled for others.
#include "kernels/common/place.h"
#include "support/unit.h"

UNIT_TEST(test_newest_code_that_a_device_runs)
{
    static const int all[] = {750, 800, 860, 900, 1000, 1200}, old[] = {800, 750}, hopper[] = {900};
    static const struct {
        const int *built;
        size_t count;
        int device, code;
    } cases[] = {
        {all, 6, 75, 75},   {all, 6, 89, 87},     {all, 6, 90, 90}, {all, 6, 103, 101},
        {all, 6, 121, 121}, {old, 2, 90, 81},     {old, 2, 75, 75}, {old, 2, 70, 70},
        {NULL, 0, 90, 90},  {hopper, 1, 100, 91},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(conv_cuda_code_newest(cases[i].built, cases[i].count, cases[i].device),
                         cases[i].code);
}

UNIT_MAIN(NULL, NULL)
