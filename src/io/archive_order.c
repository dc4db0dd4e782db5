// SPDX-License-Identifier: MIT
// One thread at a time has the turn: it gives members their places, in order, and writes them where
// that has to be done in order. It holds the turn, not the lock, while it opens, writes and closes
// archives. Members of a file of plain tar are only placed during the turn and written after it, by
// any thread that comes along; the last of them completes an archive whose members all have their
// places, while the next archive is being written.
#include "io/archive_order.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/archive_body.h"
#include "io/archive_buffers.h"
#include "io/archive_done.h"
#include "io/archive_output.h"

#define NO_MEMBER UINT64_MAX

// A member whose predecessors are being written by other threads comes in order a moment later.
// This wait, in ns, is cheaper than a copy of that many bytes, which takes four times as long.
#define PATIENCE(bytes) ((uint64_t)(bytes) / 16)
#define LEAST_PATIENCE 4000

// An archive is written through maps only if at least this many bytes may wait: maps count as
// memory of the process, though the file system has their pages anyway.
#define LEAST_TO_MAP ((size_t)400 << 20)

// Archives that are open at a time.
#define MOST_OPEN 4

struct open_archive {
    struct conv_archive_output output; // of the turn, except for writing at offsets
    struct conv_archive_writer *writer;
    int target;     // guarded by the lock, as is what follows; -1: none is open
    int writing;    // members that are placed and not yet written
    bool is_sealed; // no member will be placed any more
};

struct entry {
    struct open_archive *to; // once it is placed
    int target;
    bool is_dropped;
    struct conv_archive_member member;
    struct conv_encoded content;
    struct conv_archive_body *body; // retained; or NULL
    uint64_t offset;                // its place in a file of plain tar
    size_t copied;                  // bytes that count as waiting
    struct entry *next;             // in the list of placed ones
    uint8_t *own;                   // the content, unless it has a body; of `buffers`
    // After it: the member's strings.
};

struct conv_archive_order {
    struct conv_archive_order_config config;
    struct open_archive open[MOST_OPEN];
    struct open_archive *current; // of the turn: that members are placed in; NULL: none
    uint64_t usual;               // of the turn: bytes of the archive before; 0: none
    bool *made;                   // by target
    bool *lack;                   // by target: a member was dropped
    struct conv_archive_buffers buffers;

    atomic_uint_fast64_t due; // the member whose turn it is; NO_MEMBER while a thread has the turn
    pthread_mutex_t lock;     // guards all below
    pthread_cond_t completed; // an archive
    bool has_turn;            // a thread has the turn
    uint64_t next;            // the member whose turn it is
    struct entry **ring;      // those that wait, by number modulo `room`, a power of two
    size_t room;
    struct entry *placed; // to be written at their offsets
    size_t waiting, limit;
    struct conv_err failure;
};

// --- entries -------------------------------------------------------------------------------------

static char *copy_string(char *to, const char **string)
{
    size_t size = strlen(*string) + 1;
    memcpy(to, *string, size);
    *string = to;
    return to + size;
}

// A copy that can wait. NULL without memory.
static struct entry *copy_entry(struct conv_archive_order *order, const struct entry *from)
{
    const struct conv_archive_member *member = &from->member;
    size_t strings = strlen(member->name) + strlen(member->link) + strlen(member->uname) +
                     strlen(member->gname) + 4;
    size_t content = from->body ? 0 : from->content.size;
    struct entry *entry = malloc(sizeof *entry + strings);
    uint8_t *bytes = content ? conv_archive_buffers_take(&order->buffers, content) : NULL;
    if (!entry || (content && !bytes)) {
        free(entry);
        conv_archive_buffers_give(&order->buffers, bytes);
        return NULL;
    }
    *entry = *from;
    char *end = copy_string((char *)(entry + 1), &entry->member.name);
    end = copy_string(end, &entry->member.link);
    end = copy_string(end, &entry->member.uname);
    copy_string(end, &entry->member.gname);
    entry->own = bytes;
    entry->copied = sizeof *entry + strings + content;
    if (from->body) {
        conv_archive_body_retain(from->body);
        return entry;
    }
    entry->content = (struct conv_encoded){.part = {{bytes, content}}, .size = content};
    for (int i = 0; i < CONV_ENCODED_PARTS; i++) {
        size_t size = from->content.part[i].size;
        if (size > 0)
            memcpy(bytes, from->content.part[i].data, size);
        bytes += size;
    }
    return entry;
}

