// SPDX-License-Identifier: MIT
// The members of archives as a source, one archive after the other: images to be filtered, and
// other members, to be copied unchanged.
//
// Members of a mapped archive are decoded in place. Those of a stream are read into memory one by
// one; conv_source_is_full is true while many of them are in use, so a stream of any length takes
// constant memory.
#ifndef CONV_WALK_ARCHIVE_SOURCE_H
#define CONV_WALK_ARCHIVE_SOURCE_H

#include "io/archive/archive_members.h"
#include "io/archive/member_path.h"
#include "io/source.h"
#include "io/walk/folder_source.h"

struct conv_archive_source_config {
    struct conv_folder_rules rules; // which names are images
    bool images_only;               // other members than images are skipped
    // Outputs are files below this folder: members need names that stay in it, and links cannot be
    // copied. NULL: outputs are archives, which take every name.
    const char *folder;
    struct conv_folder_source *passed; // counts the files that are skipped
    atomic_int *stop;                  // ends waits for a stream; may be NULL
};

struct conv_archive_held {
    struct conv_archive_held *next;
    struct conv_archive_body *body;
    const char *path; // of its archive
    int target, holds;
};

struct conv_archive_source {
    struct conv_source source;
    struct conv_archive_source_config config;
    atomic_size_t held;             // bytes in memory: members of streams, copies of archives
    size_t usual, most;             // as in conv_source_ops.limit
    struct conv_archive_unit *unit; // NULL: none is open
    const char *path;               // of it
    atomic_bool *is_due;            // as in struct conv_archive_target; may be NULL
    char below[NAME_MAX + 1];       // the folder that its members get below config.folder; or ""
    bool is_broken;                 // a failure of reading was reported
    bool has_begun;                 // it had a header
    uint64_t others;                // members passed by
    char other[256];                // the first of them
    struct conv_member_links links;
    struct conv_archive_held *held_first, **held_end; // links that come later
    struct conv_archive_unit *closed; // the archive of all of them: their own may be closed
};

// Has to be closed, even if it was never begun. Keeps the arrays of *config.
void conv_archive_source_init(struct conv_archive_source *source,
                              const struct conv_archive_source_config *config);
void conv_archive_source_close(struct conv_archive_source *source);

// The next link of conv_source_hold, first come, first served; else CONV_SOURCE_END.
enum conv_source_step conv_archive_source_next_held(struct conv_archive_source *source,
                                                    struct conv_item *item, struct conv_err *err);

// Leaves the archive that is being read.
void conv_archive_source_leave(struct conv_archive_source *source);

// An archive that is about to be read.
struct conv_archive_source_unit {
    const char *path; // for names and messages; "-" for standard input
    const struct conv_archive_format *format;
    int target;          // number of the archive that its members are written to
    const char *below;   // as in struct conv_archive_source
    atomic_bool *is_due; // set once the archive has been read, whole or in part; may be NULL
};

// Begins with an archive, after the end of the one before. Takes *input over, which is {.fd = -1}
// afterwards. CONV_ERR_MEMORY, and as conv_archive_format.read.
enum conv_status conv_archive_source_begin(struct conv_archive_source *source,
                                           const struct conv_archive_source_unit *unit,
                                           struct conv_archive_input *input, struct conv_err *err);

#endif
