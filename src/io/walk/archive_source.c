// SPDX-License-Identifier: MIT
// Names members ARCHIVE:NAME and decides what is done with each.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files/file_read.h"
#include "io/files/paths.h"
#include "io/walk/walk_internal.h"

#define HEAD_BYTES ((size_t)1 << 16) // that are read of a member before all of it

struct conv_archive_held {
    struct conv_archive_held *next;
    struct conv_archive_body *body;
    const char *path; // of its archive
    int target, holds;
};

// --- items ---------------------------------------------------------------------------------------

static bool identify(const struct conv_item *item, struct stat *info)
{
    const struct conv_archive_body *body = item->body;
    if (!body) {
        errno = ENOENT;
        return false;
    }
    // A member is never the file that replaces its archive.
    *info = (struct stat){
        .st_dev = body->unit->input.info.st_dev,
        .st_ino = body->unit->input.info.st_ino,
        .st_mode = S_IFREG | body->member.mode,
        .st_size = (off_t)body->member.size,
        .st_mtim = body->member.mtime,
        .st_atim = body->member.mtime,
    };
    return true;
}

// No more is read of an image than shows that it has too many pixels. Small ones are checked later.
static enum conv_status check_head(const struct conv_item *item, const uint8_t *data,
                                   struct conv_err *err)
{
    uint64_t most = item->body->unit->input.max_pixels;
    return most && !item->is_copy ? conv_image_reader_check_head(data, HEAD_BYTES, most, err)
                                  : CONV_OK;
}

static enum conv_status view(const struct conv_item *item, struct conv_input *input,
                             const uint8_t **data, size_t *size, struct conv_err *err)
{
    const struct conv_archive_body *body = item->body;
    (void)identify(item, &input->info);
    *data = body->data;
    *size = (size_t)body->member.size;
    if (body->own)
        return CONV_OK;
    const struct conv_archive_input *archive = &body->unit->input;
    enum conv_status status = CONV_OK;
    if (*size > HEAD_BYTES) {
        status = conv_archive_input_touch(archive, *data, HEAD_BYTES, err);
        status = status ? status : check_head(item, *data, err);
    }
    return status ? status : conv_archive_input_touch(archive, *data, *size, err);
}

static const struct conv_item_ops item_ops = {
    .identify = identify,
    .view = view,
};

void conv_item_keep_name(struct conv_item *item)
{
    size_t length = strlen(item->name), own = strlen(item->body->member.name);
    item->target = length >= own ? length - own : length;
}

// "in.tar:dir/a.png", and the output's name as a part of it or after its NUL.
static enum conv_status name_item(struct conv_item *item, const char *path, const char *name,
                                  const char *target, struct conv_err *err)
{
    size_t before = strlen(path) + 1, size = strlen(name) + 1, more = strlen(target) + 1;
    bool same = strcmp(name, target) == 0;
    if (before + size + (same ? 0 : more) > sizeof item->name) {
        snprintf(item->name, sizeof item->name, "%s:%.*s", path, 256, name);
        item->target = strlen(item->name);
        return conv_err_limit(err, "path too long");
    }
    snprintf(item->name, sizeof item->name, "%s:", path);
    memcpy(item->name + before, name, size);
    item->target = same ? before : before + size;
    if (!same)
        memcpy(item->name + item->target, target, more);
    return CONV_OK;
}

// The archive itself, without an output.
static enum conv_source_step report_archive(const struct conv_archive_source *source,
                                            struct conv_item *item)
{
    snprintf(item->name, sizeof item->name, "%s", source->path);
    item->target = strlen(item->name);
    return CONV_SOURCE_BAD;
}

// --- names below a folder ------------------------------------------------------------------------

