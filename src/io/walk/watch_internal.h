// SPDX-License-Identifier: MIT
// What watch.c (the source of images) and watch_events.c (what happens in the folders) share.
#ifndef CONV_WALK_WATCH_INTERNAL_H
#define CONV_WALK_WATCH_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "base/digest_set.h"
#include "io/walk/watch.h"
#include "io/walk/watch_arrivals.h"
#include "io/walk/watch_folders.h"

struct conv_watch_root {
    const char *path;
    size_t target;
    bool is_gone, is_reported;
    struct stat info; // identifies the folder
};

// An image that was handed out, by its name without extension: `a.jpg` and `a.png` may have one
// output, so that the later one waits for the earlier one.
struct conv_watch_busy {
    struct conv_watch *watch;
    uint64_t digest;
    int root;
    struct conv_watch_busy *next;
    char path[];
};

struct conv_watch {
    const struct conv_folder_rules *rules;
    const atomic_int *stop;
    struct conv_watch_folders folders;
    struct conv_watch_arrivals arrivals;
    struct conv_watch_root *roots;
    int root_count;
    // The last version of each file that was handed out, whose further events bring nothing new. By
    // name; a file displaces another one with the same place, which may be handed out twice.
    struct {
        uint64_t name, version;
    } * handed;
    time_t drained;                   // when no event was left
    uint64_t drained_ns;              // the same on conv_clock_ns
    uint64_t checked_ns;              // when the folders of the operands were last looked for
    struct conv_watch_arrival ready;  // to be handed out next; path NULL: none
    struct conv_digest_set contested; // names that two images wanted, and their stems
    pthread_mutex_t lock;             // guards both lists
    struct conv_watch_busy *busy;     // handed out and not released
    struct conv_watch_busy *again;    // released, to be read again
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

// Something has happened to a file, or may have; `is_closed` as in struct conv_watch_arrival.
void conv_watch_take_file(struct conv_watch *watch, const char *path, int root, bool is_closed);

// Takes the next file that is complete and not being processed into watch->ready. False if there
// is none yet.
bool conv_watch_find_ready(struct conv_watch *watch);

// The version of the file that was handed out last may be handed out again.
void conv_watch_forget(struct conv_watch *watch, const char *path);

// Notes which operands are gone, or have other folders at their paths, at most once a second.
void conv_watch_check_roots(struct conv_watch *watch, uint64_t now_ns);

// The file is gone: it is not handed out, and one that could not have its output's name is.
void conv_watch_leave(struct conv_watch *watch, const char *path, int root);

// Stores the failure unless one is stored already.
void conv_watch_note_failure(struct conv_watch *watch, const char *path,
                             const struct conv_err *err);

// Handles the events that the system has reported: adds new files. Does not wait.
void conv_watch_read_events(struct conv_watch *watch);

#endif
