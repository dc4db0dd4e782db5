// SPDX-License-Identifier: MIT
// Detects that a thread is blocked in writing to a pipe or terminal that is not being read, so that
// a signal can end the program nevertheless. The code that handles signals owns the object and
// hands it to everything that writes. Any thread may call any function.
#ifndef CONV_BASE_STALL_H
#define CONV_BASE_STALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct conv_stall { // {0}: nothing is blocked
    atomic_int calls;
    _Atomic uint64_t changed_at; // when a call began or ended, conv_clock_ns
};

// `stall`, or NULL if the stream is a regular file: writing to it does not wait for another
// process.
struct conv_stall *conv_stall_of(struct conv_stall *stall, FILE *stream);

// To be called before and after calls that write to such a stream, or that may block and can be cut
// off at any time. NULL: nothing is counted.
void conv_stall_begin(struct conv_stall *stall);
void conv_stall_end(struct conv_stall *stall);

// True if a thread is between the two, and none has begun or ended for `ns`.
// Async-signal-safe.
bool conv_stall_lasts(const struct conv_stall *stall, uint64_t ns);

#endif
