// SPDX-License-Identifier: MIT
// The estimate of the workload (src/run/workload.h), on files made for it.
#include <stdio.h>
#include <unistd.h>

#include "io/walk/walk.h"
#include "run/workload.h"
#include "support/folder.h"
#include "support/jpeg_make.h"
#include "support/unit.h"

#define KIB ((uint64_t)1024)

static const char *name_of(int number)
{
    static char name[16];
    snprintf(name, sizeof name, "%04d.png", number);
    return name;
}

static const char *path_of(int number)
{
    return folder_path(name_of(number));
}

// What is beyond the file is a hole.
static void write_file(int number, struct png_file *file, uint64_t bytes)
{
    folder_write_bytes(name_of(number), file->data, file->size);
    assert_int_equal(truncate(path_of(number), (off_t)bytes), 0);
    png_make_free(file);
}

// A file of `bytes` bytes that begins as a PNG of that kind does.
static void make(int number, uint64_t bytes, int bit_depth, int color_type, int interlaced)
{
    struct png_file file = {0};
    png_make_head(&file, 600, 300, bit_depth, color_type);
    file.data[28] = (uint8_t)interlaced;
    write_file(number, &file, bytes);
}

static void make_plain(int from, int to, uint64_t bytes)
{
    for (int i = from; i < to; i++)
        make(i, bytes, 8, 2, 0);
}

// A list of the names, since a folder has them in an order of its own.
static const char *list_of(int count)
{
    char names[9 * 1000 + 1] = "";
    for (int i = 0; i < count; i++)
        snprintf(names + 9 * i, sizeof names - 9 * (size_t)i, "%04d.png\n", i);
    folder_write("list", names);
    return folder_path("list");
}

static struct conv_workload measure_gain(const struct conv_workload_choice *choice,
                                         const char *list)
{
    const char *inputs[] = {folder_path("")};
    struct conv_walk_config config = {
        .operands =
            {
                .inputs = inputs,
                .input_count = 1,
                .output = "/tmp/conv-workload-out",
                .files_from = list,
            },
    };
    struct conv_workload workload;
    struct conv_walk *walk;
    assert_ok(conv_walk_open(&walk, &config, NULL));
    conv_workload_measure(&workload, conv_walk_source(walk), choice);
    conv_walk_close(walk);
    return workload;
}

#define NEVER ((uint64_t)1 << 60)
// A workload counts as large from `plain` or `others` bytes of files.
static struct conv_workload measure(uint64_t plain, uint64_t others, const char *list)
{
    const struct conv_workload_choice choice = {
        .plain[CONV_DEVICE_PNG].byte = 1e9 / (double)plain,
        .others[CONV_DEVICE_PNG].byte = 1e9 / (double)others,
        .cost = 1e9 - 1,
        .name = 1e9 / (double)(plain < others ? plain : others) * 1600,
    };
    return measure_gain(&choice, list);
}

UNIT_TEST(test_few_files_are_added_up)
{
    make_plain(0, 3, 20 * KIB);
    make_plain(3, 4, 100 * KIB);
    struct conv_workload workload = measure(161 * KIB, NEVER, NULL);
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 4);
    assert_int_equal(workload.bytes, 160 * KIB);
    assert_int_equal(measure(160 * KIB, NEVER, NULL).kind, CONV_WORKLOAD_LARGE);
}

UNIT_TEST(test_many_are_like_the_first)
{
    make_plain(0, 256, 100 * KIB);
    make_plain(256, 1000, 1); // not opened
    struct conv_workload workload = measure(NEVER, NEVER, list_of(1000));
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 1000);
    assert_int_equal(workload.bytes, 100000 * KIB);
    workload = measure(30000 * KIB, NEVER, list_of(1000)); // and the walk goes no further than that
    assert_int_equal(workload.kind, CONV_WORKLOAD_LARGE);
    assert_int_equal(workload.images, 300);
}

