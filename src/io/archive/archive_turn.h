// SPDX-License-Identifier: MIT
// Puts members into archives in the order of their numbers, whichever thread is done first.
//
// A member whose turn it is goes straight to the archive. One that is early is copied and waits;
// its thread waits for at most a quarter of the time that a copy takes. So a waiting member never
// occupies a thread, staging memory or a lock, and the member whose turn it is always gets what it
// needs. The memory of waiting members is limited by admission instead:
// conv_sink_may_begin refuses to begin further members while too much waits, except for
// the one whose turn it is. Members that were begun before that add at most the outputs of the
// images in flight, which staging memory limits.
//
// A file of plain tar is written by several threads at a time, each at its member's offset, which
// is known as soon as the sizes of all members before it are; the next archive begins meanwhile.
// Everything else is written by one thread at a time.
//
// "With the lock": the caller holds order->lock. "With the turn": order->has_turn is true and was
// set by this thread, the only one that places members. Private to archive_sink.c and
// archive_turn.c.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/lock.h"
#include "io/archive/archive.h"
#include "io/archive/archive_members.h"
#include "io/archive/archive_output.h"
#include "io/files/output_names.h"
#include "io/sink.h"

// --- archives ------------------------------------------------------------------------------------

// An archive that is being written.
struct conv_open_archive {
    struct conv_archive_output output; // of the turn, except for writing at offsets
    struct conv_archive_writer *writer;
    int target;     // this and the rest are guarded by the lock; -1: none is open
    int writing;    // members that are placed and not yet written
    bool is_sealed; // no member will be placed any more
};

// --- the turn ------------------------------------------------------------------------------------

#define CONV_ARCHIVE_NO_MEMBER UINT64_MAX

// Archives that are open at a time.
#define CONV_ARCHIVE_MOST_OPEN 4

struct conv_archive_order {
    struct conv_sink sink;
    struct conv_sink_config config;
    struct conv_output_names names;
    struct conv_open_archive open[CONV_ARCHIVE_MOST_OPEN];
    struct conv_open_archive *current; // of the turn: that members are placed in; NULL: none
    uint64_t usual;                    // of the turn: bytes of the archive before; 0: none
    struct conv_archive_buffers buffers;

    atomic_uint_fast64_t
        due; // the member whose turn it is; CONV_ARCHIVE_NO_MEMBER while a thread has the turn
    struct conv_lock lock;            // guards all below
    pthread_cond_t completed;         // an archive
    bool has_turn;                    // a thread has the turn
    uint64_t next;                    // the member whose turn it is
    struct conv_archive_entry **ring; // those that wait, by number modulo `room`, a power of two
    size_t room;
    struct conv_archive_entry *placed; // to be written at their offsets
    size_t waiting, limit;
    struct conv_err failure;
};

// Where a waiting member of that number is; order->room must not be 0. With the lock.
struct conv_archive_entry **conv_archive_turn_slot(struct conv_archive_order *order,
                                                   uint64_t number) CONV_NEEDS(order->lock);

// Takes the turn for all members that are due. `given`: the first of them, which stays the
// caller's, or NULL. Called and left with the lock, without it in between. Errors become those of
// the order.
void conv_archive_turn_take(struct conv_archive_order *order, struct conv_archive_entry *given)
    CONV_NEEDS(order->lock);

// True once writing has failed.
bool conv_archive_turn_has_failed(struct conv_archive_order *order) CONV_TAKES(order->lock);

// Notes the first failure: nothing is written after it. Without the lock.
void conv_archive_turn_fail(struct conv_archive_order *order, const struct conv_err *err)
    CONV_TAKES(order->lock);

// Begins archive number `target`, which becomes order->current. With the turn, without the lock.
// CONV_ERR_IO, CONV_ERR_MEMORY.
enum conv_status conv_archive_turn_open(struct conv_archive_order *order,
                                        struct conv_open_archive *archive, int target,
                                        struct conv_err *err) CONV_TAKES(order->lock);

// Completes an archive whose members are all written, or removes it. Without the lock.
enum conv_status conv_archive_turn_close(struct conv_archive_order *order,
                                         struct conv_open_archive *archive, bool keep,
                                         struct conv_err *err) CONV_TAKES(order->lock);
