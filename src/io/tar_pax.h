// SPDX-License-Identifier: MIT
// The contents of PAX headers, and of GNU tar's headers, about the member after them. Private to
// src/io/tar_*.c.
#ifndef CONV_IO_TAR_PAX_H
#define CONV_IO_TAR_PAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "io/archive.h"
#include "io/tar_sparse.h"

// Such a header is no longer than this: it is read into memory, and a name is a few KiB at most.
#define CONV_TAR_MOST_PAX ((size_t)1 << 20)

// Values that replace those of the member's own header. Starts as {0}.
struct conv_tar_pax {
    char *name, *link, *uname, *gname; // malloc'ed; NULL: not given
    bool has_size, has_mtime, has_uid, has_gid;
    bool is_sparse; // the content is a list of parts
    struct conv_tar_sparse sparse;
    uint64_t size, uid, gid;
    struct timespec mtime;
};

// Adds the records of a PAX header ("LENGTH KEY=VALUE\n"). CONV_ERR_FORMAT, CONV_ERR_MEMORY.
enum conv_status conv_tar_pax_parse(struct conv_tar_pax *pax, const char *data, size_t size,
                                    struct conv_err *err);

// *to = a copy of the string of `size` bytes; what was there before is freed. CONV_ERR_FORMAT if it
// has a NUL before its end, CONV_ERR_MEMORY.
enum conv_status conv_tar_pax_set(char **to, const char *text, size_t size, struct conv_err *err);

// Replaces the members that are given. The strings then belong to *pax.
void conv_tar_pax_apply(const struct conv_tar_pax *pax, struct conv_archive_member *member);

void conv_tar_pax_clear(struct conv_tar_pax *pax); // {0} afterwards

#endif
