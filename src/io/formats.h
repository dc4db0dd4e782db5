// SPDX-License-Identifier: MIT
// The image formats that conv reads and writes.
#ifndef CONV_IO_FORMATS_H
#define CONV_IO_FORMATS_H

#include "image/format.h"

// The first one is the format of outputs whose name has no format's extension.
extern const struct conv_format *const conv_formats[];
extern const int conv_format_count;

// A file's first bytes that are enough for conv_formats_find, check_head of every format and
// looks_decodable.
#define CONV_FORMATS_HEAD 32

// True if the name looks like an image's in one of the formats.
bool conv_formats_match_name(const char *name);

// The format of a file that begins with these bytes; the first one if it is none of them, whose
// check_head then says why.
const struct conv_format *conv_formats_find(const uint8_t *data, size_t size);

#endif
