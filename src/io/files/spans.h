// SPDX-License-Identifier: MIT
// Ranges of bytes that do not overlap, such as those of a zip file's entries. Neighbours are
// merged, so that entries without gaps between them take the memory of one.
#ifndef CONV_FILES_SPANS_H
#define CONV_FILES_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Starts as {0}.
struct conv_spans {
    struct conv_span {
        uint64_t start, end;
    } * spans; // malloc'ed, in ascending order
    size_t count, capacity;
};

// Adds [start, end), which is not empty. *apart: false if it overlaps with an earlier one; nothing
// is added then. CONV_ERR_MEMORY.
enum conv_status conv_spans_add(struct conv_spans *spans, uint64_t start, uint64_t end, bool *apart,
                                struct conv_err *err);

void conv_spans_free(struct conv_spans *spans); // leaves {0}

#endif