static enum conv_status make_target(struct conv_archive_source *source, char target[PATH_MAX],
                                    const char *name, struct conv_err *err)
{
    char path[PATH_MAX];
    enum conv_status status = conv_member_path_make(path, name, err);
    if (!status && !conv_paths_join(target, source->below, path))
        status = conv_err_limit(err, "path too long");
    return status ? status : conv_member_path_check_links(&source->links, target, err);
}

// --- contents ------------------------------------------------------------------------------------

static enum conv_status refuse_size(struct conv_err *err)
{
    return conv_err_advise(err, CONV_ERR_LIMIT, CONV_HINT_MEM_LIMIT_FILE,
                           "the member is larger than the memory for members of a stream");
}

// The size may be known at the end only.
static enum conv_status read_content(struct conv_archive_reader *reader,
                                     const struct conv_item *item, size_t most,
                                     struct conv_err *err)
{
    struct conv_archive_body *body = item->body;
    bool unknown = body->member.size_unknown;
    size_t capacity = unknown ? HEAD_BYTES : (size_t)body->member.size, size = 0;
    ssize_t got = 1;
    while (got > 0 && (unknown || size < capacity || !body->own)) {
        if ((unknown ? size : capacity) > most)
            return refuse_size(err);
        if (!body->own || size == capacity) {
            capacity = size > 0 ? 2 * capacity : capacity;
            uint8_t *data = conv_archive_buffers_take(&body->unit->buffers, capacity);
            if (!data)
                return conv_err_memory(err, "no memory for the member");
            if (size > 0)
                memcpy(data, body->own, size);
            conv_archive_buffers_give(&body->unit->buffers, body->own);
            body->own = data;
        }
        size_t end = size < HEAD_BYTES && capacity > HEAD_BYTES ? HEAD_BYTES : capacity;
        got = reader->ops->read(reader, body->own + size, end - size, err);
        size += got > 0 ? (size_t)got : 0;
        if (got < 0 || (got > 0 && size == HEAD_BYTES && check_head(item, body->own, err)))
            return err->status;
    }
    if (!unknown && size < capacity)
        return conv_err_format(err, "damaged archive: the member is too short");
    body->member.size = size;
    body->member.size_unknown = false;
    return size > most ? refuse_size(err) : CONV_OK;
}

static enum conv_status take_content(struct conv_archive_source *source,
                                     const struct conv_item *item, struct conv_err *err)
{
    struct conv_archive_body *body = item->body;
    struct conv_archive_reader *reader = source->unit->reader;
    body->data = reader->ops->map ? reader->ops->map(reader) : NULL;
    if (body->data)
        return CONV_OK;
    enum conv_status status = read_content(reader, item, source->most, err);
    body->data = body->own;
    if (!status) {
        atomic_fetch_add(&source->held, (size_t)body->member.size);
        return CONV_OK;
    }
    conv_archive_buffers_give(&body->unit->buffers, body->own);
    body->own = NULL;
    source->is_broken = status != CONV_ERR_LIMIT && status != CONV_ERR_MEMORY;
    return status;
}

// --- members -------------------------------------------------------------------------------------

static bool is_link(const struct conv_archive_member *member)
{
    return member->kind == CONV_ARCHIVE_SYMLINK || member->kind == CONV_ARCHIVE_HARDLINK;
}

// True if the member is passed over. *status: CONV_OK, or why that is a failure. `is_named`: as an
// image, which a link to one is, too.
static bool is_passed_by(const struct conv_archive_source *source,
                         const struct conv_archive_member *member, bool is_named,
                         enum conv_status *status, struct conv_err *err)
{
    static const char *const kinds[] = {
        [CONV_ARCHIVE_SYMLINK] = "a symbolic link",
        [CONV_ARCHIVE_HARDLINK] = "a hard link",
        [CONV_ARCHIVE_DEVICE] = "a device or a pipe",
    };
    enum conv_archive_kind kind = member->kind;
    bool to_folder = source->links.folder != NULL;
    *status = CONV_OK;
    if (source->images_only && !(is_named && (kind == CONV_ARCHIVE_FILE || is_link(member))))
        return true;
    if (kind == CONV_ARCHIVE_FILE || (kind == CONV_ARCHIVE_FOLDER && to_folder))
        return kind == CONV_ARCHIVE_FOLDER;
    if (kind == CONV_ARCHIVE_DEVICE || (kind != CONV_ARCHIVE_FOLDER && to_folder))
        *status = conv_err_unsupported(err, "is %s, which is not %s", kinds[kind],
                                       to_folder ? "extracted" : "copied");
    return false;
}

