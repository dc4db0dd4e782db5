// SPDX-License-Identifier: MIT
// JSON Lines: a begin record, one file record per image in the order in which they finish, a
// summary. If the summary is missing, the run was killed. Nothing here fails: the caller asks
// ferror(stream) when it closes the stream.
#ifndef CONV_REPORT_JSON_H
#define CONV_REPORT_JSON_H

#include "report/figures.h"
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

// ,"name":"value" or, of a NULL value, ,"name":null.
void conv_json_member(FILE *stream, const char *name, const char *value);

// A quoted JSON string; invalid UTF-8 becomes U+FFFD.
void conv_json_string(FILE *stream, const char *text);

#endif
