// SPDX-License-Identifier: MIT
// Lists the watched folders and handles their events.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "io/files/paths.h"
#include "io/walk/watch_internal.h"

// --- watched folders -----------------------------------------------------------------------------

#define EVENTS                                                                                     \
    (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_DELETE_SELF |       \
     IN_MOVE_SELF | IN_ONLYDIR)

// The index of the first folder whose descriptor is not below `wd`.
static int find_place(const struct conv_watch *watch, int wd)
{
    int low = 0, high = watch->folder_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (watch->folders[middle].wd < wd)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct conv_watch *watch, int place, int wd)
{
    return place < watch->folder_count && watch->folders[place].wd == wd;
}

static enum conv_status store(struct conv_watch *watch, int wd, char *path, int root,
                              struct conv_err *err)
{
    int place = find_place(watch, wd);
    if (is_at(watch, place, wd)) {
        free(watch->folders[place].path);
    } else {
        void *all =
            conv_array_grow(watch->folders, (size_t)watch->folder_count, sizeof *watch->folders);
        if (!all)
            return conv_err_memory(err, "no memory for another folder");
        watch->folders = all;
        memmove(watch->folders + place + 1, watch->folders + place,
                (size_t)(watch->folder_count - place) * sizeof *watch->folders);
        watch->folder_count++;
    }
    watch->folders[place] = (struct conv_watch_folder){wd, root, path};
    return CONV_OK;
}

// NULL if it is no longer watched. Valid until the next call that adds or removes.
static const struct conv_watch_folder *find_watched(const struct conv_watch *watch, int wd)
{
    int place = find_place(watch, wd);
    return is_at(watch, place, wd) ? &watch->folders[place] : NULL;
}

// Watches `path` for files that are complete, renamed or removed and for new folders. A folder that
// is watched already gets the new path; *is_new: it was not watched under this path. CONV_ERR_LIMIT
// if the user's limit of watches is reached; CONV_ERR_IO with the reason; CONV_ERR_MEMORY.
static enum conv_status add_watched(struct conv_watch *watch, const char *path, int root,
                                    bool *is_new, struct conv_err *err)
{
    int wd = inotify_add_watch(watch->fd, path[0] ? path : ".", EVENTS);
    if (wd < 0 && errno == ENOSPC)
        return conv_err_limit(err, "too many folders to watch (the limit is "
                                   "fs.inotify.max_user_watches)");
    if (wd < 0)
        return conv_err_errno(err, errno, "cannot watch the folder");
    const struct conv_watch_folder *known = find_watched(watch, wd);
    *is_new = !known || strcmp(known->path, path) != 0;
    char *copy = strdup(path);
    if (!copy)
        return conv_err_memory(err, "no memory for a folder's name");
    enum conv_status status = store(watch, wd, copy, root, err);
    if (status)
        free(copy);
    return status;
}

static bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

// Ends the watch of the folder `path` and of all below it.
static void remove_watched(struct conv_watch *watch, const char *path)
{
    int kept = 0;
    for (int i = 0; i < watch->folder_count; i++) {
        if (is_within(watch->folders[i].path, path)) {
            (void)inotify_rm_watch(watch->fd, watch->folders[i].wd); // fails if it has ended
            free(watch->folders[i].path);
        } else {
            watch->folders[kept++] = watch->folders[i];
        }
    }
    watch->folder_count = kept;
}

// Forgets a watch that the system has ended.
static void forget_watched(struct conv_watch *watch, int wd)
{
    int place = find_place(watch, wd);
    if (!is_at(watch, place, wd))
        return;
    free(watch->folders[place].path);
    watch->folder_count--;
    memmove(watch->folders + place, watch->folders + place + 1,
            (size_t)(watch->folder_count - place) * sizeof *watch->folders);
}

#define MOST_WAITING 65536 // arrivals, before further events are left in the system's queue

// --- folders -------------------------------------------------------------------------------------

static const char *relative_name(const struct conv_watch_root *root, const char *path)
{
    const char *relative = path + strlen(root->path);
    return relative + strspn(relative, "/");
}

void conv_watch_note_failure(struct conv_watch *watch, const char *path, const struct conv_err *err)
{
    if (watch->failed.err.status)
        return; // one at a time
    snprintf(watch->failed.path, sizeof watch->failed.path, "%s", path);
    watch->failed.err = *err;
}

void conv_watch_take_file(struct conv_watch *watch, const char *path, int root, bool is_closed)
{
    struct conv_err err;
    const struct conv_watch_arrival arrival = {
        .path = (char *)(uintptr_t)path, .root = root, .is_closed = is_closed};
    const char *relative = relative_name(&watch->roots[root], path);
    if (conv_folder_rules_take(watch->rules, relative) &&
        conv_watch_arrivals_add(&watch->arrivals, &arrival, &err))
        conv_watch_note_failure(watch, path, &err);
}

// `path`: of an entry. Returns a copy of it if it is a folder to go down into.
static char *take_entry(struct conv_watch *watch, const char *path, int root,
                        const struct conv_watch_listing *listing)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return NULL;
    if (S_ISDIR(info.st_mode)) {
        bool enters =
            conv_folder_rules_enter(watch->rules, relative_name(&watch->roots[root], path));
        return enters ? strdup(path) : NULL;
    }
    if (listing->takes_files && info.st_ctime >= listing->since)
        conv_watch_take_file(watch, path, root, true);
    return NULL;
}

