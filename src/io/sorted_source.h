// SPDX-License-Identifier: MIT
// A source whose images come in an order that does not depend on the file system. Reads all names
// of another source first; takes some hundred bytes per image.
#ifndef CONV_IO_SORTED_SOURCE_H
#define CONV_IO_SORTED_SOURCE_H

#include <stdatomic.h>

#include "io/source.h"

struct conv_sorted_source;

// Drains `inner` and does not keep it. Images that the command line names stay where they are;
// those between them, out of folders, are sorted by their paths, byte by byte. Stops early once
// *stop, which may be NULL, is non-zero. CONV_ERR_MEMORY.
enum conv_status conv_sorted_source_open(struct conv_sorted_source **sorted,
                                         struct conv_source *inner, const atomic_int *stop,
                                         struct conv_err *err);
struct conv_source *conv_sorted_source_get(struct conv_sorted_source *sorted);
void conv_sorted_source_close(struct conv_sorted_source *sorted); // NULL is fine

#endif
