// SPDX-License-Identifier: MIT
// Checks that inputs can be replaced by their outputs: no image may be reached twice.
#ifndef CONV_FILES_IN_PLACE_H
#define CONV_FILES_IN_PLACE_H

#include <stdbool.h>

#include "base/err.h"

// CONV_ERR_USAGE if two of the inputs are the same file or folder, links resolved, or if one is
// inside the other so that its images would be filtered twice; CONV_ERR_MEMORY. An input that does
// not exist passes: opening it gives the reason. Takes O(n log n) for n inputs.
enum conv_status conv_in_place_check(const char *const *inputs, int count, bool recursive,
                                     struct conv_err *err);

#endif
