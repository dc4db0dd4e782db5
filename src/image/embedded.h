// SPDX-License-Identifier: MIT
// Whether bytes or text of metadata may hold an image. What may do so is not carried over, since it
// would show the image before it was filtered.
#ifndef CONV_IMAGE_EMBEDDED_H
#define CONV_IMAGE_EMBEDDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True if an image file of a common format begins anywhere in the bytes, as it is or written in
// base64 or hexadecimal digits, in lines of 16 digits or more, or in numbers (FF D8, 255,216), or
// if there are 256 such digits without a space, which may be compressed data.
bool conv_embedded_image(const uint8_t *data, size_t size);

// The same for bytes that are mostly numbers, as those of a colour profile: more of the file must
// be there, and only as it is.
bool conv_embedded_in_tables(const uint8_t *data, size_t size);

// True if there are no control characters other than white space and ESC before NULs at the end.
bool conv_embedded_is_text(const uint8_t *data, size_t size);

// The same for UTF-16, which must also have no surrogate without its other half.
bool conv_embedded_is_utf16(const uint8_t *data, size_t size, bool little);

bool conv_embedded_is_utf8(const uint8_t *data, size_t size);

#endif
