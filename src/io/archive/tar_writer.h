// SPDX-License-Identifier: MIT
// Writes plain tar archives: ustar, with the long names and large numbers of GNU tar where they are
// needed. GNU tar, bsdtar, Python and everything built on it read them. The bytes depend on nothing
// but the members: whole seconds, no time of writing. As in struct conv_archive_format.
#ifndef CONV_ARCHIVE_TAR_WRITER_H
#define CONV_ARCHIVE_TAR_WRITER_H

#include "io/archive/archive.h"

enum conv_status conv_tar_check(const struct conv_archive_member *member, struct conv_err *err);
enum conv_status conv_tar_frame(const struct conv_archive_member *member,
                                struct conv_archive_frame *frame, struct conv_err *err);
size_t conv_tar_trailer(uint64_t at);

#endif
