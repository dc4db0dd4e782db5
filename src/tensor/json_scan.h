// SPDX-License-Identifier: MIT
// Reads JSON (RFC 8259) from the beginning to the end of a text in memory, without a tree. The
// caller calls the function for the element that it expects next; each returns false if something
// else is there, or if the text ends or is malformed, after which the position in the text is
// undefined. White space before an element is skipped. No memory is taken; a scan belongs to one
// thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_json_scan {
    const char *at, *end; // of a text that the caller keeps
};

void conv_json_scan_space(struct conv_json_scan *json);

// One of { } [ ] : , and other single characters.
bool conv_json_scan_char(struct conv_json_scan *json, char c);

// A string, in UTF-8, with a NUL after it, in `size` bytes, at least 1. Of a string that does not
// fit, `string` is empty. A NUL in the string and lone surrogates are refused.
bool conv_json_scan_string(struct conv_json_scan *json, char *string, size_t size);

// A number without sign or fraction, below 2^63; and [1, 2, ...] of at most `room` of them.
bool conv_json_scan_number(struct conv_json_scan *json, uint64_t *number);
bool conv_json_scan_numbers(struct conv_json_scan *json, uint64_t *numbers, int room, int *count);

// Skips a value of any kind, at most 16 levels deep.
bool conv_json_scan_skip(struct conv_json_scan *json);
