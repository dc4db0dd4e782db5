// SPDX-License-Identifier: MIT
// The content of a gzip stream, from an archive's bytes. Unlike libarchive's, it checks the sums
// and sizes in the stream and how far it expands. zlib's, since the stream has no bounds.
#ifndef CONV_IO_GUNZIP_H
#define CONV_IO_GUNZIP_H

#include "io/archive_input.h"

struct conv_gunzip;

// The input must outlive it. CONV_ERR_MEMORY.
enum conv_status conv_gunzip_open(struct conv_gunzip **gunzip, struct conv_archive_input *input,
                                  struct conv_err *err);
void conv_gunzip_close(struct conv_gunzip *gunzip); // NULL is fine

// The next bytes: sets *data, which is valid until the next call, and returns how many, 0 at the
// end. gzip streams may follow one another; what follows the last one must be zeros, as padding is.
// -1 with *err: CONV_ERR_FORMAT for a truncated or damaged stream, CONV_ERR_LIMIT for one that
// expands too far, and as conv_archive_input_take. Not to be called again then.
ssize_t conv_gunzip_take(struct conv_gunzip *gunzip, const uint8_t **data, struct conv_err *err);

#endif
