// SPDX-License-Identifier: MIT
// Reads are large and begin at multiples of their size, as long as a pipe fills them.
#include "io/archive/archive_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/parallel.h"
#include "base/standard.h"
#include "io/archive/unpack.h"
#include "io/files/paths.h"
#include "io/source.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 // Linux 5.14
#endif

#define BUFFER_BYTES ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define LOOK_MOST ((size_t)256 << 20) // of bytes that are looked at, by default
#define KEEP_BYTES ((size_t)32 << 20) // of a buffer that has grown

// For a mapped archive: how much the disk fetches ahead, how much stays in this process's memory,
// and how much it must be for either to be worth a call.
#define AHEAD_BYTES ((uint64_t)32 << 20)
#define KEPT_BYTES ((uint64_t)64 << 20)
#define STEP_BYTES ((uint64_t)16 << 20)

_Static_assert(CONV_ARCHIVE_INPUT_PEEK <= BUFFER_BYTES, "what is peeked at fits into the buffer");

static bool map_file(struct conv_archive_input *input)
{
    off_t at = lseek(input->fd, 0, SEEK_CUR);
    if (!S_ISREG(input->info.st_mode) || input->info.st_size <= 0 || at < 0 ||
        at > input->info.st_size || (uint64_t)input->info.st_size > SIZE_MAX)
        return false;
    void *map = mmap(NULL, (size_t)input->info.st_size, PROT_READ, MAP_SHARED, input->fd, 0);
    if (map == MAP_FAILED) // too little address space: it is read like a pipe
        return false;
    input->map = map;
    input->size = (uint64_t)input->info.st_size;
    input->at = (uint64_t)at; // of a standard input that another program has begun to read
    (void)madvise(map, (size_t)input->size, MADV_SEQUENTIAL);
    return true;
}

static enum conv_status make_buffer(struct conv_archive_input *input, struct conv_err *err)
{
    input->buffer = aligned_alloc(PAGE, BUFFER_BYTES);
    input->capacity = BUFFER_BYTES;
    return input->buffer ? CONV_OK : conv_err_memory(err, "no memory to read an archive");
}

