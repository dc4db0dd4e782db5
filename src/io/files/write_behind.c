// SPDX-License-Identifier: MIT
// The call returns at once while the disk's queue has room; otherwise it waits for the disk. With a
// slow disk that would be most of the time, although there is memory for all the bytes. So few
// workers call at the same time, and after a wait none does for a while.
#include "io/files/write_behind.h"

#include <fcntl.h>
#include <stdbool.h>

#include "base/clock.h"

enum {
    WORKERS_EACH = 4,       // per call at a time: it takes 0.2 ms of a photograph's 5
    LEAST_BYTES = 64 << 10, // of a file that is worth a call
    MOST_BYTES = 8 << 20,   // of a call
    WAIT_NS = 10 * 1000000, // of a call that had to wait; without that 8 MB take 2 ms
    PAUSE = 4,              // times as long as the call: a slow disk costs 1/5 of 1/4 of the time
};

void conv_write_behind_start(struct conv_write_behind *behind, int workers)
{
    behind->most = workers < WORKERS_EACH ? 1 : workers / WORKERS_EACH;
    atomic_init(&behind->busy, 0);
    atomic_init(&behind->resume, 0);
}

// False if the disk cannot take more now.
static bool write_part(struct conv_write_behind *behind, int fd, size_t at)
{
    uint64_t start = conv_clock_ns();
    if (sync_file_range(fd, (off_t)at, MOST_BYTES, SYNC_FILE_RANGE_WRITE) != 0)
        return false;
    uint64_t end = conv_clock_ns();
    if (end - start > WAIT_NS)
        atomic_store(&behind->resume, end + PAUSE * (end - start));
    return end - start <= WAIT_NS;
}

void conv_write_behind_add(struct conv_write_behind *behind, int fd, size_t size)
{
    if (size < LEAST_BYTES || conv_clock_ns() < atomic_load(&behind->resume))
        return;
    if (atomic_fetch_add(&behind->busy, 1) < behind->most)
        for (size_t at = 0; at < size && write_part(behind, fd, at); at += MOST_BYTES)
            ;
    atomic_fetch_sub(&behind->busy, 1);
}
