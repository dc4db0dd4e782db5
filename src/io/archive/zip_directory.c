// SPDX-License-Identifier: MIT
#include "io/archive/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)name[i++];
        int more = c < 0x80 ? 0 : c < 0xC2 ? -1 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : c < 0xF5 ? 3 : -1;
        if (more < 0 || (size_t)more > size - i)
            return false;
        any |= more > 0;
        unsigned char second = more > 0 ? (unsigned char)name[i] : 0;
        if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) ||
            (c == 0xF0 && second < 0x90) || (c == 0xF4 && second > 0x8F))
            return false; // too long, a surrogate, or above U+10FFFF
        for (; more > 0; more--)
            if (((unsigned char)name[i++] & 0xC0) != 0x80)
                return false;
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

static uint8_t *put_common(uint8_t *dst, const struct conv_zip_entry *entry, bool zip64)
{
    dst = put(dst, version_of(entry, zip64), 2);
    dst = put(dst, needs_utf8_flag(entry->name, entry->name_size) ? UTF8 : 0, 2);
    dst = put(dst, entry->method, 2);
    return put(dst, dos_time(entry->mtime), 4);
}

static uint8_t *put_name(uint8_t *dst, const struct conv_zip_entry *entry)
{
    memcpy(dst, entry->name, entry->name_size);
    return dst + entry->name_size;
}

size_t conv_zip_header(uint8_t *dst, const struct conv_zip_entry *entry)
{
    uint8_t extra[64], *e = extra, *start = dst;
    bool zip64 = is_long(entry);
    if (zip64) {
        e = put(e, 1, 2);
        e = put(e, 16, 2);
        e = put(e, entry->size, 8);
        e = put(e, entry->packed, 8);
    }
    e = put_mtime(e, entry->mtime);
    dst = put(dst, 0x04034B50, 4);
    dst = put_common(dst, entry, zip64);
    dst = put(dst, entry->crc, 4);
    dst = put(dst, zip64 ? MOST_32 : entry->packed, 4);
    dst = put(dst, zip64 ? MOST_32 : entry->size, 4);
    dst = put(dst, entry->name_size, 2);
    dst = put(dst, (uint64_t)(e - extra), 2);
    dst = put_name(dst, entry);
    memcpy(dst, extra, (size_t)(e - extra));
    return (size_t)(dst - start) + (size_t)(e - extra);
}

static size_t put_record(uint8_t *dst, const struct conv_zip_entry *entry)
{
    uint8_t extra[64], *e = extra, *start = dst;
    bool far = entry->offset >= MOST_32, zip64 = is_long(entry) || far;
    if (zip64) { // only those fields that do not fit below
        e = put(e, 1, 2);
        e = put(e, (is_long(entry) ? 16 : 0) + (far ? 8 : 0), 2);
        if (is_long(entry)) {
            e = put(e, entry->size, 8);
            e = put(e, entry->packed, 8);
        }
        if (far)
            e = put(e, entry->offset, 8);
    }
    e = put_mtime(e, entry->mtime);
    bool is_folder = entry->name[entry->name_size - 1] == '/';
    dst = put(dst, 0x02014B50, 4);
    dst = put(dst, MADE_BY_UNIX | 45, 2);
    dst = put_common(dst, entry, zip64);
    dst = put(dst, entry->crc, 4);
    dst = put(dst, is_long(entry) ? MOST_32 : entry->packed, 4);
    dst = put(dst, is_long(entry) ? MOST_32 : entry->size, 4);
    dst = put(dst, entry->name_size, 2);
    dst = put(dst, (uint64_t)(e - extra), 2);
    dst = put(dst, 0, 6); // comment, disk, internal attributes
    dst = put(dst, (uint64_t)entry->mode << 16 | (is_folder ? 0x10 : 0), 4);
    dst = put(dst, at_most(entry->offset, MOST_32), 4);
    dst = put_name(dst, entry);
    memcpy(dst, extra, (size_t)(e - extra));
    return (size_t)(dst - start) + (size_t)(e - extra);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the directory of a zip file");
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
