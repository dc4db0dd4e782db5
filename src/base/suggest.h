// SPDX-License-Identifier: MIT
// Candidates for "did you mean ...?".
#ifndef CONV_BASE_SUGGEST_H
#define CONV_BASE_SUGGEST_H

#include <stddef.h>

// The one of `count` candidates that `word` most likely meant (optimal string alignment distance:
// insert, delete, replace, swap neighbours), or NULL if none is near. The i-th candidate's name is
// the `const char *` at `first + i * step` bytes, so that a table of structs can be searched.
const char *conv_suggest_nearest(const char *word, const void *first, size_t step, size_t count);

// All candidates that are as near as the nearest, at most `room` of them, in their order, without
// names that begin with an earlier candidate's name. Returns how many were written to `names`.
size_t conv_suggest_all(const char **names, size_t room, const char *word, const void *first,
                        size_t step, size_t count);

#endif