UNIT_TEST(test_small_ones_are_not_worth_a_walk)
{
    make_plain(0, 400, 15 * KIB);
    struct conv_workload workload = measure(NEVER, NEVER, NULL);
    assert_int_equal(workload.kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(workload.images, 256);
}

UNIT_TEST(test_what_a_device_cannot_decode_is_another_matter)
{
    static const int kinds[][3] = {{8, 3, 0}, {4, 0, 0}, {8, 6, 1}}; // palette, 4 bits, interlaced
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 64; i++)
            make(i, 100 * KIB, kinds[k][0], kinds[k][1], kinds[k][2]);
        assert_int_equal(measure(1, 6401 * KIB, NULL).kind, CONV_WORKLOAD_SMALL);
        assert_int_equal(measure(1, 6400 * KIB, NULL).kind, CONV_WORKLOAD_LARGE);
    }
    make_plain(0, 32, 100 * KIB); // half of those that are opened
    const char *list = list_of(64);
    assert_int_equal(measure(3200 * KIB, NEVER, list).kind, CONV_WORKLOAD_LARGE);
    assert_int_equal(measure(3201 * KIB, NEVER, list).kind, CONV_WORKLOAD_SMALL);
}

// Each image saves 10 us and 0.1 ns per byte of its samples, and loses 0.2 ns per byte of its file.
UNIT_TEST(test_pixels_and_files_count)
{
    struct conv_workload_choice choice = {.plain[CONV_DEVICE_PNG] = {10e3, 0.1, -0.2, 0},
                                          .cost = 1};
    make_plain(0, 100, 20000);
    double each = 10e3 + 0.1 * 600 * 300 * 3 - 0.2 * 20000;
    assert_float_equal(measure_gain(&choice, NULL).saved, (float)(100 * each), 1);
    choice.cost = 100 * each + 1;
    assert_int_equal(measure_gain(&choice, NULL).kind, CONV_WORKLOAD_SMALL);
    choice.cost = 100 * each - 1;
    assert_int_equal(measure_gain(&choice, NULL).kind, CONV_WORKLOAD_LARGE);
    make(0, 50, 8, 2, 0); // more pixels than 50 bytes hold
    choice.plain[CONV_DEVICE_PNG] = (struct conv_workload_gain){0, 1, 0, 0};
    assert_true(measure_gain(&choice, list_of(1)).saved <= 1032 * 50);
}

// A device is slow with large images: those, the CPU decodes.
UNIT_TEST(test_large_images_save_nothing)
{
    const double samples = 600 * 300 * 3;
    struct conv_workload_choice choice = {
        .plain[CONV_DEVICE_PNG] = {10e3, 0, 0, -20e3 / samples / samples}, .cost = 1};
    make_plain(0, 50, 20000);
    assert_float_equal(measure_gain(&choice, NULL).saved, 0, 1);
    choice.plain[CONV_DEVICE_PNG].square = -1e3 / samples / samples;
    assert_float_equal(measure_gain(&choice, NULL).saved, 50 * 9e3, 1);
}

// How many images of a kind make a device worth its cost, by the measured rates.
static int count_enough(const struct conv_workload_gain *gain, double cost, double samples,
                        double bytes)
{
    double each = gain->image + gain->sample * samples + gain->byte * bytes +
                  gain->square * samples * samples;
    return each > 0 ? (int)(cost / each) : INT32_MAX;
}

// The numbers agree with measurements: see docs/benchmarks.md.
UNIT_TEST(test_rates_agree_with_measurements)
{
    struct conv_workload_choice choice = conv_workload_choice_for(16, true, true, false);
    double photo = 768 * 512 * 3, icon = 128 * 128 * 4, screen = 28.6e6;
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, photo, 640e3), 1100,
                    1300);
    assert_in_range(count_enough(&choice.others[CONV_DEVICE_PNG], choice.cost, photo, 640e3), 3000,
                    7000);
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, icon, 5.6e3), 45000,
                    55000);
    assert_int_equal(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, screen, 300e3),
                     INT32_MAX);
    choice = conv_workload_choice_for(2, true, true, false);
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, photo, 640e3), 100,
                    200);
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, icon, 5.6e3), 4500,
                    6000);
    choice = conv_workload_choice_for(16, false, false, false);
    assert_int_equal(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, photo, 640e3),
                     INT32_MAX);
    choice = conv_workload_choice_for(16, false, true, false);
    assert_true(choice.plain[CONV_DEVICE_PNG].sample == choice.others[CONV_DEVICE_PNG].sample);
    choice =
        conv_workload_choice_for(16, true, true, true); // saved: 40,000 icons took 790 to 984 ms
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, photo, 640e3), 1100,
                    1300);
    assert_in_range(count_enough(&choice.plain[CONV_DEVICE_PNG], choice.cost, icon, 5.6e3), 120000,
                    160000);
}

