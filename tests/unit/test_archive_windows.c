// SPDX-License-Identifier: MIT
// A file on a memory file system that several threads write: every byte in its place, whichever of
// them are written through maps, and a full file system fails instead of ending the program.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/archive/archive_output.h"
#include "support/unit.h"

#define FOLDER "/dev/shm"
#define RECORD 700001 // not a multiple of anything
#define RECORDS 160   // 112 MB: seven windows, the first of which is left to write()
#define THREADS 4

static struct conv_archive_output output;
static atomic_int next_record, failures;
static char path[64];
static bool backwards; // the last record is written first

static uint8_t byte_of(int record)
{
    return (uint8_t)(1 + record % 251);
}

static void *write_records(void *data)
{
    uint8_t *bytes = malloc(RECORD);
    (void)data;
    for (int next; bytes && (next = atomic_fetch_add(&next_record, 1)) < RECORDS;) {
        struct conv_err err = {0};
        int record = backwards ? RECORDS - 1 - next : next;
        memset(bytes, byte_of(record), RECORD);
        struct iovec parts[] = {{bytes, 513}, {bytes, 0}, {bytes, RECORD - 513}};
        if (conv_archive_output_write_at(&output, (uint64_t)record * RECORD, parts, 3, &err))
            atomic_fetch_add(&failures, 1);
    }
    free(bytes);
    return NULL;
}

static void write_all(void)
{
    pthread_t threads[THREADS];
    atomic_store(&next_record, 0);
    atomic_store(&failures, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_records, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    output.at = (uint64_t)RECORDS * RECORD;
}

// False if /dev/shm is not a memory file system.
static bool open_output(void)
{
    struct conv_err err = {0};
    snprintf(path, sizeof path, FOLDER "/conv-test-windows-%d", (int)getpid());
    if (access(FOLDER, W_OK) != 0)
        return false;
    assert_ok(
        conv_archive_output_open(&output, path, CONV_ARCHIVE_WINDOW_THREADS, 0, false, NULL, &err));
    return output.windows.fd >= 0;
}

static void check_every_byte(bool small_pages)
{
    struct conv_err err = {0};
    struct stat info;
    if (!open_output())
        skip();
    atomic_store(&output.windows.has_small_pages, small_pages);
    write_all();
    // Full windows are unmapped: only the last one, which is not full, is left.
    int used = 0;
    for (int i = 0; i < CONV_ARCHIVE_WINDOWS; i++)
        used += output.windows.windows[i].is_used && output.windows.windows[i].left == 0;
    assert_int_equal(used, 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_ok(conv_archive_output_settle(&output, &err));
    assert_ok(conv_archive_output_close(&output, true, false, &err));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, (int64_t)RECORDS * RECORD);
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(2 * RECORD), *same = bytes + RECORD;
    for (int record = 0; record < RECORDS; record++) {
        memset(same, byte_of(record), RECORD);
        assert_int_equal(fread(bytes, 1, RECORD, file), RECORD);
        assert_memory_equal(bytes, same, RECORD);
    }
    free(bytes);
    fclose(file);
    unlink(path);
}

UNIT_TEST(test_large_pages)
{
    check_every_byte(false);
}

UNIT_TEST(test_small_pages)
{
    check_every_byte(true);
}

// Writers pass by windows, which later ones begin.
UNIT_TEST(test_backwards)
{
    backwards = true;
    check_every_byte(false);
    backwards = false;
}

UNIT_TEST(test_no_room)
{
    struct conv_err err = {0};
    struct rlimit before, small;
    if (!open_output())
        skip();
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 100000000; // in the sixth window
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    write_all();
    setrlimit(RLIMIT_FSIZE, &before);
    int lost = RECORDS - 100000000 / RECORD;
    assert_int_equal(atomic_load(&failures), lost);
    assert_ok(conv_archive_output_close(&output, false, false, &err));
    assert_int_not_equal(access(path, F_OK), 0);
}

UNIT_MAIN(NULL, NULL)
