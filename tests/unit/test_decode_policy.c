// SPDX-License-Identifier: MIT
// The rule of src/run/decode_policy.h on made-up times.
#include "run/decode_policy.h"
#include "support/unit.h"

#define MS ((uint64_t)1000000)
#define PHOTO 700000 // bytes of a stream
#define PHOTO_SAMPLES ((size_t)768 * 512 * 3)
#define PHOTO_WORK conv_decode_policy_work(PHOTO_SAMPLES, PHOTO)
#define START (10000 * MS)
#define NOW (START + 100 * MS)

// Sixteen workers that take 4 ms per image; together they take 0.25 ms per image.
static struct conv_decode_policy measured(void)
{
    struct conv_decode_policy policy;
    conv_decode_policy_init(&policy, 16, START);
    policy.streams = 4;
    policy.stream_bytes = (size_t)80 << 20;
    for (int i = 0; i < 10; i++)
        conv_decode_policy_note_worker(&policy, PHOTO_WORK, 4 * MS);
    return policy;
}

static void note_device(struct conv_decode_policy *policy, int images, uint64_t ns)
{
    conv_decode_policy_note_device(policy, images, NOW - ns, PHOTO, NOW);
}

static bool begins_on_device(size_t samples, size_t bytes, int parts, uint64_t images)
{
    struct conv_decode_policy policy;
    double work = conv_decode_policy_work(samples, bytes);
    conv_decode_policy_init(&policy, 16, START);
    policy.streams = 6;
    policy.stream_bytes = (size_t)80 << 20;
    policy.device_required = true;
    conv_decode_policy_offer(&policy, work);
    bool decodes = conv_decode_policy_is_device_faster(&policy, samples, parts, work) &&
                   conv_decode_policy_is_worthwhile(&policy, bytes / (size_t)parts, images, START);
    assert_true(conv_decode_policy_may_begin(&policy));
    // While the device is being opened and its groups are full, no worker decodes, either.
    conv_decode_policy_note_streams(&policy, 6, false, START);
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    return decodes;
}

// Each worker first decoded an image, to measure: one of 24 megapixels took it 100 ms and more.
UNIT_TEST(test_the_first_images_are_for_the_device_if_there_are_many)
{
    assert_true(begins_on_device(PHOTO_SAMPLES, 164000, 64, 10000)); // JPEG
    assert_true(begins_on_device(72000000, 2840000, 64, 96));
    assert_true(begins_on_device(PHOTO_SAMPLES, PHOTO, 1, 10000)); // PNG
    assert_false(begins_on_device(PHOTO_SAMPLES, 164000, 64, 100));
    assert_false(begins_on_device(128 * 128 * 3, 6800, 64, 2000));
    assert_false(begins_on_device(72000000, 2840000, 64, 10));
    assert_false(begins_on_device((size_t)29 << 20, 300000, 1, 1000)); // a screenshot
}

UNIT_TEST(test_the_last_images_are_the_workers)
{
    struct conv_decode_policy policy = measured();
    for (int i = 0; i < 50; i++)
        note_device(&policy, 1, 100 * MS);
    policy.device_count = 0;
    uint64_t now = policy.start + 100 * MS;
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 410, now)); // 102 ms of work
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 390, now));
}

UNIT_TEST(test_a_long_stream_is_late)
{
    struct conv_decode_policy policy = measured();
    for (int i = 0; i < 50; i++)
        note_device(&policy, 1, 100 * MS);
    policy.device_count = 0;
    uint64_t now = policy.start;
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO / 100, 410, now));
    assert_false(conv_decode_policy_is_worthwhile(&policy, 2 * PHOTO, 410, now));
    assert_true(conv_decode_policy_is_worthwhile(&policy, 2 * PHOTO, 820, now));
}

UNIT_TEST(test_what_is_left_is_unknown)
{
    struct conv_decode_policy policy = measured();
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 20, policy.start + 1300 * MS));
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 20, policy.start + 1500 * MS));
    // The time that a device has saved may be risked again.
    note_device(&policy, 400, 70 * MS);
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 20, policy.start + 1 * MS));
}

UNIT_TEST(test_a_slow_device_is_believed_at_once)
{
    struct conv_decode_policy policy = measured();
    uint64_t now = policy.start + 2000 * MS;
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, now));
    note_device(&policy, 1, 3000 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, now));
    note_device(&policy, 1, 50 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, now));
    for (int i = 0; i < 20; i++)
        note_device(&policy, 1, 50 * MS);
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, now));
}

UNIT_TEST(test_what_was_slow_once_is_tried_again)
{
    struct conv_decode_policy policy = measured();
    note_device(&policy, 1, 3000 * MS);
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, NOW + 29000 * MS));
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, NOW + 31000 * MS));
    policy.in_flight = 1; // one is being tried
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 1000, NOW + 31000 * MS));
}

