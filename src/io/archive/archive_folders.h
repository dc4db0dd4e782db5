// SPDX-License-Identifier: MIT
// Where archives become files beside those of other inputs, the folder that each gets for its
// members: "a.tar.gz" gets "a", and if another input would get that, too, "a.tar.gz". One thread at
// a time.
#ifndef CONV_ARCHIVE_ARCHIVE_FOLDERS_H
#define CONV_ARCHIVE_ARCHIVE_FOLDERS_H

#include <limits.h>

#include "base/digest_set.h"

// Starts as {0}.
struct conv_archive_folders {
    struct conv_digest_set used, shared; // short names
};

// An input: an archive, or a file or folder, which keeps its name. CONV_ERR_MEMORY.
enum conv_status conv_archive_folders_add(struct conv_archive_folders *folders, const char *path,
                                          bool is_archive, struct conv_err *err);

// The folder of an archive, once all inputs were added.
void conv_archive_folders_name(char name[NAME_MAX + 1], const struct conv_archive_folders *folders,
                               const char *path);
void conv_archive_folders_free(struct conv_archive_folders *folders);

#endif
