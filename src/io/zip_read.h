// SPDX-License-Identifier: MIT
// Reads ordinary zip files that are mapped, without libarchive: stored members are handed out by
// pointer, damage to one member leaves the others readable, and memory is constant. Other zip
// files, and those from a pipe, are left to libarchive (private to src/io).
#ifndef CONV_IO_ZIP_READ_H
#define CONV_IO_ZIP_READ_H

#include "io/archive.h"

// As conv_archive_format.read.
enum conv_status conv_zip_read(struct conv_archive_reader **reader,
                               struct conv_archive_input *input, struct conv_err *err);

#endif
