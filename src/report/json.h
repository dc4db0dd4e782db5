// SPDX-License-Identifier: MIT
// JSON Lines: a begin record, one file record per image in the order in which they finish, a
// summary. If the summary is missing, the run was killed. Nothing here fails: the caller asks
// ferror(stream) when it closes the stream.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "report/record.h"

// {"type":"begin","version":...,"filter":...,"device":...,"jobs":...,"streams":...,"dry_run":...};
// of a shard with "shard":{"index":...,"count":...,"by":"bytes"|"name"}
void conv_json_begin(FILE *stream, const struct conv_report_config *config);

// {"type":"file","input":...,"output":...,"status":"done"|"failed"|"skipped"|"planned","error":...,
// "ms":{...}}: "reason" says why an image was skipped or planned; the size is missing where it is
// unknown. Times in milliseconds by stage.
void conv_json_file(FILE *stream, const struct conv_record *record);

// {"type":"summary","exit_code":...}: totals, figures, limits and each device's share; of a shard
// that was listed to its end also "listing":{"images":...,"digest":...}, of all shards together.
void conv_json_summary(FILE *stream, const struct conv_report_config *config,
                       const struct conv_totals *totals, int exit_code);

// The figures as members of an object that is already open: ,"images_per_s":..., ...
void conv_json_figures(FILE *stream, const struct conv_figures *figures);

// ,"name":"value", as conv_json_string writes it.
void conv_json_member(FILE *stream, const char *name, const char *value);

// A quoted JSON string, or null for NULL; invalid UTF-8 becomes U+FFFD.
void conv_json_string(FILE *stream, const char *text);

// --- texts ---------------------------------------------------------------------------------------
// Writes file names, which are bytes, as JSON and to a terminal. Control characters and marks that
// reverse the direction of text are escaped. A byte of invalid UTF-8 becomes U+FFFD in JSON and is
// escaped on a terminal.

#define CONV_TEXT_UNIT 6 // most bytes of a unit: \u001f

// Writes the unit for the next character of *text, advances *text past it and returns the number of
// bytes written, at most CONV_TEXT_UNIT. **text is not 0.
size_t conv_text_json_unit(char *dst, const char **text);

// The whole text for a terminal: escaped bytes as \xNN, a backslash as \\, so that a file name can
// neither break a line nor control the terminal.
void conv_text_terminal(FILE *stream, const char *text);

// --- reading -------------------------------------------------------------------------------------
// Reads objects of JSON Lines, as json.h writes them: one object after the other, one per line.

// A member of an object. It points into the line.
struct conv_json_value {
    const char *text; // of the value, not terminated
    size_t size;
};

// The value of the member `name` of the object that begins at `text`, which is a string of any
// content. False if it is not an object, is cut short before the member ends, nests deeper than 16
// levels until then, or has no such member. Members of objects in the object are not found.
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
