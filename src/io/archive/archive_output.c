// SPDX-License-Identifier: MIT
// Files and streams; and for files of memory file systems, windows.
#include "io/archive/archive_output.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // Linux 6.1
#endif

#define SMALL_PAGE ((off_t)4096)
#define LEAST_STREAMED ((size_t)1 << 16)
#define MAP_BYTES (CONV_ARCHIVE_MAP_WINDOWS * CONV_ARCHIVE_WINDOW)

// Begins with a file that is open for reading and writing, if its file system and the number of
// threads make windows worth while.
static void open_windows(struct conv_archive_windows *windows, int fd, int threads,
                         uint64_t expected)
{
    struct statfs system;
    bool pays = threads >= CONV_ARCHIVE_WINDOW_THREADS && fstatfs(fd, &system) == 0 &&
                system.f_type == TMPFS_MAGIC;
    memset(windows, 0, sizeof *windows);
    windows->fd = pays ? fd : -1;
    windows->refused = UINT64_MAX;
    windows->expected = (expected + CONV_ARCHIVE_WINDOW - 1) / CONV_ARCHIVE_WINDOW;
    windows->first = windows->next = windows->expected > 4 ? 0 : 1;
    windows->begun[0] = (uint8_t)windows->first;
    conv_lock_init(&windows->lock);
    conv_lock_init_condition(&windows->made);
}

// Unmaps everything. The file may have allocated bytes after its content.
static void close_windows(struct conv_archive_windows *windows)
{
    for (int i = 0; windows->fd >= 0 && i < CONV_ARCHIVE_MAPS; i++)
        if (windows->maps[i].at)
            munmap(windows->maps[i].at, MAP_BYTES);
    windows->fd = -1;
}

// --- making --------------------------------------------------------------------------------------

// Maps a part of the file at a multiple of the size of large pages. NULL without memory.
static uint8_t *map_aligned(int fd, off_t at)
{
    size_t room = MAP_BYTES + CONV_ARCHIVE_HUGE;
    uint8_t *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = (CONV_ARCHIVE_HUGE - (uintptr_t)all % CONV_ARCHIVE_HUGE) % CONV_ARCHIVE_HUGE;
    void *map =
        mmap(all + before, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at);
    if (map == MAP_FAILED) {
        munmap(all, room);
        return NULL;
    }
    if (before > 0)
        munmap(all, before);
    munmap(all + before + MAP_BYTES, CONV_ARCHIVE_HUGE - before);
    return map;
}

// With the lock: the address for a window. NULL without memory.
static uint8_t *place(struct conv_archive_windows *windows, uint64_t window)
    CONV_NEEDS(windows->lock)
{
    uint64_t number = window / CONV_ARCHIVE_MAP_WINDOWS;
    struct conv_archive_map *map = NULL;
    for (int i = 0; i < CONV_ARCHIVE_MAPS; i++) {
        if (windows->maps[i].at && windows->maps[i].number == number)
            return windows->maps[i].at + window % CONV_ARCHIVE_MAP_WINDOWS * CONV_ARCHIVE_WINDOW;
        if (!windows->maps[i].at)
            map = &windows->maps[i];
    }
    uint8_t *at = map ? map_aligned(windows->fd, (off_t)(number * MAP_BYTES)) : NULL;
    if (!at)
        return NULL;
    int unused = number == 0 ? (int)windows->first : 0;
    *map = (struct conv_archive_map){at, number, CONV_ARCHIVE_MAP_WINDOWS - unused};
    return at + window % CONV_ARCHIVE_MAP_WINDOWS * CONV_ARCHIVE_WINDOW;
}

// With the lock: a window is full. The map is returned once all its windows are, to be unmapped
// without the lock.
static uint8_t *end_window(struct conv_archive_windows *windows, uint64_t window)
    CONV_NEEDS(windows->lock)
{
    for (int i = 0; i < CONV_ARCHIVE_MAPS; i++) {
        struct conv_archive_map *map = &windows->maps[i];
        if (!map->at || map->number != window / CONV_ARCHIVE_MAP_WINDOWS || --map->left > 0)
            continue;
        uint8_t *at = map->at;
        map->at = NULL;
        return at;
    }
    return NULL;
}

// Allocates a window in large pages. A range without any page cannot become a large page, so one
// small page in each is allocated and touched first; a file system with large pages makes them at
// that moment. fallocate() holds the file's lock, but not while pages are filled with zeros, as
// write() would. False if that fails; nothing is lost then.
static bool allocate_huge(struct conv_archive_windows *windows, const uint8_t *map, off_t at)
{
    off_t huge = (off_t)CONV_ARCHIVE_HUGE, end = (off_t)CONV_ARCHIVE_WINDOW;
    for (off_t last = huge - SMALL_PAGE; last < end; last += huge) {
        if (fallocate(windows->fd, 0, at + last, SMALL_PAGE) != 0)
            return false;
        (void)*(const volatile uint8_t *)(map + last);
    }
    for (int attempt = 0; attempt < 2; attempt++)
        if (madvise((void *)(uintptr_t)map, CONV_ARCHIVE_WINDOW, MADV_COLLAPSE) == 0)
            return true;
        else if (errno != EAGAIN)
            break;
    if (errno == EINVAL) // no such advice, or the system makes no large pages for files
        atomic_store(&windows->has_small_pages, true);
    return false;
}

