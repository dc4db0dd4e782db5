// SPDX-License-Identifier: MIT
// A .npy file in parts, and weights as a whole.
#include "io/files/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"
#include "tensor/element.h"
#include "tensor/tensor_formats.h"

// The next bytes of a pipe; *got is less than size only at its end.
static enum conv_status read_next(const struct conv_tensor_reader *reader, void *data, size_t size,
                                  size_t *got, struct conv_err *err)
{
    for (*got = 0; *got < size;) {
        if (!conv_paths_wait_readable(reader->fd, reader->stop))
            return conv_err_cancelled(err);
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

// `end`: what to say if the file ends before.
static enum conv_status read_at(int fd, void *data, size_t size, uint64_t offset, const char *end,
                                struct conv_err *err)
{
    uint8_t *at = data;
    while (size > 0) {
        ssize_t count = TEMP_FAILURE_RETRY(pread(fd, at, size, (off_t)offset));
        if (count < 0)
            return conv_err_errno(err, errno, "cannot read");
        if (count == 0)
            return conv_err_format(err, "%s", end);
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
        return conv_err_memory(err, "no memory for a header of %zu bytes", header);
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
    bool is_standard = conv_paths_is_standard(path);
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
        status = conv_err_format(err, "is a folder");
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
        return read_at(reader->fd, data, size, reader->npy.header + offset,
                       "became shorter while it was read", err);
    enum conv_status status = read_next(reader, data, size, &got, err);
    if (status)
        return status;
    reader->at += got;
    return got == size ? CONV_OK
                       : conv_err_format(err,
                                         "ends after %" PRIu64 " of %" PRIu64
                                         " bytes of data: it is cut off",
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
        return conv_err_format(err, "has bytes after its last element");
    return status;
}

void conv_tensor_reader_close(struct conv_tensor_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}

// --- weights -------------------------------------------------------------------------------------

// Weights: a whole tensor as float32.

#define TOO_EARLY "ends too early"
#define PART ((size_t)1 << 16) // elements that are converted at a time

void conv_tensor_free(struct conv_tensor *tensor)
{
    free(tensor->values);
    *tensor = (struct conv_tensor){0};
}

static enum conv_status reserve(struct conv_tensor *tensor, size_t most_bytes, struct conv_err *err)
{
    uint64_t bytes;
    if (!conv_tensor_shape_bytes(&tensor->shape, sizeof(float), &bytes) || bytes > most_bytes)
        return conv_err_advise(err, CONV_ERR_LIMIT, CONV_HINT_MEM_LIMIT_FILE,
                               "the tensor is larger than %zu MiB", most_bytes >> 20);
    tensor->values = malloc(bytes ? (size_t)bytes : 1);
    return tensor->values ? CONV_OK
                          : conv_err_memory(err, "no memory for %" PRIu64 " MiB", bytes >> 20);
}

static enum conv_status load_npy(struct conv_tensor *tensor, const char *path, size_t most_bytes,
                                 struct conv_err *err)
{
    struct conv_tensor_reader reader;
    enum conv_status status = conv_tensor_reader_open(&reader, path, NULL, err);
    if (status)
        return status;
    const struct conv_npy *npy = &reader.npy;
    tensor->shape = npy->shape;
    status = reserve(tensor, most_bytes, err);
    uint8_t *part = status ? NULL : malloc(PART * 8);
    if (!status && !part)
        status = conv_err_memory(err, "no memory to read a tensor");
    uint64_t total = npy->data / npy->file_element;
    for (uint64_t first = 0; first < total && !status; first += PART) {
        size_t count = total - first < PART ? (size_t)(total - first) : PART;
        status = conv_tensor_reader_read(&reader, first, count, part, err);
        if (status)
            break;
        conv_npy_convert(npy, part, part, count);
        conv_tensor_to_float(tensor->values + first, npy->element, part, count, 1);
    }
    if (!status)
        status = conv_tensor_reader_finish(&reader, err);
    free(part);
    conv_tensor_reader_close(&reader);
    return status;
}

// --- safetensors ---------------------------------------------------------------------------------

static enum conv_status find_tensor(struct conv_safetensors *found, int fd, const char *name,
                                    struct conv_err *err)
{
    uint8_t head[CONV_SAFETENSORS_HEAD];
    struct stat info;
    size_t header;
    if (fstat(fd, &info) != 0)
        return conv_err_errno(err, errno, "cannot stat");
    if (!S_ISREG(info.st_mode))
        return conv_err_unsupported(err, "is not a regular file");
    uint64_t size = (uint64_t)info.st_size;
    enum conv_status status =
        size < sizeof head ? CONV_OK : read_at(fd, head, sizeof head, 0, TOO_EARLY, err);
    if (!status)
        status = conv_safetensors_header_bytes(head, size < sizeof head ? 0 : sizeof head, size,
                                               &header, err);
    if (status)
        return status;
    char *json = malloc(header);
    if (!json)
        return conv_err_memory(err, "no memory for a header of %zu KiB", header >> 10);
    status = read_at(fd, json, header, sizeof head, TOO_EARLY, err);
    if (!status)
        status = conv_safetensors_find(found, json, header, size, name, err);
    free(json);
    return status;
}

static enum conv_status load_safetensors(struct conv_tensor *tensor, const char *path,
                                         const char *name, size_t most_bytes, struct conv_err *err)
{
    int fd = conv_paths_open(path, O_RDONLY);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot open");
    struct conv_safetensors found;
    enum conv_status status = find_tensor(&found, fd, name, err);
    if (!status) {
        tensor->shape = found.shape;
        status = reserve(tensor, most_bytes, err);
    }
    uint8_t *part = status ? NULL : malloc(PART * 4);
    if (!status && !part)
        status = conv_err_memory(err, "no memory to read a tensor");
    size_t element = status ? 1 : conv_safetensors_element(found.type);
    uint64_t total = status ? 0 : found.bytes / element;
    for (uint64_t first = 0; first < total && !status; first += PART) {
        size_t count = total - first < PART ? (size_t)(total - first) : PART;
        status = read_at(fd, part, count * element, found.offset + first * element, TOO_EARLY, err);
        if (!status)
            conv_safetensors_convert(tensor->values + first, part, found.type, count);
    }
    free(part);
    close(fd);
    return status;
}

static void prefix(struct conv_err *err, const char *path)
{
    struct conv_err inner = *err;
    conv_err_set(err, inner.status, "%s: %s", path, inner.text);
    err->hint = inner.hint;
    err->value = inner.value;
}

#define SUFFIX ".safetensors"

enum conv_status conv_tensor_load(struct conv_tensor *tensor, const char *name, size_t most_bytes,
                                  struct conv_err *err)
{
    char path[PATH_MAX];
    *tensor = (struct conv_tensor){0};
    const char *end = NULL; // of the last suffix
    for (const char *at = name; (at = strstr(at, SUFFIX)); end = at)
        at += strlen(SUFFIX);
    bool has_name = end && *end == ':' && (size_t)(end - name) < sizeof path;
    snprintf(path, sizeof path, "%.*s", has_name ? (int)(end - name) : (int)sizeof path - 1, name);
    enum conv_status status;
    if (has_name) {
        status = load_safetensors(tensor, path, end + 1, most_bytes, err);
    } else if (end && !*end) {
        // The message lists the tensors in the file.
        status = load_safetensors(tensor, path, "", most_bytes, err);
        if (status == CONV_ERR_USAGE)
            status = conv_err_usage(err, "which tensor? FILE" SUFFIX ":NAME; %s",
                                    strstr(err->text, "there ") ? strstr(err->text, "there ") : "");
    } else {
        status = load_npy(tensor, path, most_bytes, err);
    }
    if (status) {
        conv_tensor_free(tensor);
        prefix(err, path);
    }
    return status;
}

// --- writing in parts ----------------------------------------------------------------------------

// A .npy file that is written in parts and appears as a whole.

// Room for every shape of 4 axes: the header is written last if the shape is known last.
#define RESERVED_HEADER CONV_NPY_OWN_HEADER

static void remove_temporaries(struct conv_sink *sink)
{
    struct conv_tensor_writer *writer = (struct conv_tensor_writer *)sink;
    conv_temporary_remove(&writer->file.temporary);
}

static const struct conv_sink_ops sink_ops = {.remove_temporaries = remove_temporaries};

static enum conv_status write_part(struct conv_tensor_writer *writer, uint64_t offset,
                                   const void *data, size_t size, struct conv_err *err)
{
    if (writer->file.is_stream)
        return conv_temporary_write(&writer->file, data, size, err);
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t count = TEMP_FAILURE_RETRY(pwrite(writer->file.fd, at, size, (off_t)offset));
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
        return conv_err_usage(err,
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
