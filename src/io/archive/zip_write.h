// SPDX-License-Identifier: MIT
// Writes zip files without libarchive (private to src/io). The bytes depend on the members alone,
// and every entry can be read from a pipe; neither is true of libarchive's writer.
#ifndef CONV_ARCHIVE_ZIP_WRITE_H
#define CONV_ARCHIVE_ZIP_WRITE_H

#include "io/archive/archive.h"

// As conv_archive_format.write. Images and other compressed files are stored, the rest is deflated.
// Owners are not kept; hard links and devices are CONV_ERR_UNSUPPORTED.
enum conv_status conv_zip_write(struct conv_archive_writer **writer,
                                struct conv_archive_output *output, struct conv_err *err);

// As conv_archive_format.check.
enum conv_status conv_zip_check(const struct conv_archive_member *member, struct conv_err *err);

#endif
