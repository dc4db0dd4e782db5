// SPDX-License-Identifier: MIT
// A member that is to be written into an archive: the one that a thread hands over, or a copy that
// waits.
//
// An entry belongs to one thread at a time.
#ifndef CONV_ARCHIVE_ARCHIVE_ENTRY_H
#define CONV_ARCHIVE_ARCHIVE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/archive/archive.h"
#include "io/archive/archive_body.h"
#include "io/archive/archive_buffers.h"

struct conv_open_archive;

struct conv_archive_entry {
    struct conv_open_archive *to; // once it is placed
    int target;
    bool is_dropped, lacks; // the second: the archive is incomplete without it
    struct conv_archive_member member;
    struct conv_encoded content;
    struct conv_archive_body *body;  // retained; or NULL
    uint64_t offset;                 // its place in a file of plain tar
    size_t copied;                   // bytes that count as waiting
    struct conv_archive_entry *next; // in the list of placed ones
    uint8_t *own;                    // the content, unless it has a body; of `buffers`
    // After it: the member's strings.
};

// A copy that can wait: it has its own strings and content, or retains `body`. NULL without memory.
struct conv_archive_entry *conv_archive_entry_copy(struct conv_archive_buffers *buffers,
                                                   const struct conv_archive_entry *from);

// Frees a copy, or an entry from calloc that is dropped. `buffers` are those with which it was
// made. NULL is fine.
void conv_archive_entry_free(struct conv_archive_buffers *buffers,
                             struct conv_archive_entry *entry);

#endif