static void free_entry(struct conv_archive_order *order, struct entry *entry)
{
    if (entry && !entry->is_dropped)
        conv_archive_body_release(entry->body);
    if (entry)
        conv_archive_buffers_give(&order->buffers, entry->own);
    free(entry);
}

// False without memory.
static bool reserve(struct conv_archive_order *order, uint64_t number)
{
    size_t room = order->room ? order->room : 64;
    while (number - order->next >= room)
        room *= 2;
    if (room == order->room)
        return true;
    struct entry **ring = calloc(room, sizeof(struct entry *));
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

static struct entry **slot_of(struct conv_archive_order *order, uint64_t number)
{
    return &order->ring[number & (order->room - 1)];
}

// --- writing -------------------------------------------------------------------------------------

// Notes the first failure: nothing is written after it.
static void fail(struct conv_archive_order *order, const struct conv_err *err)
{
    pthread_mutex_lock(&order->lock);
    if (!order->failure.status)
        order->failure = *err;
    pthread_mutex_unlock(&order->lock);
}

static enum conv_status write_at(struct conv_archive_order *order, const struct entry *entry,
                                 struct conv_err *err)
{
    static const uint8_t zeros[CONV_ARCHIVE_AFTER_MOST];
    struct conv_archive_frame frame;
    struct iovec parts[CONV_ENCODED_PARTS + 2];
    const struct conv_archive_format *format = order->config.targets[entry->target].format;
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
    if (!output->is_stream)
        return conv_archive_output_write_at(output, entry->offset, parts, count, err);
    for (int i = 0; i < count && !status; i++)
        if (parts[i].iov_len > 0)
            status = conv_archive_output_write(output, parts[i].iov_base, parts[i].iov_len, err);
    return status;
}

static void write_entry(struct conv_archive_order *order, const struct entry *entry)
{
    struct conv_err err = {0};
    enum conv_status status;
    if (conv_archive_order_has_failed(order))
        return;
    struct conv_archive_writer *writer = entry->to->writer;
    if (writer)
        status = writer->ops->append(
            writer, &entry->member,
            entry->member.kind == CONV_ARCHIVE_FILE ? &entry->content : NULL, &err);
    else
        status = write_at(order, entry, &err);
    // Where the system could not read what it was to write, the input is to blame.
    const struct conv_archive_body *body = entry->body;
    if (status && body)
        (void)conv_archive_input_touch(&body->unit->input, body->data, (size_t)body->member.size,
                                       &err);
    if (status)
        fail(order, &err);
}

// Before the archive gets its name, so that there is none that is whole and not in the journal.
static enum conv_status note(struct conv_archive_order *order, struct open_archive *archive,
                             struct conv_err *err)
{
    struct stat out;
    if (archive->output.is_stream || fstat(archive->output.fd, &out) != 0)
        return CONV_OK; // a line that is missing costs work only
    return conv_archive_done_note(order->config.journal, &order->config.targets[archive->target],
                                  &out, err);
}

// Without the lock, of an archive whose members are all written: completes and closes it.
static enum conv_status finish_archive(struct conv_archive_order *order,
                                       struct open_archive *archive, bool keep,
                                       struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct conv_archive_output *output = &archive->output;
    const struct conv_archive_format *format = order->config.targets[archive->target].format;
    if (keep && archive->writer) {
        status = archive->writer->ops->finish(archive->writer, err);
    } else if (keep) {
        static const uint8_t zeros[512];
        for (size_t left = format->trailer(output->at), step; left > 0 && !status; left -= step) {
            step = left < sizeof zeros ? left : sizeof zeros;
            status = conv_archive_output_write(output, zeros, step, err);
        }
    }
    if (archive->writer)
        archive->writer->ops->close(archive->writer);
    archive->writer = NULL;
    if (keep && !status)
        status = conv_archive_output_settle(output, err);
    if (keep && !status && order->config.journal && !order->lack[archive->target])
        status = note(order, archive, err);
    struct conv_err later;
    enum conv_status closed = conv_archive_output_close(output, keep && !status,
                                                        order->config.fsync, status ? &later : err);
    return status ? status : closed;
}

// Called and left with the lock, without it in between: completes an archive that is sealed and
// written.
static void complete(struct conv_archive_order *order, struct open_archive *archive)
{
    struct conv_err err = {0};
    bool keep = order->failure.status == CONV_OK;
    pthread_mutex_unlock(&order->lock);
    if (finish_archive(order, archive, keep, &err))
        fail(order, &err);
    pthread_mutex_lock(&order->lock);
    archive->target = -1;
    pthread_cond_signal(&order->completed);
}

// A member of that many bytes of waiting ones was written. Called and left with the lock.
static void end_write(struct conv_archive_order *order, struct open_archive *archive, size_t copied)
{
    order->waiting -= copied;
    if (--archive->writing == 0 && archive->is_sealed)
        complete(order, archive);
}

// Writes what others have placed, until there is no more. Called and left with the lock.
static void write_placed(struct conv_archive_order *order)
{
    struct entry *entry;
    while ((entry = order->placed)) {
        order->placed = entry->next;
        pthread_mutex_unlock(&order->lock);
        write_entry(order, entry);
        struct open_archive *archive = entry->to;
        size_t copied = entry->copied;
        free_entry(order, entry); // without the lock: the system may take its time
        pthread_mutex_lock(&order->lock);
        end_write(order, archive, copied);
    }
}

// --- the turn ------------------------------------------------------------------------------------

// With the turn, without the lock.
static enum conv_status open_archive(struct conv_archive_order *order, struct open_archive *archive,
                                     int target, struct conv_err *err)
{
    const struct conv_archive_target *to = &order->config.targets[target];
    bool may_map = to->format->frame && order->limit >= LEAST_TO_MAP;
    enum conv_status status = conv_archive_output_open(
        &archive->output, to->path, may_map ? order->config.threads : 1, order->config.stop, err);
    if (status)
        return status;
    conv_archive_windows_expect(&archive->output.windows, order->usual);
    pthread_mutex_lock(&order->lock);
    archive->target = target;
    archive->writing = 0;
    archive->is_sealed = false;
    pthread_mutex_unlock(&order->lock);
    order->current = archive;
    order->made[target] = true;
    return to->format->frame ? CONV_OK : to->format->write(&archive->writer, &archive->output, err);
}

// With the lock: no further member of the archive will come.
static void seal(struct conv_archive_order *order)
{
    struct open_archive *archive = order->current;
    order->current = NULL;
    if (!archive)
        return;
    order->usual = archive->output.at;
    archive->is_sealed = true;
    if (archive->writing == 0)
        complete(order, archive);
}

static struct open_archive *find_closed(struct conv_archive_order *order)
{
    for (int i = 0; i < MOST_OPEN; i++)
        if (order->open[i].target < 0)
            return &order->open[i];
    return NULL;
}

// With the turn, without the lock: opens the next archive; the open one is completed once its
// members are written. `own` is written first, since it is not among those that others can write.
static void change_target(struct conv_archive_order *order, struct entry **own, int target)
{
    struct conv_err err = {0};
    struct open_archive *next;
    if (*own)
        write_entry(order, *own);
    pthread_mutex_lock(&order->lock);
    if (*own)
        end_write(order, (*own)->to, (*own)->copied);
    *own = NULL;
    seal(order);
    while (!(next = find_closed(order))) {
        write_placed(order);
        if (!find_closed(order))
            pthread_cond_wait(&order->completed, &order->lock);
    }
    bool failed = order->failure.status != CONV_OK;
    pthread_mutex_unlock(&order->lock);
    if (!failed && open_archive(order, next, target, &err))
        fail(order, &err);
}

// A member gets its place, and is written if that has to be done in order. With the turn, without
// the lock. True if it is still to be written.
static bool place(struct conv_archive_order *order, struct entry **own, struct entry *entry)
{
    if (!order->current || entry->target != order->current->target)
        change_target(order, own, entry->target);
    if (conv_archive_order_has_failed(order))
        return false;
    struct open_archive *archive = entry->to = order->current;
    if (archive->writer || archive->output.is_stream) {
        write_entry(order, entry);
        return false;
    }
    struct conv_archive_frame frame;
    struct conv_err err = {0};
    if (order->config.targets[entry->target].format->frame(&entry->member, &frame, &err)) {
        fail(order, &err);
        return false;
    }
    entry->offset = archive->output.at;
    archive->output.at += frame.before + entry->content.size + frame.after;
    return true;
}

// Takes the turn for all members that are due. `given`: the first of them, which stays the
// caller's, or NULL. Called and left with the lock.
static void take_turn(struct conv_archive_order *order, struct entry *given)
{
    struct entry *own = NULL, *entry = given;
    order->has_turn = true;
    atomic_store(&order->due, NO_MEMBER);
    for (;;) {
        if (!entry && order->room > 0) {
            struct entry **slot = slot_of(order, order->next);
            entry = *slot;
            *slot = NULL;
        }
        if (!entry)
            break;
        order->next++;
        order->lack[entry->target] |= entry->is_dropped;
        pthread_mutex_unlock(&order->lock);
        bool writes = !entry->is_dropped && place(order, &own, entry);
        pthread_mutex_lock(&order->lock);
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
                free_entry(order, entry);
        }
        entry = NULL;
    }
    order->has_turn = false;
    atomic_store(&order->due, order->next);
    if (own) {
        pthread_mutex_unlock(&order->lock);
        write_entry(order, own);
        pthread_mutex_lock(&order->lock);
        end_write(order, own->to, own->copied);
    }
    write_placed(order);
}