// Lists one folder. *below: the folders in it, *count of them, malloc'ed.
static void list_folder(struct conv_watch *watch, const char *path, int root,
                        const struct conv_watch_listing *listing, char ***below, size_t *count)
{
    char name[PATH_MAX];
    const struct dirent *entry;
    conv_descriptors_keep(1);
    DIR *dir = opendir(path[0] ? path : ".");
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !conv_paths_join(name, path, entry->d_name))
            continue;
        char *folder = take_entry(watch, name, root, listing);
        char **more = folder ? conv_array_grow(*below, *count, sizeof **below) : NULL;
        if (more) {
            *below = more;
            more[(*count)++] = folder;
        } else {
            free(folder);
        }
    }
    if (dir)
        closedir(dir);
    conv_descriptors_keep(-1);
}

// Watches a folder, then lists it: what arrives in between has an event, what was there before is
// listed.
enum conv_status conv_watch_add_tree(struct conv_watch *watch, const char *path, int root,
                                     const struct conv_watch_listing *listing, struct conv_err *err)
{
    bool is_new = false;
    struct conv_watch_listing all = *listing;
    enum conv_status status = add_watched(watch, path, root, &is_new, err);
    if (status || (!watch->rules->recursive && !listing->takes_files))
        return status;
    if (is_new) // its files have other names now, but changed long ago
        all.since = 0;
    char **below = NULL;
    size_t count = 0;
    list_folder(watch, path, root, &all, &below, &count);
    for (size_t i = 0; i < count; i++) {
        if (conv_watch_add_tree(watch, below[i], root, listing, err) &&
            conv_paths_is_folder(below[i]))
            conv_watch_note_failure(watch, below[i], err);
        free(below[i]);
    }
    free(below);
    return CONV_OK;
}

// --- events --------------------------------------------------------------------------------------

static void take_folder(struct conv_watch *watch, const char *path, int root)
{
    const struct conv_watch_listing all = {.takes_files = true};
    struct conv_err err;
    if (conv_folder_rules_enter(watch->rules, relative_name(&watch->roots[root], path)) &&
        conv_watch_add_tree(watch, path, root, &all, &err) && conv_paths_is_folder(path))
        conv_watch_note_failure(watch, path, &err);
}

// Events were dropped: everything that may have changed since the last one is listed.
static void list_again(struct conv_watch *watch)
{
    // Whether or not the clock was set meanwhile.
    time_t since = time(NULL) - (time_t)((conv_clock_ns() - watch->drained_ns) / 1000000000);
    since = since < watch->drained ? since : watch->drained;
    const struct conv_watch_listing recent = {.takes_files = true, .since = since - 1};
    struct conv_err err;
    for (int i = 0; i < watch->root_count; i++)
        if (!watch->roots[i].is_gone &&
            conv_watch_add_tree(watch, watch->roots[i].path, i, &recent, &err))
            conv_watch_note_failure(watch, watch->roots[i].path, &err);
}

static void end_root(struct conv_watch *watch, int root)
{
    watch->gone_count += !watch->roots[root].is_gone;
    watch->roots[root].is_gone = true;
    remove_watched(watch, watch->roots[root].path);
}

void conv_watch_check_roots(struct conv_watch *watch, uint64_t now_ns)
{
    struct stat now;
    if (now_ns - watch->checked_ns < 1000000000)
        return;
    watch->checked_ns = now_ns;
    for (int i = 0; i < watch->root_count; i++) {
        const struct conv_watch_root *root = &watch->roots[i];
        bool is_there = stat(root->path[0] ? root->path : ".", &now) == 0;
        if (!root->is_gone &&
            (!is_there || now.st_dev != root->info.st_dev || now.st_ino != root->info.st_ino))
            end_root(watch, i);
    }
}

static void handle_entry(struct conv_watch *watch, const struct conv_watch_folder *folder,
                         const struct inotify_event *event)
{
    char path[PATH_MAX];
    int root = folder->root;
    if (!conv_paths_join(path, folder->path, event->name))
        return; // no program can have opened it by this path either
    struct stat info;
    bool exists = lstat(path, &info) == 0, leaves = event->mask & (IN_MOVED_FROM | IN_DELETE);
    if (event->mask & IN_ISDIR) {
        if (event->mask & IN_MOVED_FROM)
            remove_watched(watch, path);
        if (exists && S_ISDIR(info.st_mode)) // another may have taken its place
            take_folder(watch, path, root);
    } else if (leaves && !exists) {
        conv_watch_leave(watch, path, root);
    } else {
        bool is_closed = event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO);
        conv_watch_take_file(watch, path, root, is_closed);
    }
}

static void handle_event(struct conv_watch *watch, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW) {
        list_again(watch);
        return;
    }
    const struct conv_watch_folder *folder = find_watched(watch, event->wd);
    if (!folder)
        return; // the folder is no longer watched; the event is older
    bool is_root = strcmp(folder->path, watch->roots[folder->root].path) == 0;
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
        if (is_root)
            end_root(watch, folder->root);
        else if (event->mask & IN_IGNORED)
            forget_watched(watch, event->wd);
    } else if (event->len > 0) {
        handle_entry(watch, folder, event);
    }
}

void conv_watch_read_events(struct conv_watch *watch)
{
    union {
        struct inotify_event event; // for the alignment
        char bytes[65536];
    } buffer;
    while (watch->arrivals.fresh < MOST_WAITING) {
        time_t now = time(NULL);
        ssize_t got = TEMP_FAILURE_RETRY(read(watch->fd, buffer.bytes, sizeof buffer.bytes));
        if (got <= 0) {
            watch->drained = now;
            watch->drained_ns = conv_clock_ns();
            return;
        }
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const void *)(buffer.bytes + at);
            handle_event(watch, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
}
