// SPDX-License-Identifier: MIT
// Items that are files, pipes or devices with a path, and standard input.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/parallel.h"
#include "base/standard.h"
#include "io/files/formats.h"
#include "io/files/paths.h"
#include "io/source.h"

// Bytes fetched ahead of each file: together a bounded part of the page cache.
#define AHEAD_BYTES ((size_t)4 << 20)
#define RETRY_MS 20
#define PIECE_BYTES ((size_t)1 << 20) // that a thread reads at a time

const char *conv_item_target(const struct conv_item *item)
{
    return item->name + item->target;
}

size_t conv_item_extension_at(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    return dot && dot > (slash ? slash + 1 : path) ? (size_t)(dot - path) : strlen(path);
}

// Puts the output's name after the item's: the stem of `from`, and what follows it.
static enum conv_status set_target(struct conv_item *item, const char *from, const char *suffix,
                                   const char *extension, struct conv_err *err)
{
    char target[PATH_MAX];
    size_t name = strlen(item->name) + 1, stem = conv_item_extension_at(from);
    int length = snprintf(target, sizeof target, "%.*s%s%s", (int)stem, from, suffix, extension);
    if (length < 0 || (size_t)length >= sizeof item->name - name)
        return conv_err_limit(err, "path too long");
    memcpy(item->name + name, target, (size_t)length + 1);
    item->target = name;
    return CONV_OK;
}

enum conv_status conv_item_set_target(struct conv_item *item, const char *suffix, bool beside,
                                      struct conv_err *err)
{
    const char *from = beside ? item->name : conv_item_target(item);
    if (beside && !(suffix && *suffix)) {
        item->target = 0;
        return CONV_OK;
    }
    return set_target(item, from, suffix ? suffix : "", from + conv_item_extension_at(from), err);
}

enum conv_status conv_item_set_format(struct conv_item *item, const struct conv_format *format,
                                      bool npy, struct conv_err *err)
{
    const char *from = conv_item_target(item);
    if (!npy && (!format || conv_formats_of_name(from) == format))
        return CONV_OK;
    return set_target(item, from, "", npy ? ".npy" : format->extension, err);
}

bool conv_item_has_suffix(const struct conv_item *item, const char *suffix)
{
    size_t stem = conv_item_extension_at(item->name), length = strlen(suffix);
    return stem >= length && strncmp(item->name + stem - length, suffix, length) == 0;
}

// Without O_NONBLOCK, opening a pipe without a writer would block, out of reach of a signal.
static int open_path(const struct conv_item *item)
{
    int no_links = item->in_place ? O_NOFOLLOW : 0;
    return conv_paths_open(item->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | no_links);
}

static bool identify_file(const struct conv_item *item, struct stat *info)
{
    return (item->in_place ? lstat(item->name, info) : stat(item->name, info)) == 0;
}

