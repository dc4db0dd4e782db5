// SPDX-License-Identifier: MIT
// Reads from a line of a report what merging needs. Lines are terminated strings.
#ifndef CONV_REPORT_MERGE_LINE_H
#define CONV_REPORT_MERGE_LINE_H

#include "report/json_read.h"
#include "report/merge_table.h"

#define CONV_MERGE_LINE_NAME (6 * 4096) // of an image: each byte of a path may be an escape

enum conv_merge_record {
    CONV_MERGE_RECORD_BEGIN,
    CONV_MERGE_RECORD_FILE,
    CONV_MERGE_RECORD_SUMMARY,
    CONV_MERGE_RECORD_NONE,
};

// The type of a record.
enum conv_merge_record conv_merge_line_record(const char *line);

// A member of an object, which may be inside a line: 0 if it is not a number; false if it is not a
// text or longer than size - 1 bytes.
uint64_t conv_merge_line_integer(const char *object, const char *name);
bool conv_merge_line_text(char *text, size_t size, const char *object, const char *name);

// The status of a file record. *known: it has one.
enum conv_merge_state conv_merge_line_state(const char *line, bool *known);

// The input of a file record as it stands in the line, escapes included (all reports escape alike),
// and its digest. False if it has none.
bool conv_merge_line_name(struct conv_digest *digest, struct conv_json_value *name,
                          const char *line);

#endif
