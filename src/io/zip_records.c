// SPDX-License-Identifier: MIT
#include "io/zip_records.h"

#include <string.h>

#define HEADER 30 // bytes of each record before its name
#define RECORD 46
#define END 22
#define END_64 56
#define LOCATOR_64 20
#define COMMENT_MOST 65535
#define MOST_32 0xFFFFFFFFu // stands for "see the zip64 field"

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static time_t unix_time(uint32_t dos)
{
    struct tm tm = {
        .tm_year = (int)(dos >> 25) + 80,
        .tm_mon = (int)(dos >> 21 & 15) - 1,
        .tm_mday = (int)(dos >> 16 & 31),
        .tm_hour = (int)(dos >> 11 & 31),
        .tm_min = (int)(dos >> 5 & 63),
        .tm_sec = (int)(dos & 31) * 2,
    };
    return timegm(&tm);
}

// --- one record ----------------------------------------------------------------------------------

// Numbers that did not fit, in their order. False if one is missing.
static bool read_zip64(struct conv_zip_record *record, const uint8_t *extra, size_t size)
{
    uint64_t *numbers[] = {&record->size, &record->packed, &record->offset};
    for (int i = 0; i < 3; i++) {
        if (*numbers[i] != MOST_32)
            continue;
        if (size < 8)
            return false;
        *numbers[i] = get(extra, 8);
        extra += 8;
        size -= 8;
    }
    return true;
}

// *usual: false if there is a field that changes the meaning of the record and is not supported
// here.
static bool read_extra(struct conv_zip_record *record, const uint8_t *extra, size_t size,
                       bool *usual)
{
    bool needs_64 =
        record->size == MOST_32 || record->packed == MOST_32 || record->offset == MOST_32;
    while (size >= 4) {
        unsigned id = (unsigned)get(extra, 2);
        size_t length = (size_t)get(extra + 2, 2);
        if (length > size - 4)
            return false;
        extra += 4;
        if (id == 0x0001 && needs_64) {
            if (!read_zip64(record, extra, length))
                return false;
            needs_64 = false;
        } else if (id == 0x5455 && length >= 5 && (extra[0] & 1) != 0) {
            record->mtime = (int32_t)(uint32_t)get(extra + 1, 4);
        } else if (id == 0x7075) {
            *usual = false; // the name in UTF-8
        }
        extra += length;
        size -= 4 + length;
    }
    return !needs_64;
}

static bool read_record(const struct conv_zip_file *file, uint64_t *at,
                        struct conv_zip_record *record, bool *usual)
{
    uint64_t left = file->end - *at;
    const uint8_t *from = file->data + *at;
    if (left < RECORD || get(from, 4) != 0x02014B50)
        return false;
    size_t name = (size_t)get(from + 28, 2), extra = (size_t)get(from + 30, 2);
    size_t comment = (size_t)get(from + 32, 2), length = RECORD + name + extra + comment;
    if (left < length)
        return false;
    *record = (struct conv_zip_record){
        .name = from + RECORD,
        .name_size = name,
        .flags = (unsigned)get(from + 8, 2),
        .method = (unsigned)get(from + 10, 2),
        .made_by = from[5],
        .mtime = unix_time((uint32_t)get(from + 12, 4)),
        .crc = (uint32_t)get(from + 16, 4),
        .packed = get(from + 20, 4),
        .size = get(from + 24, 4),
        .offset = get(from + 42, 4),
    };
    if (record->made_by == 3)
        record->mode = (unsigned)get(from + 40, 2);
    *at += length;
    return read_extra(record, from + RECORD + name, extra, usual);
}

bool conv_zip_record_next(const struct conv_zip_file *file, uint64_t *at,
                          struct conv_zip_record *record)
{
    bool usual;
    return *at < file->end && read_record(file, at, record, &usual);
}

const uint8_t *conv_zip_record_content(const struct conv_zip_file *file,
                                       const struct conv_zip_record *record)
{
    uint64_t limit = file->start, at = record->offset;
    if (at > limit || limit - at < HEADER || get(file->data + at, 4) != 0x04034B50)
        return NULL;
    const uint8_t *header = file->data + at;
    size_t name = (size_t)get(header + 26, 2), extra = (size_t)get(header + 28, 2);
    uint64_t room = limit - at - HEADER;
    if (room < name + extra || room - name - extra < record->packed || name != record->name_size ||
        memcmp(header + HEADER, record->name, name) != 0)
        return NULL;
    return header + HEADER + name + extra;
}

// --- the directory -------------------------------------------------------------------------------

// Takes the directory's place from the record at `at`, which ends the file. False if it is not
// where it says, or lies on several disks.
static bool read_end(struct conv_zip_file *file, uint64_t at, uint64_t *count)
{
    const uint8_t *from = file->data + at;
    uint64_t size = get(from + 12, 4), end = at;
    bool one_disk = get(from + 4, 4) == 0;
    *count = get(from + 10, 2);
    file->start = get(from + 16, 4);
    if (at >= LOCATOR_64 && get(from - LOCATOR_64, 4) == 0x07064B50) {
        uint64_t place = get(from - LOCATOR_64 + 8, 8);
        if (place > at - LOCATOR_64 || at - LOCATOR_64 - place < END_64)
            return false;
        const uint8_t *end_64 = file->data + place;
        if (get(end_64, 4) != 0x06064B50)
            return false;
        *count = get(end_64 + 32, 8);
        size = get(end_64 + 40, 8);
        file->start = get(end_64 + 48, 8);
        one_disk = get(end_64 + 16, 8) == 0;
        end = place;
    }
    file->end = end;
    return one_disk && file->start <= end && size == end - file->start;
}

static bool find_end(const struct conv_zip_file *file, uint64_t *at)
{
    for (uint64_t comment = 0; comment <= COMMENT_MOST && comment + END <= file->size; comment++) {
        *at = file->size - END - comment;
        if (get(file->data + *at, 4) == 0x06054B50)
            return true;
    }
    return false;
}

bool conv_zip_file_has_end(const uint8_t *data, uint64_t size)
{
    const struct conv_zip_file file = {.data = data, .size = size};
    uint64_t at;
    return find_end(&file, &at);
}

// Contents that do not share bytes fit before the directory. Together with the ratio of deflate,
// that bounds how far the file expands.
bool conv_zip_file_open(struct conv_zip_file *file, const uint8_t *data, uint64_t size)
{
    uint64_t count = 0, used = 0, records = 0, end;
    *file = (struct conv_zip_file){.data = data, .size = size};
    if (!find_end(file, &end) || get(data + end + 20, 2) != size - END - end ||
        !read_end(file, end, &count))
        return false;
    struct conv_zip_record record;
    bool usual = true;
    for (uint64_t at = file->start; at < file->end; records++) {
        if (!read_record(file, &at, &record, &usual) || !usual ||
            (record.method != 0 && record.method != 8) || record.packed > file->start - used)
            return false;
        used += record.packed;
        if (file->start - used < HEADER + record.name_size)
            return false;
        used += HEADER + record.name_size;
    }
    return records == count;
}
