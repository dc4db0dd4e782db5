// SPDX-License-Identifier: MIT
#include "io/archive/archive_members.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files/paths.h"
#include "io/source.h"

// --- members that were read ----------------------------------------------------------------------

static size_t strings_size(const struct conv_archive_member *member)
{
    return strlen(member->name) + strlen(member->link) + strlen(member->uname) +
           strlen(member->gname) + 4;
}

// Gives the member its own strings, strings_size() bytes at `to`.
static void copy_strings(struct conv_archive_member *member, char *to)
{
    const char **strings[] = {&member->name, &member->link, &member->uname, &member->gname};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        size_t size = strlen(*strings[i]) + 1;
        *strings[i] = memcpy(to, *strings[i], size);
        to += size;
    }
}

struct conv_archive_body *conv_archive_body_make(struct conv_archive_unit *unit,
                                                 const struct conv_archive_member *member)
{
    struct conv_archive_body *body = malloc(sizeof *body + strings_size(member));
    if (!body)
        return NULL;
    *body = (struct conv_archive_body){.unit = unit, .member = *member};
    atomic_init(&body->uses, 1);
    copy_strings(&body->member, body->strings);
    atomic_fetch_add(&unit->uses, 1);
    return body;
}

void conv_archive_body_release(struct conv_archive_body *body)
{
    if (!body || atomic_fetch_sub(&body->uses, 1) > 1)
        return;
    if (body->own)
        atomic_fetch_sub(body->unit->held, (size_t)body->member.size);
    conv_archive_buffers_give(&body->unit->buffers, body->own);
    conv_archive_unit_release(body->unit);
    free(body);
}

bool conv_archive_body_target(char *target, const struct conv_archive_body *body)
{
    const struct conv_archive_member *member = &body->member;
    char path[2 * PATH_MAX];
    bool is_hard = member->kind == CONV_ARCHIVE_HARDLINK; // else relative to the link's folder
    int folder = is_hard ? 0 : (int)(conv_paths_base(member->name) - member->name);
    if (!is_hard && (member->link[0] == '/' || !member->link[0]))
        return false;
    int length = snprintf(path, sizeof path, "%.*s%s", folder, member->name, member->link);
    return length < (int)sizeof path && (conv_paths_normal(target, path) || is_hard);
}

void conv_archive_unit_release(struct conv_archive_unit *unit)
{
    if (atomic_fetch_sub(&unit->uses, 1) > 1)
        return;
    if (unit->reader)
        unit->reader->ops->close(unit->reader);
    if (unit->input.is_copy)
        atomic_fetch_sub(unit->held, (size_t)unit->input.size);
    conv_archive_input_close(&unit->input);
    conv_archive_buffers_close(&unit->buffers);
    free(unit);
}

void conv_item_release(struct conv_item *item)
{
    conv_archive_body_release(item->body);
    conv_watched_end(item->watched, item->is_again);
    item->body = NULL;
    item->watched = NULL;
}

const struct stat *conv_item_archive(const struct conv_item *item)
{
    return item->body ? &item->body->unit->input.info : NULL;
}

const uint8_t *conv_item_streamed(const struct conv_item *item)
{
    const struct stat *archive = conv_item_archive(item);
    return archive && !S_ISREG(archive->st_mode) ? item->body->data : NULL;
}

// --- their names ---------------------------------------------------------------------------------

static bool is_drive(const char *path)
{
    int letter = path[0] | 0x20; // in lower case
    return letter >= 'a' && letter <= 'z' && path[1] == ':' &&
           (path[2] == '\0' || path[2] == '/' || path[2] == '\\');
}

static enum conv_status refuse_for_windows(struct conv_err *err)
{
    return conv_err_format(err, "the member's name could leave the output folder on Windows");
}

enum conv_status conv_member_path_make(char *dst, const char *name, struct conv_err *err)
{
    size_t size = 0;
    bool is_folder = true; // what the name ends in
    if (!*name)
        return conv_err_format(err, "the member has no name");
    if (conv_paths_climbs(name, "/"))
        return conv_err_format(
            err, "the member's name contains \"..\": it could leave the output folder");
    if (conv_paths_climbs(name, "/\\"))
        return refuse_for_windows(err);
    for (size_t n; name += strspn(name, "/"), (n = strcspn(name, "/")) > 0; name += n) {
        bool is_dot = n == 1 && name[0] == '.';
        is_folder = is_dot || name[n] == '/';
        if (is_dot)
            continue;
        if (n > NAME_MAX)
            return conv_err_limit(err, "the member's name has a component of more than %d bytes",
                                  NAME_MAX);
        if (size + (size > 0) + n >= PATH_MAX)
            return conv_err_limit(err, "the member's name is too long");
        if (size > 0)
            dst[size++] = '/';
        memcpy(dst + size, name, n);
        size += n;
    }
    if (size == 0 || is_folder)
        return conv_err_format(err, "the member's name is that of a folder");
    dst[size] = '\0';
    return dst[0] == '\\' || is_drive(dst) ? refuse_for_windows(err) : CONV_OK;
}

// True if the link leads to something below or at `folder`, which exists.
static bool leads_inside(const char *link, const char *folder)
{
    char target[PATH_MAX], root[PATH_MAX];
    if (!realpath(link, target) || !realpath(folder[0] ? folder : ".", root))
        return false;
    return conv_paths_is_inside(target, root) || strcmp(target, root) == 0;
}

