// SPDX-License-Identifier: MIT
// The central directory of a zip file in memory, read one record at a time: memory does not grow
// with the number of entries. Private to src/io/zip_*.c. Any thread.
#ifndef CONV_ARCHIVE_ZIP_RECORDS_H
#define CONV_ARCHIVE_ZIP_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

// A whole zip file, whose bytes belong to the caller, and the place of its directory.
struct conv_zip_file {
    const uint8_t *data;
    uint64_t size;
    uint64_t start, end;   // of the directory
    uint64_t base;         // bytes that were put before the file without a change of its offsets
    uint64_t count;        // of records, up to damage of the directory
    bool is_usual;         // all entries are stored or deflated
    struct conv_err doubt; // what does not fit together, although the entries can be read
};

struct conv_zip_record {
    const uint8_t *name; // not ended by NUL
    size_t name_size;
    const uint8_t *header_name; // as in the entry's own header; `name` may be one in UTF-8
    size_t header_name_size;
    unsigned flags, method, made_by; // made_by: 0 is DOS, 3 is Unix
    unsigned mode;                   // of Unix, with the file's type; 0 if there is none
    bool is_dos_folder;              // by its attributes
    bool lacks_sizes;                // which should be in an extra field
    time_t mtime;                    // without a time zone in the file: as UTC
    uint32_t crc;
    uint64_t packed, size;
    uint64_t offset; // of the entry's header, from file->base
};

#define CONV_ZIP_IS_ENCRYPTED 1u // of flags

// Finds the directory and reads all of it once. CONV_ERR_UNSUPPORTED: there is none, as file->doubt
// says. CONV_ERR_FORMAT: it is not where its end record says, or of another size.
enum conv_status conv_zip_file_open(struct conv_zip_file *file, const uint8_t *data, uint64_t size,
                                    struct conv_err *err);

// Checks the last bytes of a zip file whose directory was not read, CONV_ZIP_TAIL of them if there
// are as many: that its end is there, and says that it has `count` entries. CONV_ERR_FORMAT.
#define CONV_ZIP_TAIL (22 + 65535)
enum conv_status conv_zip_check_tail(const uint8_t *data, size_t size, uint64_t count,
                                     struct conv_err *err);

// The record at offset *at, which moves to the next one. False if there is none.
bool conv_zip_record_next(const struct conv_zip_file *file, uint64_t *at,
                          struct conv_zip_record *record);

// Finds the bytes of an entry, record->packed of them, and compares its own header, and what may
// follow its content, with the record. *end: offset of what comes after it. CONV_ERR_FORMAT.
enum conv_status conv_zip_record_content(const struct conv_zip_file *file,
                                         const struct conv_zip_record *record,
                                         const uint8_t **content, uint64_t *end,
                                         struct conv_err *err);

#endif
