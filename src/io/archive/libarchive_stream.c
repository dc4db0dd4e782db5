// SPDX-License-Identifier: MIT
#include "io/archive/libarchive_stream.h"

#include <archive.h>
#include <errno.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/archive.h"
#include "io/archive/unpack.h"
#include "io/archive/zip.h"

#define TAKE_BYTES ((size_t)1 << 20) // from the input at once: a signal is noticed in between

// --- the bytes that the library reads ------------------------------------------------------------

// Of a zip file in a pipe, whose end is not the library's.
static void keep_tail(struct conv_libarchive_stream *stream, const uint8_t *bytes, size_t size)
{
    size_t fresh = size < CONV_ZIP_TAIL ? size : CONV_ZIP_TAIL, most = CONV_ZIP_TAIL - fresh;
    size_t old = stream->tail_size < most ? stream->tail_size : most;
    memmove(stream->tail, stream->tail + stream->tail_size - old, old);
    memcpy(stream->tail + old, bytes + size - fresh, fresh);
    stream->tail_size = old + fresh;
}

static la_ssize_t give_bytes(struct archive *archive, void *context, const void **data)
{
    struct conv_libarchive_stream *stream = context;
    const uint8_t *bytes = NULL;
    ssize_t got = conv_archive_input_take(stream->input, &bytes, TAKE_BYTES, &stream->failure);
    if (got < 0)
        archive_set_error(archive, EIO, "cannot read");
    else if (stream->tail)
        keep_tail(stream, bytes, (size_t)got);
    *data = bytes;
    return got < 0 ? ARCHIVE_FATAL : got;
}

// For mapped inputs only.
static la_int64_t skip_bytes(struct archive *archive, void *context, la_int64_t count)
{
    struct conv_archive_input *input = ((struct conv_libarchive_stream *)context)->input;
    uint64_t left = input->size - input->at, most = (uint64_t)count;
    (void)archive;
    most = most < left ? most : left;
    return conv_archive_input_seek(input, input->at + most) ? (la_int64_t)most : 0;
}

// The same.
static la_int64_t seek_bytes(struct archive *archive, void *context, la_int64_t offset, int whence)
{
    struct conv_archive_input *input = ((struct conv_libarchive_stream *)context)->input;
    int64_t from = whence == SEEK_SET ? 0 : (int64_t)(whence == SEEK_CUR ? input->at : input->size);
    int64_t at;
    (void)archive;
    if (__builtin_add_overflow(from, offset, &at) || at < 0 ||
        !conv_archive_input_seek(input, (uint64_t)at))
        return ARCHIVE_FAILED;
    return at;
}

// --- opening -------------------------------------------------------------------------------------

static int open_archive(struct conv_libarchive_stream *stream)
{
    struct archive *archive = stream->archive;
    archive_read_set_callback_data(archive, stream);
    archive_read_set_read_callback(archive, give_bytes);
    if (stream->input->map) {
        archive_read_set_skip_callback(archive, skip_bytes);
        archive_read_set_seek_callback(archive, seek_bytes);
    }
    locale_t before = conv_libarchive_stream_enter(stream);
    int result = archive_read_open1(archive);
    conv_libarchive_stream_leave(before);
    return result;
}

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

// Checks place and checksum of the directory of a 7-Zip archive, which the library does not.
static enum conv_status check_7z(struct conv_libarchive_stream *stream, struct conv_err *err)
{
    const struct conv_archive_input *input = stream->input;
    const uint8_t *map = input->map;
    enum { HEADER = 32 };
    if (input->size < HEADER)
        return conv_err_set(err, CONV_ERR_FORMAT, "the archive is truncated");
    uint64_t at = get(map + 12, 8), size = get(map + 20, 8), room = input->size - HEADER;
    if (libdeflate_crc32(0, map + 12, 20) != get(map + 8, 4))
        return conv_err_set(err, CONV_ERR_FORMAT, "the archive is damaged: its header is invalid");
    if (at > room || size > room - at)
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "the archive is truncated: its directory is missing");
    if (libdeflate_crc32(0, map + HEADER + at, (size_t)size) != get(map + 28, 4))
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "the archive is damaged: its directory is invalid");
    stream->after_7z = room - at - size;
    return CONV_OK;
}

