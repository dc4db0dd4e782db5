// SPDX-License-Identifier: MIT
// Knows whether a thread is stuck in writing to a pipe or terminal that nobody reads, so that a
// signal can end the program all the same.
#ifndef CONV_BASE_STALL_H
#define CONV_BASE_STALL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// False if the stream is a regular file: writing to it does not wait for another process.
bool conv_stall_may(FILE *stream);

// Around calls that write to such a stream, as `may` says, or that may wait and can be cut off at
// any time. Any thread.
void conv_stall_begin(bool may);
void conv_stall_end(bool may);

// True if some thread has begun and not ended, and none has begun or ended for `ns`.
// Async-signal-safe.
bool conv_stall_lasts(uint64_t ns);

#endif
