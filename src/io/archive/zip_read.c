// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <libdeflate.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/buffer.h"
#include "io/archive/archive_input.h"
#include "io/archive/unpack.h"
#include "io/archive/zip.h"

// --- places of entries ---------------------------------------------------------------------------

// Ranges of bytes that do not overlap, such as those of a zip file's entries. Neighbours are
// merged, so that entries without gaps between them take the memory of one.

// Starts as {0}.
struct spans {
    struct span {
        uint64_t start, end;
    } * spans; // malloc'ed, in ascending order
    size_t count;
};

// The index of the first span that ends after `at`.
static size_t find(const struct spans *spans, uint64_t at)
{
    size_t low = 0, high = spans->count;
    if (high > 0 && spans->spans[high - 1].end <= at)
        return high; // ascending, as nearly always
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans->spans[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Adds [start, end), which is not empty. *apart: false if it overlaps with an earlier one; nothing
// is added then. CONV_ERR_MEMORY.
static enum conv_status add_span(struct spans *spans, uint64_t start, uint64_t end, bool *apart,
                                 struct conv_err *err)
{
    size_t i = find(spans, start);
    *apart = i == spans->count || spans->spans[i].start >= end;
    if (!*apart)
        return CONV_OK;
    bool joins_next = i < spans->count && spans->spans[i].start == end;
    bool joins_last = i > 0 && spans->spans[i - 1].end == start;
    struct span *more = conv_array_grow(spans->spans, spans->count, sizeof *more);
    if (!more)
        return conv_err_memory(err, "no memory for the places of members");
    spans->spans = more;
    struct span *next = spans->spans + i;
    if (joins_last && joins_next) {
        next[-1].end = next->end;
        memmove(next, next + 1, (--spans->count - i) * sizeof *next);
    } else if (joins_last) {
        next[-1].end = end;
    } else if (joins_next) {
        next->start = start;
    } else {
        memmove(next + 1, next, (spans->count++ - i) * sizeof *next);
        *next = (struct span){start, end};
    }
    return CONV_OK;
}

// --- the reader ----------------------------------------------------------------------------------

#define FEED_MOST ((size_t)1 << 20) // bytes of the archive that are looked at at once

#define SHARES_BYTES "the member shares bytes of the zip file with an earlier one"

struct reader {
    struct conv_archive_reader base;
    struct conv_archive_input *input;
    struct conv_zip_file file;
    uint64_t at;       // of the next record
    uint64_t contents; // bytes of all members so far
    bool has_directory;
    uint64_t count;                    // of members so far
    struct spans spans;                // of the entries so far
    struct conv_archive_reader *other; // libarchive's, which reads the members instead; or NULL

    // The current member.
    struct conv_zip_record record;
    const uint8_t *content; // NULL: not a file, or it is not to be read any further
    uint64_t fed, produced; // bytes of the content that were taken, and made of it
    uint32_t crc;           // of those
    z_stream stream;
    bool has_stream; // is initialised
    char name[UINT16_MAX + 1];
    char link[PATH_MAX];
};

// --- content -------------------------------------------------------------------------------------

static int fail(struct reader *reader, const char *text, struct conv_err *err)
{
    reader->content = NULL;
    conv_err_format(err, "the member is damaged: %s", text);
    return -1;
}

// The next bytes of the content, read into memory first, so that a file that has become shorter
// causes an error and not a crash. -1 with *err.
static ssize_t feed(struct reader *reader, const uint8_t **data, struct conv_err *err)
{
    uint64_t left = reader->record.packed - reader->fed;
    size_t count = left < FEED_MOST ? (size_t)left : FEED_MOST;
    *data = reader->content + reader->fed;
    if (conv_archive_input_touch(reader->input, *data, count, err) == CONV_OK)
        return (ssize_t)count;
    reader->content = NULL;
    return -1;
}

static ssize_t inflate_some(struct reader *reader, void *data, size_t size, struct conv_err *err)
{
    z_stream *stream = &reader->stream;
    const uint8_t *from;
    ssize_t fed = feed(reader, &from, err);
    if (fed < 0)
        return -1;
    stream->next_in = (z_const Bytef *)(uintptr_t)from; // zlib only reads
    stream->avail_in = (uInt)fed;
    stream->next_out = data;
    stream->avail_out = (uInt)size;
    int result = inflate(stream, Z_NO_FLUSH);
    size_t made = size - stream->avail_out;
    reader->fed += (size_t)fed - stream->avail_in;
    if (result == Z_MEM_ERROR) {
        conv_err_memory(err, "no memory to decompress a member");
        return -1;
    }
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return fail(reader, "its compressed data is invalid", err);
    if (made == 0 && result != Z_STREAM_END)
        return fail(reader, "its compressed data ends too early", err);
    return (ssize_t)made;
}

static ssize_t copy_some(struct reader *reader, void *data, size_t size, struct conv_err *err)
{
    const uint8_t *from;
    ssize_t fed = feed(reader, &from, err);
    if (fed < 0)
        return -1;
    size_t count = (size_t)fed < size ? (size_t)fed : size;
    memcpy(data, from, count);
    reader->fed += count;
    return (ssize_t)count;
}

// Checks what follows the last byte of the content.
static bool check_end(struct reader *reader, struct conv_err *err)
{
    const struct conv_zip_record *record = &reader->record;
    uint8_t over;
    if (record->method == CONV_ZIP_DEFLATED) {
        ssize_t more = inflate_some(reader, &over, 1, err);
        if (more > 0)
            fail(reader, "it is longer than it says", err);
        if (more != 0)
            return false;
    }
    if (reader->fed != record->packed)
        fail(reader, "its compressed data is shorter than it says", err);
    else if (reader->crc != record->crc)
        fail(reader, "its checksum is wrong", err);
    else
        return true;
    return false;
}

// The call that returns the last bytes has checked that the member is complete.
static ssize_t read_content(struct conv_archive_reader *base, void *data, size_t size,
                            struct conv_err *err)
{
    struct reader *reader = (struct reader *)base;
    const struct conv_zip_record *record = &reader->record;
    uint64_t left = record->size - reader->produced;
    if (reader->other)
        return reader->other->ops->read(reader->other, data, size, err);
    if (!reader->content || size == 0 || left == 0)
        return 0;
    size = size < UINT_MAX ? size : UINT_MAX; // zlib's counters
    size = left < size ? (size_t)left : size;
    ssize_t got = record->method == CONV_ZIP_DEFLATED ? inflate_some(reader, data, size, err)
                                                      : copy_some(reader, data, size, err);
    if (got < 0)
        return -1;
    if (got == 0)
        return fail(reader, "it is shorter than it says", err);
    reader->crc = libdeflate_crc32(reader->crc, data, (size_t)got);
    reader->produced += (uint64_t)got;
    reader->contents += (uint64_t)got;
    if (!conv_expansion_allows(reader->input->size, reader->contents)) {
        reader->content = NULL;
        reader->at = reader->file.end;
        conv_err_limit(err, "%s", CONV_EXPANSION_TEXT);
        return -1;
    }
    return reader->produced < record->size || check_end(reader, err) ? got : -1;
}

static const uint8_t *map_content(struct conv_archive_reader *base)
{
    struct reader *reader = (struct reader *)base;
    const struct conv_zip_record *record = &reader->record;
    if (!reader->content || record->method != CONV_ZIP_STORED || record->size != record->packed ||
        reader->produced > 0 ||
        conv_archive_input_touch(reader->input, reader->content, (size_t)record->size, NULL) ||
        libdeflate_crc32(0, reader->content, (size_t)record->size) != record->crc)
        return NULL; // `read` says why
    return reader->content;
}

// --- members -------------------------------------------------------------------------------------

static enum conv_archive_kind kind_of(const struct conv_zip_record *record, bool has_slash)
{
    unsigned mode = record->mode;
    if (has_slash || S_ISDIR(mode) || ((mode & S_IFMT) == 0 && record->is_dos_folder))
        return CONV_ARCHIVE_FOLDER;
    if (S_ISLNK(mode))
        return CONV_ARCHIVE_SYMLINK;
    if (S_ISCHR(mode) || S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode))
        return CONV_ARCHIVE_DEVICE;
    return CONV_ARCHIVE_FILE;
}

// DOS, OS/2, NTFS (as PKWARE and as Info-ZIP count) and VFAT, on which a backslash separates.
static bool has_backslashes(unsigned made_by)
{
    return made_by == 0 || made_by == 6 || made_by == 10 || made_by == 11 || made_by == 14;
}

// True if the name ends in a slash, which is taken off.
static bool set_name(struct reader *reader)
{
    const struct conv_zip_record *record = &reader->record;
    size_t length = record->name_size;
    memcpy(reader->name, record->name, length);
    if (has_backslashes(record->made_by) && !memchr(reader->name, '/', length))
        for (size_t i = 0; i < length; i++)
            if (reader->name[i] == '\\')
                reader->name[i] = '/';
    bool has_slash = length > 0 && reader->name[length - 1] == '/';
    while (length > 1 && reader->name[length - 1] == '/')
        length--;
    reader->name[length] = '\0';
    return has_slash;
}

// The content of a symbolic link is its target.
static enum conv_status read_link(struct reader *reader, struct conv_err *err)
{
    ssize_t got = 0;
    size_t size = 0;
    while (size + 1 < sizeof reader->link &&
           (got = read_content(&reader->base, reader->link + size, sizeof reader->link - 1 - size,
                               err)) > 0)
        size += (size_t)got;
    reader->link[size] = '\0';
    reader->content = NULL;
    if (got >= 0 && reader->produced < reader->record.size)
        return conv_err_limit(err, "is a symbolic link whose target is too long");
    return got < 0 ? err->status : CONV_OK;
}

static enum conv_status open_member(struct reader *reader, struct conv_archive_member *member,
                                    struct conv_err *err)
{
    const struct conv_zip_record *record = &reader->record;
    bool apart, has_slash = set_name(reader);
    uint64_t end;
    const uint8_t *content;
    member->name = reader->name;
    member->kind = kind_of(record, has_slash);
    member->mode = record->mode ? record->mode & 07777 : 0644;
    if (!record->mode && member->kind == CONV_ARCHIVE_FOLDER)
        member->mode = 0755;
    member->mtime.tv_sec = record->mtime;
    if (memchr(record->name, '\0', record->name_size))
        return conv_err_format(err, "the member's name contains a NUL byte");
    if (record->flags & CONV_ZIP_IS_ENCRYPTED)
        return conv_err_unsupported(err, "the member is encrypted");
    if (record->lacks_sizes)
        return conv_err_format(err, "the member is damaged: it has no size");
    enum conv_status status = conv_zip_record_content(&reader->file, record, &content, &end, err);
    if (!status)
        status = add_span(&reader->spans, reader->file.base + record->offset, end, &apart, err);
    if (status)
        return status;
    if (!apart)
        return conv_err_format(err, "%s", SHARES_BYTES);
    reader->input->at = (uint64_t)(content - reader->file.data); // for what is kept in memory
    if (member->kind == CONV_ARCHIVE_FOLDER && record->size > 0)
        return conv_err_format(err, "is a folder, but has a content");
    if (member->kind == CONV_ARCHIVE_FILE || member->kind == CONV_ARCHIVE_SYMLINK)
        reader->content = content;
    if (record->method == CONV_ZIP_STORED && record->size != record->packed)
        return conv_err_format(err, "the member is damaged: its sizes differ");
    if (member->kind == CONV_ARCHIVE_FILE)
        member->size = record->size;
    if (record->method == CONV_ZIP_DEFLATED && inflateReset(&reader->stream) != Z_OK)
        return conv_err_memory(err, "no memory to decompress a member");
    if (member->kind == CONV_ARCHIVE_SYMLINK)
        return read_link(reader, err);
    // A content without bytes is not read.
    return reader->content && record->size == 0 && !check_end(reader, err) ? err->status : CONV_OK;
}

// After the last member: what does not fit together.
static enum conv_archive_step end_archive(const struct reader *reader, struct conv_err *err)
{
    if (!reader->file.doubt.status)
        return CONV_ARCHIVE_END;
    *err = reader->file.doubt;
    return CONV_ARCHIVE_DAMAGED;
}

// libarchive may find fewer members than the directory has.
static enum conv_archive_step
next_of_other(struct reader *reader, struct conv_archive_member *member, struct conv_err *err)
{
    enum conv_archive_step step = reader->other->ops->next(reader->other, member, err);
    if (step != CONV_ARCHIVE_END) {
        reader->count++;
        return step;
    }
    if (reader->count == reader->file.count || !reader->has_directory)
        return end_archive(reader, err);
    conv_err_format(err,
                    "only %" PRIu64 " of the %" PRIu64
                    " members in the directory of the zip file can be read",
                    reader->count, reader->file.count);
    return CONV_ARCHIVE_DAMAGED;
}

static enum conv_archive_step next(struct conv_archive_reader *base,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    struct reader *reader = (struct reader *)base;
    *member = (struct conv_archive_member){.name = "", .link = "", .uname = "", .gname = ""};
    reader->content = NULL;
    reader->fed = reader->produced = 0;
    reader->crc = 0;
    reader->link[0] = '\0';
    if (reader->other)
        return next_of_other(reader, member, err);
    if (!conv_expansion_allows(reader->input->size, reader->contents)) {
        conv_err_limit(err, "%s", CONV_EXPANSION_TEXT);
        return CONV_ARCHIVE_DAMAGED;
    }
    if (reader->at >= reader->file.end)
        return end_archive(reader, err);
    if (!conv_zip_record_next(&reader->file, &reader->at, &reader->record)) {
        conv_err_format(err, "the directory of the zip file is damaged at byte %" PRIu64,
                        reader->at);
        return CONV_ARCHIVE_DAMAGED;
    }
    enum conv_status status = open_member(reader, member, err);
    if (status)
        reader->content = NULL;
    member->link = reader->link;
    return status ? CONV_ARCHIVE_BAD : CONV_ARCHIVE_MEMBER;
}

static void close_reader(struct conv_archive_reader *base)
{
    struct reader *reader = (struct reader *)base;
    if (reader->has_stream)
        (void)inflateEnd(&reader->stream);
    if (reader->other)
        reader->other->ops->close(reader->other);
    free(reader->spans.spans);
    free(reader);
}

// Compares all entries with the directory for libarchive, which goes by their own headers.
static enum conv_status check_entries(struct reader *reader, struct conv_err *err)
{
    struct conv_zip_file *file = &reader->file;
    struct conv_zip_record record;
    enum conv_status status = CONV_OK;
    for (uint64_t at = file->start; !status && conv_zip_record_next(file, &at, &record);) {
        const uint8_t *content;
        uint64_t end;
        bool apart = true;
        struct conv_err cause;
        enum conv_status found = conv_zip_record_content(file, &record, &content, &end, &cause);
        if (!found)
            status = add_span(&reader->spans, file->base + record.offset, end, &apart, err);
        if (!found && !apart)
            found = conv_err_format(&cause, "%s", SHARES_BYTES);
        if (found && !file->doubt.status)
            (void)conv_err_set(&file->doubt, found, "%.*s: %s", (int)record.name_size,
                               (const char *)record.name, cause.text);
    }
    return status;
}

enum conv_status conv_zip_read(struct conv_archive_reader **out, struct conv_archive_input *input,
                               struct conv_err *err)
{
    static const struct conv_archive_reader_ops ops = {
        .next = next,
        .map = map_content,
        .read = read_content,
        .close = close_reader,
    };
    *out = NULL;
    // Bytes before the position are another program's.
    if (!input->map || input->at > 0)
        return conv_libarchive_read(out, input, err);
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return conv_err_memory(err, "no memory to read a zip file");
    enum conv_status status = conv_zip_file_open(&reader->file, input->map, input->size, err);
    reader->has_directory = !status;
    if (status == CONV_ERR_UNSUPPORTED) // libarchive reads the headers of the entries
        status = CONV_OK;
    reader->base.ops = &ops;
    reader->input = input;
    reader->at = reader->file.start;
    if (!status && reader->has_directory && !reader->file.is_usual)
        status = check_entries(reader, err);
    if (!status && !(reader->has_directory && reader->file.is_usual))
        status = conv_libarchive_read(&reader->other, input, err);
    if (!status && inflateInit2(&reader->stream, -15) != Z_OK) // deflate without a header
        status = conv_err_memory(err, "no memory to read a zip file");
    reader->has_stream = !status;
    if (status)
        close_reader(&reader->base);
    else
        *out = &reader->base;
    return status;
}
