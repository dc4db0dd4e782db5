// SPDX-License-Identifier: MIT
// Puts members into archives in the order of their numbers, whichever thread is done first.
//
// A member whose turn it is goes straight to the archive. One that is early is copied and waits;
// its thread waits for at most a quarter of the time that a copy takes. So a waiting member never
// occupies a thread, staging memory or a lock, and the member whose turn it is always gets what it
// needs. The memory of waiting members is limited by admission instead:
// conv_archive_order_may_begin refuses to begin further members while too much waits, except for
// the one whose turn it is. Members that were begun before that add at most the outputs of the
// images in flight, which staging memory limits.
//
// A file of plain tar is written by several threads at a time, each at its member's offset, which
// is known as soon as the sizes of all members before it are; the next archive begins meanwhile.
// Everything else is written by one thread at a time.
//
// Any thread may call any function, unless stated otherwise.
#ifndef CONV_ARCHIVE_ARCHIVE_ORDER_H
#define CONV_ARCHIVE_ARCHIVE_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "io/archive/archive_sink.h"

struct conv_archive_order;

struct conv_journal;

// Opens no archive yet: each of config->targets, whose members come for one after the other,
// appears with its first member. Keeps the pointers in *config; *order is set on success only.
// CONV_ERR_MEMORY.
enum conv_status conv_archive_order_open(struct conv_archive_order **order,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err);

// Sets the bytes that waiting members, and buffers kept for them, may take: at least several times
// the size of an output.
void conv_archive_order_limit(struct conv_archive_order *order, size_t bytes);

// Puts member `number`, counted from 0 over all archives, into archive number `target`. Each number
// is put or dropped once. `content` is NULL unless the member is a file. It is copied if `body` is
// NULL; otherwise it stays in place, and *body is retained until it has been written
// (archive_members.h). CONV_ERR_LIMIT, CONV_ERR_UNSUPPORTED, CONV_ERR_FORMAT: the archive cannot
// hold this member, which the caller still has to drop. CONV_ERR_MEMORY. CONV_ERR_CANCELLED: an
// archive has failed before, and conv_archive_order_finish will say why. CONV_OK promises nothing
// until target->is_written.
struct conv_archive_body;
enum conv_status conv_archive_order_put(struct conv_archive_order *order, uint64_t number,
                                        int target, const struct conv_archive_member *member,
                                        const struct conv_encoded *content,
                                        struct conv_archive_body *body, struct conv_err *err);

// There will be no member `number`, which was to be in archive number `target`. `lacks`: so the
// archive is incomplete.
void conv_archive_order_drop(struct conv_archive_order *order, uint64_t number, int target,
                             bool lacks);

// False while too much waits and it is not this member's turn.
bool conv_archive_order_may_begin(struct conv_archive_order *order, uint64_t number);

// True if all members before this one are written, or have their places, or are dropped.
bool conv_archive_order_is_due(struct conv_archive_order *order, uint64_t number);

// True once writing has failed.
bool conv_archive_order_has_failed(struct conv_archive_order *order);

// Completes the last archive, and creates those that are due and have no members; with keep ==
// false, removes unfinished ones instead. Frees the order. No other thread may use it. CONV_ERR_IO,
// with the first failure.
enum conv_status conv_archive_order_finish(struct conv_archive_order *order, bool keep,
                                           struct conv_err *err);

// Removes the unfinished archive. Async-signal-safe, for the end of the program.
void conv_archive_order_remove(struct conv_archive_order *order);

#endif
