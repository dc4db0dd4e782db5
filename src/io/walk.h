// SPDX-License-Identifier: MIT
// Finds the images: what the user named, the folders below, the names of a list. Entries are
// handed out one by one, so that a folder of a million costs no memory; a list costs 21 to 43 bytes
// per name, by which it is recognised.
#ifndef CONV_IO_WALK_H
#define CONV_IO_WALK_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct conv_walk_config {
    const char *const *inputs; // files, folders, "-" for stdin
    int input_count;
    const char *output; // file, folder, "-" for stdout; NULL: outputs do not matter
    bool in_place;      // each input is its own output; `output` is NULL
    bool recursive;
    const char *const *include; // globs; none = *.png in any case
    int include_count;
    const char *const *exclude;
    int exclude_count;
    const char
        *files_from;  // a list of names below inputs[0] (default: the current folder), or NULL
    bool nul;         // its names end in NUL, not in newline
    atomic_int *stop; // ends the wait for a slow list when it becomes non-zero; may be NULL
};

struct conv_walk_entry {
    char input[PATH_MAX];
    char output[PATH_MAX];
    bool named; // typed by the user, so it may be a pipe or a device; found ones must be files
    bool output_named; // so is `output`; others, in folders, must be files too
};

struct conv_walk;

// Checks what can be checked before the first image (CONV_ERR_USAGE). Changes nothing on disk.
// Keeps pointers into *config.
enum conv_status conv_walk_open(struct conv_walk **walk, const struct conv_walk_config *config,
                                struct conv_err *err);

// Makes the output folder if the walk needs one and finds an image: to be called when nothing else
// can fail any more. May wait for the first name of a list.
enum conv_status conv_walk_make_output(struct conv_walk *walk, struct conv_err *err);

// True if an input is a folder or a list.
bool conv_walk_has_folder(const struct conv_walk *walk);

enum conv_walk_step { CONV_WALK_ENTRY, CONV_WALK_BAD, CONV_WALK_REPEATED, CONV_WALK_END };

// Keeps in mind that so many images at least are to come, for who asks. Never told: 0.
void conv_walk_expect(struct conv_walk *walk, uint64_t images);
uint64_t conv_walk_expected(const struct conv_walk *walk);

// True if the next image may be long in coming: the names come through a pipe, which is empty.
bool conv_walk_may_wait(const struct conv_walk *walk);

// The next image. CONV_WALK_BAD: entry->input cannot be had, *err says why. CONV_WALK_REPEATED:
// the list has had this image before, perhaps spelled otherwise. One caller at a time.
enum conv_walk_step conv_walk_next(struct conv_walk *walk, struct conv_walk_entry *entry,
                                   struct conv_err *err);

// What the walk has met so far.
struct conv_walk_count {
    uint64_t entries; // images handed out, those that cannot be had included
    uint64_t others;  // files in folders whose names are none of images, or do not match
    char other[256];  // the name of the first of them
};

// Not while another thread is in conv_walk_next.
const struct conv_walk_count *conv_walk_counted(const struct conv_walk *walk);

void conv_walk_close(struct conv_walk *walk); // NULL is fine

#endif
