// SPDX-License-Identifier: MIT
// What has arrived, when it is complete, and handing it out; watch_events.c handles what happens in
// the folders.
#include "io/walk/watch_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/digest.h"
#include "io/files/paths.h"

#define STOP_MS 100 // how soon a stop is noticed

// --- arrivals ------------------------------------------------------------------------------------

#define PLACES 4096 // of the table of last events: as many as arrive in one settling time, and more

// leaves {0}
static void free_arrivals(struct conv_watch_arrivals *arrivals)
{
    for (size_t i = 0; i < arrivals->count; i++)
        free(arrivals->heap[i].path);
    free(arrivals->heap);
    free(arrivals->last);
    *arrivals = (struct conv_watch_arrivals){0};
}

static bool is_before(const struct conv_watch_arrival *a, const struct conv_watch_arrival *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

// Takes the path over.
static enum conv_status push(struct conv_watch_arrivals *arrivals,
                             const struct conv_watch_arrival *arrival, struct conv_err *err)
{
    if (!arrivals->last)
        arrivals->last = calloc(PLACES, sizeof *arrivals->last);
    void *heap = conv_array_grow(arrivals->heap, arrivals->count, sizeof *arrivals->heap);
    arrivals->heap = heap ? heap : arrivals->heap;
    if (!arrivals->last || !heap) {
        free(arrival->path);
        return conv_err_memory(err, "no memory for %zu arrivals", arrivals->count + 1);
    }
    size_t at = arrivals->count++;
    for (; at > 0 && is_before(arrival, &arrivals->heap[(at - 1) / 2]); at = (at - 1) / 2)
        arrivals->heap[at] = arrivals->heap[(at - 1) / 2];
    arrivals->heap[at] = *arrival;
    return CONV_OK;
}

static struct conv_watch_arrival pop(struct conv_watch_arrivals *arrivals)
{
    struct conv_watch_arrival *heap = arrivals->heap, first = heap[0];
    size_t count = --arrivals->count, at = 0;
    for (size_t next; (next = 2 * at + 1) < count; at = next) {
        next += next + 1 < count && is_before(&heap[next + 1], &heap[next]);
        if (!is_before(&heap[next], &heap[count]))
            break;
        heap[at] = heap[next];
    }
    heap[at] = heap[count];
    arrivals->fresh -= first.waited_ns == 0;
    return first;
}

enum conv_status conv_watch_arrivals_add(struct conv_watch_arrivals *arrivals,
                                         const struct conv_watch_arrival *arrival,
                                         struct conv_err *err)
{
    struct conv_watch_arrival copy = *arrival;
    copy.path = strdup(arrival->path);
    if (!copy.path)
        return conv_err_memory(err, "no memory for a name");
    copy.due_ns = conv_clock_ns() + CONV_WATCH_SETTLE_NS;
    copy.digest = conv_watch_digest(copy.path, strlen(copy.path));
    copy.number = ++arrivals->next_number;
    enum conv_status status = push(arrivals, &copy, err);
    if (!status) {
        arrivals->fresh++;
        arrivals->last[copy.digest % PLACES].digest = copy.digest;
        arrivals->last[copy.digest % PLACES].number = copy.number;
    }
    return status;
}

// `path` is gone: it is not handed out any more. Best effort, as replacing is: if two names share a
// place in the table, one of them may be handed out although it is gone, or handed out twice.
static void remove_arrival(struct conv_watch_arrivals *arrivals, const char *path)
{
    uint64_t digest = conv_watch_digest(path, strlen(path));
    if (arrivals->last && arrivals->last[digest % PLACES].digest == digest)
        arrivals->last[digest % PLACES].number = 0;
}

static bool is_replaced(const struct conv_watch_arrivals *arrivals,
                        const struct conv_watch_arrival *arrival)
{
    size_t place = arrival->digest % PLACES;
    return arrivals->last[place].digest == arrival->digest &&
           arrivals->last[place].number != arrival->number;
}

// Takes the first arrival if it is due; its path then belongs to the caller. False: *wait_ns is
// the time until then; UINT64_MAX: nothing has arrived.
static bool take_arrival(struct conv_watch_arrivals *arrivals, struct conv_watch_arrival *arrival,
                         uint64_t *wait_ns)
{
    uint64_t now = conv_clock_ns();
    while (arrivals->count > 0 && is_replaced(arrivals, &arrivals->heap[0])) {
        free(arrivals->heap[0].path);
        (void)pop(arrivals);
    }
    *wait_ns = arrivals->count == 0             ? UINT64_MAX
               : arrivals->heap[0].due_ns > now ? arrivals->heap[0].due_ns - now
                                                : 0;
    if (*wait_ns == 0)
        *arrival = pop(arrivals);
    return *wait_ns == 0;
}

// --- complete files ------------------------------------------------------------------------------

// When a file that has arrived is complete. Events say when to look, not what there is: a
// file can get its name before or after it is closed, and under another name than that of its
// writer, which has its events elsewhere or nowhere. So each name is looked at until it is gone or
// complete.

#define MS UINT64_C(1000000)

// The time of a change is rounded down to a tick of the system, at most 10 ms. Once this has
// passed, a later change has another time.
#define TICK_NS (12 * MS)

// A file that was made and has had no other event, if the system does not say whether it is open
// for writing.
#define QUIET_NS (2000 * MS)

#define BUSY_WAIT_NS (5 * MS)
#define LEAST_WAIT_NS (20 * MS)
#define MOST_WAIT_NS (1000 * MS)

#define VERSIONS 65536 // of the table of versions: 1 MiB

enum writers { NO_WRITERS, SOME_WRITERS, UNKNOWN_WRITERS };

// The system refuses a read lease of a file that is open, or mapped, for writing. Network folders
// and files of other users have no leases.
static enum writers find_writers(int fd, const struct stat *info)
{
    if (!S_ISREG(info->st_mode))
        return NO_WRITERS;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0)
        return NO_WRITERS; // closing ends the lease
    return errno == EAGAIN ? SOME_WRITERS : UNKNOWN_WRITERS;
}

