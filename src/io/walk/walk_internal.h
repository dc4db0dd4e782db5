// SPDX-License-Identifier: MIT
// A walk's state, for the files that make it up: walk.c counts steps and divides them among shards,
// walk_inputs.c takes them from the operands.
#ifndef CONV_WALK_WALK_INTERNAL_H
#define CONV_WALK_WALK_INTERNAL_H

#include <limits.h>

#include "base/digest.h"
#include "io/walk/archive_source.h"
#include "io/walk/folder_source.h"
#include "io/walk/list_source.h"
#include "io/walk/sorted_source.h"
#include "io/walk/walk.h"
#include "io/walk/watch.h"

// --- folders of archives -------------------------------------------------------------------------

// Where archives become files beside those of other inputs, the folder that each gets for its
// members: "a.tar.gz" gets "a", and if another input would get that, too, "a.tar.gz". One thread at
// a time.

// Starts as {0}.
struct conv_archive_folders {
    struct conv_digest_set used, shared; // short names
};

// An input: an archive, or a file or folder, which keeps its name. CONV_ERR_MEMORY.
enum conv_status conv_archive_folders_add(struct conv_archive_folders *folders, const char *path,
                                          bool is_archive, struct conv_err *err);

void conv_archive_folders_free(struct conv_archive_folders *folders);

// --- walks ---------------------------------------------------------------------------------------

// A step that was taken ahead.
struct peeked {
    enum conv_source_step step;
    struct conv_item item;
    struct conv_err err;
};

struct conv_walk {
    struct conv_source source;
    struct conv_walk_config config;
    struct conv_operands_shape shape;
    int next_input;
    struct conv_folder_source folder;  // the input that is being walked, if it is a folder
    struct conv_sorted_source *sorted; // the same, sorted by name; or NULL
    struct conv_archive_operands archives;
    struct conv_archive_source archive;  // the input, if it is an archive
    struct conv_archive_folders folders; // of archives that become files
    struct conv_list_source list;
    struct conv_watch *watch; // NULL: folders are not watched
    bool found_all;           // with a watch: what was there at first has been handed out
    uint64_t items, listed;
    struct conv_digest names; // sum of the digests of listed names
    bool is_over;
    bool has_ended;        // only links that were held come
    struct peeked *peeked; // NULL: nothing
};

// The next step of the operands, without a watch; CONV_SOURCE_END after the last of them. Errors as
// of conv_source_next.
enum conv_source_step conv_walk_next_input(struct conv_walk *walk, struct conv_item *item,
                                           struct conv_err *err);

// The offset in an input folder's path at which the names below the sink begin.
size_t conv_walk_folder_target(const struct conv_walk *walk, const char *folder);

// Counts an image, or an archive that is divided as a whole. False if it is in another shard.
bool conv_walk_count_name(struct conv_walk *walk, const char *name, bool listed);

#endif
