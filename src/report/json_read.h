// SPDX-License-Identifier: MIT
// Reads objects of JSON Lines, as json.h writes them: one object after the other, one per line.
#ifndef CONV_REPORT_JSON_READ_H
#define CONV_REPORT_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A member of an object. It points into the line.
struct conv_json_value {
    const char *text; // of the value, not terminated
    size_t size;
};

// The value of the member `name` of the object that begins at `text`, which is a string of any
// content. False if it is not an object, is cut short before the member ends, or has no such
// member. Members of objects in the object are not found. Nesting costs no stack.
bool conv_json_read(struct conv_json_value *value, const char *text, const char *name);

// The end of the value that begins at `text`, after blanks; NULL if it is cut short or none begins.
const char *conv_json_skip(const char *text);

// True if `text` is one whole object, with nothing but blanks after it.
bool conv_json_is_object(const char *text);

// The value as a non-negative integer, a number, or a string (escapes replaced; at most size - 1
// bytes, terminated). False if it is something else, out of range or too long.
bool conv_json_integer(const struct conv_json_value *value, uint64_t *number);
bool conv_json_number(const struct conv_json_value *value, double *number);
bool conv_json_text(const struct conv_json_value *value, char *text, size_t size);

#endif
