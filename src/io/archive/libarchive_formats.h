// SPDX-License-Identifier: MIT
// What archive_libarchive.c needs from the files that use the library, or from libarchive_none.c,
// which takes their place in a build without it (private to src/io).
#ifndef CONV_ARCHIVE_LIBARCHIVE_FORMATS_H
#define CONV_ARCHIVE_LIBARCHIVE_FORMATS_H

#include "io/archive/archive.h"

// Reads zip and 7-Zip. As conv_archive_format.read.
enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err);

// Tar in gzip and in zstd. As conv_archive_format.write.
enum conv_status conv_libarchive_write_gzip(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err);
enum conv_status conv_libarchive_write_zstd(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err);

#endif
