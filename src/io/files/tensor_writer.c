// SPDX-License-Identifier: MIT
// A .npy file that is written in parts and appears as a whole.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/standard.h"
#include "io/files/paths.h"
#include "io/files/special.h"
#include "io/files/tensor_file.h"

#define MOST_ATTEMPTS 100 // at an unused temporary name
// Room for every shape of 4 axes: the header is written last if the shape is known last.
#define RESERVED_HEADER CONV_NPY_OWN_HEADER

static void remove_temporaries(struct conv_sink *sink)
{
    struct conv_tensor_writer *writer = (struct conv_tensor_writer *)sink;
    if (atomic_load(&writer->has_temporary))
        unlink(writer->temporary);
}

static const struct conv_sink_ops sink_ops = {.remove_temporaries = remove_temporaries};

// The temporary file beside `path`.
static enum conv_status open_temporary(struct conv_tensor_writer *writer, struct conv_err *err)
{
    size_t folder = (size_t)(conv_paths_base(writer->path) - writer->path);
    if (folder + CONV_TEMPORARY_NAME_SIZE > sizeof writer->temporary)
        return conv_err_set(err, CONV_ERR_LIMIT, "%s: path too long", writer->path);
    enum conv_status status = conv_paths_make_parent(writer->path, err);
    if (!status)
        status = conv_access_plan(&writer->access, writer->path, writer->force, err);
    if (status)
        return status;
    memcpy(writer->temporary, writer->path, folder);
    writer->temporary[folder] = '\0';
    conv_temporary_sweep(writer->temporary);
    for (unsigned attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        conv_temporary_name(writer->temporary + folder, attempt);
        atomic_store(&writer->has_temporary, true);
        writer->fd = conv_paths_create(writer->temporary, O_WRONLY | O_CREAT | O_EXCL,
                                       conv_access_first(&writer->access));
        writer->owns_fd = writer->fd >= 0;
        if (writer->fd >= 0)
            return CONV_OK;
        atomic_store(&writer->has_temporary, false);
        if (errno != EEXIST)
            break;
    }
    return conv_err_errno(err, errno, "cannot create %s", writer->path);
}

// A pipe, a device or an open descriptor: it is written to, not replaced.
static enum conv_status open_special(struct conv_tensor_writer *writer, struct conv_err *err)
{
    int own =
        conv_paths_is_standard(writer->path) ? STDOUT_FILENO : conv_paths_descriptor(writer->path);
    writer->is_ordered = true;
    writer->fd = own >= 0 ? own : conv_special_open(writer->path, writer->stop);
    writer->owns_fd = own < 0 && writer->fd >= 0;
    if (own == STDOUT_FILENO && conv_standard_is_closed(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
    if (writer->fd < 0 && errno == EINTR)
        return conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for the reader of %s",
                            writer->path);
    return writer->fd < 0 ? conv_err_errno(err, errno, "cannot open %s", writer->path) : CONV_OK;
}

static enum conv_status write_at(struct conv_tensor_writer *writer, uint64_t offset,
                                 const void *data, size_t size, struct conv_err *err)
{
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t count = pwrite(writer->fd, at, size, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return conv_err_errno(err, errno, "cannot write %s", writer->path);
        at += count;
        size -= (size_t)count;
        offset += (uint64_t)count;
    }
    return CONV_OK;
}

static enum conv_status write_next(struct conv_tensor_writer *writer, const void *data, size_t size,
                                   struct conv_err *err)
{
    const struct conv_encoded file = {.part = {{data, size}}, .size = size};
    const char *name = conv_paths_is_standard(writer->path) ? "standard output" : writer->path;
    return conv_special_write_to(writer->fd, name, &file, writer->stop, err);
}

enum conv_status conv_tensor_writer_open(struct conv_tensor_writer *writer, const char *path,
                                         enum conv_element element,
                                         const struct conv_tensor_shape *shape, bool reserve,
                                         const atomic_int *stop, struct conv_err *err)
{
    uint8_t header[CONV_NPY_OWN_HEADER];
    struct stat info;
    writer->sink.ops = &sink_ops;
    writer->path = path;
    writer->fd = -1;
    writer->is_ordered = writer->owns_fd = false;
    writer->stop = stop;
    atomic_store(&writer->has_temporary, false);
    bool exists = stat(path, &info) == 0;
    bool is_special = conv_paths_is_standard(path) || conv_paths_descriptor(path) >= 0 ||
                      (exists && !S_ISREG(info.st_mode));
    if (exists && S_ISDIR(info.st_mode) && !conv_paths_is_standard(path))
        return conv_err_set(err, CONV_ERR_USAGE, "the output %s is a folder", path);
    if (is_special && reserve)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the output %s is a pipe: how many images there will be is known at "
                            "the end only; name a file or a folder",
                            path);
    enum conv_status status = is_special ? open_special(writer, err) : open_temporary(writer, err);
    writer->header = conv_npy_write(header, element, shape, reserve ? RESERVED_HEADER : 0);
    if (!status)
        status = is_special ? write_next(writer, header, writer->header, err)
                            : write_at(writer, 0, header, writer->header, err);
    if (status)
        (void)conv_tensor_writer_close(writer, false, false, NULL);
    return status;
}

enum conv_status conv_tensor_writer_write(struct conv_tensor_writer *writer, uint64_t offset,
                                          const void *data, size_t size, struct conv_err *err)
{
    return writer->is_ordered ? write_next(writer, data, size, err)
                              : write_at(writer, writer->header + offset, data, size, err);
}

enum conv_status conv_tensor_writer_set_shape(struct conv_tensor_writer *writer,
                                              enum conv_element element,
                                              const struct conv_tensor_shape *shape,
                                              struct conv_err *err)
{
    uint8_t header[CONV_NPY_OWN_HEADER];
    return write_at(writer, 0, header, conv_npy_write(header, element, shape, RESERVED_HEADER),
                    err);
}

static int sync_file(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

enum conv_status conv_tensor_writer_close(struct conv_tensor_writer *writer, bool keep, bool fsync,
                                          struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    bool has_temporary = atomic_load(&writer->has_temporary);
    if (!writer->sink.ops)
        return CONV_OK;
    if (has_temporary && keep)
        status = conv_access_finish(writer->fd, &writer->access, writer->path, err);
    if (keep && fsync && !status && !writer->is_ordered && sync_file(writer->fd) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", writer->path);
    if (writer->owns_fd && close(writer->fd) != 0 && errno != EINTR && keep && !status)
        status = conv_err_errno(err, errno, "cannot write %s", writer->path);
    if (has_temporary && keep && !status && rename(writer->temporary, writer->path) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", writer->path);
    if (has_temporary && (!keep || status))
        unlink(writer->temporary);
    atomic_store(&writer->has_temporary, false);
    writer->sink.ops = NULL;
    writer->fd = -1;
    return status;
}
