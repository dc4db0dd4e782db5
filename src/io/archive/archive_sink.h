// SPDX-License-Identifier: MIT
// Archives that are written (conv_sink_open): members come from several threads and are written in
// order.
#ifndef CONV_ARCHIVE_ARCHIVE_SINK_H
#define CONV_ARCHIVE_ARCHIVE_SINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "io/archive/archive.h"
#include "io/sink.h"

// An input of an archive to be written, as it was before it was read.
struct conv_archive_origin {
    const char *path;
    struct stat info;
};

// One archive to be written.
struct conv_archive_target {
    char *path;
    const struct conv_archive_format *format;
    atomic_bool is_written; // it is complete and has its name
    atomic_bool is_due;     // it appears, even if it has no member
    const char *done;       // why it is not written again; NULL: it is written
    // Its inputs, which the journal records once it is complete; malloc'ed, or NULL:
    // archive_operands.h.
    struct conv_archive_origin *origins;
    int origin_count;
    bool misses; // an input was missing
};

#endif
