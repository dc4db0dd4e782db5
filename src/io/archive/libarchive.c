// SPDX-License-Identifier: MIT
// A reader of zip and 7-Zip archives by libarchive.
#include "io/archive/archive.h"

#if CONV_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/archive_input.h"
#include "io/archive/unpack.h"
#include "io/archive/zip.h"

#define TAKE_BYTES ((size_t)1 << 20) // from the input at once: a signal is noticed in between

// The bytes of an archive for libarchive. It is opened for one format alone and without compressors
// around it, since each is code that reads hostile bytes.

struct stream {
    struct archive *archive;
    struct conv_archive_input *input;
    locale_t locale;   // UTF-8, in which the library converts names; 0: the system has none
    bool is_7z;        // else zip
    uint64_t after_7z; // bytes that follow the archive
    uint8_t *tail;     // the last bytes of an input that is not mapped; else NULL
    size_t tail_size;
    struct conv_err failure; // of the input, which the library cannot carry
};

// To be called around calls of the library that handle names.
static locale_t enter_locale(const struct stream *stream)
{
    return stream->locale ? uselocale(stream->locale) : (locale_t)0;
}

static void leave_locale(locale_t before)
{
    if (before)
        uselocale(before);
}

// Reports why the library's last call failed: `what` and the library's message, or the failure of
// the input.
static enum conv_status explain(const struct stream *stream, const char *what, struct conv_err *err)
{
    if (stream->failure.status) {
        if (err)
            *err = stream->failure;
        return stream->failure.status;
    }
    const char *text = archive_error_string(stream->archive);
    if (archive_errno(stream->archive) == ENOMEM)
        return conv_err_memory(err, "no memory to read an archive");
    text = text ? text : "it ends too early";
    int length = (int)strcspn(text, "\n"); // some texts end in one
    return conv_err_format(err, "%s: %.*s", what, length, text);
}

// --- the bytes that the library reads ------------------------------------------------------------

// Of a zip file in a pipe, whose end is not the library's.
static void keep_tail(struct stream *stream, const uint8_t *bytes, size_t size)
{
    size_t fresh = size < CONV_ZIP_TAIL ? size : CONV_ZIP_TAIL, most = CONV_ZIP_TAIL - fresh;
    size_t old = stream->tail_size < most ? stream->tail_size : most;
    memmove(stream->tail, stream->tail + stream->tail_size - old, old);
    memcpy(stream->tail + old, bytes + size - fresh, fresh);
    stream->tail_size = old + fresh;
}

