// SPDX-License-Identifier: MIT
// The central directory of a zip file in memory, read one record at a time: memory does not grow
// with the number of entries. Private to src/io/zip_*.c. Any thread.
#ifndef CONV_IO_ZIP_RECORDS_H
#define CONV_IO_ZIP_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// A whole zip file, whose bytes belong to the caller, and the place of its directory.
struct conv_zip_file {
    const uint8_t *data;
    uint64_t size;
    uint64_t start, end; // of the directory
};

struct conv_zip_record {
    const uint8_t *name; // not ended by NUL
    size_t name_size;
    unsigned flags, method, made_by; // made_by: 0 is DOS, 3 is Unix
    unsigned mode;                   // of Unix, with the file's type; 0 if there is none
    time_t mtime;                    // without a time zone in the file: as UTC
    uint32_t crc;
    uint64_t packed, size;
    uint64_t offset; // of the entry's header
};

#define CONV_ZIP_IS_ENCRYPTED 1u // of flags

// Finds the directory and reads all of it once. False for whatever an ordinary archiver would not
// write: no directory, one that lies elsewhere than it says, records that contradict each other,
// entries that share bytes, compression other than deflate, names in an extension.
bool conv_zip_file_open(struct conv_zip_file *file, const uint8_t *data, uint64_t size);

// True if the end record of a zip file is there, even if only in part.
bool conv_zip_file_has_end(const uint8_t *data, uint64_t size);

// The record at offset *at, which moves to the next one. False at the end of the directory.
bool conv_zip_record_next(const struct conv_zip_file *file, uint64_t *at,
                          struct conv_zip_record *record);

// The bytes of an entry, record->packed of them. NULL if its own header is not there or has another
// name.
const uint8_t *conv_zip_record_content(const struct conv_zip_file *file,
                                       const struct conv_zip_record *record);

#endif
