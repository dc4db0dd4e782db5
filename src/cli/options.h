// SPDX-License-Identifier: MIT
// Everything that the user can type. options.c alone sees argv; one table there gives both the
// parser and --help.
#ifndef CONV_CLI_OPTIONS_H
#define CONV_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "filter/filter.h"
#include "pipeline/pipeline.h"

#define CONV_OPTIONS_MAX_GLOBS 64

struct conv_string_list {
    const char *items[CONV_OPTIONS_MAX_GLOBS];
    int count;
};

struct conv_options {
    bool help, version;

    bool batch, recursive, nul;
    struct conv_string_list include, exclude;
    const char *files_from;
    bool skip_existing, update, dry_run;
    const char *resume_path;

    struct conv_filter_options filter; // --kernel, --size, --divisor, --bias, --flip
    const char *size_text;
    const char *border_text;
    enum conv_border border;
    int border_value;

    int alpha; // enum conv_alpha_mode
    bool strip, preserve, fsync, in_place;
    const char *encoder_text;
    struct conv_png_config png;
    int decode_on, encode_on; // enum conv_coder

    const char *device_text;
    int streams; // 0: not given, as with group_bytes
    int jobs;    // 0 = as the machine says
    bool jobs_given;
    size_t group_bytes, mem_limit;
    const char *variant;
    bool no_save, fail_fast;
    uint64_t max_pixels;

    int progress; // enum conv_when
    bool quiet, verbose, json;
    const char *report_path, *trace_path, *html_path;
    char command[1000]; // what was typed, for the page

    // conv bench
    const char *bench_filter;      // --filter
    int bench_width, bench_height; // --size WxH; 0: a mix of sizes
    int bench_pictures;            // --batch N, 0 = not given
    int bench_depth;               // --depth: 0 = 8 bits, 1 = 16
    int bench_stage;               // --stage: 0 = all, 1 = device
    bool csv;
    const char *svg_path;

    const char **operands; // what is no option, in order; points into argv
    int operand_count;
};

// Parses argv[1..]. argv is reordered (options first). CONV_ERR_USAGE with a text that names the
// option and, for an unknown one, the nearest right one.
enum conv_status conv_options_parse(struct conv_options *options, int argc, char **argv,
                                    struct conv_err *err);

// The full --help.
void conv_options_print_help(FILE *stream);

// A GPU has one encoder, with one effort, and knows alpha as a channel only.
bool conv_options_may_encode_on_gpu(const struct conv_options *options);

// --streams and --group, or what is best: `decodes` where a device may decode.
int conv_options_streams(const struct conv_options *options, bool decodes);
size_t conv_options_group_bytes(const struct conv_options *options, bool decodes);

#endif
