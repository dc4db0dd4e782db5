// SPDX-License-Identifier: MIT
// Where an archive is written to: a file that appears under its name whole or not at all, or
// standard output, a pipe or a device, which get the bytes as they come.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/lock.h"
#include "io/files/temporary.h"

// --- windows -------------------------------------------------------------------------------------

// Writing a file of a memory file system from many threads at a time. write() locks the file: on
// tmpfs 16 threads write no faster than one. A map can be written to in parallel, and with pages of
// 2 MiB page faults cost little. Windows of the file are allocated ahead of what is written, by the
// threads that write, mapped, and unmapped once they are full, so memory is bounded and a full file
// system is a failed allocation, not a signal.
//
// The large pages come from MADV_COLLAPSE (Linux 6.1), which works whatever the mount option `huge`
// says, unless the system has large pages switched off; then windows have pages of 4 KiB.

// Bytes of a window: a multiple of CONV_ARCHIVE_HUGE.
#define CONV_ARCHIVE_WINDOW ((uint64_t)16 << 20)
#define CONV_ARCHIVE_HUGE ((uint64_t)2 << 20)

// The most windows that are not full at the same time; beyond them write() is used.
#define CONV_ARCHIVE_WINDOWS 96

// The most windows that are made before they are written to; small archives have fewer.
// One takes a thread 5 ms while 16 threads write 28 GB/s.
#define CONV_ARCHIVE_WINDOWS_AHEAD 24

// Windows in one map: mapping and unmapping blocks all other threads.
#define CONV_ARCHIVE_MAP_WINDOWS 16
#define CONV_ARCHIVE_MAPS (CONV_ARCHIVE_WINDOWS / CONV_ARCHIVE_MAP_WINDOWS + 2)

// The number of threads from which on maps are faster. One thread writes 3.5 GB/s by write(), 4.3
// to 4.8 through large pages and 1.9 through small ones; 4 threads write 12 through large pages,
// and 16 threads 2.4 to 3.7 by write() and 4 to 6 through small pages. Where large pages are
// scarce, making them costs a run on 2 cores a tenth of its CPU time, and so few threads are not
// limited by write().
#define CONV_ARCHIVE_WINDOW_THREADS 8

#define CONV_ARCHIVE_MOST_WINDOWS ((uint64_t)1 << 18) // of a file: 4 TiB

struct conv_archive_window {
    bool is_used;
    bool is_made;    // else a thread is making it
    uint8_t *map;    // NULL although is_made: making it has failed
    uint64_t number; // of the window in the file
    uint64_t left;   // bytes that were not written
    int users;       // threads that copy or wait
};

struct conv_archive_map {
    uint8_t *at; // NULL: none
    uint64_t number;
    int left; // windows that are not full
};

struct conv_archive_windows {
    int fd; // -1: not used
    atomic_bool has_small_pages;
    struct conv_lock lock; // guards all below
    pthread_cond_t made;
    struct conv_archive_map maps[CONV_ARCHIVE_MAPS];
    struct conv_archive_window windows[CONV_ARCHIVE_WINDOWS];
    uint64_t expected; // windows of the whole file; 0: unknown
    uint64_t first;    // window; before it is left to write(): small archives need no window
    uint64_t next;     // the window after the last one that was begun
    // Windows that were begun; later ones than it has bits for are left to write().
    uint8_t begun[CONV_ARCHIVE_MOST_WINDOWS / 8];
    uint64_t refused; // the window from which on nothing could be allocated; UINT64_MAX: none
};

// --- outputs -------------------------------------------------------------------------------------

struct conv_archive_output {
    struct conv_temporary_file file;
    uint64_t at;                         // bytes appended
    struct conv_archive_windows windows; // of a file that several threads write
};

// As conv_temporary_open. `threads`: how many will write at offsets at a time; `expected`: bytes
// that the file will probably get, 0: unknown.
enum conv_status conv_archive_output_open(struct conv_archive_output *output, const char *path,
                                          int threads, uint64_t expected, bool force,
                                          const atomic_int *stop, struct conv_err *err);

// Appends bytes. One thread at a time. CONV_ERR_IO with the reason, CONV_ERR_CANCELLED once a
// signal has ended the run and a pipe's reader reads nothing. The archive is unusable then.
enum conv_status conv_archive_output_write(struct conv_archive_output *output, const void *data,
                                           size_t size, struct conv_err *err);

// Writes bytes at an offset; not for streams. Any thread. Changes *parts. CONV_ERR_IO.
enum conv_status conv_archive_output_write_at(struct conv_archive_output *output, uint64_t offset,
                                              struct iovec *parts, int count, struct conv_err *err);

// To be called after the last byte, before the output is closed: gives the file its final size.
// CONV_ERR_IO.
enum conv_status conv_archive_output_settle(struct conv_archive_output *output,
                                            struct conv_err *err);

// As conv_temporary_close. Does nothing if it is not open.
enum conv_status conv_archive_output_close(struct conv_archive_output *output, bool keep,
                                           bool fsync, struct conv_err *err);
