// SPDX-License-Identifier: MIT
// What the header of a member of a tar archive says about it. Private to src/io/tar_*.c.
#ifndef CONV_ARCHIVE_TAR_MEMBER_H
#define CONV_ARCHIVE_TAR_MEMBER_H

#include "io/archive/archive.h"
#include "io/archive/archive_input.h"
#include "io/archive/tar_header.h"

// Strings of a member: in the header their fields need not end in NUL.
struct conv_tar_names {
    char name[sizeof((struct conv_tar_header *)0)->prefix + 1 + 100 + 1]; // prefix, slash, name
    char link[101], uname[33], gname[33];
};

// Sets the member from its header, except for its kind and size. Numbers that are unreadable become
// 0. The member's strings are those of *names.
void conv_tar_member_fill(struct conv_archive_member *member, struct conv_tar_names *names,
                          const struct conv_tar_header *header);

// The kind of a member of this type. Before 1988, folders were files whose names end in a slash.
enum conv_archive_kind conv_tar_member_kind(char type, const char *name);

// Whether a link, a folder or a device, whose header says that it has `size` bytes, has them. Some
// programs write the size of a link's target there, and POSIX.1-2001, whose programs write PAX
// headers, allows a hard link to have a content. The input is after the header.
bool conv_tar_member_has_content(struct conv_archive_input *input, uint64_t size, bool is_pax);

#endif
