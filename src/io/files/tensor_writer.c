// SPDX-License-Identifier: MIT
// A .npy file that is written in parts and appears as a whole.
#include <errno.h>
#include <unistd.h>

#include "io/files/tensor_file.h"

// Room for every shape of 4 axes: the header is written last if the shape is known last.
#define RESERVED_HEADER CONV_NPY_OWN_HEADER

static void remove_temporaries(struct conv_sink *sink)
{
    struct conv_tensor_writer *writer = (struct conv_tensor_writer *)sink;
    conv_temporary_remove(&writer->file);
}

static const struct conv_sink_ops sink_ops = {.remove_temporaries = remove_temporaries};

static enum conv_status write_part(struct conv_tensor_writer *writer, uint64_t offset,
                                   const void *data, size_t size, struct conv_err *err)
{
    if (writer->file.is_stream)
        return conv_temporary_write(&writer->file, data, size, err);
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t count = pwrite(writer->file.fd, at, size, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return conv_err_errno(err, errno, "cannot write %s", writer->file.path);
        at += count;
        size -= (size_t)count;
        offset += (uint64_t)count;
    }
    return CONV_OK;
}

enum conv_status conv_tensor_writer_open(struct conv_tensor_writer *writer, const char *path,
                                         enum conv_element element,
                                         const struct conv_tensor_shape *shape, bool reserve,
                                         const atomic_int *stop, struct conv_err *err)
{
    uint8_t header[CONV_NPY_OWN_HEADER];
    if (reserve && conv_temporary_is_stream(path))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the output %s is a pipe: how many images there will be is known at "
                            "the end only; name a file or a folder",
                            path);
    writer->sink.ops = &sink_ops;
    enum conv_status status = conv_temporary_open(&writer->file, path, writer->force, stop, err);
    writer->header = conv_npy_write(header, element, shape, reserve ? RESERVED_HEADER : 0);
    if (!status)
        status = write_part(writer, 0, header, writer->header, err);
    if (status)
        (void)conv_tensor_writer_close(writer, false, false, NULL);
    return status;
}

enum conv_status conv_tensor_writer_write(struct conv_tensor_writer *writer, uint64_t offset,
                                          const void *data, size_t size, struct conv_err *err)
{
    return write_part(writer, writer->header + offset, data, size, err);
}

enum conv_status conv_tensor_writer_set_shape(struct conv_tensor_writer *writer,
                                              enum conv_element element,
                                              const struct conv_tensor_shape *shape,
                                              struct conv_err *err)
{
    uint8_t header[CONV_NPY_OWN_HEADER];
    return write_part(writer, 0, header, conv_npy_write(header, element, shape, RESERVED_HEADER),
                      err);
}

enum conv_status conv_tensor_writer_close(struct conv_tensor_writer *writer, bool keep, bool fsync,
                                          struct conv_err *err)
{
    bool is_open = writer->sink.ops != NULL;
    writer->sink.ops = NULL;
    return is_open ? conv_temporary_close(&writer->file, keep, fsync, err) : CONV_OK;
}