enum conv_status conv_libarchive_stream_open(struct conv_libarchive_stream *stream,
                                             struct conv_archive_input *input, struct conv_err *err)
{
    const uint8_t *head;
    *stream = (struct conv_libarchive_stream){.input = input};
    ssize_t size = conv_archive_input_peek(input, &head, CONV_ARCHIVE_HEAD, err);
    if (size < 0)
        return err->status;
    if (!input->map && size >= 2 && memcmp(head, "7z", 2) == 0)
        return S_ISREG(input->info.st_mode)
                   ? conv_err_set(err, CONV_ERR_LIMIT,
                                  "the 7-Zip archive is larger than the memory for a copy of it")
                   : conv_err_set(err, CONV_ERR_UNSUPPORTED,
                                  "a 7-Zip archive can be read from a file only, not from a pipe: "
                                  "its directory is at its end");
    stream->archive = archive_read_new();
    if (!stream->archive)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to read an archive");
    if (!input->map)
        stream->tail = malloc(CONV_ZIP_TAIL);
    if (!input->map && !stream->tail) {
        archive_read_free(stream->archive);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to read an archive");
    }
    stream->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    enum conv_status status = CONV_OK;
    stream->is_7z = size >= 2 && memcmp(head, "7z", 2) == 0;
    if ((stream->is_7z ? archive_read_support_format_7zip(stream->archive)
                       : archive_read_support_format_zip(stream->archive)) != ARCHIVE_OK)
        status = conv_libarchive_stream_explain(
            stream, "libarchive on this machine cannot read such an archive", err);
    if (!status && stream->is_7z && input->at == 0)
        status = check_7z(stream, err);
    if (!status && open_archive(stream) != ARCHIVE_OK)
        status = conv_libarchive_stream_explain(stream,
                                                "not an archive, or damaged at its beginning", err);
    if (status)
        conv_libarchive_stream_close(stream);
    return status;
}

void conv_libarchive_stream_close(struct conv_libarchive_stream *stream)
{
    locale_t before = conv_libarchive_stream_enter(stream);
    archive_read_free(stream->archive);
    conv_libarchive_stream_leave(before);
    if (stream->locale)
        freelocale(stream->locale);
    free(stream->tail);
    *stream = (struct conv_libarchive_stream){0};
}

locale_t conv_libarchive_stream_enter(const struct conv_libarchive_stream *stream)
{
    return stream->locale ? uselocale(stream->locale) : (locale_t)0;
}

void conv_libarchive_stream_leave(locale_t before)
{
    if (before)
        uselocale(before);
}

// --- failures ------------------------------------------------------------------------------------

enum conv_status conv_libarchive_stream_explain(const struct conv_libarchive_stream *stream,
                                                const char *what, struct conv_err *err)
{
    if (stream->failure.status) {
        if (err)
            *err = stream->failure;
        return stream->failure.status;
    }
    const char *text = archive_error_string(stream->archive);
    if (archive_errno(stream->archive) == ENOMEM)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to read an archive");
    text = text ? text : "it ends too early";
    int length = (int)strcspn(text, "\n"); // some texts end in one
    return conv_err_set(err, CONV_ERR_FORMAT, "%s: %.*s", what, length, text);
}

bool conv_libarchive_stream_check(struct conv_libarchive_stream *stream, uint64_t contents)
{
    if (conv_expansion_allows(conv_archive_input_stored(stream->input), contents))
        return true;
    conv_err_set(&stream->failure, CONV_ERR_LIMIT, "%s", CONV_EXPANSION_TEXT);
    return false;
}

enum conv_status conv_libarchive_stream_finish(struct conv_libarchive_stream *stream,
                                               uint64_t members, struct conv_err *err)
{
    la_ssize_t got = 0;
    const void *data;
    do
        got = stream->tail ? give_bytes(stream->archive, stream, &data) : 0;
    while (got > 0);
    if (got < 0)
        return conv_libarchive_stream_explain(stream, "", err);
    if (stream->after_7z > 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "%" PRIu64 " bytes follow the archive",
                            stream->after_7z);
    return stream->tail ? conv_zip_check_tail(stream->tail, stream->tail_size, members, err)
                        : CONV_OK;
}