static la_ssize_t give_bytes(struct archive *archive, void *context, const void **data)
{
    struct stream *stream = context;
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
static la_int64_t skip_bytes(struct archive *, void *context, la_int64_t count)
{
    struct conv_archive_input *input = ((struct stream *)context)->input;
    uint64_t left = input->size - input->at, most = (uint64_t)count;
    most = most < left ? most : left;
    return conv_archive_input_seek(input, input->at + most) ? (la_int64_t)most : 0;
}

// The same.
static la_int64_t seek_bytes(struct archive *, void *context, la_int64_t offset, int whence)
{
    struct conv_archive_input *input = ((struct stream *)context)->input;
    int64_t from = whence == SEEK_SET ? 0 : (int64_t)(whence == SEEK_CUR ? input->at : input->size);
    int64_t at;
    if (__builtin_add_overflow(from, offset, &at) || at < 0 ||
        !conv_archive_input_seek(input, (uint64_t)at))
        return ARCHIVE_FAILED;
    return at;
}

// --- opening -------------------------------------------------------------------------------------

static int open_archive(struct stream *stream)
{
    struct archive *archive = stream->archive;
    archive_read_set_callback_data(archive, stream);
    archive_read_set_read_callback(archive, give_bytes);
    if (stream->input->map) {
        archive_read_set_skip_callback(archive, skip_bytes);
        archive_read_set_seek_callback(archive, seek_bytes);
    }
    locale_t before = enter_locale(stream);
    int result = archive_read_open1(archive);
    leave_locale(before);
    return result;
}

// Checks place and checksum of the directory of a 7-Zip archive, which the library does not.
static enum conv_status check_7z(struct stream *stream, struct conv_err *err)
{
    const struct conv_archive_input *input = stream->input;
    const uint8_t *map = input->map;
    enum { HEADER = 32 };
    if (input->size < HEADER)
        return conv_err_format(err, "the archive is truncated");
    uint64_t at = conv_bytes_get(map + 12, 8, true), size = conv_bytes_get(map + 20, 8, true),
             room = input->size - HEADER;
    if (libdeflate_crc32(0, map + 12, 20) != conv_bytes_get(map + 8, 4, true))
        return conv_err_format(err, "the archive is damaged: its header is invalid");
    if (at > room || size > room - at)
        return conv_err_format(err, "the archive is truncated: its directory is missing");
    if (libdeflate_crc32(0, map + HEADER + at, (size_t)size) != conv_bytes_get(map + 28, 4, true))
        return conv_err_format(err, "the archive is damaged: its directory is invalid");
    stream->after_7z = room - at - size;
    return CONV_OK;
}

static void close_stream(struct stream *stream)
{
    locale_t before = enter_locale(stream);
    archive_read_free(stream->archive);
    leave_locale(before);
    if (stream->locale)
        freelocale(stream->locale);
    free(stream->tail);
    *stream = (struct stream){0};
}

// CONV_ERR_FORMAT, CONV_ERR_UNSUPPORTED, CONV_ERR_IO, CONV_ERR_MEMORY, CONV_ERR_CANCELLED; nothing
// is to be closed then. The input must outlive the stream.
static enum conv_status open_stream(struct stream *stream, struct conv_archive_input *input,
                                    struct conv_err *err)
{
    const uint8_t *head;
    *stream = (struct stream){.input = input};
    ssize_t size = conv_archive_input_peek(input, &head, CONV_ARCHIVE_HEAD, err);
    if (size < 0)
        return err->status;
    if (!input->map && size >= 2 && memcmp(head, "7z", 2) == 0)
        return S_ISREG(input->info.st_mode)
                   ? conv_err_limit(err,
                                    "the 7-Zip archive is larger than the memory for a copy of it")
                   : conv_err_unsupported(err, "a 7-Zip archive can be read from a file only, not "
                                               "from a pipe: its directory is at its end");
    stream->archive = archive_read_new();
    if (!stream->archive)
        return conv_err_memory(err, "no memory to read an archive");
    if (!input->map)
        stream->tail = malloc(CONV_ZIP_TAIL);
    if (!input->map && !stream->tail) {
        archive_read_free(stream->archive);
        return conv_err_memory(err, "no memory to read an archive");
    }
    stream->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    enum conv_status status = CONV_OK;
    stream->is_7z = size >= 2 && memcmp(head, "7z", 2) == 0;
    if ((stream->is_7z ? archive_read_support_format_7zip(stream->archive)
                       : archive_read_support_format_zip(stream->archive)) != ARCHIVE_OK)
        status = explain(stream, "libarchive on this machine cannot read such an archive", err);
    if (!status && stream->is_7z && input->at == 0)
        status = check_7z(stream, err);
    if (!status && open_archive(stream) != ARCHIVE_OK)
        status = explain(stream, "not an archive, or damaged at its beginning", err);
    if (status)
        close_stream(stream);
    return status;
}

// False if the archive has expanded too far, `contents` being the bytes of its members so far; the
// failure is set then.
static bool check_expansion(struct stream *stream, uint64_t contents)
{
    if (conv_expansion_allows(conv_archive_input_stored(stream->input), contents))
        return true;
    conv_err_limit(&stream->failure, "%s", CONV_EXPANSION_TEXT);
    return false;
}

// Checks what follows the last of `members` members. As open_stream.
static enum conv_status check_rest(struct stream *stream, uint64_t members, struct conv_err *err)
{
    la_ssize_t got = 0;
    const void *data;
    do
        got = stream->tail ? give_bytes(stream->archive, stream, &data) : 0;
    while (got > 0);
    if (got < 0)
        return explain(stream, "", err);
    if (stream->after_7z > 0)
        return conv_err_format(err, "%" PRIu64 " bytes follow the archive", stream->after_7z);
    return stream->tail ? conv_zip_check_tail(stream->tail, stream->tail_size, members, err)
                        : CONV_OK;
}

// --- the reader ----------------------------------------------------------------------------------

struct reader {
    struct conv_archive_reader base;
    struct stream stream;
    bool is_over;
    uint64_t contents; // bytes of all members so far
    uint64_t members;  // so far
    char *name;        // of the member; of a folder without its slash

    // The current member.
    bool is_open; // a file that is not read to its end
    bool has_size;
    uint64_t size, produced; // `size`: 0 unless has_size
    const uint8_t *block;    // from the library
    size_t block_left;
};

// --- content -------------------------------------------------------------------------------------

static int refuse(struct reader *reader, const char *text, struct conv_err *err)
{
    reader->is_open = false;
    conv_err_format(err, "the member is damaged: %s", text);
    return -1;
}

// Gets the library's next block. 1, 0 at the end of the member, or -1. A warning of the library
// here means that checksum or size are wrong.
static int next_block(struct reader *reader, struct conv_err *err)
{
    const void *data;
    size_t size;
    la_int64_t at;
    int result = archive_read_data_block(reader->stream.archive, &data, &size, &at);
    if (result == ARCHIVE_EOF)
        return 0;
    if (result != ARCHIVE_OK) {
        reader->is_over = result == ARCHIVE_FATAL;
        reader->is_open = false;
        explain(&reader->stream,
                reader->is_over ? "the archive is damaged" : "the member is damaged", err);
        return -1;
    }
    reader->block = data;
    reader->block_left = size;
    if (size == 0 || (at >= 0 && (uint64_t)at == reader->produced))
        return 1;
    return refuse(reader, "its parts are not in order", err);
}

// Gets the block that the next bytes are in. As next_block.
static int seek_block(struct reader *reader, struct conv_err *err)
{
    int more = 1;
    while (reader->block_left == 0 && more > 0)
        more = next_block(reader, err);
    return more;
}

// The call that returns the last bytes has also seen the end, where the library checks the member's
// checksum.
static ssize_t read_content(struct reader *reader, uint8_t *data, size_t room, struct conv_err *err)
{
    int more = seek_block(reader, err);
    if (more < 0)
        return -1;
    if (more == 0 && reader->has_size && reader->produced < reader->size)
        return refuse(reader, "it is shorter than it says", err);
    size_t count = reader->block_left < room ? reader->block_left : room;
    if (reader->has_size && count > reader->size - reader->produced)
        return refuse(reader, "it is longer than it says", err);
    if (data && count > 0)
        memcpy(data, reader->block, count);
    if (count > 0)
        reader->block += count;
    reader->block_left -= count;
    reader->produced += count;
    reader->contents += count;
    reader->is_open = count > 0;
    if (!check_expansion(&reader->stream, reader->contents)) {
        reader->is_over = true;
        explain(&reader->stream, "", err);
        return -1;
    }
    if (count > 0 && reader->has_size && reader->produced == reader->size) {
        more = seek_block(reader, err);
        reader->is_open = false;
        if (more != 0)
            return more < 0 ? -1 : refuse(reader, "it is longer than it says", err);
    }
    return (ssize_t)count;
}

static ssize_t read_member(struct conv_archive_reader *base, void *data, size_t size,
                           struct conv_err *err)
{
    struct reader *reader = (struct reader *)base;
    if (reader->is_over) {
        explain(&reader->stream, "the archive is damaged", err);
        return -1;
    }
    if (!reader->is_open || size == 0)
        return 0;
    locale_t before = enter_locale(&reader->stream);
    ssize_t got = read_content(reader, data, size, err);
    leave_locale(before);
    return got;
}

// --- members -------------------------------------------------------------------------------------

// Skips by reading, since the library would decompress the rest anyway, but without a limit.
static void skip_rest(struct reader *reader)
{
    struct conv_err ignored = {0}; // of data that the caller skips
    bool costs = reader->stream.is_7z || !reader->has_size;
    while (costs && reader->is_open && read_content(reader, NULL, SIZE_MAX >> 1, &ignored) > 0) {
    }
    reader->is_open = false;
}

static enum conv_archive_kind kind_of(struct archive_entry *entry)
{
    if (archive_entry_hardlink(entry))
        return CONV_ARCHIVE_HARDLINK;
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return CONV_ARCHIVE_FILE;
    case AE_IFDIR:
        return CONV_ARCHIVE_FOLDER;
    case AE_IFLNK:
        return CONV_ARCHIVE_SYMLINK;
    default:
        return CONV_ARCHIVE_DEVICE;
    }
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

// False without memory.
static bool name_member(struct reader *reader, struct conv_archive_member *member, const char *name)
{
    free(reader->name);
    reader->name = strdup(name);
    if (!reader->name)
        return false;
    size_t length = strlen(reader->name);
    while (member->kind == CONV_ARCHIVE_FOLDER && length > 1 && reader->name[length - 1] == '/')
        reader->name[--length] = '\0';
    member->name = reader->name;
    return true;
}

static enum conv_status take_entry(struct reader *reader, struct archive_entry *entry,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    *member = (struct conv_archive_member){.kind = kind_of(entry), .name = ""};
    bool is_file = member->kind == CONV_ARCHIVE_FILE;
    const char *link = member->kind == CONV_ARCHIVE_HARDLINK ? archive_entry_hardlink(entry)
                                                             : archive_entry_symlink(entry);
    member->link = or_empty(link);
    member->mode = (unsigned)archive_entry_perm(entry) & 07777;
    member->mtime = (struct timespec){archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
    member->uid = (uint64_t)archive_entry_uid(entry);
    member->gid = (uint64_t)archive_entry_gid(entry);
    member->uname = or_empty(archive_entry_uname(entry));
    member->gname = or_empty(archive_entry_gname(entry));
    const char *name = archive_entry_pathname(entry);
    if (!name_member(reader, member, or_empty(name)))
        return conv_err_memory(err, "no memory for the name of a member");
    int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1;
    reader->has_size = size >= 0;
    reader->size = reader->has_size ? (uint64_t)size : 0;
    member->size = is_file ? reader->size : 0;
    member->size_unknown = is_file && !reader->has_size;
    reader->is_open = is_file;
    if (is_file && archive_entry_is_encrypted(entry))
        return conv_err_unsupported(err, "the member is encrypted");
    return CONV_OK;
}

// Checks a file without bytes, whose content would otherwise not be read.
static enum conv_status check_empty(struct reader *reader, struct conv_err *err)
{
    if (!reader->is_open || !reader->has_size || reader->size > 0)
        return CONV_OK;
    int more = seek_block(reader, err);
    if (more > 0)
        refuse(reader, "it is longer than it says", err);
    reader->is_open = false;
    return more ? err->status : CONV_OK;
}

static enum conv_archive_step next_entry(struct reader *reader, struct conv_archive_member *member,
                                         struct conv_err *err)
{
    struct archive_entry *entry;
    skip_rest(reader);
    reader->block_left = 0;
    reader->produced = 0;
    if (reader->is_over) {
        explain(&reader->stream, "the archive is damaged", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    int result;
    do
        result = archive_read_next_header(reader->stream.archive, &entry);
    while (result == ARCHIVE_RETRY);
    if (result == ARCHIVE_EOF) {
        reader->is_over = true;
        return check_rest(&reader->stream, reader->members, err) ? CONV_ARCHIVE_DAMAGED
                                                                 : CONV_ARCHIVE_END;
    }
    if (result == ARCHIVE_FATAL) {
        reader->is_over = true;
        explain(&reader->stream, "the archive is damaged", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    if (!check_expansion(&reader->stream, reader->contents)) {
        reader->is_over = true;
        explain(&reader->stream, "", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    reader->members++;
    if (take_entry(reader, entry, member, err))
        return CONV_ARCHIVE_BAD;
    if (result == ARCHIVE_FAILED) {
        explain(&reader->stream, "the member cannot be read", err);
        return CONV_ARCHIVE_BAD;
    }
    return check_empty(reader, err) ? CONV_ARCHIVE_BAD : CONV_ARCHIVE_MEMBER;
}

static enum conv_archive_step next(struct conv_archive_reader *base,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    struct reader *reader = (struct reader *)base;
    *member = (struct conv_archive_member){.name = "", .link = "", .uname = "", .gname = ""};
    locale_t before = enter_locale(&reader->stream);
    enum conv_archive_step step = next_entry(reader, member, err);
    leave_locale(before);
    return step;
}

static void close_reader(struct conv_archive_reader *base)
{
    struct reader *reader = (struct reader *)base;
    close_stream(&reader->stream);
    free(reader->name);
    free(reader);
}

enum conv_status conv_libarchive_read(struct conv_archive_reader **out,
                                      struct conv_archive_input *input, struct conv_err *err)
{
    static const struct conv_archive_reader_ops ops = {
        .next = next,
        .read = read_member,
        .close = close_reader,
    };
    *out = NULL;
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return conv_err_memory(err, "no memory to read an archive");
    enum conv_status status = open_stream(&reader->stream, input, err);
    if (status) {
        free(reader);
        return status;
    }
    reader->base.ops = &ops;
    *out = &reader->base;
    return CONV_OK;
}

#else

enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *, struct conv_err *err)
{
    *reader = NULL;
    return conv_err_unsupported(
        err, "this conv was built without libarchive, which such an archive needs; it reads tar, "
             "tar.gz and ordinary zip files, and writes tar, tar.gz and zip");
}

#endif
