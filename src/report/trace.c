// SPDX-License-Identifier: MIT
#include "report/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "report/json.h"

#define BUFFER ((size_t)64 << 10)
#define NAME_MOST 240    // characters of a path that are written: its end
#define QUEUES_NS 500000 // resolution of the curve
// An event is about 200 characters plus a name whose every byte may become a unit.
#define EVENT_MOST (256 + NAME_MOST * CONV_TEXT_UNIT)

static const char head[] =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"version\":\"conv " CONV_VERSION
    "\"},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,"
    "\"name\":\"process_name\",\"args\":{\"name\":\"conv\"}}";
static const char tail[] = "\n]}\n";
#define TAIL_SIZE (sizeof tail - 1)

struct conv_trace_track {
    struct conv_trace *trace;
    struct conv_trace_track *next;
    int id;
    char name[48];
    uint64_t next_queues; // when to record the queues again
    size_t used;
    char text[BUFFER + TAIL_SIZE];
    struct conv_timeline timeline;
    struct conv_slices slices; // as long as they are few
};

struct conv_trace {
    uint64_t start;
    bool timeline;
    bool seekable;            // false: a pipe; its tail is written at the end only
    struct conv_stall *stall; // of its reader
    char *path;
    struct conv_lock lock; // guards all below
    int fd;                // -1: no file
    off_t end;             // offset of the next event: the tail is there
    int errnum;            // why an event was lost
    int track_count;
    struct conv_trace_track *tracks, **tracks_end;
};

// --- the file: called with the lock held ---------------------------------------------------------

// False with errno.
static bool write_at(struct conv_trace *trace, const char *data, size_t size, off_t at)
{
    while (size > 0) {
        conv_stall_begin(trace->seekable ? NULL : trace->stall);
        ssize_t wrote = TEMP_FAILURE_RETRY(trace->seekable ? pwrite(trace->fd, data, size, at)
                                                           : write(trace->fd, data, size));
        conv_stall_end(trace->seekable ? NULL : trace->stall);
        if (wrote <= 0)
            return false;
        data += wrote;
        at += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

// `data` has room for the tail after its `size` bytes.
static void append(struct conv_trace *trace, char *data, size_t size)
{
    if (trace->fd < 0 || trace->errnum)
        return;
    memcpy(data + size, tail, TAIL_SIZE);
    size_t all = size + (trace->seekable ? TAIL_SIZE : 0);
    if (write_at(trace, data, all, trace->end)) {
        trace->end += (off_t)size;
        return;
    }
    trace->errnum = errno;
    // Overwriting the old tail takes no new disk space, so it can succeed where the append failed.
    if (trace->seekable && write_at(trace, tail, TAIL_SIZE, trace->end) &&
        ftruncate(trace->fd, trace->end + (off_t)TAIL_SIZE) != 0)
        trace->errnum = errno;
}

static void flush_track(struct conv_trace_track *track)
{
    conv_lock_acquire(&track->trace->lock);
    append(track->trace, track->text, track->used);
    conv_lock_release(&track->trace->lock);
    track->used = 0;
}

// --- opening and closing -------------------------------------------------------------------------

static enum conv_status open_file(struct conv_trace *trace, const char *path, struct conv_err *err)
{
    char first[sizeof head + TAIL_SIZE];
    trace->path = strdup(path);
    trace->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace->fd < 0 || !trace->path) {
        conv_err_errno(err, errno, "%s", path);
        return conv_err_hint(err, CONV_HINT_TRACE, 0, err->status = CONV_ERR_USAGE);
    }
    trace->seekable = lseek(trace->fd, 0, SEEK_CUR) >= 0;
    memcpy(first, head, sizeof head);
    append(trace, first, sizeof head - 1);
    return trace->errnum ? conv_err_errno(err, trace->errnum, "cannot write %s", path) : CONV_OK;
}

enum conv_status conv_trace_open(struct conv_trace **out, const char *path, bool timeline,
                                 struct conv_stall *stall, struct conv_err *err)
{
    struct conv_trace *trace = calloc(1, sizeof *trace);
    if (!trace)
        return conv_err_memory(err, "no memory for the trace");
    trace->fd = -1;
    trace->timeline = timeline;
    trace->stall = stall;
    trace->tracks_end = &trace->tracks;
    conv_lock_init(&trace->lock);
    enum conv_status status = path ? open_file(trace, path, err) : CONV_OK;
    if (status) {
        conv_trace_free(trace);
        return status;
    }
    trace->start = conv_clock_ns();
    *out = trace;
    return CONV_OK;
}

void conv_trace_restart(struct conv_trace *trace)
{
    if (trace)
        trace->start = conv_clock_ns();
}

enum conv_status conv_trace_finish(struct conv_trace *trace, struct conv_err *err)
{
    if (!trace)
        return CONV_OK;
    for (struct conv_trace_track *track = trace->tracks; track; track = track->next)
        flush_track(track);
    if (trace->fd >= 0) {
        if (!trace->seekable && !trace->errnum && !write_at(trace, tail, TAIL_SIZE, 0))
            trace->errnum = errno;
        if (close(trace->fd) != 0 && !trace->errnum)
            trace->errnum = errno;
        trace->fd = -1;
    }
    return trace->errnum ? conv_err_errno(err, trace->errnum, "cannot write the trace%s%s",
                                          trace->path ? " to " : "", trace->path ? trace->path : "")
                         : CONV_OK;
}

void conv_trace_free(struct conv_trace *trace)
{
    if (!trace)
        return;
    for (struct conv_trace_track *track = trace->tracks, *next; track; track = next) {
        next = track->next;
        conv_slices_free(&track->slices);
        free(track);
    }
    if (trace->fd >= 0)
        close(trace->fd);
    free(trace->path);
    conv_lock_destroy(&trace->lock);
    free(trace);
}

// --- timelines -----------------------------------------------------------------------------------

#define FIRST_WIDTH ((uint64_t)1 << 14) // 16 us: 512 bins are 8 ms, shorter than any run

void conv_timeline_init(struct conv_timeline *timeline)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->width = FIRST_WIDTH;
}

