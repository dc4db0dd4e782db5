// SPDX-License-Identifier: MIT
// What the walk and the output need to know of paths.
#ifndef CONV_PIPELINE_PATHS_H
#define CONV_PIPELINE_PATHS_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

enum conv_paths_relation { CONV_PATHS_APART, CONV_PATHS_SAME, CONV_PATHS_NESTED };

// How two folders lie to each other, links resolved; the second need not exist yet.
enum conv_paths_relation conv_paths_relation(const char *existing, const char *other);

// dst (PATH_MAX bytes) = folder/name; an empty folder gives just the name. dst may be folder
// itself. False if it does not fit.
bool conv_paths_join(char *dst, const char *folder, const char *name);

// The part behind the last slash; trailing slashes do not count.
const char *conv_paths_base(const char *path);

bool conv_paths_exists(const char *path);

// True if two looks at a file have seen the same file with the same content, as far as size and
// time of change tell.
bool conv_paths_is_unchanged(const struct stat *before, const struct stat *after);

// True if one component is "..".
bool conv_paths_climbs(const char *path);

// open() with O_CLOEXEC, for a new file with the umask's mode, once more when a signal came
// between.
int conv_paths_open(const char *path, int flags);

// Waits until a pipe, terminal or socket has something to read (or its end). False once *stop,
// which may be NULL, is non-zero: a plain read would not notice a signal that another thread took.
bool conv_paths_wait_readable(int fd, atomic_int *stop);

// mkdir -p. CONV_ERR_IO with the reason.
enum conv_status conv_paths_make_folder(const char *path, struct conv_err *err);

// mkdir -p for the folder that a file is to lie in.
enum conv_status conv_paths_make_parent(const char *path, struct conv_err *err);

#endif
