// SPDX-License-Identifier: MIT
// Unfinished files: their names, the removal of those left behind by killed processes, and files
// that appear under their own name whole or not at all.
//
// A name is `.conv-WHERE-PID-START-NUMBER.tmp`, all but PID and NUMBER in hexadecimal: WHERE stands
// for this boot of this machine's kernel and this PID namespace, so that within one WHERE the PID
// and the start time of a process identify it. Any thread.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "image/format.h"
#include "io/files/access.h"

// Upper bound of a name with its NUL. Short, since file systems allow 255 bytes and some less.
#define CONV_TEMPORARY_NAME_SIZE 80

// The name of temporary file `number` of this process.
void conv_temporary_name(char name[CONV_TEMPORARY_NAME_SIZE], unsigned number);

// A file while it has its temporary name: relative to the descriptor of its folder, since the
// folder may be moved; with AT_FDCWD a path.
struct conv_temporary { // {0} is none
    atomic_bool exists;
    int folder;
    char name[PATH_MAX];
};

// Creates the temporary file for `path`, in the descriptor's folder or, with AT_FDCWD, in that of
// the path. `flags` as of open(); not created once *ends, which may be NULL, is true. -1 with
// errno.
int conv_temporary_create(struct conv_temporary *temporary, int folder, const char *path, int flags,
                          mode_t mode, const atomic_bool *ends);

// Removes the file if it exists. Async-signal-safe, for the end of the program.
void conv_temporary_remove(const struct conv_temporary *temporary);

// True for the name of a temporary file of any process: such a file is never an input.
bool conv_temporary_is(const char *name);

// Removes temporary files of processes that have ended from `folder` ("" is the current one). A
// file is removed if it is regular, belongs to this user or that user is root, and its process has
// ended: known by PID and start time within this WHERE, otherwise (another machine on a network
// folder, another container, before a reboot) assumed once the file is a day old. What cannot be
// removed stays, without an error.
void conv_temporary_sweep(const char *folder);

// --- streams -------------------------------------------------------------------------------------

// Outputs that are not regular files: standard output, open descriptors (/dev/fd/3), and pipes and
// devices that are named on the command line. Their other end may never be opened or read.

// Writes all parts to the file at `path`, which exists. Waits for the reader of a pipe. Once *stop
// is non-zero it stops waiting for a reader that is missing or reads nothing: CONV_ERR_CANCELLED.
// Otherwise CONV_ERR_IO with the reason. Any thread.
enum conv_status conv_special_write(const char *path, const struct conv_encoded *file,
                                    const atomic_int *stop, struct conv_err *err);

// --- files that appear whole ---------------------------------------------------------------------

// One file that is written for as long as a run takes, under a temporary name first; or standard
// output, a pipe or a device, which get the bytes as they come.
struct conv_temporary_file {
    const char *path; // "-": standard output
    int fd;           // -1: not open
    bool owns_fd;
    bool is_stream; // bytes come in order; else they can be written at any offset
    const atomic_int *stop;
    struct conv_temporary temporary;
    struct conv_access access; // of the file that is replaced
};

// Takes `bytes` that were written off the beginning of the parts, and parts that are empty then.
// False if there are no more.
bool conv_temporary_skip(struct iovec **parts, int *count, size_t bytes);

// True if the path stands for a stream.
bool conv_temporary_is_stream(const char *path);

// Begins to write; keeps `path`. The folder of a file is made, and the file is open for reading as
// well. `force`: a write-protected file is replaced, too. `stop` ends waits for the reader of a
// pipe. CONV_ERR_IO, CONV_ERR_LIMIT, CONV_ERR_USAGE for a folder, CONV_ERR_CANCELLED; nothing is
// open then.
enum conv_status conv_temporary_open(struct conv_temporary_file *file, const char *path, bool force,
                                     const atomic_int *stop, struct conv_err *err);

// The next bytes of a stream. CONV_ERR_IO with the reason, CONV_ERR_CANCELLED once a signal has
// ended the run and a pipe's reader reads nothing.
enum conv_status conv_temporary_write(const struct conv_temporary_file *file, const void *data,
                                      size_t size, struct conv_err *err);

// Closes the file. `keep`: it gets its name, else it is removed; `fsync`: the file and its name are
// on the disk on return. CONV_ERR_IO; nothing is left of it then.
enum conv_status conv_temporary_close(struct conv_temporary_file *file, bool keep, bool fsync,
                                      struct conv_err *err);
