// SPDX-License-Identifier: MIT
// The image formats that conv reads and writes.
#pragma once

#include "image/format.h"

// PNG, the default for outputs, those of the libraries that conv was built with, and PNM.
extern const struct conv_format *const conv_formats[];
extern const int conv_format_count;

// Their names, for messages: "PNG, JPEG or PNM", "PNG, JPEG and PNM".
extern const char conv_formats_read[], conv_formats_written[];

// A file's first bytes that are enough for conv_formats_find, conv_format_check_head and
// looks_decodable.
#define CONV_FORMATS_HEAD 32

// The format with that extension, without its dot, in upper or lower case; NULL if there is none.
const struct conv_format *conv_formats_of_extension(const char *extension);

// The format that a name's extension stands for, in upper or lower case; NULL if none.
const struct conv_format *conv_formats_of_name(const char *path);

// The format of a file that begins with these bytes; the first one if none matches.
const struct conv_format *conv_formats_find(const uint8_t *data, size_t size);

// Sets *format to conv_formats_find and checks the head of a file that begins with these bytes; if
// they are too few and not all of it, *format is NULL. CONV_ERR_FORMAT, which for a common format
// that is not read says how to convert it.
enum conv_status conv_formats_check(const struct conv_format **format, const uint8_t *data,
                                    size_t size, bool is_whole, struct conv_err *err);

// A command that converts a file of the format, as conv_format_of_bytes says it, to PNG, with
// placeholders for names.
const char *conv_formats_converter(const char *format);
