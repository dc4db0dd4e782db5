// SPDX-License-Identifier: MIT
// What watch.c (the source of images) and watch_events.c (what happens in the folders) share.
#ifndef CONV_IO_WATCH_INTERNAL_H
#define CONV_IO_WATCH_INTERNAL_H

#include <time.h>

#include "base/digest_set.h"
#include "io/watch.h"
#include "io/watch_arrivals.h"
#include "io/watch_folders.h"

struct conv_watch_root {
    const char *path;
    size_t target;
    bool is_gone, is_reported;
};

struct conv_watch {
    const struct conv_folder_rules *rules;
    const atomic_int *stop;
    struct conv_watch_folders folders;
    struct conv_watch_arrivals arrivals;
    struct conv_watch_root *roots;
    int root_count;
    // Found by the walk after watching began: their events bring nothing new.
    struct conv_digest_set found;
    time_t began, drained; // when watching began; when no event was left
    // A folder that could not be watched; failed.err.status 0: none.
    struct {
        char path[PATH_MAX];
        struct conv_err err;
    } failed;
};

// What to do with the files of a tree that is listed.
struct conv_watch_listing {
    bool takes_files;
    time_t since; // only those that changed since then
};

// Watches a folder and those below it, and lists their files. CONV_ERR_LIMIT, CONV_ERR_IO or
// CONV_ERR_MEMORY if `path` itself cannot be watched; other failures are stored in watch->failed.
enum conv_status conv_watch_add_tree(struct conv_watch *watch, const char *path, int root,
                                     const struct conv_watch_listing *listing,
                                     struct conv_err *err);

// Handles the events that the system has reported: adds new files. Does not wait.
void conv_watch_read_events(struct conv_watch *watch);

#endif