// --- the interface -------------------------------------------------------------------------------

enum conv_status conv_archive_order_open(struct conv_archive_order **out,
                                         const struct conv_archive_order_config *config,
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
    for (int i = 0; i < MOST_OPEN; i++) {
        order->open[i].target = -1;
        order->open[i].output.fd = -1;
    }
    order->limit = SIZE_MAX;
    atomic_init(&order->due, 0);
    conv_archive_buffers_open(&order->buffers);
    pthread_mutex_init(&order->lock, NULL); // on Linux neither takes memory nor fails
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
        (due != NO_MEMBER && number > due + (uint64_t)order->config.threads))
        return;
    for (uint64_t start = conv_clock_ns(); conv_clock_ns() - start < patience;)
        if (atomic_load(&order->due) == number)
            return;
}

static bool is_its_turn(const struct conv_archive_order *order, uint64_t number)
{
    return number == order->next && !order->has_turn;
}

// The member waits. Takes the entry over.
static enum conv_status enqueue(struct conv_archive_order *order, uint64_t number,
                                struct entry *entry, struct conv_err *err)
{
    pthread_mutex_lock(&order->lock);
    bool reserved = reserve(order, number);
    if (reserved) {
        *slot_of(order, number) = entry;
        order->waiting += entry->copied;
        if (!order->has_turn)
            take_turn(order, NULL);
    }
    pthread_mutex_unlock(&order->lock);
    if (reserved)
        return CONV_OK;
    free_entry(order, entry);
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
}

