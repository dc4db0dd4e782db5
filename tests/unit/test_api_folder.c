// SPDX-License-Identifier: MIT
// Folders through the C interface: the same pixels as decoding, filtering and encoding by hand,
// the treatment of existing outputs, failures and the end by the callback.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/api_image.h"
#include "support/api_test.h"
#include "support/folder.h"
#include "support/png_make.h"
#include "support/random.h"

#define IMAGES 30

static uint64_t noise = 3;

static const char *path_of(const char *folder, int image)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%02d.png", folder, image);
    return folder_path(name);
}

static int make_inputs(void **state)
{
    char name[64];
    uint16_t samples[80 * 60 * 3];
    assert_int_equal(folder_make(state), 0);
    for (int i = 0; i < IMAGES; i++) {
        struct png_file file = {0};
        struct png_spec spec = {.width = 10 + i,
                                .height = 50,
                                .color_type = i % 2 ? 2 : 0,
                                .depth = i % 3 ? 8 : 16,
                                .samples = samples};
        for (size_t k = 0; k < sizeof samples / sizeof samples[0]; k++)
            samples[k] = (uint16_t)(random_bits(&noise) & (i % 3 ? 255 : 65535));
        png_make_image(&file, &spec);
        snprintf(name, sizeof name, "in/%02d.png", i);
        folder_write_bytes(name, file.data, file.size);
        png_make_free(&file);
    }
    return 0;
}

static void decode_file(conv_context *context, const char *path, conv_image *image)
{
    struct png_file file = {0};
    assert_true(png_make_read(&file, path));
    conv_bytes bytes = {file.data, file.size};
    *image = (conv_image){0};
    assert_ok(conv_decode_png(context, &bytes, 1, NULL, image, NULL, NULL));
    png_make_free(&file);
}

static conv_status run(conv_context *context, const char *filter, const char *in, const char *out,
                       const conv_folder_options *options, conv_folder_progress *result)
{
    const char *input = folder_path(in);
    return conv_filter_folder(context, filter, &input, 1, folder_path(out), options, result);
}

struct caller {
    const char *filter, *out;
    conv_status status;
    conv_folder_progress result;
};

static void *filter_folder(void *argument)
{
    struct caller *caller = argument;
    conv_context *context = api_open(3);
    caller->result.size = sizeof caller->result;
    caller->status = run(context, caller->filter, "in", caller->out, NULL, &caller->result);
    conv_context_destroy(context);
    return NULL;
}

static void check_folder(const struct caller *caller)
{
    conv_context *context = api_open(3);
    conv_filter *filter;
    assert_ok(caller->status);
    assert_int_equal(caller->result.done, IMAGES);
    assert_int_equal(caller->result.found, IMAGES);
    assert_int_equal(caller->result.listed, 1);
    assert_int_equal(caller->result.failed + caller->result.skipped, 0);
    assert_ok(conv_filter_create(&filter, context, caller->filter, NULL));
    for (int i = 0; i < IMAGES; i++) {
        conv_image source, filtered;
        decode_file(context, path_of("in", i), &source);
        decode_file(context, path_of(caller->out, i), &filtered);
        assert_ok(conv_filter_run(filter, &source, &source, 1, NULL));
        assert_true(api_image_equal(&filtered, &source));
        conv_free(context, CONV_HOST, source.data);
        conv_free(context, CONV_HOST, filtered.data);
    }
    conv_filter_destroy(filter);
    conv_context_destroy(context);
}

// Two runs in one process at the same time.
UNIT_TEST(folders_are_filtered_as_single_images_are)
{
    struct caller callers[2] = {{.filter = "gaussian5,sharpen", .out = "out"},
                                {.filter = "emboss", .out = "other"}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, filter_folder, &callers[0]), 0);
    filter_folder(&callers[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++)
        check_folder(&callers[i]);
}

struct heard {
    int calls, failures, stop_at;
    char path[256];
};

static int listen(void *user, const conv_folder_progress *progress)
{
    struct heard *heard = user;
    heard->calls++;
    if (progress->path) {
        heard->failures++;
        snprintf(heard->path, sizeof heard->path, "%s", progress->path);
        assert_true(progress->message[0] != 0);
    }
    return heard->stop_at && heard->calls >= heard->stop_at;
}

API_TEST(outputs_that_exist_are_replaced_or_kept, 3)
{
    conv_folder_progress result = {.size = sizeof result};
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    for (int i = 0; i < 2; i++) {
        assert_ok(run(context, "blur", "in", "kept", &options, &result));
        assert_int_equal(result.done, IMAGES);
        assert_int_equal(result.skipped, 0);
    }
    assert_int_equal(unlink(path_of("kept", 4)), 0);
    options.skip_existing = 1;
    assert_ok(run(context, "blur", "in", "kept", &options, &result));
    assert_int_equal(result.skipped, IMAGES - 1);
    assert_int_equal(result.done, 1);
    options.skip_existing = 0;
    options.update = 1;
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}}; // long before its input
    assert_int_equal(utimensat(AT_FDCWD, path_of("kept", 7), times, 0), 0);
    assert_ok(run(context, "blur", "in", "kept", &options, &result));
    assert_int_equal(result.skipped, IMAGES - 1);
    assert_int_equal(result.done, 1);
}

#if CONV_HAVE_JPEG
API_TEST(outputs_have_another_format_and_are_gray, 3)
{
    conv_folder_progress result = {.size = sizeof result};
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.gray = 1;
    options.to = "jpg";
    options.quality = 101;
    REFUSE(CONV_ERR_USAGE, run(context, "blur", "in", "jpegs", &options, &result));
    options.quality = 80;
    assert_ok(run(context, "blur", "in", "jpegs", &options, &result));
    assert_int_equal(result.done, IMAGES);
    assert_memory_equal(folder_read("jpegs/00.jpg"), "\xff\xd8\xff", 3);
    options.to = "gif";
    REFUSE(CONV_ERR_USAGE, run(context, "blur", "in", "jpegs", &options, &result));
}
#endif

