// SPDX-License-Identifier: MIT
// In place of libarchive_read.c and libarchive_write.c in a build without libarchive.
#include "io/archive/libarchive_stream.h"

static enum conv_status refuse(struct conv_err *err)
{
    return conv_err_set(
        err, CONV_ERR_UNSUPPORTED,
        "this conv was built without libarchive, which such an archive "
        "needs; it reads tar, tar.gz and ordinary zip files, and writes tar and zip");
}

enum conv_status conv_libarchive_read(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err)
{
    (void)input;
    *reader = NULL;
    return refuse(err);
}

enum conv_status conv_libarchive_write_gzip(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err)
{
    (void)output;
    *writer = NULL;
    return refuse(err);
}

enum conv_status conv_libarchive_write_zstd(struct conv_archive_writer **writer,
                                            struct conv_archive_output *output,
                                            struct conv_err *err)
{
    return conv_libarchive_write_gzip(writer, output, err);
}