// Allocates a window. False if there is no memory, or no space in the file system: write() then
// says so if it is really full.
static bool make(struct conv_archive_windows *windows, uint8_t *map, uint64_t number)
{
    off_t at = (off_t)(number * CONV_ARCHIVE_WINDOW);
    return (!atomic_load(&windows->has_small_pages) && allocate_huge(windows, map, at)) ||
           fallocate(windows->fd, 0, at, (off_t)CONV_ARCHIVE_WINDOW) == 0;
}

// Writers may overtake each other: a later writer begins the windows that an earlier one skipped.
static void note_begun(struct conv_archive_windows *windows, uint64_t number)
    CONV_NEEDS(windows->lock)
{
    windows->begun[number / 8] |= (uint8_t)(1 << number % 8);
    if (number >= windows->next)
        windows->next = number + 1;
}

static bool is_begun(const struct conv_archive_windows *windows, uint64_t number)
    CONV_NEEDS(windows->lock)
{
    return number >= CONV_ARCHIVE_MOST_WINDOWS || windows->begun[number / 8] & 1 << number % 8;
}

// Makes a window that the caller uses. Called and left with the lock, without it in between.
static void begin(struct conv_archive_windows *windows, struct conv_archive_window *window,
                  uint64_t number) CONV_NEEDS(windows->lock)
{
    *window = (struct conv_archive_window){
        .is_used = true, .number = number, .left = CONV_ARCHIVE_WINDOW, .users = 1};
    note_begun(windows, number);
    uint8_t *map = place(windows, number);
    conv_lock_release(&windows->lock);
    bool made = map && make(windows, map, number);
    conv_lock_acquire(&windows->lock);
    window->map = made ? map : NULL;
    window->is_made = true;
    if (!made && number < windows->refused)
        windows->refused = number;
    pthread_cond_broadcast(&windows->made);
}

// --- writing -------------------------------------------------------------------------------------

static struct conv_archive_window *find(struct conv_archive_windows *windows, uint64_t number)
    CONV_NEEDS(windows->lock)
{
    for (int i = 0; i < CONV_ARCHIVE_WINDOWS; i++)
        if (windows->windows[i].is_used && windows->windows[i].number == number)
            return &windows->windows[i];
    return NULL;
}

static struct conv_archive_window *find_unused(struct conv_archive_windows *windows)
    CONV_NEEDS(windows->lock)
{
    for (int i = 0; i < CONV_ARCHIVE_WINDOWS; i++)
        if (!windows->windows[i].is_used)
            return &windows->windows[i];
    return NULL;
}

// With the lock: ends the use of a window of which `written` bytes were written. Returns a map
// whose windows are all full, to be unmapped without the lock, or NULL.
static uint8_t *end_use(struct conv_archive_windows *windows, struct conv_archive_window *window,
                        uint64_t written) CONV_NEEDS(windows->lock)
{
    window->left -= written;
    if (--window->users > 0 || (window->left > 0 && window->map))
        return NULL;
    uint8_t *unused = window->map ? end_window(windows, window->number) : NULL;
    *window = (struct conv_archive_window){0};
    return unused;
}

// The window, in use and mapped, or NULL. One that had no room in the table is written by write()
// as a whole.
static struct conv_archive_window *use(struct conv_archive_windows *windows, uint64_t number)
    CONV_NEEDS(windows->lock)
{
    struct conv_archive_window *window = number >= windows->first ? find(windows, number) : NULL;
    if (window) {
        window->users++;
        while (!window->is_made)
            (void)conv_lock_wait(&windows->lock, &windows->made, UINT64_MAX);
    } else if (!is_begun(windows, number) && number < windows->refused) {
        window = find_unused(windows);
        if (window)
            begin(windows, window, number);
        else
            note_begun(windows, number);
    }
    if (!window || window->map)
        return window;
    (void)end_use(windows, window, 0);
    return NULL;
}

// With the lock: makes one of the windows that follow if it is time.
static void look_ahead(struct conv_archive_windows *windows, uint64_t number)
    CONV_NEEDS(windows->lock)
{
    uint64_t ahead = 1 + number / 4, next = windows->next;
    if (windows->expected > number)
        ahead = windows->expected - number - 1;
    else if (windows->expected > 0)
        ahead = 1;
    if (ahead > CONV_ARCHIVE_WINDOWS_AHEAD)
        ahead = CONV_ARCHIVE_WINDOWS_AHEAD;
    struct conv_archive_window *window = find_unused(windows);
    if (!window || number < windows->first || next > number + ahead || next >= windows->refused ||
        is_begun(windows, next))
        return;
    begin(windows, window, next);
    (void)end_use(windows, window, 0);
}

