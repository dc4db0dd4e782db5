// SPDX-License-Identifier: MIT
// What the walk and the output need to know of paths.
#ifndef CONV_IO_PATHS_H
#define CONV_IO_PATHS_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

enum conv_paths_relation { CONV_PATHS_APART, CONV_PATHS_SAME, CONV_PATHS_NESTED };

// How two folders lie to each other, links resolved; the second need not exist yet.
enum conv_paths_relation conv_paths_relation(const char *existing, const char *other);

// The absolute path without links, in `resolved` (PATH_MAX bytes). Its last components need not
// exist. False if it cannot be resolved.
bool conv_paths_resolve(const char *path, char *resolved);

// dst (PATH_MAX bytes) = folder/name; an empty folder gives just the name. dst may be folder
// itself. False if it does not fit.
bool conv_paths_join(char *dst, const char *folder, const char *name);

// The part behind the last slash; trailing slashes do not count.
const char *conv_paths_base(const char *path);

bool conv_paths_exists(const char *path);
bool conv_paths_is_folder(const char *path); // or a link to one

// A file for as long as it exists.
struct conv_paths_id {
    dev_t device;
    ino_t inode;
};

// The file that a path leads to, or would be made as. Other spellings, and links, have the same.
struct conv_paths_identity {
    bool exists;
    struct stat info;        // of the file; if it does not exist, of the folder
    char name[NAME_MAX + 1]; // of a file that does not exist
};

// False if there is no such file and none can be made.
bool conv_paths_identify(struct conv_paths_identity *identity, const char *path);
bool conv_paths_is_same(const struct conv_paths_identity *a, const struct conv_paths_identity *b);

// True if two looks at a file have seen the same file with the same content, as far as size and
// time of change tell.
bool conv_paths_is_unchanged(const struct stat *before, const struct stat *after);

// True if one component is "..".
bool conv_paths_climbs(const char *path);

// open() with O_CLOEXEC, for a new file with the umask's mode, once more when a signal came
// between or when there was no descriptor and others may close one (descriptors.h).
int conv_paths_open(const char *path, int flags);

// The descriptor of this process that `path` stands for, as /dev/stdout and /dev/fd/3 do; it need
// not be open. -1 if it stands for none.
int conv_paths_descriptor(const char *path);

// Waits until a pipe, terminal or socket has something to read (or its end). False once *stop,
// which may be NULL, is non-zero: a plain read would not notice a signal that another thread took.
bool conv_paths_wait_readable(int fd, atomic_int *stop);

// mkdir -p. CONV_ERR_IO with the reason.
enum conv_status conv_paths_make_folder(const char *path, struct conv_err *err);

// mkdir -p for the folder that a file is to lie in.
enum conv_status conv_paths_make_parent(const char *path, struct conv_err *err);

#endif