enum conv_status conv_archive_order_put(struct conv_archive_order *order, uint64_t number,
                                        int target, const struct conv_archive_member *member,
                                        const struct conv_encoded *content,
                                        struct conv_archive_body *body, struct conv_err *err)
{
    struct entry entry = {.target = target, .member = *member, .body = body};
    const struct conv_archive_format *format = order->config.targets[target].format;
    struct conv_archive_frame frame;
    if (content)
        entry.content = *content;
    enum conv_status status = format->frame ? format->frame(member, &frame, err) : CONV_OK;
    if (status)
        return status;
    if (!body)
        wait_for_turn(order, number, entry.content.size);
    pthread_mutex_lock(&order->lock);
    bool failed = order->failure.status != CONV_OK, now = is_its_turn(order, number);
    if (now)
        take_turn(order, &entry);
    failed |= order->failure.status != CONV_OK;
    pthread_mutex_unlock(&order->lock);
    if (now || failed)
        return failed ? refuse_failed(err) : CONV_OK;
    struct entry *copy = copy_entry(order, &entry);
    if (!copy)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
    return enqueue(order, number, copy, err);
}

void conv_archive_order_drop(struct conv_archive_order *order, uint64_t number, int target)
{
    struct entry gone = {.is_dropped = true, .target = target};
    struct conv_err err = {0};
    pthread_mutex_lock(&order->lock);
    bool now = is_its_turn(order, number);
    if (now)
        take_turn(order, &gone);
    pthread_mutex_unlock(&order->lock);
    if (now)
        return;
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry) {
        entry->is_dropped = true;
        entry->target = target;
        entry->copied = sizeof *entry;
    }
    if (!entry)
        conv_err_set(&err, CONV_ERR_MEMORY, "no memory for members that wait for their turn");
    if (!entry || enqueue(order, number, entry, &err))
        fail(order, &err);
}

