// SPDX-License-Identifier: MIT
// A member whose turn it is goes to its archive, together with the waiting members that follow it
// (archive_turn.h); any other member is copied and waits.
//
// Members of archives keep their metadata. Files get fixed owners and modes, and their time in
// whole seconds, so that the bytes of an archive depend on its inputs alone.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/archive/archive_turn.h"
#include "io/files/file_sink.h"

// If other threads are writing a member's predecessors, its turn comes a moment later. This wait,
// in ns, is cheaper than copying the bytes, which takes four times as long.
#define PATIENCE(bytes) ((uint64_t)(bytes) / 16)
#define LEAST_PATIENCE 4000

#define FILE_MODE 0644
#define MOST_HOLDS 8

static struct conv_archive_order *order_of(const struct conv_sink *sink)
{
    return (struct conv_archive_order *)(uintptr_t)sink;
}

static const char *original_of(const struct conv_item *item)
{
    return item->body ? item->body->member.name : conv_item_target(item);
}

// --- names ---------------------------------------------------------------------------------------

// True if the link has to come after the member that it leads to, which has not come yet: a hard
// link, or one whose target may get another name or may not come. It is held back again and again
// if it leads through other such links. Other symbolic links stay where they are.
static bool is_early(struct conv_archive_order *order, const struct conv_item *item)
{
    const struct conv_sink_config *config = &order->config;
    char target[2 * PATH_MAX];
    if (!item->is_link || item->holds == MOST_HOLDS ||
        !conv_archive_body_target(target, item->body) ||
        conv_output_names_fate(&order->names, item->archive, target) != CONV_OUTPUT_UNKNOWN)
        return false;
    if (item->body->member.kind == CONV_ARCHIVE_HARDLINK || config->format || config->npy ||
        config->is_partial)
        return true;
    conv_output_names_note(&order->names, item->archive, target, CONV_OUTPUT_AWAITED);
    return false;
}

static enum conv_status refuse_lost(const struct conv_archive_member *link, struct conv_err *err)
{
    return conv_err_unsupported(err, "is a link to %s, which is not in the output", link->link);
}

// True for a hard link to a member that has never come, or to itself, and if not all members come,
// for a symbolic link to one.
static bool leads_nowhere(struct conv_archive_order *order, const struct conv_item *item)
{
    char target[2 * PATH_MAX];
    return item->is_link &&
           (item->body->member.kind == CONV_ARCHIVE_HARDLINK || order->config.is_partial) &&
           conv_archive_body_target(target, item->body) &&
           conv_output_names_fate(&order->names, item->archive, target) == CONV_OUTPUT_UNKNOWN;
}

static enum conv_status claim(struct conv_sink *base, struct conv_item *item,
                              enum conv_sink_claim *result, struct conv_err *err)
{
    struct conv_archive_order *order = order_of(base);
    const struct conv_archive_body *body = item->body;
    struct conv_output_claim place = {
        .archive = item->archive,
        .name = conv_item_target(item),
        .original = body ? body->member.name : NULL,
        .owner = order->config.is_endless ? item->name : NULL,
        .is_folder = body && body->member.kind == CONV_ARCHIVE_FOLDER,
    };
    if (is_early(order, item)) {
        *result = CONV_SINK_CLAIM_LATER;
        return CONV_OK;
    }
    if (leads_nowhere(order, item))
        return refuse_lost(&body->member, err);
    enum conv_status status =
        conv_output_names_claim(&order->names, &place, &item->is_repeated, err);
    if (!status && place.owner &&
        conv_output_names_has(&order->names, place.archive, place.name, CONV_OUTPUT_WRITTEN))
        status = conv_err_usage(err, "an earlier version of it is in the archive");
    item->is_refused = status != CONV_OK;
    char target[2 * PATH_MAX];
    if (!status && item->is_link && body->member.kind == CONV_ARCHIVE_SYMLINK &&
        conv_archive_body_target(target, body))
        status =
            conv_output_names_link(&order->names, item->archive, body->member.name, target, err);
    if (item->is_repeated) {
        *result = CONV_SINK_CLAIM_REPEATED;
        item->reason = "the output has this folder already";
    }
    if (!item->is_copy && body && order->config.copies)
        item->keeps_name =
            strcmp(place.name, place.original) == 0
                ? !status
                : conv_output_names_reserve(&order->names, item->archive, place.original);
    return status;
}

