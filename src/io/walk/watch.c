// SPDX-License-Identifier: MIT
#include "io/walk/watch_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"

#define STOP_MS 100 // how soon a stop is noticed

// --- arrivals ------------------------------------------------------------------------------------

#define PLACES 4096 // of the table of last events: as many as arrive in one settling time, and more

void conv_watch_arrivals_free(struct conv_watch_arrivals *arrivals)
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
    if (arrivals->last && arrivals->count == arrivals->capacity) {
        size_t capacity = arrivals->capacity ? 2 * arrivals->capacity : 64;
        void *heap = realloc(arrivals->heap, capacity * sizeof *arrivals->heap);
        arrivals->heap = heap ? heap : arrivals->heap;
        arrivals->capacity = heap ? capacity : arrivals->capacity;
    }
    if (!arrivals->last || arrivals->count == arrivals->capacity) {
        free(arrival->path);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu arrivals",
                            arrivals->count + 1);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a name");
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

enum conv_status conv_watch_arrivals_postpone(struct conv_watch_arrivals *arrivals,
                                              struct conv_watch_arrival *arrival, uint64_t wait_ns,
                                              struct conv_err *err)
{
    arrival->due_ns = conv_clock_ns() + wait_ns;
    arrival->waited_ns += wait_ns;
    return push(arrivals, arrival, err);
}

void conv_watch_arrivals_remove(struct conv_watch_arrivals *arrivals, const char *path)
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

bool conv_watch_arrivals_take(struct conv_watch_arrivals *arrivals,
                              struct conv_watch_arrival *arrival, uint64_t *wait_ns)
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

// --- watches -------------------------------------------------------------------------------------

enum conv_status conv_watch_open(struct conv_watch **out, const struct conv_folder_rules *rules,
                                 const atomic_int *stop, struct conv_err *err)
{
    struct conv_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to watch folders");
    watch->rules = rules;
    watch->stop = stop;
    watch->drained = time(NULL);
    watch->drained_ns = watch->checked_ns = conv_clock_ns();
    (void)conv_lock_init(&watch->lock);
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->fd < 0) {
        int errnum = errno;
        conv_lock_destroy(&watch->lock);
        free(watch);
        return errnum == EMFILE
                   ? conv_err_set(err, CONV_ERR_LIMIT,
                                  "too many programs of this user watch folders already (the limit "
                                  "is fs.inotify.max_user_instances)")
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
    conv_watch_arrivals_free(&watch->arrivals);
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
        realloc(watch->roots, (size_t)(watch->root_count + 1) * sizeof *roots);
    if (!roots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to watch folders");
    watch->roots = roots;
    struct conv_watch_root *root = &roots[watch->root_count++];
    *root = (struct conv_watch_root){.path = path, .target = target};
    if (stat(path[0] ? path : ".", &root->info) != 0)
        return conv_err_errno(err, errno, "cannot watch the folder");
    return conv_watch_add_tree(watch, path, watch->root_count - 1, &folders_only, err);
}

// --- source --------------------------------------------------------------------------------------

static enum conv_source_step hand_out(struct conv_item *item, const char *path,
                                      const struct conv_watch_root *root,
                                      enum conv_source_step step)
{
    size_t length = strlen(path);
    memcpy(item->name, path, length + 1); // below PATH_MAX: conv_paths_join made it
    item->ops = &conv_item_file;
    item->target = root && root->target < length ? root->target : length;
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
        struct conv_watch_root *root = &watch->roots[i];
        if (root->is_gone && !root->is_reported) {
            root->is_reported = true;
            conv_err_set(err, CONV_ERR_IO,
                         "the folder was removed or renamed; it is watched no longer");
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
    while (!watch->stop || !atomic_load(watch->stop)) {
        conv_watch_read_events(watch);
        conv_watch_check_roots(watch, conv_clock_ns());
        if (take_failure(watch, item, err))
            return CONV_SOURCE_BAD;
        uint64_t wait_ns;
        if (conv_watch_find_ready(watch, &wait_ns)) {
            struct conv_watch_arrival *ready = &watch->ready;
            hand_out(item, ready->path, &watch->roots[ready->root], CONV_SOURCE_ITEM);
            item->watched = conv_watch_begin(watch, ready->path, ready->root);
            free(ready->path);
            ready->path = NULL;
            return CONV_SOURCE_ITEM;
        }
        if (wait_ns == UINT64_MAX && is_over(watch))
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
    return !conv_watch_find_ready(watch, &wait_ns);
}