void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width)
{
    while (timeline->width < width) {
        for (int i = 0; i < CONV_TIMELINE_BINS; i++)
            for (int s = 0; s < CONV_STAGE_COUNT; s++)
                timeline->ns[i][s] = i < CONV_TIMELINE_BINS / 2
                                         ? timeline->ns[2 * i][s] + timeline->ns[2 * i + 1][s]
                                         : 0;
        timeline->width *= 2;
    }
}

void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end)
{
    while (end > CONV_TIMELINE_BINS * timeline->width)
        conv_timeline_widen(timeline, 2 * timeline->width);
    while (start < end) {
        uint64_t bin = start / timeline->width, next = (bin + 1) * timeline->width;
        uint64_t until = end < next ? end : next;
        timeline->ns[bin][stage] += until - start;
        start = until;
    }
}

// A continuation byte of UTF-8 does not begin a character.
static const char *name_end(const char *name)
{
    size_t size = strlen(name);
    if (size < CONV_SLICES_NAME)
        return name;
    name += size - CONV_SLICES_NAME + 1;
    while ((*name & 0xC0) == 0x80)
        name++;
    return name;
}

// The offset of the name, which is often that of the slice before. False: there is no room.
static bool keep_name(struct conv_slices *slices, const char *name, uint32_t *offset)
{
    name = name_end(name);
    if (slices->count > 0) {
        *offset = slices->list[slices->count - 1].text;
        if (strcmp(conv_slices_name(slices, *offset), name) == 0)
            return true;
    }
    size_t size = strlen(name) + 1;
    *offset = (uint32_t)slices->text.size;
    return slices->text.size + size <= CONV_SLICES_MOST_TEXT &&
           conv_buffer_append(&slices->text, (const uint8_t *)name, size);
}

static bool keep_slice(struct conv_slices *slices, struct conv_slice *slice, const char *name)
{
    if (slices->count == CONV_SLICES_MOST || !keep_name(slices, name, &slice->text))
        return false;
    struct conv_slice *list = conv_array_grow(slices->list, (size_t)slices->count, sizeof *list);
    if (!list)
        return false;
    slices->list = list;
    list[slices->count++] = *slice;
    return true;
}

void conv_slices_add(struct conv_slices *slices, int stage, uint64_t start, uint64_t end,
                     const char *name)
{
    struct conv_slice slice = {.start = start, .end = end, .stage = (uint8_t)stage};
    if (slices->overflowed || keep_slice(slices, &slice, name))
        return;
    conv_slices_free(slices);
    slices->overflowed = true;
}

void conv_slices_free(struct conv_slices *slices)
{
    free(slices->list);
    conv_buffer_free(&slices->text);
    *slices = (struct conv_slices){0};
}

// --- events --------------------------------------------------------------------------------------

