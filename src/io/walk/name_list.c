// SPDX-License-Identifier: MIT
// Cuts a list into names while it arrives.
#include "io/walk/name_list.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"

enum conv_status conv_name_list_open(struct conv_name_list *list, const char *path, bool nul,
                                     atomic_int *stop, struct conv_err *err)
{
    struct stat info;
    bool standard = strcmp(path, "-") == 0;
    list->nul = nul;
    list->stop = stop;
    list->ended = false;
    list->begin = list->end = 0;
    list->fd = standard ? STDIN_FILENO : conv_paths_open(path, O_RDONLY | O_NONBLOCK);
    if (standard && conv_standard_is_closed(STDIN_FILENO)) {
        conv_err_set(err, CONV_ERR_USAGE, "-: standard input is closed");
    } else if (list->fd < 0) {
        conv_err_errno(err, errno, "%s", path);
    } else if (fstat(list->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        conv_name_list_close(list);
        conv_err_set(err, CONV_ERR_USAGE, "%s: is a folder, not a list of names", path);
    } else {
        return CONV_OK;
    }
    if (err)
        err->status = CONV_ERR_USAGE;
    return conv_err_hint(err, CONV_HINT_LIST, 0, CONV_ERR_USAGE);
}

void conv_name_list_close(struct conv_name_list *list)
{
    if (list->fd > STDIN_FILENO)
        close(list->fd);
    list->fd = -1;
}

bool conv_name_list_may_wait(const struct conv_name_list *list)
{
    struct pollfd wait = {.fd = list->fd, .events = POLLIN};
    const char *here = list->buffer + list->begin;
    return !list->ended && !memchr(here, list->nul ? '\0' : '\n', list->end - list->begin) &&
           poll(&wait, 1, 0) == 0;
}

// Appends to the buffer. False at the end or on an error.
static bool read_more(struct conv_name_list *list, struct conv_err *err)
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
static const char *give_up(struct conv_name_list *list)
{
    list->ended = true;
    list->begin = list->end;
    return NULL;
}

const char *conv_name_list_next(struct conv_name_list *list, struct conv_err *err)
{
    for (;;) {
        char *name = list->buffer + list->begin;
        size_t size = list->end - list->begin;
        char *last = memchr(name, list->nul ? '\0' : '\n', size);
        // A name contains no NUL. If a NUL were taken as its end, it would hide all names up to the
        // next line.
        if (!list->nul && memchr(name, '\0', last ? (size_t)(last - name) : size)) {
            conv_err_set(err, CONV_ERR_USAGE,
                         "the list has NUL bytes: add -0 if its names end in NUL");
            return give_up(list);
        }
        if (!last && !list->ended && size < PATH_MAX) {
            read_more(list, err);
            if (err->status)
                return NULL;
            continue;
        }
        if (!last && size >= PATH_MAX) {
            bool lines = list->nul && memchr(name, '\n', size);
            conv_err_set(err, CONV_ERR_LIMIT, "the list holds a name of more than %d bytes%s",
                         PATH_MAX, lines ? ": omit -0 if its names end in newline" : "");
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