// False with errno if it cannot be opened.
static bool examine(const char *path, struct stat *info, enum writers *writers)
{
    conv_descriptors_take(1);
    int fd = conv_paths_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    bool found = fd >= 0 && fstat(fd, info) == 0;
    int errnum = errno;
    if (found)
        *writers = find_writers(fd, info);
    if (fd >= 0)
        close(fd);
    conv_descriptors_give(1);
    errno = errnum;
    return found;
}

static uint64_t digest_version(const struct stat *info)
{
    const int64_t numbers[] = {(int64_t)info->st_dev, (int64_t)info->st_ino, info->st_size,
                               info->st_mtim.tv_sec,  info->st_mtim.tv_nsec, info->st_ctim.tv_sec,
                               info->st_ctim.tv_nsec};
    return conv_watch_digest((const char *)numbers, sizeof numbers);
}

// Notes that this version is handed out; true if it was the last time, too.
static bool is_known(struct conv_watch *watch, const char *path, const struct stat *info)
{
    uint64_t name = conv_watch_digest(path, strlen(path));
    if (!watch->handed && !(watch->handed = calloc(VERSIONS, sizeof *watch->handed)))
        return false;
    uint64_t version = digest_version(info);
    size_t place = name % VERSIONS;
    bool known = watch->handed[place].name == name && watch->handed[place].version == version &&
                 info->st_ctim.tv_nsec != 0; // else times may be in whole seconds
    watch->handed[place].name = name;
    watch->handed[place].version = version;
    return known;
}

// How long ago the file has changed; UINT64_MAX: in the future, as on a server with another clock.
static uint64_t age_of(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec *changed = &info->st_ctim;
    int64_t seconds = (int64_t)now.tv_sec - changed->tv_sec;
    int64_t age = seconds * 1000000000 + now.tv_nsec - changed->tv_nsec;
    return seconds < 0 || seconds > 1000000 || age < 0 ? UINT64_MAX : (uint64_t)age;
}

// --- rivals --------------------------------------------------------------------------------------

// Images whose names differ in the extension alone, and whose outputs have one name, as of a.jpg
// and a.png with --to png. While both exist, the later one is refused. Once one is gone, the other
// one has the name.

static struct conv_digest digest_stem(const char *path)
{
    struct conv_digest digest = {0};
    const char *base = conv_paths_base(path), *dot = strrchr(base, '.');
    conv_hash_add(&digest, path, dot ? (size_t)(dot - path) : strlen(path));
    return digest;
}

