// SPDX-License-Identifier: MIT
// The names of --files-from, one after the other, from a file or a pipe that may be slow.
#ifndef CONV_IO_NAME_LIST_H
#define CONV_IO_NAME_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct conv_name_list {
    int fd;   // -1: not open
    bool nul; // names end in NUL; otherwise in newline, or carriage return and newline
    bool ended;
    atomic_int *stop;  // may be NULL
    size_t begin, end; // what is not yet handed out
    char buffer[65536];
};

// `path` "-" is standard input. CONV_ERR_USAGE if it cannot be read as a list.
enum conv_status conv_name_list_open(struct conv_name_list *list, const char *path, bool nul,
                                     atomic_int *stop, struct conv_err *err);
void conv_name_list_close(struct conv_name_list *list);

// True if the next name is not here yet, nor anything of it to be read.
bool conv_name_list_may_wait(const struct conv_name_list *list);

// The next name that is not empty; it lives until the next call. NULL at the end, when stopped, or
// with err->status set if the list cannot be read on (that is said once), has NUL bytes where names
// end in newline, or a name is longer than any path.
const char *conv_name_list_next(struct conv_name_list *list, struct conv_err *err);

#endif
