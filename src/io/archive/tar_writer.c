// SPDX-License-Identifier: MIT
#include "io/archive/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/archive_output.h"
#include "io/archive/unpack.h"

// Octal if the number fits, else base 256.
static void put_number(char *field, size_t size, int64_t number)
{
    if (number >= 0 && (uint64_t)number < (uint64_t)1 << 3 * (size - 1)) {
        for (size_t i = size - 1; i-- > 0; number >>= 3)
            field[i] = (char)('0' + (number & 7));
        field[size - 1] = '\0';
        return;
    }
    for (size_t i = size; i-- > 0; number >>= 8)
        field[i] = (char)(unsigned char)(number & 0xFF); // arithmetic: the sign fills the rest
    field[0] = (char)((unsigned char)field[0] | 0x80);
}

// The checksum in six digits, a NUL and a space, as all programs write it.
static void put_checksum(struct conv_tar_header *header)
{
    unsigned sum = conv_tar_checksum(header, false);
    for (int i = 5; i >= 0; i--, sum >>= 3)
        header->checksum[i] = (char)('0' + (sum & 7));
    header->checksum[6] = '\0';
    header->checksum[7] = ' ';
}

// Where a name that is too long for its field can be divided: the offset of a slash; 0 if nowhere.
static size_t find_division(const char *name, size_t length)
{
    const struct conv_tar_header *header = NULL;
    const size_t most = sizeof header->prefix, field = sizeof header->name;
    for (size_t i = length > field ? length - field - 1 : 0; i <= most && i < length; i++)
        if (name[i] == '/' && i > 0 && i + 1 < length)
            return i;
    return 0;
}

// A header for a text that is too long for a field: 'L' or 'K' of GNU tar.
static size_t put_long(uint8_t *to, char type, const char *text, size_t length)
{
    struct conv_tar_header *header = (struct conv_tar_header *)(void *)to;
    strcpy(header->name, "././@LongLink");
    put_number(header->mode, sizeof header->mode, 0);
    put_number(header->uid, sizeof header->uid, 0);
    put_number(header->gid, sizeof header->gid, 0);
    put_number(header->size, sizeof header->size, (int64_t)length + 1);
    put_number(header->mtime, sizeof header->mtime, 0);
    header->type = type;
    memcpy(header->magic, "ustar  ", 8);
    put_checksum(header);
    memcpy(to + CONV_TAR_BLOCK, text, length);
    return CONV_TAR_BLOCK + length + 1 + conv_tar_padding(length + 1);
}

static char type_of(enum conv_archive_kind kind)
{
    static const char types[] = {
        [CONV_ARCHIVE_FILE] = '0',
        [CONV_ARCHIVE_FOLDER] = '5',
        [CONV_ARCHIVE_SYMLINK] = '2',
        [CONV_ARCHIVE_HARDLINK] = '1',
    };
    return types[kind];
}

// Copies what fits; a field that is full has no NUL.
static void put_text(char *field, size_t size, const char *text)
{
    size_t length = strlen(text);
    memcpy(field, text, length < size ? length : size);
}

static void put_fields(struct conv_tar_header *header, const struct conv_archive_member *member)
{
    put_number(header->mode, sizeof header->mode, member->mode & 07777);
    put_number(header->uid, sizeof header->uid, (int64_t)(member->uid & INT64_MAX));
    put_number(header->gid, sizeof header->gid, (int64_t)(member->gid & INT64_MAX));
    put_number(header->size, sizeof header->size, (int64_t)member->size);
    put_number(header->mtime, sizeof header->mtime, (int64_t)member->mtime.tv_sec);
    header->type = type_of(member->kind);
    put_text(header->uname, sizeof header->uname - 1, member->uname);
    put_text(header->gname, sizeof header->gname - 1, member->gname);
}

static const char *slash_of(const struct conv_archive_member *member)
{
    return member->kind == CONV_ARCHIVE_FOLDER ? "/" : "";
}

enum conv_status conv_tar_check(const struct conv_archive_member *member, struct conv_err *err)
{
    size_t length = strlen(member->name) + strlen(slash_of(member));
    if (member->kind == CONV_ARCHIVE_DEVICE)
        return conv_err_unsupported(err, "devices are not written to archives");
    if (length > PATH_MAX || strlen(member->link) > PATH_MAX)
        return conv_err_limit(err, "the name is too long");
    if (length == 0)
        return conv_err_format(err, "the name is empty");
    if (member->size > INT64_MAX)
        return conv_err_limit(err, "its size is out of range");
    return CONV_OK;
}

