// SPDX-License-Identifier: MIT
// One thread at a time has the turn: it gives members their places, in order, and writes them where
// that has to be done in order. It holds the turn, not the lock, while it opens, writes and closes
// archives. Members of a file of plain tar only get their places during the turn, and are written
// after it by any thread that calls; the last of these threads completes an archive whose members
// all have their places, while the next archive is being written.
#include "io/archive/archive_turn.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "io/files/journal.h"

// --- archives ------------------------------------------------------------------------------------

// Plain tar is framed here, so that members can be written at any offset; other formats have a
// writer, which appends.

static enum conv_status write_at(const struct conv_archive_format *format,
                                 const struct conv_archive_entry *entry, struct conv_err *err)
{
    static const uint8_t zeros[CONV_ARCHIVE_AFTER_MOST];
    struct conv_archive_frame frame;
    struct iovec parts[CONV_ENCODED_PARTS + 2];
    enum conv_status status = format->frame(&entry->member, &frame, err);
    if (status)
        return status;
    int count = 0;
    parts[count++] = (struct iovec){frame.head, frame.before};
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        parts[count++] = (struct iovec){(void *)(uintptr_t)entry->content.part[i].data,
                                        entry->content.part[i].size};
    parts[count++] = (struct iovec){(void *)(uintptr_t)zeros, frame.after};
    struct conv_archive_output *output = &entry->to->output;
    if (!output->file.is_stream)
        return conv_archive_output_write_at(output, entry->offset, parts, count, err);
    for (int i = 0; i < count && !status; i++)
        if (parts[i].iov_len > 0)
            status = conv_archive_output_write(output, parts[i].iov_base, parts[i].iov_len, err);
    return status;
}

// Writes a member: after the one before it where the archive is a stream or has a writer, else at
// entry->offset. Of a file of plain tar, any thread, several at a time; else one at a time. An
// error of the member's input takes precedence: CONV_ERR_IO; else the error of the writer.
static enum conv_status write_member(struct conv_open_archive *archive,
                                     const struct conv_archive_target *target,
                                     const struct conv_archive_entry *entry, struct conv_err *err)
{
    enum conv_status status;
    struct conv_archive_writer *writer = archive->writer;
    if (writer)
        status = writer->ops->append(
            writer, &entry->member,
            entry->member.kind == CONV_ARCHIVE_FILE ? &entry->content : NULL, err);
    else
        status = write_at(target->format, entry, err);
    // If the system could not read the bytes that it should write, the input is the cause.
    const struct conv_archive_body *body = entry->body;
    if (status && body)
        (void)conv_archive_input_touch(&body->unit->input, body->data, (size_t)body->member.size,
                                       err);
    return status;
}

// Adds a line per input to the journal, before the archive gets its name, so that every complete
// archive is in the journal.
static enum conv_status note(const struct conv_open_archive *archive,
                             const struct conv_archive_target *target, struct conv_journal *journal,
                             struct conv_err *err)
{
    struct stat out;
    enum conv_status status = CONV_OK;
    if (archive->output.file.is_stream || fstat(archive->output.file.fd, &out) != 0)
        return CONV_OK; // without the line the next run only does the work again
    for (int i = 0; i < target->origin_count && !target->misses && !status; i++) {
        const struct conv_archive_origin *origin = &target->origins[i];
        const struct conv_journal_fact fact = {
            .input = origin->path, .output = target->path, .in = &origin->info, .out = &out};
        status = conv_journal_add(journal, &fact, err);
    }
    return status;
}

// Closes an archive whose members are all written; with `keep` it is completed, noted in the
// journal (NULL: in none) and gets its name, else it is removed. One thread.
static enum conv_status finish_archive(struct conv_open_archive *archive,
                                       const struct conv_archive_target *target, bool keep,
                                       bool fsync, struct conv_journal *journal,
                                       struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct conv_archive_output *output = &archive->output;
    if (keep && archive->writer) {
        status = archive->writer->ops->finish(archive->writer, err);
    } else if (keep && target->format->trailer) {
        static const uint8_t zeros[512];
        for (size_t left = target->format->trailer(output->at), step; left > 0 && !status;
             left -= step) {
            step = left < sizeof zeros ? left : sizeof zeros;
            status = conv_archive_output_write(output, zeros, step, err);
        }
    }
    if (archive->writer)
        archive->writer->ops->close(archive->writer);
    archive->writer = NULL;
    if (keep && !status)
        status = conv_archive_output_settle(output, err);
    if (keep && !status && journal)
        status = note(archive, target, journal, err);
    struct conv_err later;
    enum conv_status closed =
        conv_archive_output_close(output, keep && !status, fsync, status ? &later : err);
    return status ? status : closed;
}