API_TEST(a_bad_file_does_not_end_a_run, 3)
{
    const char *path = path_of("in", 99);
    conv_folder_progress result = {.size = sizeof result};
    struct heard heard = {0};
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.progress = listen;
    options.user = &heard;
    folder_write("in/99.png", "no PNG");
    assert_ok(run(context, "blur", "in", "bad", &options, &result));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(result.failed, 1);
    assert_int_equal(result.done, IMAGES);
    assert_string_equal(heard.path, path);
}

API_TEST(the_callback_ends_a_run, 3)
{
    struct heard heard = {.stop_at = 1};
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.progress = listen;
    options.user = &heard;
    folder_write("in/none.png", ""); // fails at once
    assert_int_equal(run(context, "blur", "in", "ended", &options, NULL), CONV_ERR_CANCELLED);
    // The context goes on.
    options.progress = NULL;
    assert_ok(run(context, "blur", "in", "again", &options, NULL));
    assert_int_equal(unlink(folder_path("in/none.png")), 0);
}

static int stop_when_found(void *user, const conv_folder_progress *progress)
{
    *(uint64_t *)user = progress->found;
    return progress->found > 0;
}

// The callback was called only when an image was finished, so it could not end a wait.
API_TEST(the_callback_ends_a_wait, 3)
{
    const char *path = folder_path("pipe");
    uint64_t found = 0;
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.progress = stop_when_found;
    options.user = &found;
    assert_int_equal(mkfifo(path, 0600), 0);
    int end = open(path, O_RDWR); // a writer that never writes
    assert_true(end >= 0);
    assert_int_equal(run(context, "blur", "pipe", "waited", &options, NULL), CONV_ERR_CANCELLED);
    assert_int_equal(found, 1);
    close(end);
    assert_int_equal(unlink(path), 0);
}

// A folder becomes an archive, the archive a folder again, in one run and in three shards.
API_TEST(archives_and_shards, 3)
{
    conv_folder_progress result = {.size = sizeof result};
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.archives = 1;
    if (run(context, "identity", "in", "a.tar", &options, &result))
        fail_msg("%s", conv_context_message(context));
    assert_int_equal(result.done, IMAGES);
    options.skip_existing = 1; // the archive as a whole
    assert_ok(run(context, "blur", "in", "a.tar", &options, &result));
    assert_int_equal(result.done, 0);
    assert_int_equal(result.skipped, 1);
    options.skip_existing = 0;
    for (int by_name = 0; by_name < 2; by_name++) {
        uint64_t done = 0;
        options.shard_by_name = by_name;
        options.shards = 3;
        for (options.shard = 0; options.shard < 3; options.shard++) {
            assert_ok(run(context, "identity", "a.tar", "shards", &options, &result));
            done += result.done;
            assert_ok(run(context, "identity", "in", "shards", &options, &result));
            done += result.done;
        }
        assert_int_equal(done, 2 * IMAGES);
        assert_int_equal(run(context, "blur", "in", "shards", &options, &result),
                         CONV_ERR_USAGE); // shard 3 of 3
    }
    for (int i = 0; i < IMAGES; i++) {
        conv_image source, filtered;
        decode_file(context, path_of("in", i), &source);
        decode_file(context, path_of("shards", i), &filtered);
        assert_true(api_image_equal(&filtered, &source));
        conv_free(context, CONV_HOST, source.data);
        conv_free(context, CONV_HOST, filtered.data);
    }
}

API_TEST(wrong_arguments_are_refused, 3)
{
    const char *inputs[] = {folder_path("in"), NULL}, *standard[] = {"-"}, *none[] = {"/no/such"};
    const char *out = folder_path("wrong");
    const struct {
        const char *filter, *const *inputs;
        int count;
        const char *out;
    } wrong[] = {
        {NULL, inputs, 1, out},    {"blur", NULL, 1, out},    {"blur", inputs, 0, out},
        {"blur", inputs, -1, out}, {"blur", inputs, 2, out},  {"blur", standard, 1, out},
        {"blur", inputs, 1, "-"},  {"blurr", inputs, 1, out}, {"blur", inputs, 1, NULL},
    };
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    conv_folder_progress result = {0};
    assert_int_equal(conv_filter_folder(NULL, "blur", inputs, 1, out, NULL, NULL), CONV_ERR_USAGE);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        REFUSE(CONV_ERR_USAGE, conv_filter_folder(context, wrong[i].filter, wrong[i].inputs,
                                                  wrong[i].count, wrong[i].out, NULL, NULL));
    result.size = sizeof result;
    assert_ok(conv_filter_folder(context, "blur", none, 1, out, NULL, &result));
    assert_int_equal(result.failed, 1); // as any image that cannot be read
    result.size = 0;
    options.level = 13;
    assert_int_equal(conv_filter_folder(context, "blur", inputs, 1, out, &options, NULL),
                     CONV_ERR_USAGE);
    options.level = -1;
    options.size = 4;
    assert_int_equal(conv_filter_folder(context, "blur", inputs, 1, out, &options, NULL),
                     CONV_ERR_USAGE);
    assert_int_equal(conv_filter_folder(context, "blur", inputs, 1, out, NULL, &result),
                     CONV_ERR_USAGE); // without a size
}

UNIT_MAIN(make_inputs, folder_remove)
