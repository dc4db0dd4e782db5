// SPDX-License-Identifier: MIT
// Members that threads put in any order are written in the order of their numbers; those that are
// early do not make their threads wait; failures of writing are reported once.
#include <stdio.h>

#include <pthread.h>

#include "io/archive/archive_input.h"
#include "io/archive/archive_members.h"
#include "io/sink.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/unit.h"

enum { MEMBERS = 600, THREADS = 5 };

static struct conv_archive_target targets[3];
static struct conv_sink *sink;
static atomic_int stop;
static int schedule[MEMBERS]; // the order in which members are put

static void begin(int count)
{
    struct conv_err err = {0};
    static char paths[3][256];
    for (int i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d.tar", folder_path(""), i);
        targets[i].path = paths[i];
        targets[i].format = &conv_archive_tar;
        atomic_store(&targets[i].is_due, true);
    }
    const struct conv_sink_config config = {.kind = CONV_SINK_ARCHIVE,
                                            .targets = targets,
                                            .target_count = count,
                                            .stop = &stop,
                                            .writes = true};
    atomic_store(&stop, 0);
    assert_ok(conv_sink_open(&sink, &config, &err));
}

static bool may_begin(uint64_t number)
{
    return conv_sink_may_begin(sink, &(struct conv_item){.number = number});
}

// Every seventh member is dropped. The content of the others is their number, repeated that many
// times.
static enum conv_status put(int number, int target, struct conv_err *err)
{
    char content[MEMBERS];
    struct conv_item item = {.number = (uint64_t)number, .archive = target};
    struct conv_output output = {{0}};
    struct stat info = {0};
    enum conv_sink_result result;
    snprintf(item.name, sizeof item.name, "%d", number);
    if (number % 7 == 3) {
        item.archive = 0;
        (void)conv_sink_drop(sink, &item);
        return CONV_OK;
    }
    memset(content, number & 0xFF, sizeof content);
    struct conv_encoded parts = {0};
    parts.part[0].data = (const uint8_t *)content;
    parts.part[0].size = (size_t)number / 2;
    parts.part[3].data = (const uint8_t *)content;
    parts.part[3].size = (size_t)number - (size_t)number / 2;
    parts.size = (size_t)number;
    return sink->ops->write(sink, CONV_SINK_NO_WORKER, &item, &info, &output, &parts, &result, err);
}

// Checks one archive against the numbers from `first` to `end`.
static void check(int target, int first, int end)
{
    struct conv_archive_input input;
    struct conv_archive_reader *reader;
    struct conv_archive_member member;
    struct conv_err err = {0};
    assert_ok(conv_archive_input_open(&input, targets[target].path, true, NULL, &err));
    assert_ok(conv_archive_tar.read(&reader, &input, &err));
    for (int i = first; i < end; i++) {
        char name[32];
        if (i % 7 == 3)
            continue;
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(reader->ops->next(reader, &member, &err), CONV_ARCHIVE_MEMBER);
        assert_string_equal(member.name, name);
        assert_int_equal(member.size, i);
        const uint8_t *content = reader->ops->map(reader);
        for (int j = 0; j < i; j++)
            assert_int_equal(content[j], i & 0xFF);
    }
    assert_int_equal(reader->ops->next(reader, &member, &err), CONV_ARCHIVE_END);
    reader->ops->close(reader);
    conv_archive_input_close(&input);
}

static atomic_int next;

static void *put_some(void *argument)
{
    struct conv_err err = {0};
    (void)argument;
    for (int i; (i = atomic_fetch_add(&next, 1)) < MEMBERS;)
        (void)put(schedule[i], schedule[i] * 2 / MEMBERS, &err);
    return NULL;
}

UNIT_TEST_IN(test_threads, folder_make, folder_remove)
{
    uint64_t seed = 7;
    for (int round = 0; round < 8; round++) {
        pthread_t threads[THREADS];
        struct conv_err err = {0};
        for (int i = 0; i < MEMBERS; i++)
            schedule[i] = i;
        for (int i = 0; i < MEMBERS && round > 0; i++) { // not far from their places, or anywhere
            int span = round % 2 ? 20 : MEMBERS;
            int other = i + (int)(random_bits(&seed) % (unsigned)span);
            other = other < MEMBERS ? other : MEMBERS - 1;
            int swap = schedule[i];
            schedule[i] = schedule[other];
            schedule[other] = swap;
        }
        begin(3);
        atomic_store(&next, 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, put_some, NULL), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_ok(conv_sink_finish(sink, &err));
        check(0, 0, MEMBERS / 2);
        check(1, MEMBERS / 2, MEMBERS);
        check(2, 0, 0); // without a member
        assert_int_equal(folder_count(""), 3);
    }
}

UNIT_TEST_IN(test_admission, folder_make, folder_remove)
{
    struct conv_err err = {0};
    begin(1);
    conv_sink_limit(sink, 1000);
    for (int i = 10; i > 0; i--)
        assert_ok(put(i + 500, 0, &err)); // far too early, and none waits
    assert_false(may_begin(1));
    assert_true(may_begin(0));
    for (int i = 0; i <= 500; i++)
        assert_ok(put(i, 0, &err));
    assert_true(may_begin(999));
    assert_ok(conv_sink_finish(sink, &err));
    check(0, 0, 511);
}

UNIT_TEST_IN(test_failure, folder_make, folder_remove)
{
    struct conv_err err = {0}, last = {0};
    begin(1);
    targets[0].path = (char *)(uintptr_t) "/proc/none/a.tar";
    assert_ok(put(1, 0, &err));
    assert_ok(put(0, 0, &err)); // the archive's failure, not the member's
    assert_true(conv_sink_has_failed(sink));
    assert_int_equal(put(2, 0, &err), CONV_ERR_CANCELLED);
    assert_int_equal(conv_sink_finish(sink, &last), CONV_ERR_IO);
    assert_non_null(strstr(last.text, "/proc/none"));
}

// A buffer is reused for contents that fit and do not waste it, and only a limited amount is kept.
UNIT_TEST(test_buffers)
{
    struct conv_archive_buffers buffers;
    conv_archive_buffers_open(&buffers);
    buffers.most = 1 << 20;
    uint8_t *large = conv_archive_buffers_take(&buffers, 700000);
    uint8_t *small = conv_archive_buffers_take(&buffers, 100);
    uint8_t *other = conv_archive_buffers_take(&buffers, 700000);
    assert_true(large && small && other && large != other);
    memset(large, 1, 700000);
    memset(other, 2, 700000);
    memset(small, 3, 100);
    conv_archive_buffers_give(&buffers, large);
    conv_archive_buffers_give(&buffers, other); // more than is kept
    conv_archive_buffers_give(&buffers, small);
    conv_archive_buffers_give(&buffers, NULL);
    assert_in_range(buffers.unused_bytes, 700000, 1 << 20);
    uint8_t *little = conv_archive_buffers_take(&buffers, 70000);
    assert_ptr_not_equal(little, large);
    uint8_t *again = conv_archive_buffers_take(&buffers, 650000);
    assert_ptr_equal(again, large);
    assert_int_equal(buffers.unused_bytes, 0);
    conv_archive_buffers_give(&buffers, again);
    conv_archive_buffers_give(&buffers, little);
    conv_archive_buffers_close(&buffers);
}

UNIT_MAIN(NULL, NULL)