// An archive is written through maps only if at least this many bytes may wait: maps count as
// memory of the process, though the file system has their pages anyway.
#define LEAST_TO_MAP ((size_t)400 << 20)

struct conv_archive_entry **conv_archive_turn_slot(struct conv_archive_order *order,
                                                   uint64_t number)
{
    return &order->ring[number & (order->room - 1)];
}

// --- writing -------------------------------------------------------------------------------------

void conv_archive_turn_fail(struct conv_archive_order *order, const struct conv_err *err)
{
    conv_lock_acquire(&order->lock);
    if (!order->failure.status)
        order->failure = *err;
    conv_lock_release(&order->lock);
}

static void write_entry(struct conv_archive_order *order, const struct conv_archive_entry *entry)
    CONV_TAKES(order->lock)
{
    struct conv_err err = {0};
    if (!conv_archive_turn_has_failed(order) &&
        write_member(entry->to, &order->config.targets[entry->target], entry, &err))
        conv_archive_turn_fail(order, &err);
}

enum conv_status conv_archive_turn_close(struct conv_archive_order *order,
                                         struct conv_open_archive *archive, bool keep,
                                         struct conv_err *err)
{
    struct conv_archive_target *target = &order->config.targets[archive->target];
    struct conv_journal *journal = target->lacks ? NULL : order->config.journal;
    enum conv_status status =
        finish_archive(archive, target, keep, order->config.fsync, journal, err);
    atomic_store(&target->is_written, keep && !status);
    return status;
}

// Called and left with the lock, without it in between: completes an archive that is sealed and
// written.
static void complete(struct conv_archive_order *order, struct conv_open_archive *archive)
    CONV_NEEDS(order->lock)
{
    struct conv_err err = {0};
    bool keep = order->failure.status == CONV_OK;
    conv_lock_release(&order->lock);
    if (conv_archive_turn_close(order, archive, keep, &err))
        conv_archive_turn_fail(order, &err);
    conv_lock_acquire(&order->lock);
    archive->target = -1;
    pthread_cond_signal(&order->completed);
}

// Called when a member was written that counted as `copied` waiting bytes, with the lock held, as
// on return.
static void end_write(struct conv_archive_order *order, struct conv_open_archive *archive,
                      size_t copied) CONV_NEEDS(order->lock)
{
    order->waiting -= copied;
    if (--archive->writing == 0 && archive->is_sealed)
        complete(order, archive);
}

// Writes members that other threads have placed, until none is left. Called and left with the lock.
static void write_placed(struct conv_archive_order *order) CONV_NEEDS(order->lock)
{
    struct conv_archive_entry *entry;
    while ((entry = order->placed)) {
        order->placed = entry->next;
        conv_lock_release(&order->lock);
        write_entry(order, entry);
        struct conv_open_archive *archive = entry->to;
        size_t copied = entry->copied;
        // Without the lock: the system may take its time.
        conv_archive_entry_free(&order->buffers, entry);
        conv_lock_acquire(&order->lock);
        end_write(order, archive, copied);
    }
}

bool conv_archive_turn_has_failed(struct conv_archive_order *order)
{
    conv_lock_acquire(&order->lock);
    bool failed = order->failure.status != CONV_OK;
    conv_lock_release(&order->lock);
    return failed;
}

// --- the turn ------------------------------------------------------------------------------------

enum conv_status conv_archive_turn_open(struct conv_archive_order *order,
                                        struct conv_open_archive *archive, int target,
                                        struct conv_err *err)
{
    const struct conv_archive_target *to = &order->config.targets[target];
    bool may_map = to->format->frame && order->limit >= LEAST_TO_MAP && !order->config.unmapped;
    enum conv_status status =
        conv_archive_output_open(&archive->output, to->path, may_map ? order->config.workers : 1,
                                 order->usual, order->config.force, order->config.stop, err);
    if (status)
        return status;
    conv_lock_acquire(&order->lock);
    archive->target = target;
    archive->writing = 0;
    archive->is_sealed = false;
    conv_lock_release(&order->lock);
    order->current = archive;
    order->config.targets[target].is_begun = true;
    return to->format->frame ? CONV_OK : to->format->write(&archive->writer, &archive->output, err);
}

