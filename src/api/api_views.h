// SPDX-License-Identifier: MIT
// Checks of the caller's views, and whether the memory of a call's arguments is apart, so that
// nothing is written that is still to be read, or written twice.
#ifndef CONV_API_API_VIEWS_H
#define CONV_API_API_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv.h"

// CONV_ERR_USAGE unless the view has a size, a sample type of conv_sample up to `most`, memory, and
// strides that are multiples of its samples within the address space; with `written`, samples that
// do not overlap. `name` begins the text: "sources[3]".
enum conv_status conv_api_check_view(const conv_image *view, conv_sample most, bool written,
                                     const char *name, struct conv_err *err);

// The bytes of one argument: blocks of `size` bytes at start + i * stride for each i below count,
// and this along several axes.
struct conv_api_span {
    uintptr_t start, end;
    int64_t size;
    struct {
        int64_t count, stride;
    } axes[3];
    int item;       // of the batch
    bool written;   // else it is only read
    bool may_copy;  // if it is only read: the caller can read a copy
    bool is_copied; // which it has to
};

// Of a checked view; of blocks of `size` bytes along axes of {count, stride}, NULL: of one block.
struct conv_api_span conv_api_apart_view(const conv_image *view, int item, bool written);
struct conv_api_span conv_api_apart_bytes(const void *data, size_t size, const int64_t axes[3][2]);

// True if the spans have bytes in common. Also true where finding out would take too long, which
// needs overlapping extents and several strides that differ.
bool conv_api_apart_meet(const struct conv_api_span *a, const struct conv_api_span *b);

// Finds a written span, clash[0], that has bytes in common with another one, clash[1]: false if
// there is none. Where that is one that may be copied, sets its is_copied instead. Sorts the spans;
// `active` is scratch for twice as many pointers.
bool conv_api_apart_clash(struct conv_api_span *spans, size_t count, struct conv_api_span **active,
                          const struct conv_api_span *clash[2]);

#endif
