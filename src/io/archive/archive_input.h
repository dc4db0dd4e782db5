// SPDX-License-Identifier: MIT
// The bytes of an archive: a file that is mapped where that is possible, or a stream that is read
// from its beginning to its end; or what they are decompressed to. One thread at a time, except
// where a function says otherwise.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

struct conv_archive_input {
    int fd; // -1: not open, or bytes in memory
    bool owns_fd;
    struct stat info;   // of the descriptor
    const uint8_t *map; // the whole archive, or NULL: it can only be read
    bool is_copy;       // the map is memory of the process, which a change of the file leaves alone
    uint64_t size;      // of the map
    uint64_t at;        // position: of the next byte that is handed out
    uint64_t forgotten; // bytes of the map that are no longer in this process's memory
    atomic_int *stop;   // ends waits once it is not 0; may be NULL

    struct conv_unpack *unpack; // where the bytes come from; NULL: from `fd`

    // Of an input that is not mapped: buffer[first..end) is read and not yet handed out.
    uint8_t *buffer;
    size_t first, end, capacity;
    size_t most;         // capacity that conv_archive_input_look may take; 0: a default
    uint64_t max_pixels; // images of more are not read further than that shows; 0: they are
    size_t step;         // bytes that are read into the buffer at a time at most; 0: what fits
    bool over;           // the end was read
};

// Opens a file or a pipe; "-" is standard input, which stays open. `may_map`: false to read even
// what could be mapped. CONV_ERR_IO, CONV_ERR_FORMAT for a folder, CONV_ERR_MEMORY; nothing is open
// then.
enum conv_status conv_archive_input_open(struct conv_archive_input *input, const char *path,
                                         bool may_map, atomic_int *stop, struct conv_err *err);

// Copies an unmapped file of at most `most` bytes, of which nothing was read, to memory: it can
// then be used like a mapped one. Larger ones, and what is no file, stay as they are. CONV_ERR_IO,
// CONV_ERR_CANCELLED.
enum conv_status conv_archive_input_copy(struct conv_archive_input *input, size_t most,
                                         struct conv_err *err);

// Opens bytes in memory, which stay the caller's.
void conv_archive_input_open_bytes(struct conv_archive_input *input, const uint8_t *data,
                                   size_t size);

// The same for what a compressed archive is decompressed to; *unpack stays the caller's.
// CONV_ERR_MEMORY.
enum conv_status conv_archive_input_open_unpacked(struct conv_archive_input *input,
                                                  struct conv_unpack *unpack, struct conv_err *err);
void conv_archive_input_close(struct conv_archive_input *input); // {0} is fine

// Bytes of the archive as it is stored: of all of it if it is mapped, else of what has been read.
// What it may expand to depends on them.
uint64_t conv_archive_input_stored(const struct conv_archive_input *input);

// The next bytes without a copy, at most `most`: sets *data, advances the position, and returns how
// many, 0 at the end. Valid until the next call that reads; for as long as the input is open if it
// is mapped. -1 with *err: CONV_ERR_IO, or CONV_ERR_CANCELLED. Waits for a pipe.
ssize_t conv_archive_input_take(struct conv_archive_input *input, const uint8_t **data, size_t most,
                                struct conv_err *err);

// As many bytes as there are, up to `most` (CONV_ARCHIVE_INPUT_PEEK), without advancing.
#define CONV_ARCHIVE_INPUT_PEEK 65536
ssize_t conv_archive_input_peek(struct conv_archive_input *input, const uint8_t **data, size_t most,
                                struct conv_err *err);

// The same for an input that is not mapped, at least `least` bytes unless it ends, and all others
// that were read. CONV_ERR_LIMIT if that is more than input->most; CONV_ERR_MEMORY.
ssize_t conv_archive_input_look(struct conv_archive_input *input, const uint8_t **data,
                                uint64_t least, struct conv_err *err);

// Reads into `data` until it holds `size` bytes or the input ends. Returns how many; -1 as above.
ssize_t conv_archive_input_read(struct conv_archive_input *input, void *data, size_t size,
                                struct conv_err *err);

// Advances the position by `count` bytes. Returns how many there were; -1 as above.
int64_t conv_archive_input_skip(struct conv_archive_input *input, uint64_t count,
                                struct conv_err *err);

// Sets the position of a mapped input; false if it is not mapped or shorter.
bool conv_archive_input_seek(struct conv_archive_input *input, uint64_t at);

// True if reading a member may wait: little is in the buffer and the pipe is empty.
bool conv_archive_input_may_wait(const struct conv_archive_input *input);

// Brings a part of the map into memory with one call, which is faster than a fault per page.
// CONV_ERR_IO if the file has become shorter or cannot be read. Any thread.
enum conv_status conv_archive_input_touch(const struct conv_archive_input *input,
                                          const uint8_t *data, size_t size, struct conv_err *err);

// Makes the system fetch what comes next, and removes what lies far before the position from this
// process's memory; it can still be read. Cheap; to be called once in a while.
void conv_archive_input_advance(struct conv_archive_input *input);