// The folder relative to links->folder: its `length` first bytes.
static enum conv_status check_folder(const struct conv_member_links *links, const char *path,
                                     size_t length, bool *exists, struct conv_err *err)
{
    char relative[PATH_MAX], joined[PATH_MAX];
    struct stat info;
    memcpy(relative, path, length);
    relative[length] = '\0';
    if (!conv_paths_join(joined, links->folder, relative))
        return conv_err_limit(err, "path too long");
    *exists = lstat(joined, &info) == 0;
    if (*exists && S_ISLNK(info.st_mode) && !leads_inside(joined, links->folder))
        return conv_err_set(err, CONV_ERR_IO,
                            "the link %s leads out of the output folder; members of archives are "
                            "not written through it",
                            joined);
    return CONV_OK;
}

enum conv_status conv_member_path_check_links(struct conv_member_links *links, const char *path,
                                              struct conv_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length == 0 || length >= PATH_MAX ||
        (strncmp(links->checked, path, length) == 0 && links->checked[length] == '\0'))
        return CONV_OK;
    bool exists = true;
    for (size_t i = 1; i <= length && exists; i++) {
        enum conv_status status =
            path[i] == '/' ? check_folder(links, path, i, &exists, err) : CONV_OK;
        if (status)
            return status;
    }
    memcpy(links->checked, path, length);
    links->checked[length] = '\0';
    return CONV_OK;
}

// --- buffers -------------------------------------------------------------------------------------

// Capacities are multiples of this, so that members of similar sizes can use the same buffers.
#define STEP ((size_t)1 << 16)

// Unused buffers that are looked at; the last one given back is still in a cache.
#define MOST_LOOKS 8

struct conv_archive_buffer {
    alignas(max_align_t) struct conv_archive_buffer *next;
    size_t capacity; // of `data`
    alignas(max_align_t) unsigned char data[];
};

void conv_archive_buffers_open(struct conv_archive_buffers *buffers)
{
    *buffers = (struct conv_archive_buffers){0};
    conv_lock_init(&buffers->lock);
}

void conv_archive_buffers_close(struct conv_archive_buffers *buffers)
{
    for (struct conv_archive_buffer *buffer; (buffer = buffers->unused);) {
        buffers->unused = buffer->next;
        free(buffer);
    }
    conv_lock_destroy(&buffers->lock);
}

// Finds an unused buffer of which at least half would be used.
static struct conv_archive_buffer *find(struct conv_archive_buffers *buffers, size_t size)
{
    struct conv_archive_buffer **link = &buffers->unused;
    for (int i = 0; *link && i < MOST_LOOKS; i++, link = &(*link)->next) {
        struct conv_archive_buffer *buffer = *link;
        if (buffer->capacity < size || buffer->capacity / 2 > size + STEP)
            continue;
        *link = buffer->next;
        buffers->unused_bytes -= buffer->capacity;
        return buffer;
    }
    return NULL;
}

void *conv_archive_buffers_take(struct conv_archive_buffers *buffers, size_t size)
{
    struct conv_archive_buffer *buffer = NULL;
    if (size >= STEP) {
        conv_lock_acquire(&buffers->lock);
        buffer = find(buffers, size);
        conv_lock_release(&buffers->lock);
    }
    if (buffer)
        return buffer->data;
    size_t capacity = size < STEP ? size : (size + STEP - 1) / STEP * STEP;
    buffer = malloc(sizeof *buffer + capacity);
    if (!buffer)
        return NULL;
    buffer->capacity = capacity;
    return buffer->data;
}

void conv_archive_buffers_give(struct conv_archive_buffers *buffers, void *data)
{
    if (!data)
        return;
    struct conv_archive_buffer *buffer =
        (void *)((unsigned char *)data - offsetof(struct conv_archive_buffer, data));
    conv_lock_acquire(&buffers->lock);
    bool keeps =
        buffer->capacity >= STEP && buffers->unused_bytes + buffer->capacity <= buffers->most;
    if (keeps) {
        buffer->next = buffers->unused;
        buffers->unused = buffer;
        buffers->unused_bytes += buffer->capacity;
    }
    conv_lock_release(&buffers->lock);
    if (!keeps)
        free(buffer);
}

// --- members to be written -----------------------------------------------------------------------

// The strings of a copy follow it in the same block of memory; its content is in a buffer that is
// used again.

struct conv_archive_entry *conv_archive_entry_copy(struct conv_archive_buffers *buffers,
                                                   const struct conv_archive_entry *from)
{
    size_t strings = strings_size(&from->member);
    size_t content = from->body ? 0 : from->content.size;
    struct conv_archive_entry *entry = malloc(sizeof *entry + strings);
    uint8_t *bytes = content ? conv_archive_buffers_take(buffers, content) : NULL;
    if (!entry || (content && !bytes)) {
        free(entry);
        conv_archive_buffers_give(buffers, bytes);
        return NULL;
    }
    *entry = *from;
    copy_strings(&entry->member, (char *)(entry + 1));
    entry->own = bytes;
    entry->copied = sizeof *entry + strings + content;
    if (from->body) {
        atomic_fetch_add(&from->body->uses, 1);
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

void conv_archive_entry_free(struct conv_archive_buffers *buffers, struct conv_archive_entry *entry)
{
    if (entry && !entry->is_dropped)
        conv_archive_body_release(entry->body);
    if (entry)
        conv_archive_buffers_give(buffers, entry->own);
    free(entry);
}
