// SPDX-License-Identifier: MIT
// Where several archives become files, the folder that each gets for its members: "a.tar.gz" gets
// "a", and if another archive would get that, too, "a.tar.gz". One thread at a time.
#ifndef CONV_IO_ARCHIVE_FOLDERS_H
#define CONV_IO_ARCHIVE_FOLDERS_H

#include <limits.h>

#include "base/digest_set.h"

// Starts as {0}.
struct conv_archive_folders {
    struct conv_digest_set used, shared; // short names
};

// An archive that will need a folder. CONV_ERR_MEMORY.
enum conv_status conv_archive_folders_add(struct conv_archive_folders *folders, const char *path,
                                          struct conv_err *err);

// The folder of an archive, once all were added.
void conv_archive_folders_name(char name[NAME_MAX + 1], const struct conv_archive_folders *folders,
                               const char *path);
void conv_archive_folders_free(struct conv_archive_folders *folders);

#endif
