// SPDX-License-Identifier: MIT
// The images that a list of names refers to. It keeps 21 to 43 bytes per name, to recognise
// repetitions.
#ifndef CONV_WALK_LIST_SOURCE_H
#define CONV_WALK_LIST_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"
#include "base/err.h"
#include "io/source.h"

// The names in a list of inputs, one after the other, from a file or a pipe that may be slow.

struct conv_name_list {
    int fd;   // -1: not open
    bool nul; // names end in NUL; otherwise in newline, or carriage return and newline
    bool ended;
    atomic_int *stop;  // may be NULL
    size_t begin, end; // of the bytes in `buffer` that were not handed out yet
    char buffer[65536];
};

struct conv_list_source {
    struct conv_source source;
    const char *path;   // of the list
    const char *folder; // that relative names are below; NULL: the current one
    bool in_place;      // see struct conv_item
    bool beside;        // outputs lie next to the images; set by the caller
    struct conv_name_list names;
    struct conv_digest_set seen;
};

// Opens the list `path`, which may be "-". `folder` and `path` are kept. CONV_ERR_USAGE if it
// cannot be read as a list.
enum conv_status conv_list_source_open(struct conv_list_source *list, const char *path, bool nul,
                                       const char *folder, bool in_place, atomic_int *stop,
                                       struct conv_err *err);
void conv_list_source_close(struct conv_list_source *list); // {0} is fine

#endif
