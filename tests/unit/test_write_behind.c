// SPDX-License-Identifier: MIT
// Which bytes are given to the disk early, and when none are. The system call and the clock are
// replaced by this test's.
#include <fcntl.h>

#include "base/clock.h"
#include "io/files/file_sink.h"
#include "support/unit.h"

#define MS ((uint64_t)1000000)
#define MB ((size_t)1 << 20)
#define MOST_CALLS 16

static uint64_t now;
static uint64_t takes;                    // of one call
static struct conv_write_behind *adds_to; // during a call, by another worker
static int result, calls;
static int64_t places[MOST_CALLS];

uint64_t conv_clock_ns(void)
{
    return now;
}

uint64_t conv_clock_thread_ns(void)
{
    return now;
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    struct conv_write_behind *behind = adds_to;
    assert_int_equal(fd, 7);
    assert_true(bytes > 0 && flags != 0);
    assert_true(calls < MOST_CALLS);
    places[calls++] = offset;
    now += takes;
    adds_to = NULL;
    if (behind)
        conv_write_behind_add(behind, 7, MB);
    return result;
}

static int calls_for(struct conv_write_behind *behind, size_t size)
{
    calls = 0;
    conv_write_behind_add(behind, 7, size);
    return calls;
}

static int start(void **)
{
    now = 1000 * MS;
    takes = MS / 10;
    result = 0;
    adds_to = NULL;
    return 0;
}

UNIT_TEST(all_bytes_of_a_file)
{
    struct conv_write_behind behind;
    conv_write_behind_start(&behind, 2);
    assert_int_equal(calls_for(&behind, MB), 1);
    assert_int_equal(places[0], 0);
    assert_int_equal(calls_for(&behind, 20 * MB), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(places[i], (int64_t)(8 * MB) * i);
    assert_int_equal(calls_for(&behind, 1000), 0);
}

UNIT_TEST(a_file_system_without_the_call)
{
    struct conv_write_behind behind;
    conv_write_behind_start(&behind, 2);
    result = -1;
    assert_int_equal(calls_for(&behind, 20 * MB), 1);
}

UNIT_TEST(a_slow_disk)
{
    struct conv_write_behind behind;
    conv_write_behind_start(&behind, 2);
    takes = 100 * MS;
    assert_int_equal(calls_for(&behind, 20 * MB), 1); // the rest is not started
    now += 399 * MS;
    assert_int_equal(calls_for(&behind, MB), 0);
    now += MS;
    takes = MS;
    assert_int_equal(calls_for(&behind, 20 * MB), 3);
}

UNIT_TEST(few_workers_at_a_time)
{
    struct conv_write_behind behind;
    static const int workers[] = {1, 7, 8}, both[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        conv_write_behind_start(&behind, workers[i]);
        adds_to = &behind;
        assert_int_equal(calls_for(&behind, MB), both[i]);
        assert_int_equal(calls_for(&behind, MB), 1);
    }
}

UNIT_MAIN_EACH(start, NULL)
