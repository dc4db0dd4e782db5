// SPDX-License-Identifier: MIT
// A member whose turn it is goes to the archive, together with the waiting members that follow it
// (archive_turn.h); any other member is copied and waits.
#include "io/archive/archive_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/archive/archive_turn.h"

// If other threads are writing a member's predecessors, its turn comes a moment later. This wait,
// in ns, is cheaper than copying the bytes, which takes four times as long.
#define PATIENCE(bytes) ((uint64_t)(bytes) / 16)
#define LEAST_PATIENCE 4000

enum conv_status conv_archive_order_open(struct conv_archive_order **out,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err)
{
    struct conv_archive_order *order = calloc(1, sizeof *order);
    bool *made = calloc(2 * ((size_t)config->target_count + 1), sizeof *made);
    if (!order || !made) {
        free(order);
        free(made);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for writing archives");
    }
    order->config = *config;
    order->made = made;
    order->lack = made + config->target_count + 1;
    for (int i = 0; i < CONV_ARCHIVE_MOST_OPEN; i++) {
        order->open[i].target = -1;
        order->open[i].output.file.fd = -1;
    }
    order->limit = SIZE_MAX;
    atomic_init(&order->due, 0);
    conv_archive_buffers_open(&order->buffers);
    (void)conv_lock_init(&order->lock);
    pthread_cond_init(&order->completed, NULL);
    *out = order;
    return CONV_OK;
}

void conv_archive_order_limit(struct conv_archive_order *order, size_t bytes)
{
    order->buffers.most = bytes / 5;
    order->limit = bytes - order->buffers.most;
}

static enum conv_status refuse_failed(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_CANCELLED, "the archive cannot be written");
}

// Waits a moment for members just before this one.
static void wait_for_turn(struct conv_archive_order *order, uint64_t number, size_t bytes)
{
    uint64_t due = atomic_load(&order->due), patience = PATIENCE(bytes);
    if (patience < LEAST_PATIENCE || due == number ||
        (due != CONV_ARCHIVE_NO_MEMBER && number > due + (uint64_t)order->config.workers))
        return;
    for (uint64_t start = conv_clock_ns(); conv_clock_ns() - start < patience;)
        if (atomic_load(&order->due) == number)
            return;
}

// False without memory.
static bool reserve(struct conv_archive_order *order, uint64_t number) CONV_NEEDS(order->lock)
{
    size_t room = order->room ? order->room : 64;
    while (number - order->next >= room)
        room *= 2;
    if (room == order->room)
        return true;
    struct conv_archive_entry **ring = calloc(room, sizeof(struct conv_archive_entry *));
    if (!ring)
        return false;
    for (size_t i = 0; i < order->room; i++) {
        uint64_t old = order->next + i;
        ring[old & (room - 1)] = order->ring[old & (order->room - 1)];
    }
    free(order->ring);
    order->ring = ring;
    order->room = room;
    return true;
}

static bool is_its_turn(const struct conv_archive_order *order, uint64_t number)
    CONV_NEEDS(order->lock)
{
    return number == order->next && !order->has_turn;
}

// The member waits. Takes the entry over.
static enum conv_status enqueue(struct conv_archive_order *order, uint64_t number,
                                struct conv_archive_entry *entry, struct conv_err *err)
{
    conv_lock_acquire(&order->lock);
    bool reserved = reserve(order, number);
    if (reserved) {
        *conv_archive_turn_slot(order, number) = entry;
        order->waiting += entry->copied;
        if (!order->has_turn)
            conv_archive_turn_take(order, NULL);
    }
    conv_lock_release(&order->lock);
    if (reserved)
        return CONV_OK;
    conv_archive_entry_free(&order->buffers, entry);
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
}

enum conv_status conv_archive_order_put(struct conv_archive_order *order, uint64_t number,
                                        int target, const struct conv_archive_member *member,
                                        const struct conv_encoded *content,
                                        struct conv_archive_body *body, struct conv_err *err)
{
    struct conv_archive_entry entry = {.target = target, .member = *member, .body = body};
    const struct conv_archive_format *format = order->config.targets[target].format;
    if (content)
        entry.content = *content;
    enum conv_status status = format->check(member, err);
    if (status)
        return status;
    if (!body)
        wait_for_turn(order, number, entry.content.size);
    conv_lock_acquire(&order->lock);
    bool failed = order->failure.status != CONV_OK, now = is_its_turn(order, number);
    if (now)
        conv_archive_turn_take(order, &entry);
    conv_lock_release(&order->lock);
    if (now || failed) // a later failure may be another archive's: see is_written
        return failed ? refuse_failed(err) : CONV_OK;
    struct conv_archive_entry *copy = conv_archive_entry_copy(&order->buffers, &entry);
    if (!copy)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
    return enqueue(order, number, copy, err);
}

