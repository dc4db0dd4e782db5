// SPDX-License-Identifier: MIT
// What the files of a watch share: watch.c keeps what has arrived and hands it out once it is
// complete, watch_events.c handles what happens in the folders.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/lock.h"
#include "io/walk/walk_internal.h"

static inline uint64_t conv_watch_digest(const char *path, size_t length)
{
    struct conv_digest digest = {0};
    conv_hash_add(&digest, path, length);
    return digest.word[0];
}

// --- arrivals ------------------------------------------------------------------------------------

// Files that have arrived and are about to be handed out, in order of arrival. A file waits until
// nothing has happened to it for a while: programs that write a file in several steps, or write it
// and then rename it, cause one hand-out, not several. One thread at a time.

#define CONV_WATCH_SETTLE_NS 10000000u // of the 50 ms that may pass from close to output

struct conv_watch_arrival {
    char *path; // malloc'ed
    int root;   // the caller's
    // The caller's, too: a program has closed it after writing, or given it its name; it is to be
    // read even if it is not new; how long it has waited since it was looked at.
    bool is_closed, is_asked_for;
    uint64_t waited_ns;
    uint64_t due_ns;
    uint64_t digest, number;
};

// {0} is empty.
struct conv_watch_arrivals {
    struct conv_watch_arrival *heap; // that is due first: the first
    size_t count;
    size_t fresh; // of them that were never postponed
    struct {
        uint64_t digest, number; // of the last event of a name; number 0: removed
    } * last;                    // by digest; a name displaces another one with the same place
    uint64_t next_number;
};

// Something has happened to arrival->path, which is copied. It replaces an earlier arrival of that
// name. CONV_ERR_MEMORY.
enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals,
                                         const struct conv_watch_arrival *arrival,
                                         struct conv_err *err);

// --- watches -------------------------------------------------------------------------------------

// A folder that inotify watches.
struct conv_watch_folder {
    int wd;
    int root;   // number of the operand that it belongs to
    char *path; // malloc'ed
};

struct conv_watch_root {
    const char *path;
    size_t target;
    bool is_gone, is_reported;
    struct stat info; // identifies the folder
};

// An image that was handed out, by its name without extension: `a.jpg` and `a.png` may have one
// output, so that the later one waits for the earlier one.
struct conv_watched {
    struct conv_watch *watch;
    uint64_t digest;
    int root;
    struct conv_watched *next;
    char path[];
};

struct conv_watch {
    const struct conv_folder_rules *rules;
    const atomic_int *stop;
    int fd;                            // of inotify, non-blocking
    struct conv_watch_folder *folders; // by ascending wd
    int folder_count;
    struct conv_watch_arrivals arrivals;
    struct conv_watch_root *roots;
    int root_count, gone_count;
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
    struct conv_lock lock;            // guards both lists
    struct conv_watched *busy;        // handed out and not released
    struct conv_watched *again;       // released, to be read again
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

// Notes which operands are gone, or have other folders at their paths, at most once a second.
void conv_watch_check_roots(struct conv_watch *watch, uint64_t now_ns);

// The file is gone: it is not handed out, and one that could not have its output's name is.
void conv_watch_leave(struct conv_watch *watch, const char *path, int root);

// Stores the failure unless one is stored already.
void conv_watch_note_failure(struct conv_watch *watch, const char *path,
                             const struct conv_err *err);

// Handles the events that the system has reported: adds new files. Does not wait.
void conv_watch_read_events(struct conv_watch *watch);
