// SPDX-License-Identifier: MIT
// Reads zip files. Ordinary ones that are mapped are read without libarchive: stored members are
// handed out by pointer, damage to one member leaves the others readable, and memory does not grow
// with their number. Other compression, files without a directory and pipes are left to libarchive,
// but what does not fit together is found here (private to src/io).
#ifndef CONV_ARCHIVE_ZIP_READ_H
#define CONV_ARCHIVE_ZIP_READ_H

#include "io/archive/archive.h"

// As conv_archive_format.read.
enum conv_status conv_zip_read(struct conv_archive_reader **reader,
                               struct conv_archive_input *input, struct conv_err *err);

#endif
