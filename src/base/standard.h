// SPDX-License-Identifier: MIT
// Standard input, output and error that the caller closed before it started the program. Left
// closed, their numbers would go to the first files that the program opens, and whatever is printed
// would land in those: in images, reports and journals.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

// To be called before anything else opens a file. Occupies each closed descriptor of 0 to 2 with
// one that can be neither read nor written, not even through /dev/stdout. False if there is no
// descriptor left for that.
bool conv_standard_open(void);

// True if `fd` (0 to 2) was closed before conv_standard_open. Any thread. Leaves errno as it is.
bool conv_standard_is_closed(int fd);

// True if standard output and standard error are the same file, pipe or socket (2>&1), so that
// messages would be mixed with the output. Terminals and devices do not count.
bool conv_standard_is_shared(void);

// Flushes stdout. CONV_ERR_IO with the reason if anything printed there so far was not written.
enum conv_status conv_standard_flush(struct conv_err *err);

// A file that the program writes besides outputs: opens it, NULL with CONV_ERR_USAGE and the hint;
// and closes it, CONV_ERR_IO ("cannot write the report to PATH", where `what` is "the report ") if
// anything was not written.
FILE *conv_standard_create(const char *path, enum conv_hint hint, struct conv_err *err);
enum conv_status conv_standard_close(FILE *file, const char *what, const char *path,
                                     struct conv_err *err);

// --- blocked writes ------------------------------------------------------------------------------

// Detects that a thread is blocked in writing to a pipe or terminal that is not being read, so that
// a signal can end the program nevertheless. The code that handles signals owns the object and
// hands it to everything that writes. Any thread may call any function.

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
