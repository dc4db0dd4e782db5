// SPDX-License-Identifier: MIT
// What a run sets in its environment for the driver (set_up_process in src/engine/engine.h).
#include "engine/engine.h"
#include "support/unit.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define COPY "CUDA_DEVICE_MAX_COPY_CONNECTIONS"

// Fails unless the variable is `after` once it was `before` (NULL: not set).
static void check_visible(const char *before, bool first_only, const char *after)
{
    if (before)
        assert_int_equal(setenv(VISIBLE, before, true), 0);
    else
        assert_int_equal(unsetenv(VISIBLE), 0);
    conv_device_cuda.set_up_process(first_only);
    const char *now = getenv(VISIBLE);
    if (after)
        assert_string_equal(now ? now : "(not set)", after);
    else
        assert_null(now);
}

UNIT_TEST(test_only_the_first_device_is_shown)
{
    if (!conv_device_cuda.built)
        skip();
    check_visible(NULL, true, "0");
    check_visible("2,1", true, "2");
    check_visible("GPU-8d1a,GPU-9c2b,GPU-7d3e", true, "GPU-8d1a");
    check_visible("3", true, "3");
    check_visible("", true, ""); // none
}

UNIT_TEST(test_several_devices_stay_visible)
{
    if (!conv_device_cuda.built)
        skip();
    check_visible(NULL, false, NULL);
    check_visible("2,1", false, "2,1");
}

UNIT_TEST(test_the_users_number_of_channels_stays)
{
    if (!conv_device_cuda.built)
        skip();
    assert_int_equal(unsetenv(COPY), 0);
    conv_device_cuda.set_up_process(false);
    assert_string_equal(getenv(COPY), "1");
    assert_int_equal(setenv(COPY, "4", true), 0);
    conv_device_cuda.set_up_process(false);
    assert_string_equal(getenv(COPY), "4");
}

UNIT_MAIN(NULL, NULL)