// With the lock: no further member of the archive will come.
static void seal(struct conv_archive_order *order) CONV_NEEDS(order->lock)
{
    struct conv_open_archive *archive = order->current;
    order->current = NULL;
    if (!archive)
        return;
    order->usual = archive->output.at;
    archive->is_sealed = true;
    if (archive->writing == 0)
        complete(order, archive);
}

static struct conv_open_archive *find_closed(struct conv_archive_order *order)
{
    for (int i = 0; i < CONV_ARCHIVE_MOST_OPEN; i++)
        if (order->open[i].target < 0)
            return &order->open[i];
    return NULL;
}

// With the turn, without the lock: opens the next archive; the open one is completed once its
// members are written. `own` is written first, since it is not among those that others can write.
static void change_target(struct conv_archive_order *order, struct conv_archive_entry **own,
                          int target) CONV_TAKES(order->lock)
{
    struct conv_err err = {0};
    struct conv_open_archive *next;
    if (*own)
        write_entry(order, *own);
    conv_lock_acquire(&order->lock);
    if (*own)
        end_write(order, (*own)->to, (*own)->copied);
    *own = NULL;
    seal(order);
    while (!(next = find_closed(order))) {
        write_placed(order);
        if (!find_closed(order))
            (void)conv_lock_wait(&order->lock, &order->completed, UINT64_MAX);
    }
    bool failed = order->failure.status != CONV_OK;
    conv_lock_release(&order->lock);
    if (!failed && conv_archive_turn_open(order, next, target, &err))
        conv_archive_turn_fail(order, &err);
}

// A member gets its place, and is written if that has to be done in order. With the turn, without
// the lock. True if it is still to be written.
static bool place(struct conv_archive_order *order, struct conv_archive_entry **own,
                  struct conv_archive_entry *entry) CONV_TAKES(order->lock)
{
    if (!order->current || entry->target != order->current->target)
        change_target(order, own, entry->target);
    if (conv_archive_turn_has_failed(order))
        return false;
    struct conv_open_archive *archive = entry->to = order->current;
    if (archive->writer || archive->output.file.is_stream) {
        write_entry(order, entry);
        return false;
    }
    struct conv_archive_frame frame;
    struct conv_err err = {0};
    if (order->config.targets[entry->target].format->frame(&entry->member, &frame, &err)) {
        conv_archive_turn_fail(order, &err);
        return false;
    }
    entry->offset = archive->output.at;
    archive->output.at += frame.before + entry->content.size + frame.after;
    return true;
}

void conv_archive_turn_take(struct conv_archive_order *order, struct conv_archive_entry *given)
{
    struct conv_archive_entry *own = NULL, *entry = given;
    order->has_turn = true;
    atomic_store(&order->due, CONV_ARCHIVE_NO_MEMBER);
    for (;;) {
        if (!entry && order->room > 0) {
            struct conv_archive_entry **slot = conv_archive_turn_slot(order, order->next);
            entry = *slot;
            *slot = NULL;
        }
        if (!entry)
            break;
        order->next++;
        order->config.targets[entry->target].lacks |= entry->lacks;
        conv_lock_release(&order->lock);
        bool writes = !entry->is_dropped && place(order, &own, entry);
        conv_lock_acquire(&order->lock);
        if (writes)
            entry->to->writing++;
        if (writes && entry == given) {
            own = given;
        } else if (writes) {
            entry->next = order->placed;
            order->placed = entry;
        } else {
            order->waiting -= entry->copied;
            if (entry != given)
                conv_archive_entry_free(&order->buffers, entry);
        }
        entry = NULL;
    }
    order->has_turn = false;
    atomic_store(&order->due, order->next);
    if (own) {
        conv_lock_release(&order->lock);
        write_entry(order, own);
        conv_lock_acquire(&order->lock);
        end_write(order, own->to, own->copied);
    }
    write_placed(order);
}
