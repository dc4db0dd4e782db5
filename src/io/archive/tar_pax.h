// SPDX-License-Identifier: MIT
// The contents of PAX headers, and of GNU tar's headers, about the member after them. Private to
// src/io/tar_*.c.
#ifndef CONV_ARCHIVE_TAR_PAX_H
#define CONV_ARCHIVE_TAR_PAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "io/archive/archive.h"
#include "io/archive/tar_sparse.h"

// A record or a name is no longer than this: it is read into memory, and a name is a few KiB at
// most.
#define CONV_TAR_MOST_PAX ((size_t)1 << 20)

// Values that replace those of the member's own header. Starts as {0}.
struct conv_tar_pax {
    char *name, *link, *uname, *gname; // malloc'ed; NULL: not given
    bool has_size, has_mtime, has_uid, has_gid;
    bool has_sparse_name; // `name` is that of a sparse file, whose "path" is another one
    bool is_sparse;       // the content is a list of parts
    struct conv_tar_sparse sparse;
    uint64_t size, uid, gid;
    struct timespec mtime;
    struct conv_err bad; // why the member cannot be read; the last field
};

// Adds the records ("LENGTH KEY=VALUE\n") of a PAX header of *left bytes, and takes those that were
// read off *left: the rest is to be skipped. A record that makes no sense is ignored if it is about
// owner or time; otherwise pax->bad is set. Long records that are not needed are skipped. Fails as
// the input does; its end is no failure.
enum conv_status conv_tar_pax_read(struct conv_tar_pax *pax, struct conv_archive_input *input,
                                   uint64_t *left, struct conv_err *err);

// The same for a header of GNU tar that has one name; *to is pax->name or pax->link.
enum conv_status conv_tar_pax_read_name(struct conv_tar_pax *pax, char **to,
                                        struct conv_archive_input *input, uint64_t *left,
                                        struct conv_err *err);

// Replaces the members that are given. The strings then belong to *pax.
void conv_tar_pax_apply(const struct conv_tar_pax *pax, struct conv_archive_member *member);

void conv_tar_pax_clear(struct conv_tar_pax *pax); // {0} afterwards

#endif
