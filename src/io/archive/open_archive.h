// SPDX-License-Identifier: MIT
// An archive that is being written: its members, the mark of its end, and its name.
#ifndef CONV_ARCHIVE_OPEN_ARCHIVE_H
#define CONV_ARCHIVE_OPEN_ARCHIVE_H

#include <stdbool.h>

#include "base/err.h"
#include "io/archive/archive.h"
#include "io/archive/archive_entry.h"
#include "io/archive/archive_order.h"
#include "io/archive/archive_output.h"
#include "io/files/journal.h"

// The turn and the lock are those of the order that opened it: archive_order.c.
struct conv_open_archive {
    struct conv_archive_output output; // of the turn, except for writing at offsets
    struct conv_archive_writer *writer;
    int target;     // this and the rest are guarded by the lock; -1: none is open
    int writing;    // members that are placed and not yet written
    bool is_sealed; // no member will be placed any more
};

// Writes a member: after the one before it where the archive is a stream or has a writer, else at
// entry->offset. Of a file of plain tar, any thread, several at a time; else one at a time. An
// error of the member's input takes precedence: CONV_ERR_IO; else the error of the writer.
enum conv_status conv_open_archive_write(struct conv_open_archive *archive,
                                         const struct conv_archive_target *target,
                                         const struct conv_archive_entry *entry,
                                         struct conv_err *err);

// Closes an archive whose members are all written; with `keep` it is completed, noted in the
// journal (NULL: in none) and gets its name, else it is removed. One thread.
enum conv_status conv_open_archive_finish(struct conv_open_archive *archive,
                                          const struct conv_archive_target *target, bool keep,
                                          bool fsync, struct conv_journal *journal,
                                          struct conv_err *err);

#endif
