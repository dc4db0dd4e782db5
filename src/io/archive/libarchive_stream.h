// SPDX-License-Identifier: MIT
// What stands between archive.c and libarchive, or libarchive_none.c, which takes its place in a
// build without it. Private to src/io/archive/.
#ifndef CONV_ARCHIVE_LIBARCHIVE_STREAM_H
#define CONV_ARCHIVE_LIBARCHIVE_STREAM_H

#include <locale.h>

#include "io/archive/archive.h"
#include "io/archive/archive_input.h"

struct archive; // of libarchive

// Reads zip and 7-Zip. As conv_archive_format.read.
enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err);

// --- the bytes of an archive (libarchive_stream.c) -----------------------------------------------

// The bytes of an archive for libarchive. It is opened for one format alone and without compressors
// around it, since each is code that reads hostile bytes. Private to src/io/libarchive_*.c.

struct conv_libarchive_stream {
    struct archive *archive;
    struct conv_archive_input *input;
    locale_t locale;   // UTF-8, in which the library converts names; 0: the system has none
    bool is_7z;        // else zip
    uint64_t after_7z; // bytes that follow the archive
    uint8_t *tail;     // the last bytes of an input that is not mapped; else NULL
    size_t tail_size;
    struct conv_err failure; // of the input, which the library cannot carry
};

// CONV_ERR_FORMAT, CONV_ERR_UNSUPPORTED, CONV_ERR_IO, CONV_ERR_MEMORY, CONV_ERR_CANCELLED; nothing
// is to be closed then. The input must outlive the stream.
enum conv_status conv_libarchive_stream_open(struct conv_libarchive_stream *stream,
                                             struct conv_archive_input *input,
                                             struct conv_err *err);
void conv_libarchive_stream_close(struct conv_libarchive_stream *stream);

// To be called around calls of the library that handle names.
locale_t conv_libarchive_stream_enter(const struct conv_libarchive_stream *stream);
void conv_libarchive_stream_leave(locale_t before);

// Reports why the library's last call failed: `what` and the library's message, or the failure of
// the input.
enum conv_status conv_libarchive_stream_explain(const struct conv_libarchive_stream *stream,
                                                const char *what, struct conv_err *err);

// False if the archive has expanded too far, `contents` being the bytes of its members so far; the
// failure is set then.
bool conv_libarchive_stream_check(struct conv_libarchive_stream *stream, uint64_t contents);

// Checks what follows the last of `members` members. As `open`.
enum conv_status conv_libarchive_stream_finish(struct conv_libarchive_stream *stream,
                                               uint64_t members, struct conv_err *err);

#endif