static enum conv_source_step take_member(struct conv_archive_source *source,
                                         const struct conv_archive_member *member,
                                         struct conv_item *item, struct conv_err *err)
{
    char target[PATH_MAX];
    enum conv_status status;
    const char *relative = member->name + strspn(member->name, "/");
    while (strncmp(relative, "./", 2) == 0)
        relative += 2 + strspn(relative + 2, "/");
    bool is_named = conv_folder_rules_take(source->rules, relative);
    item->is_copy = !is_named || member->kind != CONV_ARCHIVE_FILE;
    item->is_link = is_link(member);
    if (is_passed_by(source, member, is_named, &status, err)) {
        conv_folder_source_pass_over(source->passed, member->name,
                                     member->kind == CONV_ARCHIVE_FILE ? relative : NULL);
        return CONV_SOURCE_END;
    }
    if (!status && source->links.folder)
        status = make_target(source, target, member->name, err);
    if (name_item(item, source->path, member->name,
                  !status && source->links.folder ? target : member->name, status ? NULL : err) &&
        !status)
        status = CONV_ERR_LIMIT;
    if (!status) {
        item->body = conv_archive_body_make(source->unit, member);
        if (!item->body)
            status = conv_err_memory(err, "no memory for the member");
    }
    if (!status && member->kind == CONV_ARCHIVE_FILE)
        status = take_content(source, item, err);
    if (!status)
        return CONV_SOURCE_ITEM;
    conv_item_release(item);
    return CONV_SOURCE_BAD;
}

// Closes the archive. CONV_SOURCE_BAD if it has changed since it was opened.
static enum conv_source_step end_unit(struct conv_archive_source *source, struct conv_item *item,
                                      struct conv_err *err)
{
    struct stat now;
    const struct conv_archive_input *input = &source->unit->input;
    bool changed = input->fd >= 0 && S_ISREG(input->info.st_mode) && fstat(input->fd, &now) == 0 &&
                   !conv_paths_is_unchanged(&input->info, &now);
    if (source->is_due)
        atomic_store(source->is_due, true);
    conv_archive_unit_release(source->unit);
    source->unit = NULL;
    if (!changed)
        return CONV_SOURCE_END;
    conv_err_set(err, CONV_ERR_IO, "changed while it was read");
    return report_archive(source, item);
}

enum conv_source_step conv_archive_source_next(struct conv_archive_source *source,
                                               struct conv_item *item, struct conv_err *err)
{
    while (source->unit) {
        struct conv_archive_member member;
        struct conv_archive_reader *reader = source->unit->reader;
        item->ops = &item_ops;
        item->is_copy = item->is_link = false; // of the member before
        item->archive = source->unit->target;
        enum conv_archive_step step = reader->ops->next(reader, &member, err);
        conv_archive_input_advance(&source->unit->input);
        if (step == CONV_ARCHIVE_DAMAGED) {
            if (!source->has_begun) // not an archive: an existing output stays
                source->is_due = NULL;
            bool reported = source->is_broken; // with the member that it ended in
            enum conv_source_step end = end_unit(source, item, reported ? err : NULL);
            return reported ? end : report_archive(source, item);
        }
        source->is_broken = false; // a member that failed may be followed by others
        source->has_begun = true;
        if (step == CONV_ARCHIVE_END)
            return end_unit(source, item, err);
        if (step == CONV_ARCHIVE_BAD) {
            (void)name_item(item, source->path, member.name, member.name, NULL);
            return CONV_SOURCE_BAD;
        }
        enum conv_source_step taken = take_member(source, &member, item, err);
        if (taken != CONV_SOURCE_END)
            return taken;
    }
    return CONV_SOURCE_END;
}