// By hand: snprintf would take five times as long as the rest of an event.
static char *put_text(char *at, const char *text)
{
    size_t size = strlen(text);
    memcpy(at, text, size);
    return at + size;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

// Microseconds with three decimals.
static char *put_time(char *at, uint64_t ns)
{
    at = put_number(at, ns / 1000);
    *at++ = '.';
    *at++ = (char)('0' + ns / 100 % 10);
    *at++ = (char)('0' + ns / 10 % 10);
    *at++ = (char)('0' + ns % 10);
    return at;
}

static char *put_name(char *at, const char *name)
{
    size_t size = strlen(name);
    if (size > NAME_MOST) {
        at = put_text(at, "\xE2\x80\xA6");
        name += size - NAME_MOST;
    }
    while (*name) {
        // The usual characters, without a call for each of them.
        while ((*name >= '-' && *name <= '9') || *name == '_' || (*name >= 'a' && *name <= 'z') ||
               (*name >= 'A' && *name <= 'Z'))
            *at++ = *name++;
        if (*name)
            at += conv_text_json_unit(at, &name);
    }
    return at;
}

static char *put_item(char *at, const struct conv_trace_item *item)
{
    at = put_text(at, ",\"args\":{");
    if (item->name) {
        at = put_name(put_text(at, "\"image\":\""), item->name);
        at = put_text(at, "\"");
    } else {
        at = put_number(put_text(at, "\"images\":"), (uint64_t)item->images);
        at = put_number(put_text(at, ",\"bytes\":"), item->bytes);
    }
    if (item->device)
        at = put_text(put_text(put_text(at, ",\"device\":\""), item->device), "\"");
    if (item->width > 0) {
        at = put_number(put_text(at, ",\"size\":\""), (uint64_t)item->width);
        at = put_number(put_text(at, "x"), (uint64_t)item->height);
        at = put_text(at, "\"");
    }
    return put_text(at, "}");
}

// Space for one more event.
static char *reserve(struct conv_trace_track *track)
{
    if (track->used + EVENT_MOST > BUFFER)
        flush_track(track);
    return track->text + track->used;
}

static void commit(struct conv_trace_track *track, const char *end)
{
    track->used = (size_t)(end - track->text);
}

struct conv_trace_track *conv_trace_add_track(struct conv_trace *trace, const char *name,
                                              int number, const char *part)
{
    if (!trace)
        return NULL;
    struct conv_trace_track *track = malloc(sizeof *track);
    conv_lock_acquire(&trace->lock);
    if (!track) {
        trace->errnum = ENOMEM;
    } else {
        track->trace = trace;
        track->next = NULL;
        track->used = 0;
        track->next_queues = 0;
        track->id = ++trace->track_count;
        *trace->tracks_end = track;
        trace->tracks_end = &track->next;
        snprintf(track->name, sizeof track->name, "%s %d%s%s", name, number, *part ? " " : "",
                 part);
        conv_timeline_init(&track->timeline);
        track->slices = (struct conv_slices){0};
    }
    conv_lock_release(&trace->lock);
    if (!track || trace->fd < 0)
        return track;
    track->used = (size_t)snprintf(
        track->text, EVENT_MOST,
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}"
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\","
        "\"args\":{\"sort_index\":%d}}",
        track->id, track->name, track->id, track->id);
    return track;
}

static void add_to_timeline(struct conv_trace_track *track, enum conv_stage stage, uint64_t from,
                            uint64_t to, const struct conv_trace_item *item)
{
    char group[64];
    if (!item->name)
        snprintf(group, sizeof group, "%d %s, %.1f MB", item->images,
                 item->images == 1 ? "image" : "images", (double)item->bytes / 1e6);
    conv_timeline_add(&track->timeline, stage, from, to);
    conv_slices_add(&track->slices, (int)stage, from, to, item->name ? item->name : group);
}

void conv_trace_slice(struct conv_trace_track *track, enum conv_stage stage, uint64_t start,
                      uint64_t end, const struct conv_trace_item *item)
{
    if (!track)
        return;
    // The device's clock is inaccurate: its events may seem to precede the start.
    uint64_t from = start > track->trace->start ? start - track->trace->start : 0;
    uint64_t to = end > track->trace->start + from ? end - track->trace->start : from;
    if (track->trace->timeline)
        add_to_timeline(track, stage, from, to, item);
    if (track->trace->fd < 0)
        return;
    char *at = put_text(reserve(track), ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":");
    at = put_number(at, (uint64_t)track->id);
    at = put_time(put_text(at, ",\"ts\":"), from);
    at = put_time(put_text(at, ",\"dur\":"), to - from);
    at = put_text(put_text(at, ",\"name\":\""), conv_record_stage_name(stage));
    commit(track, put_text(put_item(put_text(at, "\""), item), "}"));
}

void conv_trace_queues(struct conv_trace_track *track, int in_flight, int to_encode)
{
    if (!track || track->trace->fd < 0)
        return;
    uint64_t now = conv_clock_ns() - track->trace->start;
    if (now < track->next_queues)
        return;
    track->next_queues = now + QUEUES_NS;
    char *at = put_text(reserve(track), ",\n{\"ph\":\"C\",\"pid\":1,\"name\":\"images\",\"ts\":");
    at = put_number(put_text(put_time(at, now), ",\"args\":{\"in flight\":"), (uint64_t)in_flight);
    at = put_number(put_text(at, ",\"waiting for encoding\":"), (uint64_t)to_encode);
    commit(track, put_text(at, "}}"));
}

uint64_t conv_trace_begin(enum conv_stage stage)
{
    conv_ranges_push(conv_record_stage_name(stage));
    return conv_clock_ns();
}

uint64_t conv_trace_end(struct conv_trace_track *track, enum conv_stage stage, uint64_t start,
                        const struct conv_trace_item *item)
{
    uint64_t end = conv_clock_ns();
    conv_ranges_pop();
    conv_trace_slice(track, stage, start, end, item);
    return end - start;
}

bool conv_trace_timeline(const struct conv_trace *trace, int i, const char **name,
                         struct conv_timeline **timeline, const struct conv_slices **slices)
{
    struct conv_trace_track *track = trace ? trace->tracks : NULL;
    while (track && i-- > 0)
        track = track->next;
    if (!track)
        return false;
    *name = track->name;
    *timeline = &track->timeline;
    *slices = &track->slices;
    return true;
}
