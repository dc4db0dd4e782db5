// SPDX-License-Identifier: MIT
// What limits.c and limits_groups.c share.
#ifndef CONV_BASE_LIMITS_INTERNAL_H
#define CONV_BASE_LIMITS_INTERNAL_H

#include <stdint.h>

#include "base/limits.h"

// Reads an unsigned decimal number that is the whole word. False for "max", negative numbers and
// anything else.
bool conv_limits_parse_number(const char *text, uint64_t *number);

// Records a limit of `bytes`, of which `used` are in use, if it leaves less room than those before.
// `folder` is that of the group that sets it, or "".
void conv_limits_note_memory(struct conv_limits *limits, uint64_t bytes, uint64_t used,
                             const char *setting, const char *folder);

#endif
