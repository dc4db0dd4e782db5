// SPDX-License-Identifier: MIT
// Archives: what a format has to provide so that members can be read and written. Plain tar
// (conv_tar) and ordinary zip files (zip.h) are conv's own code; the other
// formats are libarchive's. Sources and sinks use only these tables.
//
// Threads: a reader, a writer, an input and an output belong to one thread at a time, except where
// a function says otherwise.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "image/format.h"

struct conv_archive_input;  // the bytes of an archive: archive_input.h
struct conv_archive_output; // where an archive is written to: archive_output.h

// --- members -------------------------------------------------------------------------------------

enum conv_archive_kind {
    CONV_ARCHIVE_FILE,
    CONV_ARCHIVE_FOLDER,
    CONV_ARCHIVE_SYMLINK,
    CONV_ARCHIVE_HARDLINK, // to an earlier member
    CONV_ARCHIVE_DEVICE,   // a device, FIFO or socket
};

// What an archive says about a member. Nothing in it can be trusted: names may be absolute, contain
// "..", any bytes but NUL, and occur twice; any string may be "". No pointer is NULL.
struct conv_archive_member {
    enum conv_archive_kind kind;
    const char *name;  // of a folder without the slash at its end
    const char *link;  // the target of a link; "" otherwise
    uint64_t size;     // bytes of the content; 0 unless it is a file
    bool size_unknown; // a stream whose size is known at its end only; `size` is 0
    unsigned mode;     // permissions, 07777 at most
    struct timespec mtime;
    uint64_t uid, gid;
    const char *uname, *gname; // "" if the archive has none
};

// --- reading -------------------------------------------------------------------------------------

enum conv_archive_step {
    CONV_ARCHIVE_MEMBER,
    // The member cannot be read (encrypted, sparse, of an unknown compression, ...): *err has the
    // reason, member->name is set if it is known, else "". The members after it can be read.
    CONV_ARCHIVE_BAD,
    CONV_ARCHIVE_END,
    // The archive is truncated or damaged here, or cannot be read any further: *err has the reason.
    // No further call of `next`.
    CONV_ARCHIVE_DAMAGED,
};

struct conv_archive_reader;

struct conv_archive_reader_ops {
    // The next member; skips what is left of the one before. The strings of *member are valid until
    // the next call. *err: CONV_ERR_FORMAT, CONV_ERR_UNSUPPORTED, CONV_ERR_LIMIT, CONV_ERR_IO,
    // CONV_ERR_MEMORY, CONV_ERR_CANCELLED.
    enum conv_archive_step (*next)(struct conv_archive_reader *reader,
                                   struct conv_archive_member *member, struct conv_err *err);

    // The content of the current file by pointer, member->size bytes, valid for as long as the
    // input is open, from any thread. NULL if it has to be read; the function itself may be NULL.
    const uint8_t *(*map)(struct conv_archive_reader *reader);

    // The next bytes of the content of the current file, at most `size`; 0 at its end. -1 with *err
    // as for `next`. Bytes that were read before a failure are correct, but the member is
    // incomplete. After -1 `next` may be called: it continues with the next member if the format
    // allows that, else it returns CONV_ARCHIVE_DAMAGED.
    ssize_t (*read)(struct conv_archive_reader *reader, void *data, size_t size,
                    struct conv_err *err);

    // Frees the reader, not its input.
    void (*close)(struct conv_archive_reader *reader);
};

// The first member of every reader.
struct conv_archive_reader {
    const struct conv_archive_reader_ops *ops;
};

// --- writing -------------------------------------------------------------------------------------

#define CONV_ARCHIVE_FRAME_MOST (4096 + 2 * PATH_MAX)
#define CONV_ARCHIVE_AFTER_MOST 512

// The bytes around a member's content, for formats in which they depend only on the member.
struct conv_archive_frame {
    size_t before, after; // bytes; `after`: zeros, at most 511
    uint8_t head[CONV_ARCHIVE_FRAME_MOST];
};

struct conv_archive_writer;

