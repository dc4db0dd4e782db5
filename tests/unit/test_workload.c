// SPDX-License-Identifier: MIT
// The estimate of the workload (src/pipeline/workload.h), on files made for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/walk.h"
#include "pipeline/workload.h"

#define KIB ((uint64_t)1024)

static char folder[] = "/tmp/conv-workload-XXXXXX";

// A file of `size` bytes that begins as a PNG of that kind does; the rest is a hole.
static void make(int number, uint64_t bytes, int bit_depth, int color_type, int interlaced)
{
    char path[100];
    uint8_t head[29] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    head[24] = (uint8_t)bit_depth;
    head[25] = (uint8_t)color_type;
    head[28] = (uint8_t)interlaced;
    snprintf(path, sizeof path, "%s/%04d.png", folder, number);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, sizeof head, file), sizeof head);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
}

static void make_plain(int from, int to, uint64_t bytes)
{
    for (int i = from; i < to; i++)
        make(i, bytes, 8, 2, 0);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(strstr(folder, "workload-") + 9, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[100];
    for (int i = 0; i < 2000; i++) {
        snprintf(path, sizeof path, "%s/%04d.png", folder, i);
        (void)unlink(path);
    }
    snprintf(path, sizeof path, "%s/list", folder);
    (void)unlink(path);
    return rmdir(folder);
}

// A list of the names, since a folder has them in an order of its own.
static const char *list_of(int count)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/list", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < count; i++)
        fprintf(file, "%04d.png\n", i);
    assert_int_equal(fclose(file), 0);
    return path;
}

static struct conv_workload measure(uint64_t plain, uint64_t others, const char *list)
{
    const char *inputs[] = {folder};
    struct conv_walk_config config = {
        .operands =
            {
                .inputs = inputs,
                .input_count = 1,
                .output = "/tmp/conv-workload-out",
                .files_from = list,
            },
    };
    struct conv_workload_thresholds thresholds = {plain, others};
    struct conv_workload workload;
    struct conv_walk *walk;
    assert_int_equal(conv_walk_open(&walk, &config, NULL), CONV_OK);
    conv_workload_measure(&workload, conv_walk_source(walk), &thresholds);
    conv_walk_close(walk);
    return workload;
}

static void test_few_files_are_added_up(void **state)
{
    (void)state;
    make_plain(0, 3, 20 * KIB);
    make_plain(3, 4, 100 * KIB);
    struct conv_workload workload = measure(161 * KIB, UINT64_MAX, NULL);
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 4);
    assert_int_equal(workload.bytes, 160 * KIB);
    assert_int_equal(measure(160 * KIB, UINT64_MAX, NULL).kind, CONV_WORKLOAD_LARGE);
}

static void test_many_are_like_the_first(void **state)
{
    (void)state;
    make_plain(0, 256, 100 * KIB);
    make_plain(256, 1000, 1); // not opened
    struct conv_workload workload = measure(UINT64_MAX, UINT64_MAX, list_of(1000));
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 1000);
    assert_int_equal(workload.bytes, 100000 * KIB);
    workload =
        measure(30000 * KIB, UINT64_MAX, list_of(1000)); // and the walk goes no further than that
    assert_int_equal(workload.kind, CONV_WORKLOAD_LARGE);
    assert_int_equal(workload.images, 300);
}

static void test_small_ones_are_not_worth_a_walk(void **state)
{
    (void)state;
    make_plain(0, 400, 15 * KIB);
    struct conv_workload workload = measure(UINT64_MAX, UINT64_MAX, NULL);
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 256);
}

static void test_what_a_device_cannot_decode_is_another_matter(void **state)
{
    (void)state;
    static const int kinds[][3] = {{8, 3, 0}, {4, 0, 0}, {8, 6, 1}}; // palette, 4 bits, interlaced
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 64; i++)
            make(i, 100 * KIB, kinds[k][0], kinds[k][1], kinds[k][2]);
        assert_int_equal(measure(1, 6401 * KIB, NULL).kind, CONV_WORKLOAD_SMALL);
        assert_int_equal(measure(1, 6400 * KIB, NULL).kind, CONV_WORKLOAD_LARGE);
    }
    make_plain(0, 48, 100 * KIB); // three of the four that are opened
    const char *list = list_of(64);
    assert_int_equal(measure(6400 * KIB, UINT64_MAX, list).kind, CONV_WORKLOAD_LARGE);
    make(32, 100 * KIB, 16, 4, 1);
    assert_int_equal(measure(6400 * KIB, UINT64_MAX, list).kind, CONV_WORKLOAD_SMALL);
}

static void test_what_is_no_png_is_not_plain(void **state)
{
    (void)state;
    char path[100];
    make_plain(0, 1, 100 * KIB);
    snprintf(path, sizeof path, "%s/0000.png", folder);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, 100 << 10), 0);
    assert_int_equal(measure(1, UINT64_MAX, NULL).kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(measure(1, UINT64_MAX, NULL).kind, CONV_WORKLOAD_SMALL);
}

static void test_a_list_from_a_pipe_or_device_is_not_walked_twice(void **state)
{
    (void)state;
    make_plain(0, 1, 100 * KIB);
    struct conv_walk_config config = {.operands.files_from = list_of(1)};
    assert_true(conv_walk_is_repeatable(&config));
    config.operands.files_from = "-";
    assert_false(conv_walk_is_repeatable(&config));
    config.operands.files_from = "/dev/null";
    assert_false(conv_walk_is_repeatable(&config));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_few_files_are_added_up),
        TEST(test_many_are_like_the_first),
        TEST(test_small_ones_are_not_worth_a_walk),
        TEST(test_what_a_device_cannot_decode_is_another_matter),
        TEST(test_what_is_no_png_is_not_plain),
        TEST(test_a_list_from_a_pipe_or_device_is_not_walked_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
