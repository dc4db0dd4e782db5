// SPDX-License-Identifier: MIT
// The page's timeline loses no time when its bins become wider.
#include "report/trace.h"
#include "support/unit.h"

static uint64_t sum(const struct conv_timeline *timeline, enum conv_stage stage)
{
    uint64_t ns = 0;
    for (int i = 0; i < CONV_TIMELINE_BINS; i++)
        ns += timeline->ns[i][stage];
    return ns;
}

UNIT_TEST(time_is_kept_where_it_was)
{
    static struct conv_timeline timeline;
    conv_timeline_init(&timeline);
    uint64_t decoded = 0, at = 0;
    for (int i = 0; i < 20000; i++) { // from microseconds to half an hour
        uint64_t length = 1000 + (uint64_t)i * (uint64_t)i / 2;
        conv_timeline_add(&timeline, CONV_STAGE_DECODE, at, at + length);
        conv_timeline_add(&timeline, CONV_STAGE_ENCODE, at, at);
        decoded += length;
        at += 2 * length;
    }
    assert_int_equal(sum(&timeline, CONV_STAGE_DECODE), decoded);
    assert_int_equal(sum(&timeline, CONV_STAGE_ENCODE), 0);
    assert_true(at <= CONV_TIMELINE_BINS * timeline.width);
    assert_true(2 * at > CONV_TIMELINE_BINS * timeline.width); // and no wider than need be
    for (uint64_t i = 1; i + 2 < at / timeline.width; i++) {
        assert_true(timeline.ns[i][CONV_STAGE_DECODE] > timeline.width * 4 / 10);
        assert_true(timeline.ns[i][CONV_STAGE_DECODE] < timeline.width * 6 / 10);
    }
}

UNIT_TEST(rows_of_different_width_meet)
{
    static struct conv_timeline a, b;
    conv_timeline_init(&a);
    conv_timeline_init(&b);
    conv_timeline_add(&a, CONV_STAGE_READ, 5000000, 5000100);
    conv_timeline_add(&b, CONV_STAGE_READ, 900000000, 900000100);
    conv_timeline_widen(&a, b.width);
    assert_int_equal(a.width, b.width);
    assert_int_equal(a.ns[5000000 / a.width][CONV_STAGE_READ], 100);
}

UNIT_MAIN(NULL, NULL)
