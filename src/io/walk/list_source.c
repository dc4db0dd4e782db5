// SPDX-License-Identifier: MIT
// Turns names into items and recognises those that it has seen.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"
#include "io/walk/shard.h"
#include "io/walk/walk_internal.h"

// --- names ---------------------------------------------------------------------------------------

// Cuts a list into names while it arrives.

static void close_names(struct conv_list_source *list)
{
    if (list->fd > STDIN_FILENO)
        close(list->fd);
    list->fd = -1;
}

enum conv_status conv_list_source_open(struct conv_list_source *list, struct conv_err *err)
{
    struct stat info;
    const char *path = list->path;
    bool standard = conv_paths_is_standard(path);
    list->fd = standard ? STDIN_FILENO : conv_paths_open(path, O_RDONLY | O_NONBLOCK);
    if (standard && conv_standard_is_closed(STDIN_FILENO)) {
        conv_err_usage(err, "-: standard input is closed");
    } else if (list->fd < 0) {
        conv_err_errno(err, errno, "%s", path);
    } else if (fstat(list->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        close_names(list);
        conv_err_usage(err, "%s: is a folder, not a list of names", path);
    } else {
        return CONV_OK;
    }
    if (err)
        err->status = CONV_ERR_USAGE;
    return conv_err_hint(err, CONV_HINT_LIST, 0, CONV_ERR_USAGE);
}

// True if the next name has not arrived and nothing can be read without waiting.
bool conv_list_source_may_wait(const struct conv_list_source *list)
{
    struct pollfd wait = {.fd = list->fd, .events = POLLIN};
    const char *here = list->buffer + list->begin;
    return !list->ended && !memchr(here, list->nul ? '\0' : '\n', list->end - list->begin) &&
           poll(&wait, 1, 0) == 0;
}

// Appends to the buffer. False at the end or on an error.
static bool read_more(struct conv_list_source *list, struct conv_err *err)
{
    if (list->begin > 0) {
        memmove(list->buffer, list->buffer + list->begin, list->end - list->begin);
        list->end -= list->begin;
        list->begin = 0;
    }
    for (;;) {
        if (!conv_paths_wait_readable(list->fd, list->stop)) {
            list->ended = true;
            list->end = 0; // drop a name that was cut short
            return false;
        }
        // One byte stays free for the NUL after a last name without an end.
        ssize_t got = read(list->fd, list->buffer + list->end, sizeof list->buffer - 1 - list->end);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            conv_err_errno(err, errno, "cannot read the list");
        list->ended = got <= 0;
        list->end += got > 0 ? (size_t)got : 0;
        return got > 0;
    }
}

// The rest of the list is not read: where its names begin and end is unknown.
static const char *give_up(struct conv_list_source *list)
{
    list->ended = true;
    list->begin = list->end;
    return NULL;
}

// The next name that is not empty; valid until the next call. NULL at the end, when stopped, or
// with err->status set, which the caller has set to CONV_OK: CONV_ERR_IO if reading fails (once;
// then the list ends), CONV_ERR_USAGE if a list whose names end in newline has NUL bytes,
// CONV_ERR_LIMIT for a name that is longer than any path and does not end within the buffer. What
// happens does not depend on the pieces in which a pipe delivers the list.
static const char *next_name(struct conv_list_source *list, struct conv_err *err)
{
    for (;;) {
        char *name = list->buffer + list->begin;
        size_t size = list->end - list->begin;
        char *last = memchr(name, list->nul ? '\0' : '\n', size);
        // A name contains no NUL. If a NUL were taken as its end, it would hide all names up to the
        // next line.
        if (!list->nul && memchr(name, '\0', last ? (size_t)(last - name) : size)) {
            conv_err_usage(err, "the list has NUL bytes: add -0 if its names end in NUL");
            return give_up(list);
        }
        if (!last && !list->ended && size < sizeof list->buffer - 1) {
            read_more(list, err);
            if (err->status)
                return NULL;
            continue;
        }
        if (!last && size >= PATH_MAX) {
            bool lines = list->nul && memchr(name, '\n', size);
            conv_err_limit(err, "the list holds a name of more than %d bytes%s", PATH_MAX,
                           lines ? ": omit -0 if its names end in newline" : "");
            return give_up(list);
        }
        if (!last && size == 0)
            return NULL;
        if (!last)
            last = name + size;
        list->begin += (size_t)(last - name) + (last < list->buffer + list->end);
        if (!list->nul && last > name && last[-1] == '\r')
            last--;
        *last = '\0';
        if (name[0])
            return name;
    }
}

// --- images --------------------------------------------------------------------------------------

// A digest of a name in a folder, the same however the folder is reached: through links, or where
// it is mounted again.
static struct conv_digest digest_file(const char *path)
{
    struct stat info;
    char folder[PATH_MAX];
    const char *base = conv_paths_base(path);
    if (stat(conv_paths_folder(folder, path), &info) != 0)
        return conv_shard_digest(path); // there is no such file
    struct conv_digest digest = {0};
    const uint64_t numbers[] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    conv_hash_add(&digest, numbers, sizeof numbers);
    conv_hash_add(&digest, base, strcspn(base, "/"));
    return digest;
}

// With outputs in place or beside the inputs, two names are one image if they are the same file.
// Otherwise they are one image if they have the same output: "a.png" in the list's folder and
// "/a.png" are two images with one output.
static enum conv_source_step check_seen(struct conv_list_source *list, const char *name,
                                        const struct conv_item *item, struct conv_err *err)
{
    bool by_file = list->in_place || list->beside, added;
    struct conv_digest digest = by_file
                                    ? digest_file(item->name)
                                    : conv_shard_digest(list->base ? conv_item_target(item) : name);
    struct conv_digest other = digest;
    uint64_t absolute = !by_file && !list->base && name[0] == '/';
    digest.word[1] = (digest.word[1] & ~(uint64_t)1) | absolute;
    other.word[1] = digest.word[1] ^ 1;
    if (!by_file && conv_digest_set_has(&list->seen, &other)) {
        conv_err_usage(err, "another name in the list has the same output");
        return CONV_SOURCE_BAD;
    }
    if (conv_digest_set_add(&list->seen, &digest, &added, err))
        return CONV_SOURCE_BAD;
    return added ? CONV_SOURCE_ITEM : CONV_SOURCE_REPEATED;
}

static void name_item(struct conv_item *item, const char *name)
{
    snprintf(item->name, sizeof item->name, "%.*s", (int)sizeof item->name - 1, name);
    item->target = strlen(item->name);
}

// Sets the target to the path below list->base, which follows the item's name. CONV_ERR_USAGE if it
// is not below.
static enum conv_status set_below(const struct conv_list_source *list, struct conv_item *item,
                                  struct conv_err *err)
{
    char folder[PATH_MAX], resolved[PATH_MAX];
    const char *base = conv_paths_base(item->name);
    size_t top = strlen(list->base), size = strlen(item->name);
    if (!conv_paths_resolve(conv_paths_folder(folder, item->name), resolved) ||
        (strcmp(resolved, list->base) != 0 && !conv_paths_is_inside(resolved, list->base)))
        return conv_err_usage(err, "is not below %s", list->base);
    const char *below = resolved + top + strspn(resolved + top, "/");
    item->target = size + 1;
    int length = snprintf(folder, sizeof folder, "%s%s%s", below, *below ? "/" : "", base);
    if (length >= (int)(sizeof item->name - item->target))
        return conv_err_limit(err, "path too long");
    memcpy(item->name + item->target, folder, (size_t)length + 1);
    return CONV_OK;
}

enum conv_source_step conv_list_source_next(struct conv_list_source *list, struct conv_item *item,
                                            struct conv_err *err)
{
    struct stat info;
    item->ops = &conv_item_file;
    item->in_place = list->in_place;
    err->status = CONV_OK;
    const char *name = next_name(list, err);
    if (!name) {
        name_item(item, list->path);
        if (conv_paths_is_standard(list->path))
            item->ops = &conv_item_standard;
        return err->status ? CONV_SOURCE_BAD : CONV_SOURCE_END;
    }
    // In a list "-" is the name of a file.
    const char *folder = name[0] == '/'                 ? ""
                         : list->folder                 ? list->folder
                         : conv_paths_is_standard(name) ? "."
                                                        : "";
    const char *relative = name + strspn(name, "/"); // so it is below the output
    if (!conv_paths_join(item->name, folder, name)) {
        name_item(item, name);
        conv_err_limit(err, "path too long");
        return CONV_SOURCE_BAD;
    }
    item->target = strlen(item->name) - strlen(relative);
    bool is_named = !list->in_place && !list->beside; // its output is, by the list
    if (is_named && list->base && set_below(list, item, err))
        return CONV_SOURCE_BAD;
    if (is_named && !list->base && conv_paths_climbs(relative, "/")) {
        conv_err_usage(err, "a name in the list may not contain '..'");
        conv_err_hint(err, CONV_HINT_BASE, 0, CONV_ERR_USAGE);
        return CONV_SOURCE_BAD;
    }
    if (stat(item->name, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        conv_err_format(err, "is a pipe, socket or device, not an image");
        return CONV_SOURCE_BAD;
    }
    return check_seen(list, name, item, err);
}

void conv_list_source_close(struct conv_list_source *list)
{
    close_names(list);
    conv_digest_set_free(&list->seen);
}
