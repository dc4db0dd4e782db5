// SPDX-License-Identifier: MIT
// A large file that several threads read: its bytes, and what happens when that fails.
#include <stdio.h>
#include <unistd.h>

#include "io/files/file_read.h"
#include "support/parallel.h"
#include "support/random.h"
#include "support/unit.h"

#define SIZE ((size_t)9 << 20) // above the size from which several threads read
#define FEW ((size_t)1 << 20)  // below it

static uint8_t *content;
static char path[] = "/tmp/conv_file_read_XXXXXX";
static int shared_calls;
static bool lies; // read_shared reads, then says that it could not

static int make_file(void **)
{
    // A header from which the format is recognised; only it is looked at.
    static const uint8_t head[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0,    0,
                                   13,   'I', 'H', 'D', 'R',  0,    0,    0,    1,    0,    0,
                                   0,    1,   8,   0,   0,    0,    0,    0x3a, 0x7e, 0x9b, 0x55};
    uint64_t seed = 5;
    int fd = mkstemp(path);
    content = malloc(SIZE);
    assert_true(fd >= 0 && content);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (uint8_t)random_bits(&seed);
    memcpy(content, head, sizeof head);
    assert_int_equal(write(fd, content, SIZE), SIZE);
    close(fd);
    return 0;
}

static int remove_file(void **)
{
    free(content);
    return unlink(path);
}

static bool read_shared(struct conv_input *input, void *data, size_t size,
                        struct conv_parallel *parallel, atomic_int *stop)
{
    shared_calls++;
    if (!lies)
        return conv_item_file.read_shared(input, data, size, parallel, stop);
    memset(data, 0xee, size);
    return false;
}

// Reads the file with up to `threads` threads and compares it.
static void check(int threads, size_t size)
{
    struct conv_item_ops ops = conv_item_file;
    struct conv_item item = {.ops = &ops};
    struct conv_parallel parallel = {.most = threads, .run = parallel_run};
    const struct conv_file_read how = {.limit = SIZE, .pixel_limit = 1, .parallel = &parallel};
    struct conv_input input = {0};
    struct conv_file file = {0};
    const struct conv_format *format;
    struct conv_err err;
    ops.read_shared = read_shared;
    shared_calls = 0;
    assert_int_equal(truncate(path, (off_t)size), 0);
    snprintf(item.name, sizeof item.name, "%s", path);
    if (conv_file_read(&how, &item, &input, &file, &format, &err))
        fail_msg("%s", err.text);
    assert_int_equal(file.size, size);
    assert_memory_equal(file.bytes, content, size);
    free(file.data);
}

UNIT_TEST(large_files_are_read_by_several_threads)
{
    lies = false;
    check(TEST_PARALLEL_MOST, SIZE);
    assert_int_equal(shared_calls, 1);
    check(1, SIZE);
    assert_int_equal(shared_calls, 0);
}

UNIT_TEST(one_thread_reads_what_several_could_not)
{
    lies = true;
    check(TEST_PARALLEL_MOST, SIZE);
    assert_int_equal(shared_calls, 1);
}

// What the threads read ends with the file, and leaves the place where `read` continues alone.
UNIT_TEST(a_file_that_became_shorter_is_not_read)
{
    struct conv_item item = {.ops = &conv_item_file};
    struct conv_parallel parallel = {.most = TEST_PARALLEL_MOST, .run = parallel_run};
    struct conv_input input = {0};
    struct conv_err err;
    uint8_t *data = malloc(SIZE), first[8];
    assert_non_null(data);
    snprintf(item.name, sizeof item.name, "%s", path);
    assert_ok(conv_item_file.open(&item, &input, &err));
    assert_false(conv_item_file.read_shared(&input, data, SIZE + 1, &parallel, NULL));
    assert_int_equal(conv_item_file.read(&input, first, sizeof first, &err), sizeof first);
    assert_memory_equal(first, content, sizeof first);
    atomic_int stop = 1;
    assert_false(conv_item_file.read_shared(&input, data, SIZE / 2, &parallel, &stop));
    assert_true(conv_item_file.read_shared(&input, data, SIZE - sizeof first, &parallel, NULL));
    assert_memory_equal(data, content + sizeof first, SIZE - sizeof first);
    assert_int_equal(conv_item_file.read(&input, first, sizeof first, &err), 0);
    conv_item_file.close(&input);
    free(data);
}

UNIT_TEST(small_files_are_read_by_one_thread)
{
    lies = false;
    check(TEST_PARALLEL_MOST, FEW);
    assert_int_equal(shared_calls, 0);
}

UNIT_MAIN(make_file, remove_file)
