// SPDX-License-Identifier: MIT
// Who decodes: the rule of src/pipeline/decode_policy.h, on made-up times.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pipeline/decode_policy.h"

#define MS ((uint64_t)1000000)
#define PHOTO 700000 // bytes of a stream
#define START (10000 * MS)
#define NOW (START + 100 * MS)

// Sixteen workers that take 4 ms an image: all of them, 0.25 ms.
static struct conv_decode_policy measured(void)
{
    struct conv_decode_policy balance;
    conv_decode_policy_init(&balance, 16, START);
    balance.streams = 4;
    for (int i = 0; i < 10; i++)
        conv_decode_policy_note_worker(&balance, 4 * MS);
    return balance;
}

static void note_device(struct conv_decode_policy *balance, int images, uint64_t ns)
{
    conv_decode_policy_note_device(balance, images, NOW - ns, PHOTO, NOW);
}

static void test_nothing_measured_nothing_handed_over(void **state)
{
    (void)state;
    struct conv_decode_policy balance;
    conv_decode_policy_init(&balance, 16, 0);
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000000, 1000000 * MS));
}

static void test_the_last_images_are_the_workers(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    for (int i = 0; i < 50; i++)
        note_device(&balance, 1, 100 * MS);
    balance.device_count = 0;
    uint64_t now = balance.start + 100 * MS;
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 410, now)); // 102 ms of work
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 390, now));
}

static void test_a_long_stream_is_late(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    for (int i = 0; i < 50; i++)
        note_device(&balance, 1, 100 * MS);
    balance.device_count = 0;
    uint64_t now = balance.start;
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO / 100, 410, now));
    assert_false(conv_decode_policy_is_worthwhile(&balance, 2 * PHOTO, 410, now));
    assert_true(conv_decode_policy_is_worthwhile(&balance, 2 * PHOTO, 820, now));
}

static void test_what_is_left_is_unknown(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 20, balance.start + 1300 * MS));
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 20, balance.start + 1500 * MS));
    // What a device has saved may be risked again.
    note_device(&balance, 400, 70 * MS);
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 20, balance.start + 1 * MS));
}

static void test_a_slow_device_is_believed_at_once(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    uint64_t now = balance.start + 2000 * MS;
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, now));
    note_device(&balance, 1, 3000 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, now));
    note_device(&balance, 1, 50 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, now));
    for (int i = 0; i < 20; i++)
        note_device(&balance, 1, 50 * MS);
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, now));
}

static void test_what_was_slow_once_is_tried_again(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    note_device(&balance, 1, 3000 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, NOW + 29000 * MS));
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, NOW + 31000 * MS));
    balance.in_flight = 1; // one is being tried
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 1000, NOW + 31000 * MS));
}

static void test_waking_up_is_not_the_groups_time(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    conv_decode_policy_note_streams(&balance, 4, false, START);
    assert_true(balance.awaited);
    conv_decode_policy_note_streams(&balance, 4, true, START + 5000 * MS);
    assert_false(balance.awaited);
    uint64_t now = START + 5050 * MS;
    conv_decode_policy_note_device(&balance, 20, START + 10 * MS, PHOTO,
                                   now); // took 50 ms of its own
    balance.device_count = 0;
    assert_true(
        conv_decode_policy_is_worthwhile(&balance, PHOTO, 4000, now)); // 1 s of the workers' time
    conv_decode_policy_note_streams(&balance, 8, true, now);           // more of them are no news
    conv_decode_policy_note_device(&balance, 20, now - 3000 * MS, PHOTO, now);
    balance.device_count = 0;
    assert_true(conv_decode_policy_is_worthwhile(&balance, PHOTO, 4000, now));
    // Handed over later, it has taken all of its time itself.
    conv_decode_policy_note_device(&balance, 20, now, PHOTO, now + 3000 * MS);
    balance.device_count = 0;
    assert_false(conv_decode_policy_is_worthwhile(&balance, PHOTO, 4000, now + 3000 * MS));
}

static void test_workers_help_in_time_that_they_have(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured(); // 4 ms an image
    assert_true(
        conv_decode_policy_may_decode_on_cpu(&balance)); // not every group goes through a device
    assert_true(conv_decode_policy_wait_limit_ns(&balance) > 1000000 * MS);
    balance.sure = true;
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    assert_int_equal(conv_decode_policy_wait_limit_ns(&balance), 4 * MS);
    conv_decode_policy_note_idle(&balance, 6 * MS);
    assert_true(conv_decode_policy_may_decode_on_cpu(&balance));
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    conv_decode_policy_note_idle(&balance, 2 * MS);
    assert_true(conv_decode_policy_may_decode_on_cpu(&balance));
    conv_decode_policy_note_idle(&balance, 1000 * MS); // is not kept for longer than 16 x 4 ms
    for (int i = 0; i < 16; i++)
        assert_true(conv_decode_policy_may_decode_on_cpu(&balance));
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    balance.awaited = true;
    conv_decode_policy_note_idle(&balance, 1000 * MS);
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    assert_true(conv_decode_policy_wait_limit_ns(&balance) > 1000000 * MS);
    balance.awaited = false;
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    balance.failures = 12; // nothing is to be had from the device
    assert_true(conv_decode_policy_may_decode_on_cpu(&balance));
    balance.failures = 0;
    assert_false(conv_decode_policy_may_decode_on_cpu(&balance));
    balance.streams = 0; // all devices are lost
    assert_true(conv_decode_policy_may_decode_on_cpu(&balance));
    assert_true(conv_decode_policy_wait_limit_ns(&balance) > 1000000 * MS);
}

static int count_groups(struct conv_decode_policy balance)
{
    int most = 0;
    for (balance.in_flight = 0; conv_decode_policy_may_begin(&balance); balance.in_flight++)
        most++;
    return most;
}

static void test_every_stream_has_a_group_waiting(void **state)
{
    (void)state;
    static const int most[][2] = {{0, 0}, {1, 6}, {2, 8}, {3, 10}, {4, 12}, {16, 36}};
    struct conv_decode_policy balance = measured();
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        balance.streams = most[i][0];
        balance.measured = balance.sure = false;
        assert_int_equal(count_groups(balance), most[i][1] > 1 ? 1 : most[i][1]); // a try
        balance.measured = true;
        assert_int_equal(count_groups(balance), most[i][1]);
        balance.measured = false;
        balance.sure = true;
        assert_int_equal(count_groups(balance), most[i][1]);
    }
}

static void test_who_fails_gets_less_till_it_does_not(void **state)
{
    (void)state;
    struct conv_decode_policy balance = measured();
    note_device(&balance, 20, 70 * MS);
    for (int left = 12; left >= 0; left--) {
        assert_int_equal(count_groups(balance), left);
        conv_decode_policy_note_failure(&balance);
    }
    assert_int_equal(count_groups(balance), 0);
    note_device(&balance, 20, 70 * MS);
    assert_int_equal(count_groups(balance), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_measured_nothing_handed_over),
        cmocka_unit_test(test_the_last_images_are_the_workers),
        cmocka_unit_test(test_a_long_stream_is_late),
        cmocka_unit_test(test_what_is_left_is_unknown),
        cmocka_unit_test(test_a_slow_device_is_believed_at_once),
        cmocka_unit_test(test_what_was_slow_once_is_tried_again),
        cmocka_unit_test(test_waking_up_is_not_the_groups_time),
        cmocka_unit_test(test_workers_help_in_time_that_they_have),
        cmocka_unit_test(test_every_stream_has_a_group_waiting),
        cmocka_unit_test(test_who_fails_gets_less_till_it_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