bool conv_archive_order_may_begin(struct conv_archive_order *order, uint64_t number)
{
    pthread_mutex_lock(&order->lock);
    bool may = order->waiting <= order->limit || number <= order->next;
    pthread_mutex_unlock(&order->lock);
    return may;
}

bool conv_archive_order_has_failed(struct conv_archive_order *order)
{
    pthread_mutex_lock(&order->lock);
    bool failed = order->failure.status != CONV_OK;
    pthread_mutex_unlock(&order->lock);
    return failed;
}

// Archives that have no member.
static enum conv_status make_empty(struct conv_archive_order *order, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < order->config.target_count && !status; i++)
        if (!order->made[i] && atomic_load(&order->config.targets[i].is_due)) {
            status = open_archive(order, &order->open[0], i, err);
            if (order->current) {
                struct conv_err later;
                enum conv_status finished =
                    finish_archive(order, order->current, !status, status ? &later : err);
                status = status ? status : finished;
            }
            order->current = NULL;
        }
    return status;
}

enum conv_status conv_archive_order_finish(struct conv_archive_order *order, bool keep,
                                           struct conv_err *err)
{
    enum conv_status status = order->failure.status;
    bool complete = true;
    if (status)
        *err = order->failure;
    for (size_t i = 0; i < order->room; i++) {
        complete = complete && !order->ring[i]; // else others should have come before
        free_entry(order, order->ring[i]);
    }
    if (keep && !status && !complete)
        status = conv_err_set(err, CONV_ERR_IO, "members of the archive are missing");
    struct conv_err later;
    if (order->current) { // the others are complete
        enum conv_status finished =
            finish_archive(order, order->current, keep && !status, status ? &later : err);
        status = status ? status : finished;
        order->current = NULL;
    }
    if (!status && keep)
        status = make_empty(order, err);
    pthread_mutex_destroy(&order->lock);
    pthread_cond_destroy(&order->completed);
    conv_archive_buffers_close(&order->buffers);
    free(order->ring);
    free(order->made);
    free(order);
    return status == CONV_ERR_CANCELLED ? CONV_OK : status;
}

void conv_archive_order_remove(struct conv_archive_order *order)
{
    for (int i = 0; i < MOST_OPEN; i++)
        conv_archive_output_remove(&order->open[i].output);
}
