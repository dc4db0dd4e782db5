// SPDX-License-Identifier: MIT
// Puts members into archives in the order of their numbers, whichever thread is done first.
//
// A member whose turn it is goes straight to the archive. One that is early is copied and waits,
// without making its thread wait for more than the quarter of a copy's time: that is why no thread,
// staging memory or lock is ever held by a member that waits for another one, and why the member
// whose turn it is always gets what it needs. The memory of waiting members is limited by admission
// instead: conv_archive_order_may_begin refuses to begin further members while too much waits,
// except for the one whose turn it is. What was begun before adds at most the outputs of the images
// in work, which staging memory limits.
//
// A file of plain tar is written by several threads at a time, each at its member's offset, which
// is known as soon as the sizes of all members before it are; the next archive begins meanwhile.
// Everything else is written by one thread at a time.
//
// Any thread may call any function, unless stated otherwise.
#ifndef CONV_IO_ARCHIVE_ORDER_H
#define CONV_IO_ARCHIVE_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "io/archive.h"

struct conv_archive_order;

struct conv_journal;

// An input of an archive to be written, as it was before it was read.
struct conv_archive_origin {
    const char *path;
    struct stat info;
};

// One archive to be written.
struct conv_archive_target {
    char *path;
    const struct conv_archive_format *format;
    atomic_bool is_due; // it appears, even if it has no member
    const char *done;   // why it is not written again; NULL: it is written
    // What the journal notes with it, once it is whole; malloc'ed, or NULL: archive_done.h.
    struct conv_archive_origin *origins;
    int origin_count;
    bool misses; // an input was not there
};

struct conv_archive_order_config {
    struct conv_archive_target *targets; // the caller's; members come for one after the other
    int target_count;
    bool fsync;
    int threads;                  // that put members
    struct conv_journal *journal; // gets a line per input of each archive without a dropped member,
                                  // before it appears; or NULL
    const atomic_int *stop;
};

enum conv_status conv_archive_order_open(struct conv_archive_order **order,
                                         const struct conv_archive_order_config *config,
                                         struct conv_err *err);

// Bytes of members that may wait, and of buffers that are kept for them; several times that of an
// output at least.
void conv_archive_order_limit(struct conv_archive_order *order, size_t bytes);

// Member `number` of all, counted from 0, for archive number `target`. Each number is put or
// dropped once. `content` is NULL for what is no file; it is copied unless `body` is not NULL: then
// it stays where it is, and *body is retained until it was written (archive_body.h).
// CONV_ERR_LIMIT, CONV_ERR_UNSUPPORTED, CONV_ERR_FORMAT: the archive cannot hold this member, which
// is still to be dropped. CONV_ERR_MEMORY. CONV_ERR_CANCELLED: the archive has failed, and
// conv_archive_order_finish will say why.
struct conv_archive_body;
enum conv_status conv_archive_order_put(struct conv_archive_order *order, uint64_t number,
                                        int target, const struct conv_archive_member *member,
                                        const struct conv_encoded *content,
                                        struct conv_archive_body *body, struct conv_err *err);

// There will be no member of that number, which was to be in archive number `target`.
void conv_archive_order_drop(struct conv_archive_order *order, uint64_t number, int target);

// False while too much waits and it is not this member's turn.
bool conv_archive_order_may_begin(struct conv_archive_order *order, uint64_t number);

// True once writing has failed.
bool conv_archive_order_has_failed(struct conv_archive_order *order);

// Completes the last archive, and makes those that are due and have no member; or with keep ==
// false removes what is unfinished. Frees the order. No other thread may use it. CONV_ERR_IO, with
// the first failure.
enum conv_status conv_archive_order_finish(struct conv_archive_order *order, bool keep,
                                           struct conv_err *err);

// Removes the unfinished archive. Async-signal-safe, for the end of the program.
void conv_archive_order_remove(struct conv_archive_order *order);

#endif
