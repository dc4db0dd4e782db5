// SPDX-License-Identifier: MIT
// The order statistics from which all figures of benchmarks are derived.
#include "base/clock.h"
#include "support/unit.h"

UNIT_TEST(one_value_is_all_of_them)
{
    double value = 3;
    struct conv_stat stat = conv_stat_sort(&value, 1);
    assert_true(stat.min == 3 && stat.p25 == 3 && stat.median == 3 && stat.p75 == 3 &&
                stat.max == 3);
}

UNIT_TEST(half_of_the_values_lie_between_the_quartiles)
{
    double values[] = {70, 10, 50, 30, 20, 60, 40};
    struct conv_stat stat = conv_stat_sort(values, 7);
    assert_true(stat.min == 10 && stat.p25 == 20 && stat.median == 40 && stat.p75 == 60 &&
                stat.max == 70);
    for (int i = 0; i < 7; i++)
        assert_true(values[i] == 10 * (i + 1));
}

UNIT_TEST(of_an_even_number_the_upper_middle_counts)
{
    double values[] = {4, 1, 3, 2};
    assert_true(conv_stat_median(values, 4) == 3);
}

// Times in ns: a comparison by subtraction in int would overflow.
UNIT_TEST(large_values_keep_their_order)
{
    double values[] = {9e15, 1, 9e15 - 1, 5e9, 2};
    struct conv_stat stat = conv_stat_sort(values, 5);
    assert_true(stat.min == 1 && stat.median == 5e9 && stat.max == 9e15);
}

UNIT_MAIN(NULL, NULL)
