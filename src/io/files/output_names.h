// SPDX-License-Identifier: MIT
// The names of a run's outputs. No name is given twice, however it is spelled, and none is both a
// file and a folder: the second one is refused, in the order of the items. Also what became of the
// members of archives, for links to them.
//
// Takes 21 to 43 bytes per name and folder, twice that for members that are renamed. Claims come
// from one thread at a time; any thread may call the other functions.
#pragma once

#include <stdbool.h>

#include "base/digest.h"
#include "base/lock.h"

#define CONV_OUTPUT_LINKS 1024 // chains

struct conv_output_names {
    struct conv_lock lock; // guards all below
    struct conv_digest_set facts;
    struct conv_output_link *links[CONV_OUTPUT_LINKS]; // symbolic links, by their digests
};

void conv_output_names_open(struct conv_output_names *names);
void conv_output_names_close(struct conv_output_names *names);

struct conv_output_claim {
    int archive;          // that the output goes to; 0 if outputs are files
    const char *name;     // of the output
    const char *original; // of the member that it is made from; NULL: the same
    const char *owner;    // an item that may come again and keeps its claim; NULL: none does
    bool is_folder;       // may come again: *repeated
};

// CONV_ERR_USAGE: the name is taken; CONV_ERR_MEMORY. *repeated is set for a folder, and may be
// NULL otherwise.
enum conv_status conv_output_names_claim(struct conv_output_names *names,
                                         const struct conv_output_claim *claim, bool *repeated,
                                         struct conv_err *err);

// Keeps a second name for a member, its own, in case it is copied instead. False if it is taken.
bool conv_output_names_reserve(struct conv_output_names *names, int archive, const char *original);

// What is known about a name, and can be asked for.
enum conv_output_fact {
    CONV_OUTPUT_OWN = 1,  // the output of a member, or file, of this name
    CONV_OUTPUT_RESULT,   // an output that has another name than its member
    CONV_OUTPUT_RESERVED, // a name that a copy may need
    CONV_OUTPUT_INSIDE,   // a folder that outputs are in
    CONV_OUTPUT_FOLDER,   // a folder that is an output
    CONV_OUTPUT_MOVED,    // the member's output is a result
    CONV_OUTPUT_COPIED,   // the member has its own name nevertheless
    CONV_OUTPUT_MISSING,  // the member is not written
    CONV_OUTPUT_LINK,     // the member is a symbolic link
    CONV_OUTPUT_AWAITED,  // an earlier link leads to the member
    CONV_OUTPUT_OWNER,    // the item that has this name
    CONV_OUTPUT_WRITTEN,  // the output of an item that may come again is in the archive
};

void conv_output_names_note(struct conv_output_names *names, int archive, const char *name,
                            enum conv_output_fact fact);
bool conv_output_names_has(struct conv_output_names *names, int archive, const char *name,
                           enum conv_output_fact fact);

enum conv_output_fate {
    CONV_OUTPUT_UNKNOWN, // there is no such member yet
    CONV_OUTPUT_KEPT,    // has its own name
    CONV_OUTPUT_RENAMED, // has the name of a result
    CONV_OUTPUT_LOST,
};

// A symbolic link of that name leads to a place in the archive, as conv_paths_normal spells
// it. CONV_ERR_MEMORY.
enum conv_status conv_output_names_link(struct conv_output_names *names, int archive,
                                        const char *original, const char *target,
                                        struct conv_err *err);

// Follows links to folders on the way to the member.
enum conv_output_fate conv_output_names_fate(struct conv_output_names *names, int archive,
                                             const char *original);