// The target of a link follows the member that it leads to. `item` is where the new target is made.
static enum conv_status follow(struct conv_archive_order *order,
                               const struct conv_archive_body *body, int archive,
                               struct conv_archive_member *member, struct conv_item *item,
                               struct conv_err *err)
{
    const struct conv_sink_config *config = &order->config;
    char target[2 * PATH_MAX];
    if (!conv_archive_body_target(target, body))
        return CONV_OK;
    enum conv_output_fate fate = conv_output_names_fate(&order->names, archive, target);
    if (fate == CONV_OUTPUT_LOST)
        return refuse_lost(member, err);
    if (fate != CONV_OUTPUT_RENAMED)
        return CONV_OK;
    snprintf(item->name, sizeof item->name, "%s", member->link);
    item->target = 0;
    member->link = item->name;
    if (conv_item_set_format(item, config->format, config->npy, err))
        return err->status;
    member->link = conv_item_target(item);
    return CONV_OK;
}

// "out.tar:a.png", for reports.
static enum conv_status place(const struct conv_sink *base, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    const struct conv_archive_order *order = order_of(base);
    int length = snprintf(output->path, sizeof output->path, "%s:%s",
                          order->config.targets[item->archive].path, conv_item_target(item));
    return length < (int)sizeof output->path ? CONV_OK : conv_err_limit(err, "path too long");
}

// --- the order -----------------------------------------------------------------------------------

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

static enum conv_status no_memory(struct conv_err *err)
{
    return conv_err_memory(err, "no memory for members that wait for their turn");
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
    return no_memory(err);
}

// Puts the member into its archive. The content is copied if entry->body is NULL; otherwise it
// stays in place, and the body is retained until it has been written.
static enum conv_status put(struct conv_archive_order *order, uint64_t number,
                            struct conv_archive_entry *entry, struct conv_err *err)
{
    enum conv_status status =
        order->config.targets[entry->target].format->check(&entry->member, err);
    if (status)
        return status;
    if (!entry->body)
        wait_for_turn(order, number, entry->content.size);
    conv_lock_acquire(&order->lock);
    bool failed = order->failure.status != CONV_OK, now = is_its_turn(order, number);
    if (now)
        conv_archive_turn_take(order, entry);
    conv_lock_release(&order->lock);
    if (failed) // a later failure may be another archive's: see is_written
        return conv_err_set(err, CONV_ERR_CANCELLED, "the archive cannot be written");
    struct conv_archive_entry *copy = now ? NULL : conv_archive_entry_copy(&order->buffers, entry);
    return now ? CONV_OK : copy ? enqueue(order, number, copy, err) : no_memory(err);
}

static void drop_number(struct conv_archive_order *order, uint64_t number, int target, bool lacks)
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
    struct conv_archive_entry *entry = malloc(sizeof *entry);
    gone.copied = sizeof gone;
    if (entry)
        *entry = gone;
    if (entry ? enqueue(order, number, entry, &err) : no_memory(&err))
        conv_archive_turn_fail(order, &err);
}

static enum conv_status write_output(struct conv_sink *base, int, const struct conv_item *item,
                                     const struct stat *input, const struct conv_output *,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    struct conv_archive_order *order = order_of(base);
    struct conv_archive_body *body = item->body;
    struct conv_item other; // for the name of a link's target
    struct conv_archive_member member = {.mode = FILE_MODE, .link = "", .uname = "", .gname = ""};
    *result = CONV_SINK_WRITTEN;
    if (body)
        member = body->member;
    else
        member.mtime.tv_sec = input->st_mtim.tv_sec;
    member.name = conv_item_target(item);
    enum conv_status status =
        item->is_link ? follow(order, body, item->archive, &member, &other, err) : CONV_OK;
    if (status)
        return status;
    if (item->keeps_name && strcmp(member.name, original_of(item)) == 0)
        conv_output_names_note(&order->names, item->archive, member.name, CONV_OUTPUT_COPIED);
    bool is_file = member.kind == CONV_ARCHIVE_FILE;
    member.size = is_file ? file->size : 0;
    // A content that is copied unchanged can stay where it is.
    bool stays = body && is_file && file->part[0].data == body->data;
    struct conv_archive_entry entry = {
        .target = item->archive, .member = member, .body = stays ? body : NULL};
    if (is_file)
        entry.content = *file;
    status = put(order, item->number, &entry, err);
    if (!status && order->config.is_endless)
        conv_output_names_note(&order->names, item->archive, member.name, CONV_OUTPUT_WRITTEN);
    return status;
}

