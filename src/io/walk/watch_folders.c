// SPDX-License-Identifier: MIT
#include "io/walk/watch_folders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define EVENTS                                                                                     \
    (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_DELETE_SELF |       \
     IN_MOVE_SELF | IN_ONLYDIR)

enum conv_status conv_watch_folders_open(struct conv_watch_folders *folders, struct conv_err *err)
{
    *folders = (struct conv_watch_folders){.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (folders->fd >= 0)
        return CONV_OK;
    if (errno == EMFILE)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "too many programs of this user watch folders already (the limit is "
                            "fs.inotify.max_user_instances)");
    return conv_err_errno(err, errno, "cannot watch folders");
}

void conv_watch_folders_close(struct conv_watch_folders *folders)
{
    for (int i = 0; i < folders->count; i++)
        free(folders->all[i].path);
    free(folders->all);
    if (folders->fd >= 0)
        close(folders->fd);
    *folders = (struct conv_watch_folders){.fd = -1};
}

// The index of the first folder whose descriptor is not below `wd`.
static int find_place(const struct conv_watch_folders *folders, int wd)
{
    int low = 0, high = folders->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (folders->all[middle].wd < wd)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct conv_watch_folders *folders, int place, int wd)
{
    return place < folders->count && folders->all[place].wd == wd;
}

static enum conv_status store(struct conv_watch_folders *folders, int wd, char *path, int root,
                              struct conv_err *err)
{
    int place = find_place(folders, wd);
    if (is_at(folders, place, wd)) {
        free(folders->all[place].path);
    } else {
        if (folders->count == folders->capacity) {
            int capacity = folders->capacity ? 2 * folders->capacity : 16;
            void *all = realloc(folders->all, (size_t)capacity * sizeof *folders->all);
            if (!all)
                return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d folders", capacity);
            folders->all = all;
            folders->capacity = capacity;
        }
        memmove(folders->all + place + 1, folders->all + place,
                (size_t)(folders->count - place) * sizeof *folders->all);
        folders->count++;
    }
    folders->all[place] = (struct conv_watch_folder){wd, root, path};
    return CONV_OK;
}

const struct conv_watch_folder *conv_watch_folders_find(const struct conv_watch_folders *folders,
                                                        int wd)
{
    int place = find_place(folders, wd);
    return is_at(folders, place, wd) ? &folders->all[place] : NULL;
}

enum conv_status conv_watch_folders_add(struct conv_watch_folders *folders, const char *path,
                                        int root, bool *is_new, struct conv_err *err)
{
    int wd = inotify_add_watch(folders->fd, path[0] ? path : ".", EVENTS);
    if (wd < 0 && errno == ENOSPC)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "too many folders to watch (the limit is "
                            "fs.inotify.max_user_watches)");
    if (wd < 0)
        return conv_err_errno(err, errno, "cannot watch the folder");
    const struct conv_watch_folder *known = conv_watch_folders_find(folders, wd);
    *is_new = !known || strcmp(known->path, path) != 0;
    char *copy = strdup(path);
    if (!copy)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a folder's name");
    enum conv_status status = store(folders, wd, copy, root, err);
    if (status)
        free(copy);
    return status;
}

static bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

void conv_watch_folders_remove(struct conv_watch_folders *folders, const char *path)
{
    int kept = 0;
    for (int i = 0; i < folders->count; i++) {
        if (is_within(folders->all[i].path, path)) {
            (void)inotify_rm_watch(folders->fd, folders->all[i].wd); // fails if it has ended
            free(folders->all[i].path);
        } else {
            folders->all[kept++] = folders->all[i];
        }
    }
    folders->count = kept;
}

void conv_watch_folders_forget(struct conv_watch_folders *folders, int wd)
{
    int place = find_place(folders, wd);
    if (!is_at(folders, place, wd))
        return;
    free(folders->all[place].path);
    folders->count--;
    memmove(folders->all + place, folders->all + place + 1,
            (size_t)(folders->count - place) * sizeof *folders->all);
}