static void announce_file(const struct conv_item *item, struct conv_input *input)
{
    input->info.st_mode = 0;
    bool ahead = conv_descriptors_try_ahead();
    if (ahead) {
        input->fd = open_path(item);
        input->is_announced = input->fd >= 0;
        if (!input->is_announced) {
            conv_descriptors_end_ahead();
            return;
        }
        input->counted = CONV_INPUT_AHEAD;
        (void)posix_fadvise(input->fd, 0, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    }
    if ((ahead ? fstat(input->fd, &input->info) : stat(item->name, &input->info)) != 0)
        input->info.st_mode = 0;
}

static void close_file(struct conv_input *input)
{
    if (input->fd >= 0 && input->counted != CONV_INPUT_UNCOUNTED)
        close(input->fd);
    if (input->counted == CONV_INPUT_AHEAD)
        conv_descriptors_end_ahead();
    else if (input->counted == CONV_INPUT_TAKEN)
        conv_descriptors_give(1);
    else if (input->counted == CONV_INPUT_KEPT)
        conv_descriptors_keep(-1);
    input->counted = CONV_INPUT_UNCOUNTED;
    input->is_announced = false;
    input->fd = -1;
}

static enum conv_status check_file(const struct conv_item *item, struct conv_input *input,
                                   struct conv_err *err)
{
    if (input->fd < 0 && errno == ELOOP && item->in_place)
        return conv_source_refuse_link(err);
    if (input->fd < 0)
        return conv_err_errno(err, errno, "cannot open");
    if (fstat(input->fd, &input->info) != 0)
        return conv_err_errno(err, errno, "cannot stat");
    if (S_ISDIR(input->info.st_mode))
        return conv_err_format(err, "is a folder, not an image");
    if (!S_ISREG(input->info.st_mode) && (!item->is_named || item->in_place))
        return conv_err_format(err, "is not a regular file");
    return CONV_OK;
}

static enum conv_status open_file(const struct conv_item *item, struct conv_input *input,
                                  struct conv_err *err)
{
    if (!input->is_announced) {
        conv_descriptors_take(1);
        input->counted = CONV_INPUT_TAKEN;
        input->fd = open_path(item);
    }
    input->info.st_mode = 0;
    input->is_announced = false;
    enum conv_status status = check_file(item, input, err);
    if (status)
        close_file(input);
    else if (conv_input_is_file(input) && (uint64_t)input->info.st_size > AHEAD_BYTES)
        (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return status;
}

static ssize_t read_file(struct conv_input *input, void *data, size_t size, struct conv_err *err)
{
    ssize_t got = read(input->fd, data, size);
    if (got >= 0)
        return got;
    if (errno == EINTR)
        return CONV_INPUT_LATER;
    // Files of /proc and /sys appear to be regular, and reading some of them waits: /proc/kmsg.
    if (errno == EAGAIN && conv_input_is_file(input)) {
        conv_err_set(err, CONV_ERR_IO,
                     "has no data yet; only a pipe named on the command line is waited for");
        return -1;
    }
    if (errno == EAGAIN) {
        poll(NULL, 0, RETRY_MS); // another reader was faster, or the device cannot be polled
        return CONV_INPUT_LATER;
    }
    conv_err_errno(err, errno, "cannot read");
    return -1;
}

// --- one file by several threads -----------------------------------------------------------------

struct shared_read {
    int fd;
    uint8_t *data;
    size_t size;
    off_t offset; // of `data` in the file
    atomic_int *stop;
    atomic_size_t next; // the first byte that no thread has taken
    atomic_bool failed;
};

static bool read_piece(struct shared_read *shared, size_t from, size_t to)
{
    while (from < to) {
        ssize_t got =
            pread(shared->fd, shared->data + from, to - from, shared->offset + (off_t)from);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        if (conv_cancel_is_asked(shared->stop))
            return false;
        from += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static void read_pieces(void *context)
{
    struct shared_read *shared = context;
    while (!atomic_load(&shared->failed)) {
        size_t from = atomic_fetch_add(&shared->next, PIECE_BYTES), to = from + PIECE_BYTES;
        if (from >= shared->size)
            return;
        if (!read_piece(shared, from, to < shared->size ? to : shared->size))
            atomic_store(&shared->failed, true);
    }
}

// Copying from the page cache takes one core as long as 16 cores take to filter what was read.
static bool read_file_shared(struct conv_input *input, void *data, size_t size,
                             struct conv_parallel *parallel, atomic_int *stop)
{
    off_t offset = lseek(input->fd, 0, SEEK_CUR);
    if (offset < 0)
        return false;
    struct shared_read shared = {
        .fd = input->fd, .data = data, .size = size, .offset = offset, .stop = stop};
    conv_parallel_run(parallel, 0, read_pieces, &shared);
    return !atomic_load(&shared.failed) && lseek(input->fd, offset + (off_t)size, SEEK_SET) >= 0;
}

static enum conv_status check_unchanged(const struct conv_input *input, struct conv_err *err)
{
    struct stat now;
    if (fstat(input->fd, &now) != 0)
        return conv_err_errno(err, errno, "cannot stat");
    if (S_ISREG(now.st_mode) && !conv_paths_is_unchanged(&input->info, &now))
        return conv_err_set(err, CONV_ERR_IO, "changed while it was read");
    return CONV_OK;
}

static bool is_replaced(const struct conv_item *item, const struct conv_input *input, bool *gone)
{
    return item->watched && conv_watched_is_changing(item, &input->info, gone);
}

static enum conv_status open_standard(const struct conv_item *item, struct conv_input *input,
                                      struct conv_err *err)
{
    input->info.st_mode = 0;
    if (conv_standard_is_closed(STDIN_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot read: it is closed");
    input->counted = CONV_INPUT_UNCOUNTED;
    input->fd = STDIN_FILENO;
    input->stream = item->stream;
    return check_file(item, input, err);
}

static ssize_t read_standard(struct conv_input *input, void *data, size_t size,
                             struct conv_err *err)
{
    return input->stream ? conv_input_take_peeked(input, data, size, err)
                         : read_file(input, data, size, err);
}

const struct conv_item_ops conv_item_file = {
    .is_file = true,
    .identify = identify_file,
    .announce = announce_file,
    .open = open_file,
    .read = read_file,
    .read_shared = read_file_shared,
    .unchanged = check_unchanged,
    .is_replaced = is_replaced,
    .close = close_file,
};

const struct conv_item_ops conv_item_standard = {
    .title = "standard input",
    .open = open_standard,
    .read = read_standard,
    .has_bytes = conv_input_has_peeked,
    .unchanged = check_unchanged,
    .close = close_file,
};

void conv_input_keep(struct conv_input *input)
{
    if (input->counted != CONV_INPUT_TAKEN)
        return;
    conv_descriptors_give(1);
    conv_descriptors_keep(1);
    input->counted = CONV_INPUT_KEPT;
}