// True if there are other images of that stem in the folder; if `again`, those that were refused
// arrive once more.
static bool find(struct conv_watch *watch, const char *path, int root, bool again)
{
    char folder[PATH_MAX], other[PATH_MAX];
    struct stat info;
    struct conv_err err;
    const struct dirent *entry;
    const char *base = conv_paths_base(path), *dot = strrchr(base, '.');
    size_t stem = dot ? (size_t)(dot - base) : strlen(base), top = strlen(watch->roots[root].path);
    bool found = false;
    snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);
    conv_descriptors_take(1);
    DIR *dir = opendir(folder[0] ? folder : ".");
    while (dir && (entry = readdir(dir))) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || (size_t)(end - entry->d_name) != stem ||
            memcmp(entry->d_name, base, stem) != 0 || strcmp(entry->d_name, base) == 0 ||
            !conv_paths_join(other, folder, entry->d_name) || stat(other, &info) != 0 ||
            !S_ISREG(info.st_mode) ||
            !conv_folder_rules_take(watch->rules, other + top + strspn(other + top, "/")))
            continue;
        found = true;
        const struct conv_watch_arrival arrival = {.path = other, .root = root, .is_closed = true};
        if (again && conv_watch_arrivals_add(&watch->arrivals, &arrival, &err))
            conv_watch_note_failure(watch, other, &err);
    }
    if (dir)
        closedir(dir);
    conv_descriptors_give(1);
    return found;
}

bool conv_watched_has_rival(const struct conv_watched *watched, const char *name, bool is_taken)
{
    struct conv_watch *watch = watched->watch;
    struct conv_digest stem = digest_stem(watched->path), output = {0};
    conv_hash_add(&output, name, strlen(name));
    if (!is_taken && !conv_digest_set_has(&watch->contested, &output))
        return false;
    (void)conv_digest_set_add(&watch->contested, &stem, NULL, NULL);
    (void)conv_digest_set_add(&watch->contested, &output, NULL, NULL);
    bool has_rival = find(watch, watched->path, watched->root, false);
    if (has_rival && watch->handed) // the version that was handed out last may be so again
        watch->handed[conv_watch_digest(watched->path, strlen(watched->path)) % VERSIONS].version =
            0;
    return has_rival;
}

void conv_watch_leave(struct conv_watch *watch, const char *path, int root)
{
    struct conv_digest stem = digest_stem(path);
    remove_arrival(&watch->arrivals, path);
    if (conv_digest_set_has(&watch->contested, &stem))
        (void)find(watch, path, root, true);
}

// --- images in progress --------------------------------------------------------------------------

static bool is_busy(struct conv_watch *watch, uint64_t digest)
{
    conv_lock_acquire(&watch->lock);
    const struct conv_watched *busy = watch->busy;
    while (busy && busy->digest != digest)
        busy = busy->next;
    conv_lock_release(&watch->lock);
    return busy;
}

bool conv_watched_is_changing(const struct conv_item *item, const struct stat *before, bool *gone)
{
    struct stat now;
    enum writers writers = NO_WRITERS;
    *gone = !examine(item->name, &now, &writers) && errno == ENOENT;
    if (*gone)
        return true;
    return before->st_mode && (writers == SOME_WRITERS || !conv_paths_is_unchanged(before, &now));
}

void conv_watched_end(struct conv_watched *busy, bool again)
{
    if (!busy)
        return;
    struct conv_watch *watch = busy->watch;
    conv_lock_acquire(&watch->lock);
    struct conv_watched **place = &watch->busy;
    while (*place != busy)
        place = &(*place)->next;
    *place = busy->next;
    if (again) {
        busy->next = watch->again;
        watch->again = busy;
    }
    conv_lock_release(&watch->lock);
    if (!again)
        free(busy);
}

// Notes that the image is being processed, until it is released. NULL without memory.
static struct conv_watched *begin_image(struct conv_watch *watch, const char *path, int root)
{
    size_t size = strlen(path) + 1;
    struct conv_watched *busy = malloc(sizeof *busy + size);
    if (!busy)
        return NULL; // two versions may then be processed at the same time
    *busy =
        (struct conv_watched){.watch = watch, .digest = digest_stem(path).word[0], .root = root};
    memcpy(busy->path, path, size);
    conv_lock_acquire(&watch->lock);
    busy->next = watch->busy;
    watch->busy = busy;
    conv_lock_release(&watch->lock);
    return busy;
}