bool conv_archive_source_may_wait(const struct conv_archive_source *source)
{
    return source->unit && conv_archive_input_may_wait(&source->unit->input);
}

// --- links that come later -----------------------------------------------------------------------

enum conv_status conv_archive_source_hold(struct conv_archive_source *source,
                                          struct conv_item *item, struct conv_err *err)
{
    struct conv_archive_held *held = calloc(1, sizeof *held);
    if (!source->closed && (source->closed = calloc(1, sizeof *source->closed))) {
        atomic_init(&source->closed->uses, 1);
        conv_archive_buffers_open(&source->closed->buffers);
        source->closed->input.fd = -1;
        source->closed->held = &source->held;
    }
    struct conv_archive_body *body =
        held && source->closed ? conv_archive_body_make(source->closed, &item->body->member) : NULL;
    if (!body) {
        free(held);
        return conv_err_memory(err, "no memory for the member");
    }
    *held = (struct conv_archive_held){NULL, body, source->path, item->archive, item->holds + 1};
    *(source->held_first ? source->held_end : &source->held_first) = held;
    source->held_end = &held->next;
    conv_item_release(item);
    return CONV_OK;
}

enum conv_source_step conv_archive_source_next_held(struct conv_archive_source *source,
                                                    struct conv_item *item, struct conv_err *err)
{
    struct conv_archive_held *held = source->held_first;
    if (!held)
        return CONV_SOURCE_END;
    source->held_first = held->next;
    source->path = held->path;
    item->ops = &item_ops;
    item->is_copy = item->is_link = true;
    item->archive = held->target;
    item->holds = held->holds;
    item->body = held->body;
    (void)name_item(item, held->path, held->body->member.name, held->body->member.name, err);
    free(held);
    return CONV_SOURCE_ITEM;
}

void conv_archive_source_leave(struct conv_archive_source *source)
{
    if (source->unit)
        conv_archive_unit_release(source->unit);
    source->unit = NULL;
}

// --- the source ----------------------------------------------------------------------------------

void conv_archive_source_close(struct conv_archive_source *source)
{
    conv_archive_source_leave(source);
    for (struct conv_archive_held *held; (held = source->held_first);) {
        source->held_first = held->next;
        conv_archive_body_release(held->body);
        free(held);
    }
    if (source->closed)
        conv_archive_unit_release(source->closed);
    source->closed = NULL;
}

enum conv_status conv_archive_source_begin(struct conv_archive_source *source,
                                           const struct conv_archive_format *format, int target,
                                           struct conv_archive_input *input, struct conv_err *err)
{
    struct conv_archive_unit *unit = calloc(1, sizeof *unit);
    if (!unit) {
        conv_archive_input_close(input);
        return conv_err_memory(err, "no memory for an archive");
    }
    unit->input = *input;
    unit->input.most = source->most;
    unit->input.max_pixels = source->max_pixels;
    conv_archive_buffers_open(&unit->buffers);
    unit->buffers.most = source->spare;
    *input = (struct conv_archive_input){.fd = -1};
    unit->held = &source->held;
    if (unit->input.is_copy)
        atomic_fetch_add(&source->held, (size_t)unit->input.size);
    unit->target = target;
    atomic_init(&unit->uses, 1);
    source->is_broken = source->has_begun = false;
    enum conv_status status =
        format->read
            ? format->read(&unit->reader, &unit->input, err)
            : conv_err_unsupported(err, "archives of the format %s cannot be read", format->name);
    if (status)
        conv_archive_unit_release(unit);
    else
        source->unit = unit;
    return status;
}