void conv_archive_order_drop(struct conv_archive_order *order, uint64_t number, int target,
                             bool lacks)
{
    struct conv_archive_entry gone = {.is_dropped = true, .lacks = lacks, .target = target};
    struct conv_err err = {0};
    conv_lock_acquire(&order->lock);
    bool now = is_its_turn(order, number);
    if (now)
        conv_archive_turn_take(order, &gone);
    conv_lock_release(&order->lock);
    if (now)
        return;
    struct conv_archive_entry *entry = calloc(1, sizeof *entry);
    if (entry) {
        entry->is_dropped = true;
        entry->lacks = lacks;
        entry->target = target;
        entry->copied = sizeof *entry;
    }
    if (!entry)
        conv_err_set(&err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
    if (!entry || enqueue(order, number, entry, &err))
        conv_archive_turn_fail(order, &err);
}

bool conv_archive_order_may_begin(struct conv_archive_order *order, uint64_t number)
{
    conv_lock_acquire(&order->lock);
    bool may = order->waiting <= order->limit || number <= order->next;
    conv_lock_release(&order->lock);
    return may;
}

bool conv_archive_order_is_due(struct conv_archive_order *order, uint64_t number)
{
    conv_lock_acquire(&order->lock);
    bool is_due = number <= order->next;
    conv_lock_release(&order->lock);
    return is_due;
}

// Archives that have no member.
static enum conv_status make_empty(struct conv_archive_order *order, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < order->config.target_count && !status; i++)
        if (!order->made[i] && atomic_load(&order->config.targets[i].is_due)) {
            status = conv_archive_turn_open(order, &order->open[0], i, err);
            if (order->current) {
                struct conv_err later;
                enum conv_status finished =
                    conv_archive_turn_close(order, order->current, !status, status ? &later : err);
                status = status ? status : finished;
            }
            order->current = NULL;
        }
    return status;
}

// After a signal members that were begun are missing: those that wait follow without them.
static void close_gaps(struct conv_archive_order *order)
{
    conv_lock_acquire(&order->lock);
    for (size_t i = 0; i < order->room; i++) {
        struct conv_archive_entry *entry = *conv_archive_turn_slot(order, order->next);
        if (entry) {
            order->lack[entry->target] = true;
            conv_archive_turn_take(order, NULL);
        } else {
            order->next++;
        }
    }
    conv_lock_release(&order->lock);
}

enum conv_status conv_archive_order_finish(struct conv_archive_order *order, bool keep,
                                           struct conv_err *err)
{
    if (keep && atomic_load(order->config.stop) > 0)
        close_gaps(order);
    enum conv_status status = order->failure.status;
    bool complete = true;
    if (status)
        *err = order->failure;
    for (size_t i = 0; i < order->room; i++) {
        complete = complete && !order->ring[i]; // else others should have come before
        conv_archive_entry_free(&order->buffers, order->ring[i]);
    }
    if (keep && !status && !complete)
        status = conv_err_set(err, CONV_ERR_IO, "members of the archive are missing");
    struct conv_err later;
    if (order->current) { // the others are complete
        enum conv_status finished =
            conv_archive_turn_close(order, order->current, keep && !status, status ? &later : err);
        status = status ? status : finished;
        order->current = NULL;
    }
    if (!status && keep)
        status = make_empty(order, err);
    conv_lock_destroy(&order->lock);
    pthread_cond_destroy(&order->completed);
    conv_archive_buffers_close(&order->buffers);
    free(order->ring);
    free(order->made);
    free(order);
    return status == CONV_ERR_CANCELLED ? CONV_OK : status;
}

void conv_archive_order_remove(struct conv_archive_order *order)
{
    for (int i = 0; i < CONV_ARCHIVE_MOST_OPEN; i++)
        conv_temporary_remove(&order->open[i].output.file);
}