// Images that changed while they were read arrive once more.
static void take_again(struct conv_watch *watch)
{
    conv_lock_acquire(&watch->lock);
    struct conv_watched *busy = watch->again, *next;
    watch->again = NULL;
    conv_lock_release(&watch->lock);
    for (; busy; busy = next) {
        struct conv_err err;
        const struct conv_watch_arrival arrival = {
            .path = busy->path, .root = busy->root, .is_closed = true, .is_asked_for = true};
        next = busy->next;
        if (conv_watch_arrivals_add(&watch->arrivals, &arrival, &err))
            conv_watch_note_failure(watch, busy->path, &err);
        free(busy);
    }
}

// --- looking -------------------------------------------------------------------------------------

#define GONE UINT64_MAX

// How long to wait before the file is looked at again: 0 if it is to be handed out now, GONE if
// there is nothing new.
static uint64_t wait_for(struct conv_watch *watch, const struct conv_watch_arrival *arrival)
{
    struct stat link, info = {0};
    enum writers writers = NO_WRITERS;
    uint64_t longer = arrival->waited_ns < LEAST_WAIT_NS  ? LEAST_WAIT_NS
                      : arrival->waited_ns > MOST_WAIT_NS ? MOST_WAIT_NS
                                                          : arrival->waited_ns;
    if (lstat(arrival->path, &link) != 0 || S_ISDIR(link.st_mode))
        return GONE;
    if (is_busy(watch, digest_stem(arrival->path).word[0]))
        return BUSY_WAIT_NS;
    if (!examine(arrival->path, &info, &writers)) {
        // A link may be made before its target, and a file get its mode after its content.
        bool waits = errno == ENOENT || (errno == EACCES && arrival->waited_ns < QUIET_NS);
        return waits ? longer : 0;
    }
    uint64_t age = age_of(&info);
    if (writers == SOME_WRITERS)
        return longer;
    if (writers == UNKNOWN_WRITERS && !arrival->is_closed && info.st_nlink == 1 && age < QUIET_NS)
        return QUIET_NS - age;
    if (age < TICK_NS)
        return TICK_NS - age;
    return is_known(watch, arrival->path, &info) && !arrival->is_asked_for ? GONE : 0;
}

// Takes the next file that is complete and not being processed into watch->ready. False if there
// is none yet; *wait_ns as of take_arrival.
static bool find_ready(struct conv_watch *watch, uint64_t *wait_ns)
{
    struct conv_err err;
    struct conv_watch_arrival arrival;
    take_again(watch);
    while (!watch->ready.path && take_arrival(&watch->arrivals, &arrival, wait_ns)) {
        uint64_t wait = wait_for(watch, &arrival);
        arrival.due_ns = conv_clock_ns() + wait; // unless an event replaces it before
        arrival.waited_ns += wait == GONE ? 0 : wait;
        if (wait == 0)
            watch->ready = arrival;
        else if (wait == GONE)
            free(arrival.path);
        else if (push(&watch->arrivals, &arrival, &err))
            conv_watch_note_failure(watch, watch->roots[arrival.root].path, &err);
    }
    return watch->ready.path;
}

static int root_of(const struct conv_watch *watch, const char *path)
{
    int found = 0;
    size_t longest = 0;
    for (int i = 0; i < watch->root_count; i++) {
        size_t length = strlen(watch->roots[i].path);
        if (length >= longest && strncmp(path, watch->roots[i].path, length) == 0) {
            longest = length;
            found = i;
        }
    }
    return found;
}

bool conv_watch_take_found(struct conv_watch *watch, struct conv_item *item)
{
    struct conv_watch_arrival arrival = {
        .path = item->name, .root = root_of(watch, item->name), .is_closed = true};
    uint64_t wait = wait_for(watch, &arrival);
    if (wait > 0) {
        if (wait != GONE)
            conv_watch_take_file(watch, item->name, arrival.root, true);
        return false;
    }
    item->watched = begin_image(watch, item->name, arrival.root);
    return true;
}

// --- watches -------------------------------------------------------------------------------------

enum conv_status conv_watch_open(struct conv_watch **out, const struct conv_folder_rules *rules,
                                 const atomic_int *stop, struct conv_err *err)
{
    struct conv_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return conv_err_memory(err, "no memory to watch folders");
    watch->rules = rules;
    watch->stop = stop;
    watch->drained = time(NULL);
    watch->drained_ns = watch->checked_ns = conv_clock_ns();
    conv_lock_init(&watch->lock);
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->fd < 0) {
        int errnum = errno;
        conv_lock_destroy(&watch->lock);
        free(watch);
        return errnum == EMFILE
                   ? conv_err_limit(err, "too many programs of this user watch folders already "
                                         "(the limit is fs.inotify.max_user_instances)")
                   : conv_err_errno(err, errnum, "cannot watch folders");
    }
    conv_descriptors_keep(1);
    *out = watch;
    return CONV_OK;
}

