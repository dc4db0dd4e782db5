// SPDX-License-Identifier: MIT
// Writing a file of a memory file system from many threads at a time. write() locks the file: on
// tmpfs 16 threads write no faster than one. What is mapped can be copied to in parallel. Windows
// of the file are allocated one by one, mapped, and unmapped once they are full, so memory is
// bounded and a full file system is a failed allocation, not a signal.
//
// 16 threads, one file, 885 KB per write, Linux 6.18: write() 2.4 to 3.7 GB/s, windows 6.2; tmpfs
// with huge=within_size 9 and 28. One thread: 3.4 and 1.9. On ext4 16 threads write 5.1 GB/s, and
// 1.6 through maps, where each page is prepared for the journal.
#ifndef CONV_IO_ARCHIVE_WINDOWS_H
#define CONV_IO_ARCHIVE_WINDOWS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of a window. Allocating one takes 6 ms, and huge pages are used whole.
#define CONV_ARCHIVE_WINDOW ((uint64_t)64 << 20)

// Windows that are not full at a time; others are written to by write().
#define CONV_ARCHIVE_WINDOWS 16

// Threads from which on maps are faster.
#define CONV_ARCHIVE_WINDOW_THREADS 8

struct conv_archive_window {
    uint8_t *map;    // NULL: none
    uint64_t number; // of the window in the file
    uint64_t left;   // bytes that were not written
    int users;       // threads that copy
};

struct conv_archive_windows {
    int fd; // -1: not used
    pthread_mutex_t lock;
    struct conv_archive_window windows[CONV_ARCHIVE_WINDOWS];
    uint64_t refused; // the window from which on nothing could be allocated; UINT64_MAX: none
};

// Begins with a file that is open for reading and writing, if its file system and the number of
// threads make windows worth while.
void conv_archive_windows_open(struct conv_archive_windows *windows, int fd, int threads);

// Unmaps everything. The file may have allocated bytes after its content: to be truncated.
void conv_archive_windows_close(struct conv_archive_windows *windows);

// Copies what can be written to a window from the beginning of the data: the number of bytes, up to
// the end of a window. 0: the next bytes, at most *most of them, are to be written by write(). Any
// thread; each byte of the file is written once.
size_t conv_archive_windows_write(struct conv_archive_windows *windows, uint64_t offset,
                                  const uint8_t *data, size_t size, size_t *most);

#endif