// Copies without reading the destination first, and without displacing the contents of the caches,
// since nothing reads the copy soon. 16 threads, one file: 35 GB/s, by memcpy 29.
static void copy(uint8_t *dst, const uint8_t *src, size_t size)
{
#ifdef __SSE2__
    size_t head = (64 - (uintptr_t)dst % 64) % 64;
    if (size >= LEAST_STREAMED) {
        memcpy(dst, src, head);
        dst += head;
        src += head;
        size -= head;
        for (; size >= 64; size -= 64, dst += 64, src += 64)
            for (int i = 0; i < 64; i += 16)
                _mm_stream_si128((__m128i *)(dst + i), _mm_loadu_si128((const __m128i *)(src + i)));
        _mm_sfence();
    }
#endif
    memcpy(dst, src, size);
}

// Copies bytes from the beginning of the data to a window, up to its end, and returns how many. 0:
// the next bytes, at most *most of them, are to be written by write(). Any thread; each byte of the
// file is written once.
static size_t write_window(struct conv_archive_windows *windows, uint64_t offset,
                           const uint8_t *data, size_t size, size_t *most)
{
    uint64_t number = offset / CONV_ARCHIVE_WINDOW, at = offset % CONV_ARCHIVE_WINDOW;
    uint64_t room = CONV_ARCHIVE_WINDOW - at;
    *most = size;
    if (windows->fd < 0)
        return 0;
    *most = size < room ? size : (size_t)room;
    conv_lock_acquire(&windows->lock);
    struct conv_archive_window *window = use(windows, number);
    conv_lock_release(&windows->lock);
    if (!window)
        return 0;
    copy(window->map + at, data, *most);
    conv_lock_acquire(&windows->lock);
    uint8_t *full = end_use(windows, window, *most);
    look_ahead(windows, number);
    conv_lock_release(&windows->lock);
    if (full)
        munmap(full, MAP_BYTES);
    return *most;
}

// --- outputs -------------------------------------------------------------------------------------

enum conv_status conv_archive_output_open(struct conv_archive_output *output, const char *path,
                                          int threads, uint64_t expected, bool force,
                                          const atomic_int *stop, struct conv_err *err)
{
    output->windows.fd = -1;
    output->at = 0;
    enum conv_status status = conv_temporary_open(&output->file, path, force, stop, err);
    if (!status && !output->file.is_stream)
        open_windows(&output->windows, output->file.fd, threads, expected);
    return status;
}

enum conv_status conv_archive_output_write(struct conv_archive_output *output, const void *data,
                                           size_t size, struct conv_err *err)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    enum conv_status status = output->file.is_stream
                                  ? conv_temporary_write(&output->file, data, size, err)
                                  : conv_archive_output_write_at(output, output->at, &part, 1, err);
    output->at += size;
    return status;
}

enum conv_status conv_archive_output_write_at(struct conv_archive_output *output, uint64_t offset,
                                              struct iovec *parts, int count, struct conv_err *err)
{
    ssize_t written = 0;
    while (conv_temporary_skip(&parts, &count, (size_t)written)) {
        size_t most;
        written =
            (ssize_t)write_window(&output->windows, offset, parts->iov_base, parts->iov_len, &most);
        if (written == 0 && most < parts->iov_len) // the rest may go to a window
            written = pwrite(output->file.fd, parts->iov_base, most, (off_t)offset);
        else if (written == 0)
            written =
                pwritev(output->file.fd, parts, output->windows.fd < 0 ? count : 1, (off_t)offset);
        if (written < 0 && errno != EINTR)
            return conv_err_errno(err, errno, "cannot write %s", output->file.path);
        written = written < 0 ? 0 : written;
        offset += (uint64_t)written;
    }
    return CONV_OK;
}

enum conv_status conv_archive_output_settle(struct conv_archive_output *output,
                                            struct conv_err *err)
{
    if (output->windows.fd < 0)
        return CONV_OK;
    close_windows(&output->windows);
    return TEMP_FAILURE_RETRY(ftruncate(output->file.fd, (off_t)output->at)) != 0
               ? conv_err_errno(err, errno, "cannot write %s", output->file.path)
               : CONV_OK;
}

enum conv_status conv_archive_output_close(struct conv_archive_output *output, bool keep,
                                           bool fsync, struct conv_err *err)
{
    close_windows(&output->windows); // still open after a failure only
    return output->file.fd < 0 ? CONV_OK : conv_temporary_close(&output->file, keep, fsync, err);
}
