// SPDX-License-Identifier: MIT
// Outputs that are not regular files: standard output, open descriptors (/dev/fd/3), and pipes and
// devices that are named on the command line. Their other end may never be opened or read.
#ifndef CONV_FILES_SPECIAL_H
#define CONV_FILES_SPECIAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "image/format.h"
#include "io/sink.h"

// Writes all parts to the file at `path`, which exists. Waits for the reader of a pipe. Once *stop
// is non-zero it stops waiting for a reader that is missing or reads nothing: CONV_ERR_CANCELLED.
// Otherwise CONV_ERR_IO with the reason. Any thread.
enum conv_status conv_special_write(const char *path, const struct conv_encoded *file,
                                    const atomic_int *stop, struct conv_err *err);

// Opens it for writing, waiting for the reader of a pipe. -1 with *err, as above. *owns: it is to
// be closed.
int conv_special_open(const char *path, const atomic_int *stop, bool *owns, struct conv_err *err);

// The same as conv_special_write for a descriptor, which stays open. `name` is for messages.
enum conv_status conv_special_write_to(int fd, const char *name, const struct conv_encoded *file,
                                       const atomic_int *stop, struct conv_err *err);

// --- standard output -----------------------------------------------------------------------------

// Standard output as a sink: of one image, or of several one after the other.

// As conv_sink_open, which calls it for CONV_SINK_STANDARD.
enum conv_status conv_standard_sink_open(struct conv_sink **sink,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err);

#endif
