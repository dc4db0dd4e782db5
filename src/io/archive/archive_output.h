// SPDX-License-Identifier: MIT
// Where an archive is written to: a file that appears under its name whole or not at all, or
// standard output, a pipe or a device, which get the bytes as they come.
#ifndef CONV_ARCHIVE_ARCHIVE_OUTPUT_H
#define CONV_ARCHIVE_ARCHIVE_OUTPUT_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "io/archive/archive_windows.h"
#include "io/files/access.h"

struct conv_archive_output {
    char path[PATH_MAX]; // "-": standard output
    int fd;              // -1: not open
    bool owns_fd;
    bool is_stream; // bytes come in order; else they can be written at any offset
    uint64_t at;    // bytes appended
    const atomic_int *stop;
    atomic_bool has_temporary;
    char temporary[PATH_MAX];
    struct conv_access access;           // of the file that is replaced
    struct conv_archive_windows windows; // of a file that several threads write
};

// Begins to write. The folder of a file is made. `threads`: how many will write at offsets at a
// time. `force`: a write-protected file is replaced, too. `stop` ends waits for the reader of a
// pipe. CONV_ERR_IO, CONV_ERR_LIMIT, CONV_ERR_USAGE for a folder, CONV_ERR_CANCELLED; nothing is
// open then.
enum conv_status conv_archive_output_open(struct conv_archive_output *output, const char *path,
                                          int threads, bool force, const atomic_int *stop,
                                          struct conv_err *err);

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

// Closes the output. `keep`: a file gets its name, else it is removed; `fsync`: the file and its
// name are on the disk on return. CONV_ERR_IO; nothing is left of a file then.
enum conv_status conv_archive_output_close(struct conv_archive_output *output, bool keep,
                                           bool fsync, struct conv_err *err);

// Removes the file that has no name yet. Async-signal-safe, for the end of the program.
void conv_archive_output_remove(struct conv_archive_output *output);

#endif
