// SPDX-License-Identifier: MIT
// The parts of the reader and the writer of zip files. Private to src/io/archive/zip_*.c, apart
// from the functions that archive.c has in its table.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "io/archive/archive.h"

// --- the directory of a file that is read (zip_records.c) ----------------------------------------

// The central directory of a zip file in memory, read one record at a time: memory does not grow
// with the number of entries. Any thread.

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

// --- reading (zip_read.c) ------------------------------------------------------------------------

// Reads zip files. Ordinary ones that are mapped are read without libarchive: stored members are
// handed out by pointer, damage to one member leaves the others readable, and memory does not grow
// with their number. Other compression, files without a directory and pipes are left to libarchive,
// but what does not fit together is found here. As conv_archive_format.read.
enum conv_status conv_zip_read(struct conv_archive_reader **reader,
                               struct conv_archive_input *input, struct conv_err *err);

// --- the directory of a file that is written (zip_write.c) ---------------------------------------

// Records of a zip file that is being written: the header before an entry, and the central
// directory, which is collected while entries are written. APPNOTE.TXT 6.3.10 of PKWARE defines
// them.

enum conv_zip_method { CONV_ZIP_STORED = 0, CONV_ZIP_DEFLATED = 8 };

struct conv_zip_entry {
    const char *name; // any bytes; a folder's ends in a slash
    size_t name_size; // 1 to CONV_ZIP_NAME_MOST
    unsigned mode;    // with the file's type
    time_t mtime;
    enum conv_zip_method method;
    uint32_t crc;
    uint64_t packed, size; // bytes in the archive, and without compression
    uint64_t offset;       // of the header
};

#define CONV_ZIP_NAME_MOST 32768
#define CONV_ZIP_HEADER_MOST (128 + CONV_ZIP_NAME_MOST) // bytes of any record of an entry
#define CONV_ZIP_END_MOST 128

// Writes the header to `dst`, with room for CONV_ZIP_HEADER_MOST bytes, and returns its size.
size_t conv_zip_header(uint8_t *dst, const struct conv_zip_entry *entry);

// The central directory. Starts as {0}. What does not fit into a buffer goes to a temporary file,
// so that memory does not grow with the number of entries.
struct conv_zip_directory {
    uint8_t *buffer;
    size_t used;
    FILE *file;    // NULL: all of it is in the buffer
    bool is_taken; // conv_zip_directory_take was called
    uint64_t size; // of all records
    uint64_t count;
};

// CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_zip_directory_add(struct conv_zip_directory *directory,
                                        const struct conv_zip_entry *entry, struct conv_err *err);

// Hands out the directory piece by piece: sets *data and returns how many bytes, 0 at the end, -1
// with *err. Nothing can be added any more.
ptrdiff_t conv_zip_directory_take(struct conv_zip_directory *directory, const uint8_t **data,
                                  struct conv_err *err);

// What ends a zip file whose directory begins at `offset`. dst: CONV_ZIP_END_MOST bytes; returns
// how many it took.
size_t conv_zip_directory_end(uint8_t *dst, const struct conv_zip_directory *directory,
                              uint64_t offset);

void conv_zip_directory_free(struct conv_zip_directory *directory); // leaves {0}

// Writes zip files. The bytes depend on the members alone, and every entry can be read from a pipe;
// neither is true of libarchive's writer. As conv_archive_format.write. Images and other compressed
// files are stored, the rest is deflated. Owners are not kept; hard links and devices are
// CONV_ERR_UNSUPPORTED.
enum conv_status conv_zip_write(struct conv_archive_writer **writer,
                                struct conv_archive_output *output, struct conv_err *err);

// As conv_archive_format.check.
enum conv_status conv_zip_check(const struct conv_archive_member *member, struct conv_err *err);