UNIT_TEST(test_waking_up_is_not_the_groups_time)
{
    struct conv_decode_policy policy = measured();
    conv_decode_policy_note_streams(&policy, 4, false, START);
    assert_true(policy.is_pending);
    conv_decode_policy_note_streams(&policy, 4, true, START + 5000 * MS);
    assert_false(policy.is_pending);
    uint64_t now = START + 5050 * MS;
    conv_decode_policy_note_device(&policy, 20, START + 10 * MS, PHOTO,
                                   now); // took 50 ms of its own
    policy.device_count = 0;
    assert_true(
        conv_decode_policy_is_worthwhile(&policy, PHOTO, 4000, now)); // 1 s of the workers' time
    conv_decode_policy_note_streams(&policy, 8, true, now);           // more of them are no news
    conv_decode_policy_note_device(&policy, 20, now - 3000 * MS, PHOTO, now);
    policy.device_count = 0;
    assert_true(conv_decode_policy_is_worthwhile(&policy, PHOTO, 4000, now));
    // Handed over later, it has taken all of its time itself.
    conv_decode_policy_note_device(&policy, 20, now, PHOTO, now + 3000 * MS);
    policy.device_count = 0;
    assert_false(conv_decode_policy_is_worthwhile(&policy, PHOTO, 4000, now + 3000 * MS));
}

UNIT_TEST(test_workers_help_in_time_that_they_have)
{
    struct conv_decode_policy policy = measured(); // 4 ms an image
    assert_true(
        conv_decode_policy_may_decode_on_cpu(&policy)); // not every group goes through a device
    assert_true(conv_decode_policy_wait_limit_ns(&policy) > 1000000 * MS);
    policy.device_required = true;
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    assert_int_equal(conv_decode_policy_wait_limit_ns(&policy), 4 * MS);
    conv_decode_policy_note_idle(&policy, 6 * MS);
    assert_true(conv_decode_policy_may_decode_on_cpu(&policy));
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    conv_decode_policy_note_idle(&policy, 2 * MS);
    assert_true(conv_decode_policy_may_decode_on_cpu(&policy));
    conv_decode_policy_note_idle(&policy, 1000 * MS); // is not kept for longer than 16 x 4 ms
    for (int i = 0; i < 16; i++)
        assert_true(conv_decode_policy_may_decode_on_cpu(&policy));
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    policy.is_pending = true;
    conv_decode_policy_note_idle(&policy, 1000 * MS);
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    assert_true(conv_decode_policy_wait_limit_ns(&policy) > 1000000 * MS);
    policy.is_pending = false;
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    policy.failures = 12; // the device has failed too often
    assert_true(conv_decode_policy_may_decode_on_cpu(&policy));
    policy.failures = 0;
    assert_false(conv_decode_policy_may_decode_on_cpu(&policy));
    policy.streams = 0; // all devices are lost
    assert_true(conv_decode_policy_may_decode_on_cpu(&policy));
    assert_true(conv_decode_policy_wait_limit_ns(&policy) > 1000000 * MS);
}

static int count_groups(struct conv_decode_policy policy)
{
    int most = 0;
    for (policy.in_flight = 0; conv_decode_policy_may_begin(&policy); policy.in_flight++)
        most++;
    return most;
}

UNIT_TEST(test_every_stream_has_a_group_waiting)
{
    static const int most[][2] = {{0, 0}, {1, 6}, {2, 8}, {3, 10}, {4, 12}, {8, 20}, {16, 28}};
    struct conv_decode_policy policy = measured();
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        policy.streams = most[i][0];
        policy.measured = policy.device_required = false;
        assert_int_equal(count_groups(policy), most[i][1] > 1 ? 1 : most[i][1]); // a try
        policy.measured = true;
        assert_int_equal(count_groups(policy), most[i][1]);
        policy.measured = false;
        policy.device_required = true;
        assert_int_equal(count_groups(policy), most[i][1]);
    }
}

UNIT_TEST(test_who_fails_gets_less_till_it_does_not)
{
    struct conv_decode_policy policy = measured();
    note_device(&policy, 20, 70 * MS);
    for (int left = 12; left >= 0; left--) {
        assert_int_equal(count_groups(policy), left);
        conv_decode_policy_note_failure(&policy);
    }
    assert_int_equal(count_groups(policy), 0);
    note_device(&policy, 20, 70 * MS);
    assert_int_equal(count_groups(policy), 12);
}

// 1,000 screenshots took 5.9 s with --device cuda and 1.9 s on 16 cores: a GPU decodes a dozen
// of them at once, which hold back the images that only have to be encoded.
UNIT_TEST(test_workers_decode_large_flat_images)
{
    struct conv_decode_policy policy = measured();
    const size_t screen = (size_t)29 << 20, file = 300000;
    double work = conv_decode_policy_work(screen, file);
    assert_false(conv_decode_policy_is_device_faster(&policy, screen, 1, work));
    assert_true(conv_decode_policy_is_device_faster(&policy, PHOTO_SAMPLES, 1, PHOTO_WORK));
    assert_true(conv_decode_policy_is_device_faster(&policy, screen, 64, work)); // many parts
    policy.workers = 1; // the time of one is 16 times as long
    assert_true(conv_decode_policy_is_device_faster(&policy, screen, 1, work));
    policy.streams = 0; // no device is left
    assert_false(conv_decode_policy_is_device_faster(&policy, PHOTO_SAMPLES, 1, PHOTO_WORK));
}

UNIT_MAIN(NULL, NULL)