struct conv_archive_writer_ops {
    // Writes a member; member->size is the size of *content, which is NULL unless it is a file.
    // Members are written in the order of the calls. CONV_ERR_IO, CONV_ERR_MEMORY,
    // CONV_ERR_CANCELLED: the archive is unusable. Fails as conv_archive_format.check if the format
    // cannot hold this member; nothing was written then, and other members can be.
    enum conv_status (*append)(struct conv_archive_writer *writer,
                               const struct conv_archive_member *member,
                               const struct conv_encoded *content, struct conv_err *err);

    // Writes the end of the archive; after that the writer only has to be closed. Errors as
    // `append`.
    enum conv_status (*finish)(struct conv_archive_writer *writer, struct conv_err *err);

    // Frees the writer, finished or not; writes nothing. Its output stays open.
    void (*close)(struct conv_archive_writer *writer);
};

// The first member of every writer.
struct conv_archive_writer {
    const struct conv_archive_writer_ops *ops;
};

// --- formats -------------------------------------------------------------------------------------

// A file's first bytes that are enough for conv_archive_of_bytes; fewer are a whole file.
#define CONV_ARCHIVE_HEAD 512

struct conv_archive_format {
    const char *name;              // "tar", "zip", "tar.gz": for the user to choose it
    const char *const *extensions; // of files, with the dot, matched in upper and lower case; NULL
                                   // ends the list

    bool seeks; // it is read in any order: its directory is at its end

    // A file that begins with one of these bytes is of this format. NULL ends the list; without
    // one, conv_tar_recognise decides.
    const char *const *magics;

    // Opens an archive for reading. The input stays the caller's and must outlive the reader; its
    // position is at its first byte. NULL or CONV_ERR_UNSUPPORTED: it cannot be read, or this build
    // has no library for it. CONV_ERR_FORMAT, CONV_ERR_IO, CONV_ERR_MEMORY,
    // CONV_ERR_CANCELLED.
    enum conv_status (*read)(struct conv_archive_reader **reader, struct conv_archive_input *input,
                             struct conv_err *err);

    // Whether the format can hold such a member. CONV_ERR_LIMIT, CONV_ERR_UNSUPPORTED,
    // CONV_ERR_FORMAT with the reason. NULL: the format cannot be written.
    enum conv_status (*check)(const struct conv_archive_member *member, struct conv_err *err);

    // The bytes around each member, and after `at` bytes of members the zeros at the end of the
    // archive (NULL: none): with these, plain tar can be written at any offset and from any thread.
    // frame is NULL: the format has a writer instead. It fails as `check`.
    enum conv_status (*frame)(const struct conv_archive_member *member,
                              struct conv_archive_frame *frame, struct conv_err *err);
    size_t (*trailer)(uint64_t at);

    // Opens an archive for writing. The output stays the caller's and must outlive the writer. NULL
    // or CONV_ERR_UNSUPPORTED as for `read`; CONV_ERR_MEMORY, CONV_ERR_IO.
    enum conv_status (*write)(struct conv_archive_writer **writer,
                              struct conv_archive_output *output, struct conv_err *err);
};

extern const struct conv_archive_format conv_archive_tar;

// image_stream.c: images one after the other, without anything between them. Their names are made
// up: stdin-000001.png. It has no name of its own, and no first bytes but those of an image.
extern const struct conv_archive_format conv_archive_images;

// True if an image begins at the position of the input, which is not mapped, and another follows
// it. Reads all of the first one, unless it is larger than the memory for it, then false, or has
// more pixels than input->max_pixels, then true: others may follow.
bool conv_archive_images_follow(struct conv_archive_input *input);

// Reads zip and 7-Zip by libarchive. As conv_archive_format.read.
enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err);

// The format that a file's first bytes, its name, or the name of a format stands for; NULL: none.
const struct conv_archive_format *conv_archive_of_bytes(const uint8_t *head, size_t size);
const struct conv_archive_format *conv_archive_of_path(const char *path);
// The same; a format without functions if other programs' archives have that extension.
const struct conv_archive_format *conv_archive_of_output(const char *path);
const struct conv_archive_format *conv_archive_of_name(const char *name);
