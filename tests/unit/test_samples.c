// SPDX-License-Identifier: MIT
// The data about single images for a page stays bounded, and its timeline loses no time.
#include <stdio.h>

#include "report/samples.h"
#include "report/trace.h"
#include "support/unit.h"

// --- reasons, times, slices ----------------------------------------------------------------------

static void add_failure(struct conv_samples *samples, const char *reason)
{
    struct conv_record record = {
        .input = "a.png", .reason = reason, .outcome = CONV_OUTCOME_FAILED};
    conv_samples_add(samples, &record);
}

UNIT_TEST(reasons_differ_in_more_than_numbers)
{
    struct conv_samples samples = {0};
    add_failure(&samples, "7 bytes at 12");
    add_failure(&samples, "7 bytes at 12");
    assert_string_equal(samples.reasons[0].text, "7 bytes at 12");
    add_failure(&samples, "7 bytes at 1234");
    add_failure(&samples, "70 bytes at 12");
    add_failure(&samples, "7 bytes in 12");
    add_failure(&samples, "7 bytes at ");
    assert_int_equal(samples.reason_count, 3);
    assert_string_equal(samples.reasons[0].text, "N bytes at N");
    assert_int_equal(samples.reasons[0].count, 4);
    char text[3] = "aa";
    for (int i = 0; i < 26 * 26; i++) {
        text[0] = (char)('a' + i / 26);
        text[1] = (char)('a' + i % 26);
        add_failure(&samples, text);
    }
    assert_int_equal(samples.reason_count, CONV_SAMPLES_MOST_REASONS);
    assert_int_equal(samples.other_failures, 26 * 26 + 3 - CONV_SAMPLES_MOST_REASONS);
    conv_samples_free(&samples);
}

// A quantile was once the middle of a bin, above the slowest image.
UNIT_TEST(quantiles_are_exact_and_at_most_the_slowest)
{
    static const int counts[] = {1, 2, 9, 100, 4096, 4097, 6000};
    char name[16];
    assert_true(conv_samples_quantile(&(struct conv_samples){0}, 0.5) == 0);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        struct conv_samples samples = {0};
        int count = counts[k];
        for (int i = 1; i <= count; i++) { // 1 to `count` times 10.01 us, in another order
            int time = (int)((i * 7919L) % count) + 1;
            snprintf(name, sizeof name, "%d", time);
            struct conv_record record = {.input = name, .outcome = CONV_OUTCOME_DONE};
            record.ns[CONV_STAGE_DECODE] = (uint64_t)time * 9000;
            record.ns[CONV_STAGE_ENCODE] = (uint64_t)time * 1010;
            conv_samples_add(&samples, &record);
        }
        double slowest = (double)samples.slowest[0].total;
        assert_int_equal(samples.slow_count, count < 10 ? count : CONV_SAMPLES_MOST_SLOWEST);
        for (int i = 0; i < samples.slow_count; i++) {
            snprintf(name, sizeof name, "%d", count - i);
            assert_string_equal(samples.slowest[i].input, name);
        }
        for (int percent = 0; percent <= 100; percent++) {
            double found = conv_samples_quantile(&samples, percent / 100.0);
            int rank = (percent * count + 99) / 100;
            double right = 10010.0 * (rank > 0 ? rank : 1);
            assert_true(found <= slowest);
            if (count <= CONV_SAMPLES_EXACT) {
                // 0.07 * 100 is more than 7
                assert_true(found >= right && found <= right + 10010);
            } else {
                assert_true(percent == 0 || (found > right / 1.05 && found < right * 1.05));
            }
        }
        assert_true(conv_samples_quantile(&samples, 1) >= slowest / 1.05);
        conv_samples_free(&samples);
    }
}

UNIT_TEST(many_slices_are_none)
{
    struct conv_slices slices = {0};
    char name[100];
    memset(name, 'x', sizeof name);
    memcpy(name + 50, "\xC3\xA9", 2); // é, the first byte of which is cut off
    memcpy(name + 90, "end", 4);
    conv_slices_add(&slices, 1, 10, 20, name + 90 - CONV_SLICES_NAME + 4);
    conv_slices_add(&slices, 2, 20, 30, name);
    conv_slices_add(&slices, 3, 30, 40, name);
    assert_int_equal(slices.list[1].text, slices.list[2].text);
    const char *kept = conv_slices_name(&slices, slices.list[1].text);
    assert_true(strlen(kept) < CONV_SLICES_NAME && ((unsigned char)*kept & 0xC0) != 0x80);
    assert_string_equal(kept + strlen(kept) - 3, "end");
    for (int i = slices.count; i < CONV_SLICES_MOST; i++)
        conv_slices_add(&slices, 0, 0, 1, "a");
    assert_false(slices.overflowed);
    conv_slices_add(&slices, 0, 0, 1, "a");
    conv_slices_add(&slices, 0, 0, 1, "a");
    assert_true(slices.overflowed && slices.count == 0);
    conv_slices_free(&slices);
}

// --- bins that become wider ----------------------------------------------------------------------

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
