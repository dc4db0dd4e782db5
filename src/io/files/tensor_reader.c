// SPDX-License-Identifier: MIT
// A .npy file in parts.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/standard.h"
#include "io/files/paths.h"
#include "io/files/tensor_file.h"
#include "io/walk/operands.h"

// The next bytes of a pipe; *got is less than size only at its end.
static enum conv_status read_next(const struct conv_tensor_reader *reader, void *data, size_t size,
                                  size_t *got, struct conv_err *err)
{
    for (*got = 0; *got < size;) {
        if (!conv_paths_wait_readable(reader->fd, reader->stop))
            return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
        ssize_t count = read(reader->fd, (uint8_t *)data + *got, size - *got);
        if (count < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (count < 0)
            return conv_err_errno(err, errno, "cannot read");
        if (count == 0)
            break;
        *got += (size_t)count;
    }
    return CONV_OK;
}

static enum conv_status read_at(const struct conv_tensor_reader *reader, void *data, size_t size,
                                uint64_t offset, struct conv_err *err)
{
    uint8_t *at = data;
    while (size > 0) {
        ssize_t count = pread(reader->fd, at, size, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return conv_err_errno(err, errno, "cannot read");
        if (count == 0)
            return conv_err_set(err, CONV_ERR_FORMAT, "became shorter while it was read");
        at += count;
        size -= (size_t)count;
        offset += (uint64_t)count;
    }
    return CONV_OK;
}

static enum conv_status read_header(struct conv_tensor_reader *reader, struct conv_err *err)
{
    uint8_t head[CONV_NPY_HEAD] = {0};
    size_t got, header;
    enum conv_status status = read_next(reader, head, sizeof head, &got, err);
    if (!status)
        status = conv_npy_header_bytes(head, got, &header, err);
    if (status)
        return status;
    uint8_t *bytes = malloc(header);
    if (!bytes)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a header of %zu bytes", header);
    memcpy(bytes, head, sizeof head);
    status = read_next(reader, bytes + sizeof head, header - sizeof head, &got, err);
    if (!status)
        status = conv_npy_parse(&reader->npy, bytes, sizeof head + got, err);
    free(bytes);
    return status;
}

enum conv_status conv_tensor_reader_open(struct conv_tensor_reader *reader, const char *path,
                                         atomic_int *stop, struct conv_err *err)
{
    bool is_standard = conv_operands_is_standard(path);
    *reader = (struct conv_tensor_reader){.fd = -1, .stop = stop};
    if (is_standard && conv_standard_is_closed(STDIN_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "standard input is closed");
    reader->fd = is_standard ? dup(STDIN_FILENO) : conv_paths_open(path, O_RDONLY);
    if (reader->fd < 0)
        return conv_err_errno(err, errno, "cannot open");
    enum conv_status status = CONV_OK;
    if (fstat(reader->fd, &reader->info) != 0)
        status = conv_err_errno(err, errno, "cannot stat");
    else if (S_ISDIR(reader->info.st_mode))
        status = conv_err_set(err, CONV_ERR_FORMAT, "is a folder");
    // Standard input may be a file that is read from its middle on.
    reader->is_regular = S_ISREG(reader->info.st_mode) && !is_standard;
    if (!status)
        status = read_header(reader, err);
    if (!status && reader->is_regular)
        status = conv_npy_check_size(&reader->npy, (uint64_t)reader->info.st_size, err);
    if (status)
        conv_tensor_reader_close(reader);
    return status;
}

enum conv_status conv_tensor_reader_read(struct conv_tensor_reader *reader, uint64_t first,
                                         size_t count, void *data, struct conv_err *err)
{
    size_t size = count * reader->npy.file_element, got;
    uint64_t offset = first * reader->npy.file_element;
    if (reader->is_regular)
        return read_at(reader, data, size, reader->npy.header + offset, err);
    enum conv_status status = read_next(reader, data, size, &got, err);
    if (status)
        return status;
    reader->at += got;
    return got == size
               ? CONV_OK
               : conv_err_set(err, CONV_ERR_FORMAT,
                              "ends after %" PRIu64 " of %" PRIu64 " bytes of data: it is cut off",
                              reader->at, reader->npy.data);
}

enum conv_status conv_tensor_reader_finish(struct conv_tensor_reader *reader, struct conv_err *err)
{
    uint8_t byte;
    size_t got;
    struct stat now;
    if (reader->is_regular) {
        if (fstat(reader->fd, &now) != 0)
            return conv_err_errno(err, errno, "cannot stat");
        return conv_paths_is_unchanged(&reader->info, &now)
                   ? CONV_OK
                   : conv_err_set(err, CONV_ERR_IO, "changed while it was read");
    }
    enum conv_status status = read_next(reader, &byte, 1, &got, err);
    if (!status && got > 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "has bytes after its last element");
    return status;
}

void conv_tensor_reader_close(struct conv_tensor_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}
