// SPDX-License-Identifier: MIT
// Detects that a thread is blocked in writing to a pipe or terminal that is not being read, so that
// a signal can end the program nevertheless. One counter per process, since a signal handler reads
// it.
#ifndef CONV_BASE_STALL_H
#define CONV_BASE_STALL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// False if the stream is a regular file: writing to it does not wait for another process.
bool conv_stall_may(FILE *stream);

// Around calls that write to such a stream (`may`), or that may block and can be cut off at any
// time. Any thread.
void conv_stall_begin(bool may);
void conv_stall_end(bool may);

// True if a thread is between the two, and none has begun or ended for `ns`.
// Async-signal-safe.
bool conv_stall_lasts(uint64_t ns);

#endif
