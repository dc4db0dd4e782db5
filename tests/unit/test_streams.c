// SPDX-License-Identifier: MIT
// When a device gets another stream (src/run/devices.h).
#include "run/devices.h"
#include "support/unit.h"

// Groups taken until the next stream is due; 0: none within a thousand.
static int count_groups(struct conv_growth *growth, int waiting, int idle)
{
    for (int i = 1; i <= 1000; i++)
        if (conv_growth_is_due(growth, waiting, idle))
            return i;
    return 0;
}

UNIT_TEST(test_groups_that_wait_bring_another_stream)
{
    struct conv_growth growth = {.streams = 6, .most = 8};
    assert_int_equal(count_groups(&growth, 2, 0), 2);
    assert_int_equal(count_groups(&growth, 2, 0), 0); // while it is being opened
    conv_growth_end(&growth, true);
    assert_int_equal(growth.streams, 7);
    assert_true(count_groups(&growth, 5, 0) > 0);
    conv_growth_end(&growth, true);
    assert_int_equal(growth.streams, 8);
    assert_int_equal(count_groups(&growth, 5, 0), 0); // it has the most
}

UNIT_TEST(test_a_device_that_keeps_up_gets_none)
{
    struct conv_growth growth = {.streams = 6, .most = 24};
    assert_int_equal(count_groups(&growth, 1, 0), 0);
    assert_int_equal(count_groups(&growth, 5, 1), 0);
    for (int i = 0; i < 100; i++) { // late now and then
        assert_false(conv_growth_is_due(&growth, 2, 0));
        assert_false(conv_growth_is_due(&growth, 0, 0));
    }
}

UNIT_TEST(test_no_room_ends_it)
{
    struct conv_growth growth = {.streams = 6, .most = 24};
    assert_true(count_groups(&growth, 2, 0) > 0);
    conv_growth_end(&growth, false);
    assert_int_equal(growth.streams, 6);
    assert_int_equal(count_groups(&growth, 2, 0), 0);
}

UNIT_TEST(test_memory_limits_the_streams)
{
    assert_int_equal(conv_growth_most(6, 24, 100, 2400), 24);
    assert_int_equal(conv_growth_most(6, 24, 100, 2399), 23);
    assert_int_equal(conv_growth_most(6, 24, 100, 500), 6); // as asked for
    assert_int_equal(conv_growth_most(6, 0, 100, SIZE_MAX), 6);
    assert_int_equal(conv_growth_most(0, 0, 0, SIZE_MAX), 0); // a backend without streams
}

UNIT_MAIN(NULL, NULL)
