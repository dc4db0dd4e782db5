// SPDX-License-Identifier: MIT
// Compressed tar archives: our own tar bytes through a compressor of libarchive, which adds neither
// the time nor a name. So the same members always become the same bytes.
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>

#include "io/archive/archive_output.h"
#include "io/archive/libarchive_stream.h"
#include "io/archive/tar.h"

struct writer {
    struct conv_archive_writer base;
    struct conv_archive_output *output;
    struct archive *archive;
    struct conv_err failure;         // of the output, which the library cannot carry
    uint64_t at;                     // bytes of the tar
    struct conv_archive_frame frame; // of the member that is being written
};

static const uint8_t zeros[CONV_ARCHIVE_AFTER_MOST];

static la_ssize_t take_bytes(struct archive *archive, void *context, const void *data, size_t size)
{
    struct writer *writer = context;
    if (conv_archive_output_write(writer->output, data, size, &writer->failure) == CONV_OK)
        return (la_ssize_t)size;
    archive_set_error(archive, EIO, "cannot write");
    return -1;
}

static enum conv_status explain(struct writer *writer, struct conv_err *err)
{
    const char *text = archive_error_string(writer->archive);
    if (!writer->failure.status)
        return conv_err_set(err, CONV_ERR_IO, "cannot compress the archive: %s",
                            text ? text : "unknown cause");
    if (err)
        *err = writer->failure;
    return writer->failure.status;
}

static enum conv_status write_bytes(struct writer *writer, const void *data, size_t size,
                                    struct conv_err *err)
{
    const uint8_t *from = data;
    writer->at += size;
    while (size > 0) {
        la_ssize_t done = archive_write_data(writer->archive, from, size);
        if (done <= 0)
            return explain(writer, err);
        from += done;
        size -= (size_t)done;
    }
    return CONV_OK;
}

static enum conv_status begin(struct conv_archive_writer *base,
                              const struct conv_archive_member *member, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    enum conv_status status = conv_tar_frame(member, &writer->frame, err);
    return status ? status : write_bytes(writer, writer->frame.head, writer->frame.before, err);
}

static enum conv_status data(struct conv_archive_writer *base, const void *bytes, size_t size,
                             struct conv_err *err)
{
    return write_bytes((struct writer *)base, bytes, size, err);
}

static enum conv_status end(struct conv_archive_writer *base, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    return write_bytes(writer, zeros, writer->frame.after, err);
}

static enum conv_status append(struct conv_archive_writer *base,
                               const struct conv_archive_member *member,
                               const struct conv_encoded *content, struct conv_err *err)
{
    enum conv_status status = begin(base, member, err);
    for (int i = 0; content && i < CONV_ENCODED_PARTS && !status; i++)
        status = data(base, content->part[i].data, content->part[i].size, err);
    return status ? status : end(base, err);
}

static enum conv_status finish(struct conv_archive_writer *base, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    enum conv_status status = CONV_OK;
    for (size_t left = conv_tar_trailer(writer->at), step; left > 0 && !status; left -= step) {
        step = left < sizeof zeros ? left : sizeof zeros;
        status = write_bytes(writer, zeros, step, err);
    }
    if (!status && archive_write_close(writer->archive) != ARCHIVE_OK)
        status = explain(writer, err);
    return status;
}

static void close_writer(struct conv_archive_writer *base)
{
    struct writer *writer = (struct writer *)base;
    if (writer->archive) {
        archive_write_fail(writer->archive); // so that an unfinished archive writes nothing more
        archive_write_free(writer->archive);
    }
    free(writer);
}

// The stream is "raw": one entry without a header, whose content is the tar.
static bool begin_stream(struct writer *writer)
{
    struct archive *archive = writer->archive;
    struct archive_entry *entry = archive_entry_new();
    if (!entry)
        return false;
    archive_entry_set_filetype(entry, AE_IFREG);
    bool done = archive_write_set_format_raw(archive) == ARCHIVE_OK &&
                archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK &&
                archive_write_open(archive, writer, NULL, take_bytes, NULL) == ARCHIVE_OK &&
                archive_write_header(archive, entry) == ARCHIVE_OK;
    archive_entry_free(entry);
    return done;
}

static enum conv_status open_writer(struct conv_archive_writer **out,
                                    struct conv_archive_output *output, bool zstd,
                                    struct conv_err *err)
{
    static const struct conv_archive_writer_ops ops = {
        .append = append,
        .begin = begin,
        .data = data,
        .end = end,
        .finish = finish,
        .close = close_writer,
    };
    struct writer *writer = calloc(1, sizeof *writer);
    *out = NULL;
    if (writer)
        writer->archive = archive_write_new();
    if (!writer || !writer->archive) {
        free(writer);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to write an archive");
    }
    writer->base.ops = &ops;
    writer->output = output;
    // Images are compressed already; the fastest level shrinks the rest and does not cost much.
    struct archive *archive = writer->archive;
    bool set =
        zstd
            ? archive_write_add_filter_zstd(archive) == ARCHIVE_OK &&
                  archive_write_set_filter_option(archive, "zstd", "compression-level", "1") ==
                      ARCHIVE_OK
            : archive_write_add_filter_gzip(archive) == ARCHIVE_OK &&
                  archive_write_set_filter_option(archive, "gzip", "compression-level", "1") ==
                      ARCHIVE_OK &&
                  archive_write_set_filter_option(archive, "gzip", "timestamp", NULL) == ARCHIVE_OK;
    if (set && begin_stream(writer)) {
        *out = &writer->base;
        return CONV_OK;
    }
    enum conv_status status = explain(writer, err);
    close_writer(&writer->base);
    return status;
}

enum conv_status conv_libarchive_write_gzip(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err)
{
    return open_writer(writer, output, false, err);
}

enum conv_status conv_libarchive_write_zstd(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err)
{
    return open_writer(writer, output, true, err);
}