enum conv_status conv_tar_frame(const struct conv_archive_member *member,
                                struct conv_archive_frame *frame, struct conv_err *err)
{
    char name[PATH_MAX + 1];
    enum conv_status status = conv_tar_check(member, err);
    if (status)
        return status;
    snprintf(name, sizeof name, "%s%s", member->name, slash_of(member));
    size_t link = strlen(member->link), length = strlen(name);
    // The longest: two headers with texts and the member's own.
    _Static_assert(CONV_ARCHIVE_FRAME_MOST >= 2 * (PATH_MAX + 2 * CONV_TAR_BLOCK) + CONV_TAR_BLOCK,
                   "a frame has room for long names");
    size_t fits = sizeof((struct conv_tar_header *)0)->name, division = 0, used = 0;
    memset(frame->head, 0, 2 * (length + link) + 5 * CONV_TAR_BLOCK);
    if (link > sizeof((struct conv_tar_header *)0)->link)
        used += put_long(frame->head, 'K', member->link, link);
    // In a header of GNU tar, which a long target makes this one, the prefix is no part of the
    // name.
    if (length > fits && (used > 0 || !(division = find_division(name, length))))
        used += put_long(frame->head + used, 'L', name, length);
    struct conv_tar_header *header = (struct conv_tar_header *)(void *)(frame->head + used);
    put_fields(header, member);
    put_text(header->link, sizeof header->link, member->link);
    put_text(header->name, sizeof header->name, name + (division ? division + 1 : 0));
    memcpy(header->prefix, name, division);
    memcpy(header->magic, used ? "ustar  " : "ustar\00000", 8);
    put_checksum(header);
    frame->before = used + CONV_TAR_BLOCK;
    frame->after = conv_tar_padding(member->size);
    return CONV_OK;
}

size_t conv_tar_trailer(uint64_t at)
{
    size_t mark = 2 * CONV_TAR_BLOCK, past = (size_t)((at + mark) % CONV_TAR_RECORD);
    return mark + (past ? CONV_TAR_RECORD - past : 0);
}

// --- compressed ----------------------------------------------------------------------------------

#define OUT_BYTES ((size_t)1 << 18)

struct writer {
    struct conv_archive_writer base;
    struct conv_archive_output *output;
    const struct conv_pack_method *method;
    uint64_t at;                     // bytes of the tar
    struct conv_archive_frame frame; // of the member that is being written
    size_t used;                     // of `packed`
    uint8_t packed[OUT_BYTES];
    max_align_t state[]; // the method's
};

static const uint8_t zeros[CONV_ARCHIVE_AFTER_MOST];

// Compresses bytes, and writes what fills the buffer; with `last`, all of it.
static enum conv_status write_bytes(struct writer *writer, const void *data, size_t size, bool last,
                                    struct conv_err *err)
{
    struct conv_unpack_bytes bytes = {.in = data, .in_size = size};
    enum conv_status status = CONV_OK;
    writer->at += size;
    for (bool done = false; !done && !status;) {
        bytes.out = writer->packed + writer->used;
        bytes.out_size = OUT_BYTES - writer->used;
        enum conv_unpack_result result = writer->method->run(writer->state, &bytes, last);
        if (result != CONV_UNPACK_MORE && result != CONV_UNPACK_END)
            return conv_err_memory(err, "no memory to compress an archive");
        writer->used = OUT_BYTES - bytes.out_size;
        done = last ? result == CONV_UNPACK_END : bytes.in_size == 0;
        if (bytes.out_size == 0 || (last && done)) {
            status = conv_archive_output_write(writer->output, writer->packed, writer->used, err);
            writer->used = 0;
        }
    }
    return status;
}

static enum conv_status append(struct conv_archive_writer *base,
                               const struct conv_archive_member *member,
                               const struct conv_encoded *content, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    enum conv_status status = conv_tar_frame(member, &writer->frame, err);
    if (!status)
        status = write_bytes(writer, writer->frame.head, writer->frame.before, false, err);
    for (int i = 0; content && i < CONV_ENCODED_PARTS && !status; i++)
        status = write_bytes(writer, content->part[i].data, content->part[i].size, false, err);
    return status ? status : write_bytes(writer, zeros, writer->frame.after, false, err);
}

static enum conv_status finish(struct conv_archive_writer *base, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    enum conv_status status = CONV_OK;
    for (size_t left = conv_tar_trailer(writer->at), step; left > 0 && !status; left -= step) {
        step = left < sizeof zeros ? left : sizeof zeros;
        status = write_bytes(writer, zeros, step, step == left, err);
    }
    return status;
}

static void close_writer(struct conv_archive_writer *base)
{
    struct writer *writer = (struct writer *)base;
    writer->method->close(writer->state);
    free(writer);
}

static enum conv_status open_writer(struct conv_archive_writer **out,
                                    struct conv_archive_output *output,
                                    const struct conv_pack_method *method, struct conv_err *err)
{
    static const struct conv_archive_writer_ops ops = {append, finish, close_writer};
    *out = NULL;
    if (!method)
        return conv_err_unsupported(
            err, "this conv was built without libzstd: it writes tar, tar.gz and zip");
    struct writer *writer = calloc(1, sizeof *writer + method->state_bytes);
    if (!writer || !method->begin(writer->state)) {
        if (writer)
            method->close(writer->state);
        free(writer);
        return conv_err_memory(err, "no memory to write an archive");
    }
    writer->base.ops = &ops;
    writer->output = output;
    writer->method = method;
    *out = &writer->base;
    return CONV_OK;
}

enum conv_status conv_tar_write_gzip(struct conv_archive_writer **writer,
                                     struct conv_archive_output *output, struct conv_err *err)
{
    return open_writer(writer, output, conv_pack_gzip, err);
}

enum conv_status conv_tar_write_zstd(struct conv_archive_writer **writer,
                                     struct conv_archive_output *output, struct conv_err *err)
{
    return open_writer(writer, output, conv_pack_zstd, err);
}
