// SPDX-License-Identifier: MIT
#include "io/archive/zip.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/archive/archive_output.h"

// --- records -------------------------------------------------------------------------------------

#define BUFFER_BYTES ((size_t)1 << 20)
#define UTF8 0x0800
#define MADE_BY_UNIX 0x0300
#define MOST_16 0xFFFFu     // stands for "see the zip64 record"
#define MOST_32 0xFFFFFFFFu // the same

static uint8_t *put(uint8_t *dst, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *dst++ = (uint8_t)(value >> 8 * i);
    return dst;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

static bool is_long(const struct conv_zip_entry *entry)
{
    return entry->size >= MOST_32 || entry->packed >= MOST_32;
}

// True for bytes above 127 that are valid UTF-8. Other names have no flag: readers guess, as they
// do with the archive that such a name came from.
static bool needs_utf8_flag(const char *name, size_t size)
{
    bool any = false;
    for (size_t at = 0, step; at < size; at += step) {
        step = conv_text_utf8(name + at, size - at);
        if (step == 0)
            return false;
        any |= step > 1;
    }
    return any;
}

static unsigned version_of(const struct conv_zip_entry *entry, bool zip64)
{
    bool is_plain = entry->method == CONV_ZIP_STORED && entry->name[entry->name_size - 1] != '/';
    return zip64 ? 45 : is_plain ? 10 : 20;
}

// In UTC, so that it does not depend on where the program runs.
static uint32_t dos_time(time_t mtime)
{
    const time_t first = 315532800, last = 4354819198; // 1980-01-01, 2107-12-31 23:59:58
    struct tm tm;
    mtime = mtime < first ? first : mtime > last ? last : mtime;
    if (!gmtime_r(&mtime, &tm))
        return 0;
    return (uint32_t)(tm.tm_year - 80) << 25 | (uint32_t)(tm.tm_mon + 1) << 21 |
           (uint32_t)tm.tm_mday << 16 | (uint32_t)tm.tm_hour << 11 | (uint32_t)tm.tm_min << 5 |
           (uint32_t)tm.tm_sec / 2;
}

// The time to the second, in UTC by definition; for times that fit into 32 bits.
static uint8_t *put_mtime(uint8_t *dst, time_t mtime)
{
    if (mtime < INT32_MIN || mtime > INT32_MAX)
        return dst;
    dst = put(dst, 0x5455, 2);
    dst = put(dst, 5, 2);
    dst = put(dst, 1, 1); // the modification time alone
    return put(dst, (uint32_t)(int32_t)mtime, 4);
}

// The numbers that do not fit into their fields, and the time. `far`: the offset is one of them.
static size_t put_extra(uint8_t *extra, const struct conv_zip_entry *entry, bool far)
{
    uint8_t *dst = extra;
    if (is_long(entry) || far) {
        dst = put(dst, 1, 2);
        dst = put(dst, (is_long(entry) ? 16 : 0) + (far ? 8 : 0), 2);
    }
    if (is_long(entry)) {
        dst = put(dst, entry->size, 8);
        dst = put(dst, entry->packed, 8);
    }
    if (far)
        dst = put(dst, entry->offset, 8);
    return (size_t)(put_mtime(dst, entry->mtime) - extra);
}

// The fields that the header and the record have in common.
static uint8_t *put_common(uint8_t *dst, const struct conv_zip_entry *entry, bool zip64,
                           size_t extra)
{
    dst = put(dst, version_of(entry, zip64), 2);
    dst = put(dst, needs_utf8_flag(entry->name, entry->name_size) ? UTF8 : 0, 2);
    dst = put(dst, entry->method, 2);
    dst = put(dst, dos_time(entry->mtime), 4);
    dst = put(dst, entry->crc, 4);
    dst = put(dst, is_long(entry) ? MOST_32 : entry->packed, 4);
    dst = put(dst, is_long(entry) ? MOST_32 : entry->size, 4);
    dst = put(dst, entry->name_size, 2);
    return put(dst, extra, 2);
}

static uint8_t *put_bytes(uint8_t *dst, const void *data, size_t size)
{
    memcpy(dst, data, size);
    return dst + size;
}

size_t conv_zip_header(uint8_t *dst, const struct conv_zip_entry *entry)
{
    uint8_t extra[64], *start = dst;
    size_t extra_size = put_extra(extra, entry, false);
    dst = put(dst, 0x04034B50, 4);
    dst = put_common(dst, entry, is_long(entry), extra_size);
    dst = put_bytes(dst, entry->name, entry->name_size);
    return (size_t)(put_bytes(dst, extra, extra_size) - start);
}

static size_t put_record(uint8_t *dst, const struct conv_zip_entry *entry)
{
    bool far = entry->offset >= MOST_32, is_folder = entry->name[entry->name_size - 1] == '/';
    uint8_t extra[64], *start = dst;
    size_t extra_size = put_extra(extra, entry, far);
    dst = put(dst, 0x02014B50, 4);
    dst = put(dst, MADE_BY_UNIX | 45, 2);
    dst = put_common(dst, entry, is_long(entry) || far, extra_size);
    dst = put(dst, 0, 6); // comment, disk, internal attributes
    dst = put(dst, (uint64_t)entry->mode << 16 | (is_folder ? 0x10 : 0), 4);
    dst = put(dst, at_most(entry->offset, MOST_32), 4);
    dst = put_bytes(dst, entry->name, entry->name_size);
    return (size_t)(put_bytes(dst, extra, extra_size) - start);
}

static enum conv_status flush(struct conv_zip_directory *directory, struct conv_err *err)
{
    if (!directory->file)
        directory->file = tmpfile();
    if (!directory->file ||
        fwrite(directory->buffer, 1, directory->used, directory->file) != directory->used)
        return conv_err_errno(err, errno, "cannot write a temporary file for the zip directory");
    directory->used = 0;
    return CONV_OK;
}

enum conv_status conv_zip_directory_add(struct conv_zip_directory *directory,
                                        const struct conv_zip_entry *entry, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (!directory->buffer)
        directory->buffer = malloc(BUFFER_BYTES);
    if (!directory->buffer)
        return conv_err_memory(err, "no memory for the directory of a zip file");
    if (directory->used + CONV_ZIP_HEADER_MOST > BUFFER_BYTES)
        status = flush(directory, err);
    if (status)
        return status;
    size_t size = put_record(directory->buffer + directory->used, entry);
    directory->used += size;
    directory->size += size;
    directory->count++;
    return CONV_OK;
}

ptrdiff_t conv_zip_directory_take(struct conv_zip_directory *directory, const uint8_t **data,
                                  struct conv_err *err)
{
    if (!directory->is_taken && directory->file) {
        if (flush(directory, err))
            return -1;
        if (fseek(directory->file, 0, SEEK_SET) != 0) {
            conv_err_errno(err, errno, "cannot read a temporary file");
            return -1;
        }
    }
    size_t got = directory->is_taken ? 0 : directory->used;
    directory->is_taken = true;
    if (directory->file) {
        got = fread(directory->buffer, 1, BUFFER_BYTES, directory->file);
        if (got == 0 && ferror(directory->file)) {
            conv_err_errno(err, errno, "cannot read a temporary file");
            return -1;
        }
    }
    *data = directory->buffer;
    return (ptrdiff_t)got;
}

size_t conv_zip_directory_end(uint8_t *dst, const struct conv_zip_directory *directory,
                              uint64_t offset)
{
    uint8_t *start = dst;
    if (directory->count >= MOST_16 || directory->size >= MOST_32 || offset >= MOST_32) {
        dst = put(dst, 0x06064B50, 4);
        dst = put(dst, 44, 8);
        dst = put(dst, MADE_BY_UNIX | 45, 2);
        dst = put(dst, 45, 2);
        dst = put(dst, 0, 8); // disks
        dst = put(dst, directory->count, 8);
        dst = put(dst, directory->count, 8);
        dst = put(dst, directory->size, 8);
        dst = put(dst, offset, 8);
        dst = put(dst, 0x07064B50, 4);
        dst = put(dst, 0, 4); // disk
        dst = put(dst, offset + directory->size, 8);
        dst = put(dst, 1, 4); // disks
    }
    dst = put(dst, 0x06054B50, 4);
    dst = put(dst, 0, 4); // disks
    dst = put(dst, at_most(directory->count, MOST_16), 2);
    dst = put(dst, at_most(directory->count, MOST_16), 2);
    dst = put(dst, at_most(directory->size, MOST_32), 4);
    dst = put(dst, at_most(offset, MOST_32), 4);
    return (size_t)(put(dst, 0, 2) - start); // comment
}

void conv_zip_directory_free(struct conv_zip_directory *directory)
{
    if (directory->file)
        fclose(directory->file);
    free(directory->buffer);
    *directory = (struct conv_zip_directory){0};
}

// --- the writer ----------------------------------------------------------------------------------

#define LEVEL 6
#define DEFLATE_MOST                                                                               \
    ((size_t)64 << 20) // larger contents are stored: compressing takes their memory

struct writer {
    struct conv_archive_writer base;
    struct conv_archive_output *output;
    uint64_t at; // bytes written
    struct conv_zip_directory directory;
    struct libdeflate_compressor *compressor; // made when it is first needed
    uint8_t *packed;
    size_t packed_capacity;

    struct conv_zip_entry entry; // of the member that is being written; its name is in `name`
    char name[CONV_ZIP_NAME_MOST];
};

static enum conv_status write_bytes(struct writer *writer, const void *data, size_t size,
                                    struct conv_err *err)
{
    writer->at += size;
    return size > 0 ? conv_archive_output_write(writer->output, data, size, err) : CONV_OK;
}

// --- members -------------------------------------------------------------------------------------

// Of the mode; 0: a zip file has none of that kind.
static const unsigned types[] = {
    [CONV_ARCHIVE_FILE] = S_IFREG,    [CONV_ARCHIVE_FOLDER] = S_IFDIR,
    [CONV_ARCHIVE_SYMLINK] = S_IFLNK, [CONV_ARCHIVE_HARDLINK] = 0,
    [CONV_ARCHIVE_DEVICE] = 0,
};

enum conv_status conv_zip_check(const struct conv_archive_member *member, struct conv_err *err)
{
    size_t length = strlen(member->name);
    if (!types[member->kind])
        return conv_err_unsupported(err, "a zip file cannot hold %s",
                                    member->kind == CONV_ARCHIVE_DEVICE ? "a device"
                                                                        : "a hard link");
    if (length == 0)
        return conv_err_unsupported(err, "a member of a zip file needs a name");
    if (length + (member->kind == CONV_ARCHIVE_FOLDER) > CONV_ZIP_NAME_MOST)
        return conv_err_limit(err, "the name is too long for a zip file");
    return CONV_OK;
}

static enum conv_status begin_entry(struct writer *writer, const struct conv_archive_member *member,
                                    struct conv_err *err)
{
    struct conv_zip_entry *entry = &writer->entry;
    bool is_folder = member->kind == CONV_ARCHIVE_FOLDER;
    size_t length = strlen(member->name);
    enum conv_status status = conv_zip_check(member, err);
    if (status)
        return status;
    memcpy(writer->name, member->name, length);
    if (is_folder && writer->name[length - 1] != '/')
        writer->name[length++] = '/';
    *entry = (struct conv_zip_entry){
        .name = writer->name,
        .name_size = length,
        .mode = types[member->kind] | (member->mode & 07777),
        .mtime = member->mtime.tv_sec,
        .offset = writer->at,
    };
    return CONV_OK;
}

// --- contents ------------------------------------------------------------------------------------

// True if compressing is worth a try: texts, labels and raw arrays, not images.
static bool may_shrink(const struct conv_encoded *content)
{
    const uint8_t *data = content->part[0].data;
    size_t size = content->part[0].size;
    return size == content->size && size > 0 && size <= DEFLATE_MOST &&
           !conv_format_of_bytes(data, size);
}

// Compresses the content into writer->packed. False if that does not make it smaller.
static bool compress_content(struct writer *writer, const struct conv_encoded *content)
{
    size_t size = content->size;
    if (!writer->compressor)
        writer->compressor = libdeflate_alloc_compressor(LEVEL);
    if (size > writer->packed_capacity) {
        free(writer->packed);
        writer->packed = malloc(size);
        writer->packed_capacity = writer->packed ? size : 0;
    }
    if (!writer->compressor || !writer->packed)
        return false;
    writer->entry.packed = libdeflate_deflate_compress(writer->compressor, content->part[0].data,
                                                       size, writer->packed, size - 1);
    return writer->entry.packed > 0;
}

static enum conv_status append(struct conv_archive_writer *base,
                               const struct conv_archive_member *member,
                               const struct conv_encoded *content, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    struct conv_zip_entry *entry = &writer->entry;
    struct conv_encoded target = {0}; // of a symbolic link
    uint8_t header[CONV_ZIP_HEADER_MOST];
    enum conv_status status = begin_entry(writer, member, err);
    if (status)
        return status;
    if (member->kind == CONV_ARCHIVE_SYMLINK) {
        target.size = target.part[0].size = strlen(member->link);
        target.part[0].data = (const uint8_t *)member->link;
    }
    if (!content || member->kind != CONV_ARCHIVE_FILE)
        content = &target;
    entry->size = entry->packed = content->size;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if (content->part[i].size > 0)
            entry->crc = libdeflate_crc32(entry->crc, content->part[i].data, content->part[i].size);
    bool deflated = may_shrink(content) && member->kind == CONV_ARCHIVE_FILE &&
                    compress_content(writer, content);
    entry->method = deflated ? CONV_ZIP_DEFLATED : CONV_ZIP_STORED;
    if (!deflated)
        entry->packed = entry->size;
    status = write_bytes(writer, header, conv_zip_header(header, entry), err);
    if (!status && deflated)
        status = write_bytes(writer, writer->packed, (size_t)entry->packed, err);
    for (int i = 0; i < CONV_ENCODED_PARTS && !status && !deflated; i++)
        status = write_bytes(writer, content->part[i].data, content->part[i].size, err);
    return status ? status : conv_zip_directory_add(&writer->directory, entry, err);
}

// --- the archive ---------------------------------------------------------------------------------

static enum conv_status finish(struct conv_archive_writer *base, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    uint8_t last[CONV_ZIP_END_MOST];
    const uint8_t *records;
    uint64_t start = writer->at;
    ptrdiff_t got;
    while ((got = conv_zip_directory_take(&writer->directory, &records, err)) > 0) {
        enum conv_status status = write_bytes(writer, records, (size_t)got, err);
        if (status)
            return status;
    }
    if (got < 0)
        return CONV_ERR_IO;
    return write_bytes(writer, last, conv_zip_directory_end(last, &writer->directory, start), err);
}

static void close_writer(struct conv_archive_writer *base)
{
    struct writer *writer = (struct writer *)base;
    conv_zip_directory_free(&writer->directory);
    libdeflate_free_compressor(writer->compressor);
    free(writer->packed);
    free(writer);
}

enum conv_status conv_zip_write(struct conv_archive_writer **out,
                                struct conv_archive_output *output, struct conv_err *err)
{
    static const struct conv_archive_writer_ops ops = {
        .append = append,
        .finish = finish,
        .close = close_writer,
    };
    struct writer *writer = calloc(1, sizeof *writer);
    *out = NULL;
    if (!writer)
        return conv_err_memory(err, "no memory to write a zip file");
    writer->base.ops = &ops;
    writer->output = output;
    *out = &writer->base;
    return CONV_OK;
}
