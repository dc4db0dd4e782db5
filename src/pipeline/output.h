// SPDX-License-Identifier: MIT
// Output files appear whole or not at all: written under a temporary name in the same folder, then
// renamed.
#ifndef CONV_PIPELINE_OUTPUT_H
#define CONV_PIPELINE_OUTPUT_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "png/png.h"

// Prepares for `workers` threads that write, one file each at a time.
enum conv_status conv_output_open(int workers, struct conv_err *err);
void conv_output_close(void);

// Writes all parts to `path` ("-": standard output). With `preserve`, mode and times of that file
// are given to it. Missing folders on the way are made. CONV_ERR_IO; then nothing is left behind.
enum conv_status conv_output_write(int worker, const char *path, const struct conv_png_bytes *bytes,
                                   const struct stat *preserve, struct conv_err *err);

// Removes the temporary files of all workers. Async-signal-safe: for the handler that ends the
// program at once.
void conv_output_abandon(void);

#endif