static void free_busy(struct conv_watched *busy)
{
    for (struct conv_watched *next; busy; busy = next) {
        next = busy->next;
        free(busy);
    }
}

void conv_watch_close(struct conv_watch *watch)
{
    if (!watch)
        return;
    for (int i = 0; i < watch->folder_count; i++)
        free(watch->folders[i].path);
    free(watch->folders);
    close(watch->fd);
    conv_descriptors_keep(-1);
    free_arrivals(&watch->arrivals);
    free(watch->handed);
    conv_digest_set_free(&watch->contested);
    free(watch->ready.path);
    free_busy(watch->busy);
    free_busy(watch->again);
    conv_lock_destroy(&watch->lock);
    free(watch->roots);
    free(watch);
}

enum conv_status conv_watch_add(struct conv_watch *watch, const char *path, size_t target,
                                struct conv_err *err)
{
    const struct conv_watch_listing folders_only = {0};
    struct conv_watch_root *roots =
        conv_array_grow(watch->roots, (size_t)watch->root_count, sizeof *roots);
    if (!roots)
        return conv_err_memory(err, "no memory to watch folders");
    watch->roots = roots;
    struct conv_watch_root *root = &roots[watch->root_count++];
    *root = (struct conv_watch_root){.path = path, .target = target};
    if (stat(path[0] ? path : ".", &root->info) != 0)
        return conv_err_errno(err, errno, "cannot watch the folder");
    return conv_watch_add_tree(watch, path, watch->root_count - 1, &folders_only, err);
}

// --- source --------------------------------------------------------------------------------------

static void hand_out(struct conv_item *item, const char *path, const struct conv_watch_root *root)
{
    size_t length = strlen(path);
    memcpy(item->name, path, length + 1); // below PATH_MAX: conv_paths_join made it
    item->ops = &conv_item_file;
    item->target = root && root->target < length ? root->target : length;
}

// A failure to report, if there is one.
static bool take_failure(struct conv_watch *watch, struct conv_item *item, struct conv_err *err)
{
    if (watch->failed.err.status) {
        *err = watch->failed.err;
        watch->failed.err.status = CONV_OK;
        hand_out(item, watch->failed.path, NULL);
        return true;
    }
    for (int i = 0; i < watch->root_count; i++) {
        struct conv_watch_root *root = &watch->roots[i];
        if (root->is_gone && !root->is_reported) {
            root->is_reported = true;
            conv_err_set(err, CONV_ERR_IO,
                         "the folder was removed or renamed; it is watched no longer");
            hand_out(item, root->path, NULL);
            return true;
        }
    }
    return false;
}

enum conv_source_step conv_watch_next(struct conv_watch *watch, struct conv_item *item,
                                      struct conv_err *err)
{
    while (!watch->stop || !atomic_load(watch->stop)) {
        conv_watch_read_events(watch);
        conv_watch_check_roots(watch, conv_clock_ns());
        if (take_failure(watch, item, err))
            return CONV_SOURCE_BAD;
        uint64_t wait_ns;
        if (find_ready(watch, &wait_ns)) {
            struct conv_watch_arrival *ready = &watch->ready;
            hand_out(item, ready->path, &watch->roots[ready->root]);
            item->watched = begin_image(watch, ready->path, ready->root);
            free(ready->path);
            ready->path = NULL;
            return CONV_SOURCE_ITEM;
        }
        if (wait_ns == UINT64_MAX && watch->gone_count == watch->root_count)
            return CONV_SOURCE_END;
        struct pollfd events = {.fd = watch->fd, .events = POLLIN};
        int wait_ms =
            wait_ns < STOP_MS * UINT64_C(1000000) ? (int)((wait_ns + 999999) / 1000000) : STOP_MS;
        (void)poll(&events, 1, wait_ms);
    }
    return CONV_SOURCE_END;
}

bool conv_watch_may_wait(struct conv_watch *watch)
{
    uint64_t wait_ns;
    return !find_ready(watch, &wait_ns);
}
