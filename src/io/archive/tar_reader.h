// SPDX-License-Identifier: MIT
// Reads tar archives, plain and compressed: ustar, of GNU tar, and PAX. As conv_archive_format.
#ifndef CONV_ARCHIVE_TAR_READER_H
#define CONV_ARCHIVE_TAR_READER_H

#include "io/archive/archive.h"

bool conv_tar_recognise(const uint8_t *head, size_t size);

enum conv_status conv_tar_reader_open(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err);
enum conv_status conv_tar_reader_open_packed(struct conv_archive_reader **reader,
                                             struct conv_archive_input *input,
                                             struct conv_err *err);

#endif
