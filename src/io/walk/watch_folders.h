// SPDX-License-Identifier: MIT
// The folders that inotify watches, by watch descriptor. One thread at a time.
#ifndef CONV_WALK_WATCH_FOLDERS_H
#define CONV_WALK_WATCH_FOLDERS_H

#include <stdbool.h>

#include "base/err.h"

struct conv_watch_folder {
    int wd;
    int root;   // the caller's number of the tree that it belongs to
    char *path; // malloc'ed
};

struct conv_watch_folders {
    int fd;                        // of inotify, non-blocking
    struct conv_watch_folder *all; // by ascending wd
    int count, capacity;
};

// CONV_ERR_LIMIT if the user has no inotify instance left; CONV_ERR_IO. Nothing is open after a
// failure.
enum conv_status conv_watch_folders_open(struct conv_watch_folders *folders, struct conv_err *err);
void conv_watch_folders_close(struct conv_watch_folders *folders);

// Watches `path` for files that are complete, renamed or removed and for new folders. A folder that
// is watched already gets the new path; *is_new: it was not watched under this path. CONV_ERR_LIMIT
// if the user's limit of watches is reached; CONV_ERR_IO with the reason; CONV_ERR_MEMORY.
enum conv_status conv_watch_folders_add(struct conv_watch_folders *folders, const char *path,
                                        int root, bool *is_new, struct conv_err *err);

// NULL if it is no longer watched. Valid until the next call that adds or removes.
const struct conv_watch_folder *conv_watch_folders_find(const struct conv_watch_folders *folders,
                                                        int wd);

// Ends the watch of the folder `path` and of all below it.
void conv_watch_folders_remove(struct conv_watch_folders *folders, const char *path);

// Forgets a watch that the system has ended.
void conv_watch_folders_forget(struct conv_watch_folders *folders, int wd);

#endif
