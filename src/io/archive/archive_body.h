// SPDX-License-Identifier: MIT
// A member of an archive that is being read, with its content in memory: a part of the mapped
// archive, or bytes that were read from a stream. It is reference-counted: the archive stays open
// as long as one of its members is in use. Any thread may call any function.
#ifndef CONV_ARCHIVE_ARCHIVE_BODY_H
#define CONV_ARCHIVE_ARCHIVE_BODY_H

#include <stdatomic.h>

#include "io/archive/archive.h"
#include "io/archive/archive_input.h"

// An archive that is being read.
struct conv_archive_unit {
    atomic_int uses;
    struct conv_archive_input input;
    struct conv_archive_reader *reader; // of the source, alone; or NULL
    atomic_size_t *held;                // bytes in memory of all members of a source
    int target;                         // number of the archive that the members are written to
};

struct conv_archive_body {
    atomic_int uses;
    struct conv_archive_unit *unit;
    struct conv_archive_member member; // its strings are in `strings`
    const uint8_t *data;               // member.size bytes; NULL if it is not a file
    uint8_t *own;                      // malloc'ed `data`; NULL: it is in the map
    char strings[];
};

// A copy of *member without a content, used once. It retains the unit. NULL without memory.
struct conv_archive_body *conv_archive_body_make(struct conv_archive_unit *unit,
                                                 const struct conv_archive_member *member);
void conv_archive_body_retain(struct conv_archive_body *body);
void conv_archive_body_release(struct conv_archive_body *body); // NULL is fine

// Sets target (2 * PATH_MAX bytes) to the name, as conv_member_path_normal spells it, of the member
// that a link leads to. False if a symbolic link leads out of the archive.
bool conv_archive_body_target(char *target, const struct conv_archive_body *body);

void conv_archive_unit_release(struct conv_archive_unit *unit); // closes it after its last use

#endif
