// SPDX-License-Identifier: MIT
#include "io/archive/zip.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <string.h>

#define HEADER 30 // bytes of each record before its name
#define RECORD 46
#define END 22
#define END_64 56
#define LOCATOR_64 20
#define COMMENT_MOST (CONV_ZIP_TAIL - END)
#define MOST_16 0xFFFFu     // stands for "see the zip64 record"
#define MOST_32 0xFFFFFFFFu // the same

enum { IS_HEADER = 0x04034B50, IS_RECORD = 0x02014B50, IS_DESCRIPTOR = 0x08074B50 };
enum { IS_END = 0x06054B50, IS_END_64 = 0x06064B50, IS_LOCATOR_64 = 0x07064B50 };
enum { SUM_FOLLOWS = 8 }; // of flags

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

static uint64_t get(const uint8_t *from, size_t bytes)
{
    return conv_bytes_get(from, bytes, true);
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

// A name in UTF-8, valid as long as the one in the header is the one that it was made for.
static void read_name(struct conv_zip_record *record, const uint8_t *extra, size_t size)
{
    if (size <= 5 || extra[0] != 1 ||
        libdeflate_crc32(0, record->header_name, record->header_name_size) != get(extra + 1, 4))
        return;
    record->name = extra + 5;
    record->name_size = size - 5;
}

// *rank: of the field that the time has come from so far; a higher one is better.
static void read_time(struct conv_zip_record *record, unsigned id, const uint8_t *extra,
                      size_t size, int *rank)
{
    const int64_t from_1601 = 11644473600, ticks = 10000000; // Windows counts from there, in 0.1 µs
    if (id == 0x5455 && size >= 5 && (extra[0] & 1) != 0 && *rank < 3) {
        record->mtime = (int32_t)(uint32_t)get(extra + 1, 4);
        *rank = 3;
    } else if (id == 0x000A && size >= 4 + 4 + 8 && get(extra + 4, 2) == 1 && *rank < 2) { // NTFS
        int64_t time = (int64_t)get(extra + 8, 8);
        if (time <= 0)
            return;
        record->mtime = (time_t)(time / ticks - from_1601);
        *rank = 2;
    } else if ((id == 0x5855 || id == 0x000D) && size >= 8 && *rank < 1) { // of old Unix programs
        record->mtime = (int32_t)(uint32_t)get(extra + 4, 4);
        *rank = 1;
    }
}

// What cannot be read of it is ignored, except for sizes.
static void read_extra(struct conv_zip_record *record, const uint8_t *extra, size_t size)
{
    int rank = 0;
    record->lacks_sizes =
        record->size == MOST_32 || record->packed == MOST_32 || record->offset == MOST_32;
    while (size >= 4) {
        unsigned id = (unsigned)get(extra, 2);
        size_t length = (size_t)get(extra + 2, 2);
        extra += 4;
        size -= 4;
        if (length > size)
            return;
        if (id == 0x0001 && record->lacks_sizes)
            record->lacks_sizes = !read_zip64(record, extra, length);
        else if (id == 0x7075)
            read_name(record, extra, length);
        else
            read_time(record, id, extra, length, &rank);
        extra += length;
        size -= length;
    }
}

// True for systems whose programs write the mode of Unix: Unix, BeOS, macOS, AtheOS.
static bool has_mode(unsigned made_by)
{
    return made_by == 3 || made_by == 16 || made_by == 19 || made_by == 30;
}

bool conv_zip_record_next(const struct conv_zip_file *file, uint64_t *at,
                          struct conv_zip_record *record)
{
    if (*at >= file->end || file->end - *at < RECORD)
        return false;
    const uint8_t *from = file->data + *at;
    if (get(from, 4) != IS_RECORD)
        return false;
    size_t name = (size_t)get(from + 28, 2), extra = (size_t)get(from + 30, 2);
    size_t comment = (size_t)get(from + 32, 2), length = RECORD + name + extra + comment;
    if (file->end - *at < length)
        return false;
    *record = (struct conv_zip_record){
        .name = from + RECORD,
        .name_size = name,
        .header_name = from + RECORD,
        .header_name_size = name,
        .flags = (unsigned)get(from + 8, 2),
        .method = (unsigned)get(from + 10, 2),
        .made_by = from[5],
        .is_dos_folder = (from[38] & 0x10) != 0,
        .mtime = unix_time((uint32_t)get(from + 12, 4)),
        .crc = (uint32_t)get(from + 16, 4),
        .packed = get(from + 20, 4),
        .size = get(from + 24, 4),
        .offset = get(from + 42, 4),
    };
    if (has_mode(record->made_by))
        record->mode = (unsigned)get(from + 40, 2);
    *at += length;
    read_extra(record, from + RECORD + name, extra);
    return true;
}

// --- one entry -----------------------------------------------------------------------------------

// Bytes of the descriptor after the content. 0: there is none, or it differs from the record. Some
// programs write no signature, or four bytes for sizes above 4 GiB.
static uint64_t descriptor_size(const uint8_t *from, uint64_t room,
                                const struct conv_zip_record *record)
{
    for (int has_sign = 1; has_sign >= 0; has_sign--)
        for (int bytes = 8; bytes >= 4; bytes -= 4) {
            uint64_t size = 4 * (uint64_t)has_sign + 4 + 2 * (uint64_t)bytes;
            const uint8_t *sum = from + 4 * has_sign;
            uint64_t mask = bytes == 8 ? UINT64_MAX : MOST_32;
            if (size <= room && (!has_sign || get(from, 4) == IS_DESCRIPTOR) &&
                get(sum, 4) == record->crc && get(sum + 4, bytes) == (record->packed & mask) &&
                get(sum + 4 + bytes, bytes) == (record->size & mask))
                return size;
        }
    return 0;
}

static enum conv_status differs(const char *what, struct conv_err *err)
{
    return conv_err_format(
        err, "the member is damaged: its header and the directory of the zip file differ in its %s",
        what);
}

enum conv_status conv_zip_record_content(const struct conv_zip_file *file,
                                         const struct conv_zip_record *record,
                                         const uint8_t **content, uint64_t *end,
                                         struct conv_err *err)
{
    uint64_t at = file->base + record->offset, room = file->start - at;
    if (record->offset > file->start || at > file->start || room < HEADER ||
        get(file->data + at, 4) != IS_HEADER)
        return conv_err_format(err, "the member is not where the directory of the zip file says");
    const uint8_t *header = file->data + at;
    unsigned flags = (unsigned)get(header + 6, 2);
    struct conv_zip_record own = {
        .crc = (uint32_t)get(header + 14, 4),
        .packed = get(header + 18, 4),
        .size = get(header + 22, 4),
        .header_name = header + HEADER,
        .header_name_size = (size_t)get(header + 26, 2),
    };
    size_t extra = (size_t)get(header + 28, 2), before = HEADER + own.header_name_size + extra;
    if (room < before || room - before < record->packed)
        return conv_err_format(err, "the member is damaged: it does not fit into the zip file");
    if (own.header_name_size != record->header_name_size ||
        memcmp(own.header_name, record->header_name, own.header_name_size) != 0)
        return differs("name", err);
    if (get(header + 8, 2) != record->method ||
        ((flags ^ record->flags) & CONV_ZIP_IS_ENCRYPTED) != 0)
        return differs("method", err);
    read_extra(&own, header + before - extra, extra);
    *content = header + before;
    *end = at + before + record->packed;
    const uint8_t *after = *content + record->packed;
    uint64_t left = room - before - record->packed;
    uint64_t descriptor = flags & SUM_FOLLOWS ? descriptor_size(after, left, record) : 0;
    *end += descriptor;
    bool is_signed =
        (flags & SUM_FOLLOWS) != 0 && left >= 4 && get(after, 4) == IS_DESCRIPTOR && !descriptor;
    bool agrees = own.packed == record->packed && own.size == record->size;
    if (is_signed || (!descriptor && !agrees))
        return differs("size", err);
    return descriptor || own.crc == record->crc ? CONV_OK : differs("checksum", err);
}

// --- the directory -------------------------------------------------------------------------------

// What the end record at `at` says about the directory, or the one of zip64 before it. *end: the
// end of the directory.
struct end_record {
    uint64_t start, size, count, end;
    bool is_64, has_one_disk;
};

// False if the two records differ.
static bool read_end_record(const struct conv_zip_file *file, uint64_t at, struct end_record *end)
{
    const uint8_t *from = file->data + at;
    *end = (struct end_record){
        .start = get(from + 16, 4),
        .size = get(from + 12, 4),
        .count = get(from + 10, 2),
        .end = at,
        .has_one_disk = get(from + 4, 4) == 0 && get(from + 8, 2) == get(from + 10, 2),
    };
    if (at < LOCATOR_64 || get(from - LOCATOR_64, 4) != IS_LOCATOR_64)
        return true;
    uint64_t locator = at - LOCATOR_64, place = get(from - LOCATOR_64 + 8, 8);
    if (place > locator || locator - place < END_64 || get(file->data + place, 4) != IS_END_64)
        place = locator - END_64; // what comes before the file has moved it
    if (locator < END_64 || get(file->data + place, 4) != IS_END_64)
        return false;
    const uint8_t *from_64 = file->data + place;
    struct end_record small = *end;
    *end = (struct end_record){
        .start = get(from_64 + 48, 8),
        .size = get(from_64 + 40, 8),
        .count = get(from_64 + 32, 8),
        .end = place,
        .is_64 = true,
        .has_one_disk = get(from_64 + 16, 8) == 0 && get(from_64 + 24, 8) == get(from_64 + 32, 8),
    };
    return (small.start == MOST_32 || small.start == end->start) &&
           (small.size == MOST_32 || small.size == end->size) &&
           (small.count == MOST_16 || small.count == end->count);
}

// Takes the directory's place from the end record at `at`.
static enum conv_status find_directory(struct conv_zip_file *file, uint64_t at,
                                       struct end_record *end, struct conv_err *err)
{
    if (!read_end_record(file, at, end))
        return conv_err_format(err, "the zip file contradicts itself: its two end records differ");
    if (end->size > end->end || end->start > end->end - end->size)
        return conv_err_format(
            err,
            "the zip file contradicts itself, or is truncated: a directory of %" PRIu64
            " bytes at byte %" PRIu64 " does not fit before its end record at byte %" PRIu64,
            end->size, end->start, end->end);
    file->end = end->end;
    file->start = end->end - end->size;
    file->base = file->start - end->start;
    if (end->size == 0 && end->end > 0)
        return conv_err_format(
            err,
            "the zip file contradicts itself: its directory is empty, and %" PRIu64
            " bytes come before it",
            end->end);
    if (end->size > 0 && (end->size < RECORD || get(file->data + file->start, 4) != IS_RECORD))
        return conv_err_format(
            err,
            "the zip file contradicts itself: its directory does not begin %" PRIu64
            " bytes before its end record",
            end->size);
    uint64_t first = end->size > 0 ? get(file->data + file->start + 42, 4) : MOST_32;
    if (file->base > 0 && first != MOST_32 &&
        (first > end->start || get(file->data + file->base + first, 4) != IS_HEADER))
        return conv_err_format(
            err, "the zip file contradicts itself: place or size of its directory is wrong");
    return CONV_OK;
}

// Sets *at to the offset of the last end record whose comment ends with the file, and whose
// directory is there; else to the last one at all. False if there is none.
static bool find_end(struct conv_zip_file *file, uint64_t *at, bool *is_exact)
{
    bool any = false;
    *is_exact = false;
    for (uint64_t rest = 0; rest <= COMMENT_MOST && rest + END <= file->size; rest++) {
        uint64_t place = file->size - END - rest;
        const uint8_t *from = file->data + place;
        struct end_record end;
        if (get(from, 4) != IS_END)
            continue;
        bool exact = get(from + 20, 2) == rest;
        bool whole = exact && find_directory(file, place, &end, NULL) == CONV_OK;
        if (!any || whole || (exact && !*is_exact))
            *at = place;
        *is_exact |= exact;
        any = true;
        if (whole)
            break;
    }
    return any;
}

static enum conv_status refuse_count(uint64_t said, uint64_t count, struct conv_err *err)
{
    return conv_err_format(err,
                           "the zip file contradicts itself: it says that it has %" PRIu64
                           " members, and %" PRIu64 " are there",
                           said, count);
}

enum conv_status conv_zip_check_tail(const uint8_t *data, size_t size, uint64_t count,
                                     struct conv_err *err)
{
    for (size_t rest = 0; rest + END <= size; rest++) {
        const uint8_t *from = data + size - END - rest;
        if (get(from, 4) != IS_END || get(from + 20, 2) != rest)
            continue;
        uint64_t said = get(from + 10, 2);
        return said == (count & MOST_16) || said == MOST_16 ? CONV_OK
                                                            : refuse_count(said, count, err);
    }
    return conv_err_format(err,
                           "the archive is truncated in its directory, or other data follows it");
}

static enum conv_status doubt(struct conv_zip_file *file, const struct end_record *end,
                              uint64_t comment, uint64_t rest)
{
    struct conv_err *err = &file->doubt;
    uint64_t said = end->count, most = end->is_64 ? UINT64_MAX : MOST_16;
    if (said != (file->count & most)) // without zip64, programs count from 0 again
        return refuse_count(said, file->count, err);
    if (!end->has_one_disk)
        return conv_err_format(err, "the zip file contradicts itself, or is one of several parts");
    if (comment > rest)
        return conv_err_format(err, "the zip file is truncated in its comment");
    if (comment < rest)
        return conv_err_format(err, "%" PRIu64 " bytes follow the zip file", rest - comment);
    return CONV_OK;
}

enum conv_status conv_zip_file_open(struct conv_zip_file *file, const uint8_t *data, uint64_t size,
                                    struct conv_err *err)
{
    uint64_t at = 0;
    bool is_exact;
    struct end_record end;
    *file = (struct conv_zip_file){.data = data, .size = size, .is_usual = true};
    bool any = find_end(file, &at, &is_exact);
    enum conv_status status = any ? find_directory(file, at, &end, err) : CONV_OK;
    // Without its own end, the end of a zip file within a member may have been found.
    if (!any || (!status && !is_exact && file->base > 0)) {
        (void)conv_err_format(&file->doubt, "the archive is truncated: its directory is missing");
        return CONV_ERR_UNSUPPORTED;
    }
    if (status)
        return status;
    struct conv_zip_record record;
    for (uint64_t next = file->start; conv_zip_record_next(file, &next, &record); file->count++)
        file->is_usual &=
            record.method == 0 || record.method == 8 || (record.flags & CONV_ZIP_IS_ENCRYPTED) != 0;
    (void)doubt(file, &end, get(data + at + 20, 2), size - END - at);
    return CONV_OK;
}
