// SPDX-License-Identifier: MIT
#include "io/archive_windows.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

void conv_archive_windows_open(struct conv_archive_windows *windows, int fd, int threads)
{
    struct statfs system;
    bool pays = threads >= CONV_ARCHIVE_WINDOW_THREADS && fstatfs(fd, &system) == 0 &&
                system.f_type == TMPFS_MAGIC;
    memset(windows, 0, sizeof *windows);
    windows->fd = pays ? fd : -1;
    windows->refused = UINT64_MAX;
    pthread_mutex_init(&windows->lock, NULL); // on Linux neither takes memory nor fails
}

static void unmap(struct conv_archive_window *window)
{
    if (window->map)
        munmap(window->map, CONV_ARCHIVE_WINDOW);
    window->map = NULL;
}

void conv_archive_windows_close(struct conv_archive_windows *windows)
{
    if (windows->fd < 0)
        return;
    for (int i = 0; i < CONV_ARCHIVE_WINDOWS; i++)
        unmap(&windows->windows[i]);
    windows->fd = -1;
}

// NULL if there is no room, no memory, or no space in the file system: write() then says so if it
// is really full. With the lock: the others need the same window, or have theirs.
static struct conv_archive_window *make(struct conv_archive_windows *windows,
                                        struct conv_archive_window *window, uint64_t number)
{
    off_t at = (off_t)(number * CONV_ARCHIVE_WINDOW);
    if (number >= windows->refused)
        return NULL;
    if (fallocate(windows->fd, 0, at, (off_t)CONV_ARCHIVE_WINDOW) != 0) {
        windows->refused = number;
        return NULL;
    }
    void *map =
        mmap(NULL, CONV_ARCHIVE_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, windows->fd, at);
    if (map == MAP_FAILED)
        return NULL;
    *window = (struct conv_archive_window){map, number, CONV_ARCHIVE_WINDOW, 0};
    return window;
}

// The first window is left to write(): small archives need none.
static struct conv_archive_window *find(struct conv_archive_windows *windows, uint64_t number)
{
    struct conv_archive_window *unused = NULL;
    if (number == 0)
        return NULL;
    for (int i = 0; i < CONV_ARCHIVE_WINDOWS; i++) {
        struct conv_archive_window *window = &windows->windows[i];
        if (window->map && window->number == number)
            return window;
        if (!window->map)
            unused = window;
    }
    return unused ? make(windows, unused, number) : NULL;
}

size_t conv_archive_windows_write(struct conv_archive_windows *windows, uint64_t offset,
                                  const uint8_t *data, size_t size, size_t *most)
{
    uint64_t number = offset / CONV_ARCHIVE_WINDOW, at = offset % CONV_ARCHIVE_WINDOW;
    uint64_t room = CONV_ARCHIVE_WINDOW - at;
    *most = size;
    if (windows->fd < 0)
        return 0;
    *most = size < room ? size : (size_t)room;
    pthread_mutex_lock(&windows->lock);
    struct conv_archive_window *window = find(windows, number);
    if (window)
        window->users++;
    pthread_mutex_unlock(&windows->lock);
    if (!window)
        return 0;
    memcpy(window->map + at, data, *most);
    pthread_mutex_lock(&windows->lock);
    window->left -= *most;
    if (--window->users == 0 && window->left == 0)
        unmap(window);
    pthread_mutex_unlock(&windows->lock);
    return *most;
}
