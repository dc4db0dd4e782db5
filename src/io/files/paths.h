// SPDX-License-Identifier: MIT
// Paths: joined, resolved, compared, opened, and folders made. Any thread.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

enum conv_paths_relation { CONV_PATHS_APART, CONV_PATHS_SAME, CONV_PATHS_NESTED };

// Whether two folders are the same or one contains the other, links resolved; the second need not
// exist yet. APART if one cannot be resolved.
enum conv_paths_relation conv_paths_relation(const char *existing, const char *other);

// True if one path is below the other; both as conv_paths_resolve makes them.
bool conv_paths_is_inside(const char *inner, const char *outer);

// The absolute path without links, in `resolved` (PATH_MAX bytes). Its last components need not
// exist. False if it cannot be resolved.
bool conv_paths_resolve(const char *path, char *resolved);

// dst (PATH_MAX bytes) = folder/name; an empty folder gives just the name. dst may be folder
// itself. False if it does not fit.
bool conv_paths_join(char *dst, const char *folder, const char *name);

// The part after the last slash; trailing slashes belong to the name before them.
const char *conv_paths_base(const char *path);

// folder (PATH_MAX bytes) = the path of the folder that `path` is in, with its last slash; "." if
// it has none. Returns `folder`.
const char *conv_paths_folder(char *folder, const char *path);

// True for the name that stands for standard input or output.
bool conv_paths_is_standard(const char *path);

bool conv_paths_is_npy(const char *path);    // by its name
bool conv_paths_exists(const char *path);    // false for a link that leads nowhere
bool conv_paths_is_folder(const char *path); // or a link to one

// A file for as long as it exists.
struct conv_paths_id {
    dev_t device;
    ino_t inode;
};

// The file that a path leads to, or that opening it would create. All spellings of a path, and
// links, have the same identity.
struct conv_paths_identity {
    bool exists;
    struct stat info;        // of the file; if it does not exist, of the folder
    char name[NAME_MAX + 1]; // of a file that does not exist
};

// False if there is no such file and none can be made.
bool conv_paths_identify(struct conv_paths_identity *identity, const char *path);
bool conv_paths_is_same(const struct conv_paths_identity *a, const struct conv_paths_identity *b);

// True if two calls of stat() saw the same file with the same content, as far as inode, size and
// modification time show.
bool conv_paths_is_unchanged(const struct stat *before, const struct stat *after);

// True if the first file was modified before the second.
bool conv_paths_is_older(const struct stat *first, const struct stat *second);

// Sets dst (strlen(name) + 1 bytes) to the one spelling of a relative path: without ".", "..",
// repeated slashes and those at either end. False for a path that leads out of the folder that it
// starts in, which then begins with "..".
bool conv_paths_normal(char *dst, const char *name);

// True if a component between these separators is "..".
bool conv_paths_climbs(const char *path, const char *separators);

// open() with O_CLOEXEC, a new file with mode 0666 less the umask. Repeated after a signal, and
// while there is no free descriptor but other threads may close one (descriptors.h). -1 with errno.
int conv_paths_open(const char *path, int flags);

// The same in a folder, for a new file with another mode, and without trying once *ends, which may
// be NULL, is true.
int conv_paths_open_at(int folder, const char *path, int flags, mode_t mode,
                       const atomic_bool *ends);

// fsync(), repeated after a signal. -1 with errno. File systems that cannot do this to a folder
// have nothing to flush.
int conv_paths_sync(int fd);
int conv_paths_sync_folder(int fd);

// The same for the folder of the file `path`. CONV_ERR_IO.
enum conv_status conv_paths_sync_parent(const char *path, struct conv_err *err);

// The descriptor of this process that a path such as /dev/stdout or /dev/fd/3 stands for; it need
// not be open. -1: none.
int conv_paths_descriptor(const char *path);

// Waits until a pipe, terminal or socket can be read or has ended. False once *stop, which may be
// NULL, is non-zero: a plain read would not notice a signal that another thread received.
bool conv_paths_wait_readable(int fd, atomic_int *stop);
bool conv_paths_is_readable(int fd); // true if that would not wait

// mkdir -p. CONV_ERR_IO; CONV_ERR_LIMIT if the path is too long.
enum conv_status conv_paths_make_folder(const char *path, struct conv_err *err);

// The same for the folder of the file `path`.
enum conv_status conv_paths_make_parent(const char *path, struct conv_err *err);

// Reads up to `size` first bytes of a regular file; returns how many. 0: it is none, or cannot be
// read. A pipe is not opened: reading would consume it.
size_t conv_paths_head(const char *path, void *head, size_t size);
