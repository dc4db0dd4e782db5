// SPDX-License-Identifier: MIT
// A reader of archives by libarchive.
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/libarchive_stream.h"

struct reader {
    struct conv_archive_reader base;
    struct conv_libarchive_stream stream;
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
    conv_err_set(err, CONV_ERR_FORMAT, "the member is damaged: %s", text);
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
        conv_libarchive_stream_explain(
            &reader->stream, reader->is_over ? "the archive is damaged" : "the member is damaged",
            err);
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
    if (!conv_libarchive_stream_check(&reader->stream, reader->contents)) {
        reader->is_over = true;
        conv_libarchive_stream_explain(&reader->stream, "", err);
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
        conv_libarchive_stream_explain(&reader->stream, "the archive is damaged", err);
        return -1;
    }
    if (!reader->is_open || size == 0)
        return 0;
    locale_t before = conv_libarchive_stream_enter(&reader->stream);
    ssize_t got = read_content(reader, data, size, err);
    conv_libarchive_stream_leave(before);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the name of a member");
    int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1;
    reader->has_size = size >= 0;
    reader->size = reader->has_size ? (uint64_t)size : 0;
    member->size = is_file ? reader->size : 0;
    member->size_unknown = is_file && !reader->has_size;
    reader->is_open = is_file;
    if (is_file && archive_entry_is_encrypted(entry))
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "the member is encrypted");
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
        conv_libarchive_stream_explain(&reader->stream, "the archive is damaged", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    int result;
    do
        result = archive_read_next_header(reader->stream.archive, &entry);
    while (result == ARCHIVE_RETRY);
    if (result == ARCHIVE_EOF) {
        reader->is_over = true;
        return conv_libarchive_stream_finish(&reader->stream, reader->members, err)
                   ? CONV_ARCHIVE_DAMAGED
                   : CONV_ARCHIVE_END;
    }
    if (result == ARCHIVE_FATAL) {
        reader->is_over = true;
        conv_libarchive_stream_explain(&reader->stream, "the archive is damaged", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    if (!conv_libarchive_stream_check(&reader->stream, reader->contents)) {
        reader->is_over = true;
        conv_libarchive_stream_explain(&reader->stream, "", err);
        return CONV_ARCHIVE_DAMAGED;
    }
    reader->members++;
    if (take_entry(reader, entry, member, err))
        return CONV_ARCHIVE_BAD;
    if (result == ARCHIVE_FAILED) {
        conv_libarchive_stream_explain(&reader->stream, "the member cannot be read", err);
        return CONV_ARCHIVE_BAD;
    }
    return check_empty(reader, err) ? CONV_ARCHIVE_BAD : CONV_ARCHIVE_MEMBER;
}

static enum conv_archive_step next(struct conv_archive_reader *base,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    struct reader *reader = (struct reader *)base;
    *member = (struct conv_archive_member){.name = "", .link = "", .uname = "", .gname = ""};
    locale_t before = conv_libarchive_stream_enter(&reader->stream);
    enum conv_archive_step step = next_entry(reader, member, err);
    conv_libarchive_stream_leave(before);
    return step;
}

static void close_reader(struct conv_archive_reader *base)
{
    struct reader *reader = (struct reader *)base;
    conv_libarchive_stream_close(&reader->stream);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to read an archive");
    enum conv_status status = conv_libarchive_stream_open(&reader->stream, input, err);
    if (status) {
        free(reader);
        return status;
    }
    reader->base.ops = &ops;
    *out = &reader->base;
    return CONV_OK;
}