// True if all members before this one are written, or have their places, or are dropped.
static bool is_due(const struct conv_sink *sink, const struct conv_item *item)
{
    struct conv_archive_order *order = order_of(sink);
    conv_lock_acquire(&order->lock);
    bool is_due = item->number <= order->next;
    conv_lock_release(&order->lock);
    return is_due;
}

static bool drop(struct conv_sink *base, const struct conv_item *item)
{
    struct conv_archive_order *order = order_of(base);
    bool lacks = !item->is_repeated;
    const char *original = original_of(item);
    if (lacks && order->config.writes && !item->is_refused)
        conv_output_names_note(&order->names, item->archive, original, CONV_OUTPUT_MISSING);
    drop_number(order, item->number, item->archive, lacks);
    return lacks &&
           conv_output_names_has(&order->names, item->archive, original, CONV_OUTPUT_AWAITED) &&
           conv_output_names_has(&order->names, item->archive, original, CONV_OUTPUT_MISSING);
}

static bool may_begin(const struct conv_sink *sink, const struct conv_item *item)
{
    struct conv_archive_order *order = order_of(sink);
    conv_lock_acquire(&order->lock);
    bool may = order->waiting <= order->limit || item->number <= order->next;
    conv_lock_release(&order->lock);
    return may;
}

static bool has_failed(const struct conv_sink *sink)
{
    return conv_archive_turn_has_failed(order_of(sink));
}

static void limit(struct conv_sink *sink, size_t bytes)
{
    struct conv_archive_order *order = order_of(sink);
    order->buffers.most = bytes / 5;
    order->limit = bytes - order->buffers.most;
}

static bool is_written(const struct conv_sink *sink, int archive)
{
    return atomic_load(&order_of(sink)->config.targets[archive].is_written);
}

// --- the end -------------------------------------------------------------------------------------

// Archives that have no member.
static enum conv_status make_empty(struct conv_archive_order *order, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < order->config.target_count && !status; i++)
        if (!order->config.targets[i].is_begun && atomic_load(&order->config.targets[i].is_due)) {
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
            order->config.targets[entry->target].lacks = true;
            conv_archive_turn_take(order, NULL);
        } else {
            order->next++;
        }
    }
    conv_lock_release(&order->lock);
}

static enum conv_status finish(struct conv_sink *base, struct conv_err *err)
{
    struct conv_archive_order *order = order_of(base);
    int stop = atomic_load(order->config.stop);
    bool keep = order->config.writes && (stop == 0 || (stop > 0 && order->config.is_endless));
    if (keep && stop > 0)
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
    conv_output_names_close(&order->names);
    free(order->ring);
    free(order);
    return status == CONV_ERR_CANCELLED ? CONV_OK : status;
}

static void remove_temporaries(struct conv_sink *base)
{
    struct conv_archive_order *order = order_of(base);
    for (int i = 0; i < CONV_ARCHIVE_MOST_OPEN; i++)
        conv_temporary_remove(&order->open[i].output.file.temporary);
}

static enum conv_status open_archives(struct conv_sink **out, const struct conv_sink_config *config,
                                      struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .claim = claim,
        .place = place,
        .write = write_output,
        .is_due = is_due,
        .drop = drop,
        .may_begin = may_begin,
        .has_failed = has_failed,
        .limit = limit,
        .is_written = is_written,
        .finish = finish,
        .remove_temporaries = remove_temporaries,
    };
    struct conv_archive_order *order = calloc(1, sizeof *order);
    if (!order)
        return conv_err_memory(err, "no memory for writing archives");
    order->sink.ops = &ops;
    order->config = *config;
    for (int i = 0; i < CONV_ARCHIVE_MOST_OPEN; i++) {
        order->open[i].target = -1;
        order->open[i].output.file.fd = -1;
    }
    order->limit = SIZE_MAX;
    conv_archive_buffers_open(&order->buffers);
    conv_output_names_open(&order->names);
    conv_lock_init(&order->lock);
    conv_lock_init_condition(&order->completed);
    *out = &order->sink;
    return CONV_OK;
}

enum conv_status conv_sink_open(struct conv_sink **sink, const struct conv_sink_config *config,
                                struct conv_err *err)
{
    *sink = NULL;
    if (config->kind == CONV_SINK_NONE)
        return CONV_OK;
    if (config->kind == CONV_SINK_ARCHIVE)
        return open_archives(sink, config, err);
    return conv_file_sink_open(sink, config, err);
}
