// SPDX-License-Identifier: MIT
// Writes without ever waiting out of reach of a signal.
#include "io/files/special.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"

#define POLL_MS 50
#define LAST_POLLS                                                                                 \
    10 // after a stop, a reader that takes nothing for half a second is not waited for

// False if the run is to stop and nothing can be written.
static bool wait_writable(int fd, const atomic_int *stop)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    for (int polls = 0;;) {
        int ready = poll(&wait, 1, POLL_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true; // write() gives the reason of an error
        polls += ready == 0;
        if (polls >= LAST_POLLS && atomic_load(stop))
            return false;
    }
}

// Opening a pipe for writing would wait for its reader, out of reach of a signal. -1 with errno:
// EINTR if *stop became non-zero meanwhile.
static int open_other(const char *path, const atomic_int *stop)
{
    for (;;) {
        struct stat info;
        int fd = conv_paths_open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        if (stat(path, &info) != 0 || !S_ISFIFO(info.st_mode)) {
            errno = ENXIO; // a socket, or a device without a driver
            return -1;
        }
        if (atomic_load(stop)) {
            errno = EINTR;
            return -1;
        }
        poll(NULL, 0, POLL_MS);
    }
}

int conv_special_open(const char *path, const atomic_int *stop, bool *owns, struct conv_err *err)
{
    int own = conv_paths_is_standard(path) ? STDOUT_FILENO : conv_paths_descriptor(path);
    if (own == STDOUT_FILENO && conv_standard_is_closed(STDOUT_FILENO)) {
        conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
        return -1;
    }
    int fd = own >= 0 ? own : open_other(path, stop);
    *owns = own < 0 && fd >= 0;
    if (fd < 0 && errno == EINTR)
        conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for the reader of %s", path);
    else if (fd < 0)
        conv_err_errno(err, errno, "cannot open %s", path);
    return fd;
}

// A pipe that is writable takes PIPE_BUF bytes without making a write wait; more could wait for a
// reader, with or without O_NONBLOCK, which other processes share. Files and disks take any amount.
static size_t most_at_once(int fd)
{
    struct stat info;
    bool may_wait = fstat(fd, &info) != 0 || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
                    S_ISCHR(info.st_mode);
    return may_wait ? PIPE_BUF : SSIZE_MAX;
}

static enum conv_status write_all(int fd, const uint8_t *data, size_t size, size_t most,
                                  const atomic_int *stop, const char *name, struct conv_err *err)
{
    while (size > 0) {
        if (!wait_writable(fd, stop))
            return conv_err_set(err, CONV_ERR_CANCELLED,
                                "stopped while waiting for the reader of %s", name);
        ssize_t written = write(fd, data, size < most ? size : most);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (written < 0)
            return conv_err_errno(err, errno, "cannot write to %s", name);
        data += written;
        size -= (size_t)written;
    }
    return CONV_OK;
}

enum conv_status conv_special_write_to(int fd, const char *name, const struct conv_encoded *file,
                                       const atomic_int *stop, struct conv_err *err)
{
    size_t most = most_at_once(fd);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < CONV_ENCODED_PARTS && !status; i++)
        status = write_all(fd, file->part[i].data, file->part[i].size, most, stop, name, err);
    return status;
}

enum conv_status conv_special_write(const char *path, const struct conv_encoded *file,
                                    const atomic_int *stop, struct conv_err *err)
{
    bool owns;
    int fd = conv_special_open(path, stop, &owns, err);
    if (fd < 0)
        return err->status;
    enum conv_status status = conv_special_write_to(fd, path, file, stop, err);
    if (owns && close(fd) != 0 && errno != EINTR && !status)
        status = conv_err_errno(err, errno, "cannot write to %s", path);
    return status;
}

// --- standard output -----------------------------------------------------------------------------

// On standard output nothing can be looked up, checked or undone.

struct standard_sink {
    struct conv_sink sink;
    const atomic_int *stop;
};

static enum conv_status place(const struct conv_sink *sink, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    (void)sink;
    (void)item;
    (void)err;
    strcpy(output->path, "-");
    return CONV_OK;
}

static enum conv_status write_output(struct conv_sink *sink, int worker,
                                     const struct conv_item *item, const struct stat *input,
                                     const struct conv_output *output,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    (void)worker;
    (void)item;
    (void)input;
    (void)output;
    *result = CONV_SINK_WRITTEN;
    if (conv_standard_is_closed(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
    const struct standard_sink *standard = (const struct standard_sink *)sink;
    return conv_special_write_to(STDOUT_FILENO, "standard output", file, standard->stop, err);
}

static enum conv_status finish(struct conv_sink *sink, struct conv_err *err)
{
    (void)err;
    free(sink);
    return CONV_OK;
}

enum conv_status conv_standard_sink_open(struct conv_sink **out,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .place = place,
        .write = write_output,
        .finish = finish,
    };
    struct standard_sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the output");
    sink->sink.ops = &ops;
    sink->stop = config->stop;
    *out = &sink->sink;
    return CONV_OK;
}
