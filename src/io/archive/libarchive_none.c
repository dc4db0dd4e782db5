// SPDX-License-Identifier: MIT
// In place of libarchive_read.c in a build without libarchive.
#include "io/archive/libarchive_stream.h"

enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err)
{
    (void)input;
    *reader = NULL;
    return conv_err_set(
        err, CONV_ERR_UNSUPPORTED,
        "this conv was built without libarchive, which such an archive "
        "needs; it reads tar, tar.gz and ordinary zip files, and writes tar, tar.gz and zip");
}