enum conv_status conv_archive_input_open(struct conv_archive_input *input, const char *path,
                                         bool may_map, atomic_int *stop, struct conv_err *err)
{
    bool standard = path[0] == '-' && path[1] == '\0';
    *input = (struct conv_archive_input){.fd = -1, .stop = stop, .owns_fd = !standard};
    if (standard && conv_standard_is_closed(STDIN_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot read: it is closed");
    // Without O_NONBLOCK, opening a pipe without a writer would block, out of reach of a signal.
    input->fd = standard ? STDIN_FILENO : conv_paths_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (input->fd < 0)
        return conv_err_errno(err, errno, "cannot open");
    enum conv_status status = CONV_OK;
    if (fstat(input->fd, &input->info) != 0)
        status = conv_err_errno(err, errno, "cannot stat");
    else if (S_ISDIR(input->info.st_mode))
        status = conv_err_format(err, "is a folder, not an archive");
    if (!status && !(may_map && map_file(input))) {
        status = make_buffer(input, err);
#ifdef F_SETPIPE_SZ
        if (S_ISFIFO(input->info.st_mode)) // fewer switches between its two ends
            (void)fcntl(input->fd, F_SETPIPE_SZ, (int)BUFFER_BYTES);
#endif
    }
    if (status)
        conv_archive_input_close(input);
    return status;
}

void conv_archive_input_open_bytes(struct conv_archive_input *input, const uint8_t *data,
                                   size_t size)
{
    static const uint8_t nothing[1];
    *input = (struct conv_archive_input){.fd = -1, .map = size ? data : nothing, .size = size};
}

enum conv_status conv_archive_input_open_unpacked(struct conv_archive_input *input,
                                                  struct conv_unpack *unpack, struct conv_err *err)
{
    *input = (struct conv_archive_input){.fd = -1, .unpack = unpack};
    return make_buffer(input, err);
}

uint64_t conv_archive_input_stored(const struct conv_archive_input *input)
{
    return input->unpack ? conv_unpack_stored(input->unpack) : input->map ? input->size : input->at;
}

void conv_archive_input_close(struct conv_archive_input *input)
{
    if (input->map && input->fd >= 0)
        munmap((void *)(uintptr_t)input->map, (size_t)input->size);
    if (input->owns_fd && input->fd >= 0)
        close(input->fd);
    free(input->buffer);
    *input = (struct conv_archive_input){.fd = -1};
}

// --- reading -------------------------------------------------------------------------------------

// One read of at most `size` bytes.
static ssize_t read_some(struct conv_archive_input *input, void *data, size_t size,
                         struct conv_err *err)
{
    bool regular = S_ISREG(input->info.st_mode);
    if (input->unpack) {
        ssize_t got = conv_unpack_read(input->unpack, data, size, err);
        input->over = got == 0;
        return got;
    }
    for (;;) {
        if (!regular && !conv_paths_wait_readable(input->fd, input->stop)) {
            conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for input");
            return -1;
        }
        if (conv_cancel_is_asked(input->stop)) {
            conv_err_cancelled(err);
            return -1;
        }
        ssize_t got = read(input->fd, data, size);
        if (got >= 0) {
            input->over = got == 0;
            return got;
        }
        if (errno != EINTR && (errno != EAGAIN || regular)) {
            conv_err_errno(err, errno, "cannot read");
            return -1;
        }
    }
}

// Makes room for `least` bytes from the first one on. False: out of memory.
static bool make_room(struct conv_archive_input *input, size_t least)
{
    size_t held = input->end - input->first, capacity = BUFFER_BYTES;
    uint8_t *from = input->buffer + input->first, *to = input->buffer;
    while (capacity < least)
        capacity *= 2;
    bool grows = capacity > input->capacity;
    bool shrinks = held == 0 && input->capacity > KEEP_BYTES && capacity < input->capacity;
    if ((grows || shrinks) && !(to = aligned_alloc(PAGE, capacity)))
        return false;
    memmove(to, from, held);
    if (to != input->buffer) {
        free(input->buffer);
        input->buffer = to;
        input->capacity = capacity;
    }
    input->first = 0;
    input->end = held;
    return true;
}

// Reads until the buffer holds `least` bytes or the input ends. False with *err.
static bool fill(struct conv_archive_input *input, size_t least, struct conv_err *err)
{
    if (input->end - input->first < least && !input->over && !make_room(input, least)) {
        conv_err_memory(err, "no memory for %zu bytes", least);
        return false;
    }
    while (!input->over && input->end - input->first < least) {
        size_t room = input->capacity - input->end, lacks = least - (input->end - input->first);
        size_t step = input->step > lacks ? input->step : lacks;
        ssize_t got = read_some(input, input->buffer + input->end,
                                input->step && step < room ? step : room, err);
        if (got < 0)
            return false;
        input->end += (size_t)got;
    }
    return true;
}

// Points *data at the buffered bytes, at most `most`.
static ssize_t point(struct conv_archive_input *input, const uint8_t **data, size_t most)
{
    uint64_t left = input->map ? input->size - input->at : input->end - input->first;
    *data = input->map ? input->map + input->at : input->buffer + input->first;
    if (most > SSIZE_MAX)
        most = SSIZE_MAX;
    return (ssize_t)(left < most ? left : most);
}

ssize_t conv_archive_input_peek(struct conv_archive_input *input, const uint8_t **data, size_t most,
                                struct conv_err *err)
{
    if (!input->map && !fill(input, most, err))
        return -1;
    ssize_t count = point(input, data, most);
    if (input->map && conv_archive_input_touch(input, *data, (size_t)count, err))
        return -1;
    return count;
}

ssize_t conv_archive_input_look(struct conv_archive_input *input, const uint8_t **data,
                                uint64_t least, struct conv_err *err)
{
    size_t most = input->most ? input->most : LOOK_MOST;
    if (least > most) {
        conv_err_advise(err, CONV_ERR_LIMIT, CONV_HINT_MEM_LIMIT_FILE,
                        "the image is larger than the memory for it");
        return -1;
    }
    return fill(input, (size_t)least, err) ? point(input, data, SIZE_MAX) : -1;
}

ssize_t conv_archive_input_take(struct conv_archive_input *input, const uint8_t **data, size_t most,
                                struct conv_err *err)
{
    if (!input->map && input->first == input->end && !fill(input, 1, err))
        return -1;
    ssize_t count = point(input, data, most);
    input->at += (size_t)count;
    input->first += input->map ? 0 : (size_t)count;
    return count;
}

ssize_t conv_archive_input_read(struct conv_archive_input *input, void *data, size_t size,
                                struct conv_err *err)
{
    uint8_t *dst = data;
    size_t done = 0;
    while (done < size) {
        ssize_t got;
        // If nothing is buffered, a large read goes directly to its destination.
        size_t direct = input->step ? input->step : BUFFER_BYTES / 2;
        if (!input->map && input->first == input->end && size - done >= direct) {
            got = input->over ? 0 : read_some(input, dst + done, size - done, err);
            if (got > 0)
                input->at += (uint64_t)got;
        } else {
            const uint8_t *bytes;
            got = conv_archive_input_take(input, &bytes, size - done, err);
            if (got > 0)
                memcpy(dst + done, bytes, (size_t)got);
        }
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int64_t conv_archive_input_skip(struct conv_archive_input *input, uint64_t count,
                                struct conv_err *err)
{
    uint64_t done = 0;
    while (done < count) {
        const uint8_t *bytes;
        uint64_t left = count - done;
        ssize_t got = conv_archive_input_take(input, &bytes,
                                              left < SSIZE_MAX ? (size_t)left : SSIZE_MAX, err);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

bool conv_archive_input_seek(struct conv_archive_input *input, uint64_t at)
{
    if (!input->map || at > input->size)
        return false;
    input->at = at;
    return true;
}

bool conv_archive_input_may_wait(const struct conv_archive_input *input)
{
    // A few bytes may be the beginning of a member whose rest has not arrived yet.
    if (input->map || input->over || input->end - input->first >= CONV_ARCHIVE_INPUT_PEEK ||
        S_ISREG(input->info.st_mode))
        return false;
    return !conv_paths_is_readable(input->fd);
}

enum conv_status conv_archive_input_copy(struct conv_archive_input *input, size_t most,
                                         struct conv_err *err)
{
    if (input->map || !S_ISREG(input->info.st_mode) || input->info.st_size <= 0 ||
        (uint64_t)input->info.st_size > most)
        return CONV_OK;
    size_t size = (size_t)input->info.st_size, done = 0;
    uint8_t *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return CONV_OK; // it is read in its order
    ssize_t got = 1;
    for (; done < size && got > 0; done += got > 0 ? (size_t)got : 0)
        got = read_some(input, copy + done, size - done < AHEAD_BYTES ? size - done : AHEAD_BYTES,
                        err);
    if (done < size) {
        munmap(copy, size);
        return got < 0 ? err->status
                       : conv_err_set(err, CONV_ERR_IO, "cannot read: it has become shorter");
    }
    free(input->buffer);
    input->buffer = NULL;
    input->map = copy;
    input->size = size;
    input->is_copy = true;
    return CONV_OK;
}

// --- the map -------------------------------------------------------------------------------------

enum conv_status conv_archive_input_touch(const struct conv_archive_input *input,
                                          const uint8_t *data, size_t size, struct conv_err *err)
{
    if (input->fd < 0 || input->is_copy || size == 0)
        return CONV_OK;
    uintptr_t first = (uintptr_t)data & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = (uintptr_t)data + size;
    if (madvise((void *)first, end - first, MADV_POPULATE_READ) == 0 || errno == EINVAL)
        return CONV_OK; // EINVAL: an older kernel
    if (errno == EFAULT || errno == EIO)
        return conv_err_set(err, CONV_ERR_IO,
                            "cannot read: the archive has become shorter, or the disk fails");
    return CONV_OK;
}

void conv_archive_input_advance(struct conv_archive_input *input)
{
    if (!input->map || input->fd < 0 || input->is_copy ||
        input->at < input->forgotten + KEPT_BYTES + STEP_BYTES)
        return;
    uint64_t end = (input->at - KEPT_BYTES) & ~(uint64_t)(PAGE - 1);
    uint8_t *map = (uint8_t *)(uintptr_t)input->map;
    (void)madvise(map + input->forgotten, (size_t)(end - input->forgotten), MADV_DONTNEED);
    (void)posix_fadvise(input->fd, (off_t)input->at, (off_t)AHEAD_BYTES, POSIX_FADV_WILLNEED);
    input->forgotten = end;
}

// --- standard input as an item -------------------------------------------------------------------

ssize_t conv_input_take_peeked(struct conv_input *input, void *data, size_t size,
                               struct conv_err *err)
{
    const uint8_t *bytes;
    ssize_t got = conv_archive_input_take(input->stream, &bytes, size, err);
    if (got > 0)
        memcpy(data, bytes, (size_t)got);
    return got;
}

bool conv_input_has_peeked(const struct conv_input *input)
{
    return input->stream && input->stream->first < input->stream->end;
}
