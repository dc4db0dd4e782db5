// SPDX-License-Identifier: MIT
// JSON Lines: begin, one file record per image in the order in which they are finished, summary.
// The summary is the last line: a report without it is of a run that was killed.
#ifndef CONV_REPORT_JSON_H
#define CONV_REPORT_JSON_H

#include "report/report.h"

void conv_json_begin(FILE *stream, const struct conv_report_config *config);
void conv_json_file(FILE *stream, const struct conv_record *record);
void conv_json_summary(FILE *stream, const struct conv_report_config *config,
                       const struct conv_totals *totals, int exit_code);

// The figures as members of an object that is already open: ,"images_per_s":..., ...
void conv_json_figures(FILE *stream, const struct conv_figures *figures);

// A quoted JSON string; bytes that are no UTF-8 become U+FFFD.
void conv_json_string(FILE *stream, const char *text);

#endif
