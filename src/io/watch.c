// SPDX-License-Identifier: MIT
#include "io/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/digest_set.h"
#include "io/paths.h"
#include "io/watch_arrivals.h"
#include "io/watch_folders.h"

#define MOST_WAITING 65536 // arrivals, before further events are left in the system's queue
#define STOP_MS 100        // how soon a stop is noticed

struct root {
    const char *path;
    size_t target;
    bool is_gone, is_reported;
};

struct conv_watch {
    const struct conv_folder_rules *rules;
    const atomic_int *stop;
    struct conv_watch_folders folders;
    struct conv_watch_arrivals arrivals;
    struct root *roots;
    int root_count;
    // Found by the walk after watching began: their events bring nothing new.
    struct conv_digest_set found;
    time_t began, drained; // when watching began; when no event was left
    // A folder that could not be watched; failed.err.status 0: none.
    struct {
        char path[PATH_MAX];
        struct conv_err err;
    } failed;
};

enum conv_status conv_watch_open(struct conv_watch **out, const struct conv_folder_rules *rules,
                                 const atomic_int *stop, struct conv_err *err)
{
    struct conv_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to watch folders");
    watch->rules = rules;
    watch->stop = stop;
    watch->began = watch->drained = time(NULL);
    enum conv_status status = conv_watch_folders_open(&watch->folders, err);
    if (status) {
        free(watch);
        return status;
    }
    conv_descriptors_keep(1);
    *out = watch;
    return CONV_OK;
}

void conv_watch_close(struct conv_watch *watch)
{
    if (!watch)
        return;
    conv_watch_folders_close(&watch->folders);
    conv_descriptors_keep(-1);
    conv_watch_arrivals_free(&watch->arrivals);
    conv_digest_set_free(&watch->found);
    free(watch->roots);
    free(watch);
}

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

static const char *relative_name(const struct root *root, const char *path)
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

// What to do with the files of a tree that is listed.
struct listing {
    bool takes_files;
    time_t since; // only those that changed since then
};

static enum conv_status add_tree(struct conv_watch *watch, const char *path, int root,
                                 const struct listing *listing, struct conv_err *err);

// `path`: of an entry. Returns a copy of it if it is a folder to go down into.
static char *take_entry(struct conv_watch *watch, const char *path, int root,
                        const struct listing *listing)
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
                        const struct listing *listing, char ***below, size_t *count)
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
static enum conv_status add_tree(struct conv_watch *watch, const char *path, int root,
                                 const struct listing *listing, struct conv_err *err)
{
    enum conv_status status = conv_watch_folders_add(&watch->folders, path, root, err);
    if (status || (!watch->rules->recursive && !listing->takes_files))
        return status;
    char **below = NULL;
    size_t count = 0;
    list_folder(watch, path, root, listing, &below, &count);
    for (size_t i = 0; i < count; i++) {
        if (add_tree(watch, below[i], root, listing, err) && conv_paths_is_folder(below[i]))
            note_failure(watch, below[i], err);
        free(below[i]);
    }
    free(below);
    return CONV_OK;
}

enum conv_status conv_watch_add(struct conv_watch *watch, const char *path, size_t target,
                                struct conv_err *err)
{
    const struct listing folders_only = {0};
    struct root *roots = realloc(watch->roots, (size_t)(watch->root_count + 1) * sizeof *roots);
    if (!roots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to watch folders");
    watch->roots = roots;
    roots[watch->root_count++] = (struct root){.path = path, .target = target};
    return add_tree(watch, path, watch->root_count - 1, &folders_only, err);
}

// --- events --------------------------------------------------------------------------------------

static void take_folder(struct conv_watch *watch, const char *path, int root)
{
    const struct listing all = {.takes_files = true};
    struct conv_err err;
    if (conv_folder_rules_enter(watch->rules, relative_name(&watch->roots[root], path)) &&
        add_tree(watch, path, root, &all, &err) && conv_paths_is_folder(path))
        note_failure(watch, path, &err);
}

// Events were dropped: everything that may have changed since the last one is listed.
static void list_again(struct conv_watch *watch)
{
    const struct listing recent = {.takes_files = true, .since = watch->drained - 1};
    struct conv_err err;
    for (int i = 0; i < watch->root_count; i++)
        if (!watch->roots[i].is_gone && add_tree(watch, watch->roots[i].path, i, &recent, &err))
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
        return; // an event from before the watch was ended
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

static void read_events(struct conv_watch *watch)
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

// --- source --------------------------------------------------------------------------------------

static enum conv_source_step hand_out(struct conv_item *item, const char *path,
                                      const struct root *root, enum conv_source_step step)
{
    size_t length = strlen(path);
    memcpy(item->name, path, length + 1); // below PATH_MAX: conv_paths_join made it
    item->ops = step == CONV_SOURCE_ITEM ? &conv_item_watched : &conv_item_file;
    item->target = root && root->target < length ? root->target : length;
    item->is_named = item->in_place = false;
    return step;
}

// A failure to report, if there is one.
static bool take_failure(struct conv_watch *watch, struct conv_item *item, struct conv_err *err)
{
    if (watch->failed.err.status) {
        *err = watch->failed.err;
        watch->failed.err.status = CONV_OK;
        hand_out(item, watch->failed.path, NULL, CONV_SOURCE_BAD);
        return true;
    }
    for (int i = 0; i < watch->root_count; i++) {
        struct root *root = &watch->roots[i];
        if (root->is_gone && !root->is_reported) {
            root->is_reported = true;
            conv_err_set(err, CONV_ERR_IO,
                         "the folder was removed or renamed; it is watched no "
                         "longer");
            hand_out(item, root->path, NULL, CONV_SOURCE_BAD);
            return true;
        }
    }
    return false;
}

static bool is_over(const struct conv_watch *watch)
{
    bool over = true;
    for (int i = 0; i < watch->root_count; i++)
        over &= watch->roots[i].is_gone;
    return over;
}

enum conv_source_step conv_watch_next(struct conv_watch *watch, struct conv_item *item,
                                      struct conv_err *err)
{
    struct conv_watch_arrival arrival;
    while (!watch->stop || !atomic_load(watch->stop)) {
        read_events(watch);
        if (take_failure(watch, item, err))
            return CONV_SOURCE_BAD;
        if (conv_watch_arrivals_take(&watch->arrivals, conv_clock_ns(), &arrival)) {
            hand_out(item, arrival.path, &watch->roots[arrival.root], CONV_SOURCE_ITEM);
            free(arrival.path);
            return CONV_SOURCE_ITEM;
        }
        uint64_t wait_ns = conv_watch_arrivals_wait_ns(&watch->arrivals, conv_clock_ns());
        if (wait_ns == UINT64_MAX && is_over(watch))
            return CONV_SOURCE_END;
        struct pollfd events = {.fd = watch->folders.fd, .events = POLLIN};
        int wait_ms =
            wait_ns < STOP_MS * UINT64_C(1000000) ? (int)((wait_ns + 999999) / 1000000) : STOP_MS;
        (void)poll(&events, 1, wait_ms);
    }
    return CONV_SOURCE_END;
}

bool conv_watch_may_wait(struct conv_watch *watch)
{
    return conv_watch_arrivals_wait_ns(&watch->arrivals, conv_clock_ns()) > 0;
}
