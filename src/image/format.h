// SPDX-License-Identifier: MIT
// The common image formats, by first bytes and by file name: for messages only. conv reads and
// writes PNG.
#ifndef CONV_IMAGE_FORMAT_H
#define CONV_IMAGE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

// "PNG", "JPEG", ... of a file that begins with these bytes; NULL if it is none of them.
const char *conv_format_of_bytes(const uint8_t *data, size_t size);

// The same of a file's name, by its extension in upper or lower case.
const char *conv_format_of_name(const char *path);

// The article that a format's name takes: "a" or "an".
const char *conv_format_article(const char *format);

#endif