// A device works on many parts of a JPEG at once, so large ones are worth most.
UNIT_TEST(test_large_jpegs_are_worth_a_device)
{
    struct conv_workload_choice choice = conv_workload_choice_for(16, true, true, true);
    const struct conv_workload_gain *gain = &choice.plain[CONV_DEVICE_JPEG];
    assert_in_range(count_enough(gain, choice.cost, 768 * 512 * 3, 110e3), 1200, 1600);
    assert_in_range(count_enough(gain, choice.cost, 72e6, 2.8e6), 20, 30);
    gain = &choice.others[CONV_DEVICE_JPEG]; // progressive ones
    assert_in_range(count_enough(gain, choice.cost, 768 * 512 * 3, 110e3), 2000, 3000);
}

#if CONV_HAVE_JPEG
// A folder of files of that size with the head of a JPEG of these sides.
static enum conv_workload_kind judge(int count, int width, int height, bool progressive,
                                     off_t bytes)
{
    struct conv_workload_choice choice = conv_workload_choice_for(16, true, true, true);
    struct png_file file = {0};
    jpeg_make(&file, &(struct jpeg_spec){8, 8, 3, .progressive = progressive}, 1);
    size_t frame = jpeg_find(&file, progressive ? 0xC2 : 0xC0);
    const uint8_t sides[] = {(uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8),
                             (uint8_t)width};
    memcpy(file.data + frame + 5, sides, sizeof sides);
    assert_int_equal(folder_remove(NULL), 0);
    assert_int_equal(folder_make(NULL), 0);
    write_file(0, &file, (uint64_t)bytes);
    for (int i = 1; i < count; i++)
        assert_int_equal(link(path_of(0), path_of(i)), 0);
    return measure_gain(&choice, NULL).kind;
}

UNIT_TEST(test_folders_of_jpegs)
{
    assert_int_equal(judge(10000, 768, 512, false, 164000), CONV_WORKLOAD_LARGE);
    assert_int_equal(judge(96, 6000, 4000, false, 2840000), CONV_WORKLOAD_LARGE);
    assert_int_equal(judge(500, 768, 512, false, 164000), CONV_WORKLOAD_SMALL);
    assert_int_equal(judge(10, 6000, 4000, false, 2840000), CONV_WORKLOAD_SMALL);
    assert_int_equal(judge(4000, 128, 128, false, 6800), CONV_WORKLOAD_SMALL);
    assert_int_equal(judge(1600, 768, 512, false, 164000), CONV_WORKLOAD_LARGE);
    assert_int_equal(judge(1600, 768, 512, true, 164000), CONV_WORKLOAD_SMALL); // the CPU decodes
}

// Its sizes come after its metadata; if those are long, the samples are estimated.
UNIT_TEST(test_a_jpeg_is_worth_what_its_size_says)
{
    struct conv_workload_choice choice = {.plain[CONV_DEVICE_JPEG] = {.sample = 1}, .cost = 1};
    folder_write(name_of(0), "\xFF\xD8\xFF\xE1");
    assert_int_equal(truncate(path_of(0), 100000), 0);
    assert_in_range(measure_gain(&choice, list_of(1)).saved, 800000, 1100000);
}
#endif

UNIT_TEST(test_what_is_no_png_is_not_plain)
{
    const char *path = path_of(0);
    make_plain(0, 1, 100 * KIB);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, 100 << 10), 0);
    assert_int_equal(measure(1, NEVER, NULL).kind, CONV_WORKLOAD_SMALL);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(measure(1, NEVER, NULL).kind, CONV_WORKLOAD_SMALL);
}

UNIT_TEST(test_a_list_from_a_pipe_or_device_is_not_walked_twice)
{
    make_plain(0, 1, 100 * KIB);
    struct conv_walk_config config = {.operands.files_from = list_of(1)};
    assert_true(conv_walk_is_repeatable(&config));
    config.operands.files_from = "-";
    assert_false(conv_walk_is_repeatable(&config));
    config.operands.files_from = "/dev/null";
    assert_false(conv_walk_is_repeatable(&config));
}

UNIT_MAIN_EACH(folder_make, folder_remove)
