// SPDX-License-Identifier: MIT
// Lists the watched folders and handles their events.
#include "io/watch_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "io/paths.h"

#define MOST_WAITING 65536 // arrivals, before further events are left in the system's queue

// --- files ---------------------------------------------------------------------------------------

static struct conv_digest digest_file(const char *path, const struct stat *info)
{
    struct conv_digest digest = {0};
    const int64_t numbers[] = {(int64_t)info->st_ino,         info->st_size,
                               info->st_mtim.tv_sec,          info->st_mtim.tv_nsec,
                               (int64_t)info->st_ctim.tv_sec, info->st_ctim.tv_nsec};
    conv_hash_add(&digest, path, strlen(path));
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

static bool is_found(const struct conv_watch *watch, const char *path)
{
    struct stat info;
    if (watch->found.count == 0 || stat(path, &info) != 0)
        return false;
    struct conv_digest digest = digest_file(path, &info);
    return conv_digest_set_has(&watch->found, &digest);
}

// False if a program has the file open for writing. The system refuses a read lease of such a file;
// where it gives no leases (network folders, files of other users), the answer is true.
static bool is_complete(const char *path, struct stat *info)
{
    conv_descriptors_take(1);
    int fd = conv_paths_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    bool complete = true;
    info->st_mode = 0;
    if (fd >= 0) {
        if (fstat(fd, info) != 0)
            info->st_mode = 0;
        if (S_ISREG(info->st_mode) && fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
            complete = errno != EAGAIN;
        close(fd); // ends the lease
    }
    conv_descriptors_give(1);
    return complete;
}

bool conv_watch_take_found(struct conv_watch *watch, struct conv_item *item)
{
    struct stat info;
    item->ops = &conv_item_watched;
    if (!is_complete(item->name, &info))
        return false;
    struct conv_digest digest = digest_file(item->name, &info);
    // Without memory the image is filtered twice.
    if (info.st_mode && info.st_ctime + 1 >= watch->began)
        (void)conv_digest_set_add(&watch->found, &digest, NULL, NULL);
    return true;
}

// --- folders -------------------------------------------------------------------------------------

static const char *relative_name(const struct conv_watch_root *root, const char *path)
{
    const char *relative = path + strlen(root->path);
    return relative + strspn(relative, "/");
}

static void note_failure(struct conv_watch *watch, const char *path, const struct conv_err *err)
{
    if (watch->failed.err.status)
        return; // one at a time
    snprintf(watch->failed.path, sizeof watch->failed.path, "%s", path);
    watch->failed.err = *err;
}

static void take_file(struct conv_watch *watch, const char *path, int root)
{
    struct conv_err err;
    const char *relative = relative_name(&watch->roots[root], path);
    if (!conv_folder_rules_take(watch->rules, relative) || is_found(watch, path))
        return;
    if (conv_watch_arrivals_add(&watch->arrivals, path, root, conv_clock_ns(), &err))
        note_failure(watch, path, &err);
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
    // One that is being written has its event later.
    if (listing->takes_files && info.st_ctime >= listing->since && is_complete(path, &info))
        take_file(watch, path, root);
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
        char **more = folder ? realloc(*below, (*count + 1) * sizeof **below) : NULL;
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
    enum conv_status status = conv_watch_folders_add(&watch->folders, path, root, err);
    if (status || (!watch->rules->recursive && !listing->takes_files))
        return status;
    char **below = NULL;
    size_t count = 0;
    list_folder(watch, path, root, listing, &below, &count);
    for (size_t i = 0; i < count; i++) {
        if (conv_watch_add_tree(watch, below[i], root, listing, err) &&
            conv_paths_is_folder(below[i]))
            note_failure(watch, below[i], err);
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
        note_failure(watch, path, &err);
}

// Events were dropped: everything that may have changed since the last one is listed.
static void list_again(struct conv_watch *watch)
{
    const struct conv_watch_listing recent = {.takes_files = true, .since = watch->drained - 1};
    struct conv_err err;
    for (int i = 0; i < watch->root_count; i++)
        if (!watch->roots[i].is_gone &&
            conv_watch_add_tree(watch, watch->roots[i].path, i, &recent, &err))
            note_failure(watch, watch->roots[i].path, &err);
}

static void end_root(struct conv_watch *watch, int root)
{
    watch->roots[root].is_gone = true;
    conv_watch_folders_remove(&watch->folders, watch->roots[root].path);
}

// A hard or symbolic link has no other event than its creation.
static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && (S_ISLNK(info.st_mode) || info.st_nlink > 1);
}

static void handle_entry(struct conv_watch *watch, const struct conv_watch_folder *folder,
                         const struct inotify_event *event)
{
    char path[PATH_MAX];
    int root = folder->root;
    if (!conv_paths_join(path, folder->path, event->name))
        return; // no program can have opened it by this path either
    if (event->mask & IN_ISDIR) {
        if (event->mask & IN_MOVED_FROM)
            conv_watch_folders_remove(&watch->folders, path);
        else if (event->mask & (IN_CREATE | IN_MOVED_TO))
            take_folder(watch, path, root);
        return;
    }
    if (event->mask & (IN_MOVED_FROM | IN_DELETE))
        conv_watch_arrivals_remove(&watch->arrivals, path);
    else if (event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO) || is_link(path))
        take_file(watch, path, root);
}

static void handle_event(struct conv_watch *watch, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW) {
        list_again(watch);
        return;
    }
    const struct conv_watch_folder *folder = conv_watch_folders_find(&watch->folders, event->wd);
    if (!folder)
        return; // the folder is no longer watched; the event is older
    bool is_root = strcmp(folder->path, watch->roots[folder->root].path) == 0;
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
        if (is_root)
            end_root(watch, folder->root);
        else if (event->mask & IN_IGNORED)
            conv_watch_folders_forget(&watch->folders, event->wd);
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
    while (watch->arrivals.count < MOST_WAITING) {
        time_t now = time(NULL);
        ssize_t got = read(watch->folders.fd, buffer.bytes, sizeof buffer.bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            watch->drained = now;
            return;
        }
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const void *)(buffer.bytes + at);
            handle_event(watch, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
}
