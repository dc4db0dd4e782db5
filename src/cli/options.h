// SPDX-License-Identifier: MIT
// Everything that the user can type. Only options.c sees argv; one table (option_table.c) gives the
// parser, --help and what each command refuses.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "filter/filter.h"
#include "image/format.h"
#include "io/walk/shard.h"
#include "kernels/layer/layer.h"
#include "report/record.h"
#include "run/pipeline.h"

#define CONV_OPTIONS_MAX_GLOBS 64
#define CONV_OPTIONS_MOST 128 // options that the table can hold

enum conv_command {
    CONV_COMMAND_RUN, // conv FILTER INPUT... OUTPUT
    CONV_COMMAND_LIST,
    CONV_COMMAND_SHOW,
    CONV_COMMAND_VERIFY,
    CONV_COMMAND_LAYER,
    CONV_COMMAND_REPORT_MERGE,
    CONV_COMMAND_BENCH, // without the word that says what to measure
    CONV_COMMAND_BENCH_KERNELS,
    CONV_COMMAND_BENCH_LAYERS,
    CONV_COMMAND_BENCH_STREAMS,
    CONV_COMMAND_BENCH_CODEC,
    CONV_COMMAND_DEVICES,
    CONV_COMMAND_HELP,
    CONV_COMMAND_VERSION,
};

enum conv_bench_depth { CONV_BENCH_8_BITS, CONV_BENCH_16_BITS, CONV_BENCH_FLOAT32 }; // --depth

// The layers that `conv bench layers` measures and that --shape names.
// Strides, padding, dilation and groups are options of their own.
struct conv_bench_layer {
    const char *name; // of a row of conv_bench_shapes_list, else NULL
    int batch;        // images; 0: the usual batches, one after the other
    int channels, height, width, maps;
    int kernel_height, kernel_width;
};

// The layers of which `conv bench layers` measures all by default; *count is set.
const struct conv_bench_layer *conv_bench_shapes_list(int *count);

// --stage: everything, or only copies and kernels of the device.
enum conv_bench_stage { CONV_BENCH_ALL, CONV_BENCH_DEVICE };

struct conv_string_list {
    const char *items[CONV_OPTIONS_MAX_GLOBS];
    int count;
};

// --on-error: what to do with an image that fails.
enum conv_on_error { CONV_ON_ERROR_COPY, CONV_ON_ERROR_SKIP, CONV_ON_ERROR_STOP };

#define CONV_OPTIONS_OUTPUT_F16 (CONV_OUTPUT_F32 + 1)

enum conv_layer_range { CONV_LAYER_RANGE_1, CONV_LAYER_RANGE_255 }; // --range

// conv layer; --bias and --border are those of filters, with values of another kind.
struct conv_layer_options {
    int groups;
    const char *stride_text, *dilation_text; // NULL: 1
    int stride_y, stride_x, dilation_y, dilation_x;
    const char *padding; // NULL: valid
    enum conv_activation activation;
    enum conv_precision precision;
    enum conv_layer_range range;
    const char *pool; // of a filter bank; NULL: none
};

// The unit that is divided into shards: --shard-of.
enum conv_shard_of { CONV_SHARD_OF_ARCHIVES, CONV_SHARD_OF_MEMBERS };

// Which images: the operands that are inputs, and what is taken of them.
struct conv_input_options {
    bool batch, recursive, nul, watch;
    struct conv_string_list include, exclude;
    bool no_ignore;
    uint64_t limit, sample, seed;  // 0: not given
    const char *files_from, *base; // --files-from, --base
    int others;                    // --others: 1 copies them
    const char *shard_text;
    struct conv_shard shard; // count 0 without --shard
    int shard_of;            // enum conv_shard_of
    bool shard_in_output;    // {shard} was in the output's name
    bool first_frame;
    uint64_t max_pixels;
};

// Where results go, in which form, and which of them are written.
struct conv_output_options {
    const char *path, *suffix, *backup; // --output, --suffix, --backup
    bool beside, in_place;
    const char *format_text; // --format; NULL: not given
    bool images_only;
    bool skip_existing, update, dry_run, no_save, fail_fast;
    const char *resume_path;
    int on_error; // enum conv_on_error
    int type;     // enum conv_output_type, or CONV_OPTIONS_OUTPUT_F16 of conv layer
    enum conv_strip strip;
    bool auto_orient, preserve, force, fsync;
    bool reproducible;
    const char *encoder_text;
    const char *quality_text; // --quality; codec.quality is 0 for "keep" and without it
    const char *to_text;
    const struct conv_format *to; // --to; NULL: by the names of the outputs
    struct conv_codec_config codec;
};

// What is computed.
struct conv_filter_choice {
    struct conv_filter_settings settings; // --kernel, --size, --divisor, --bias, --flip
    const char *size_text;
    const char *border_text;
    enum conv_border border;
    int border_value;
    enum conv_alpha_mode alpha;
    unsigned alpha_kept; // conv_backend_config
    const char *mix_text, *roi_text;
    struct conv_blend blend;
    struct conv_layer_options layer;
};

// Where it is computed, within which limits.
struct conv_machine_options {
    const struct conv_device_ops *const *backends; // the program's, by place: engine.h
    const struct conv_limits *limits;              // of this process, read at its start
    const char *device_text;
    const char *variant;
    enum conv_coder decode_on, encode_on;
    int streams; // 0: not given, as with group_bytes
    int jobs;    // at least 1 after parsing
    bool jobs_given;
    size_t group_bytes;
    size_t mem_limit; // 0: not given; see conv_options_mem_limit
};

// What the program says about a run.
struct conv_report_options {
    enum conv_when progress;
    bool quiet, verbose, json;
    const char *path, *trace_path, *html_path; // --report, --trace, --html
    char command_line[1000];                   // as typed, for the page
    char note[120]; // for the user, about a value that was changed; "" if none was
};

// conv bench
struct conv_bench_choice {
    const char *filter; // --filter
    const char *image_size_text;
    int sizes;         // enum conv_bench_sizes of --image-size
    int width, height; // --image-size WxH
    int images;        // --images N, 0 = not given
    enum conv_bench_depth depth;
    enum conv_bench_stage stage;
    const char *shape_text;        // --shape
    struct conv_bench_layer layer; // --shape, --maps and --kernel; channels 0: not given
    const char *network;           // --network
    int batch;                     // --batch-size, 0: not given
    const char *compare_path;      // of bench kernels: an earlier result
    bool csv, svg;
};

struct conv_options {
    char **argv; // of the program, with a NULL at its end
    enum conv_command command;
    bool given[CONV_OPTIONS_MOST]; // by row of the table of options
    bool help, version;
    bool help_is_short;    // -h
    const char **operands; // all words but options, in order, commands included; points into argv
    int operand_count;
    char shard_names[8192]; // names of files in which the shard's number was inserted
    size_t shard_names_used;
    struct conv_input_options inputs;
    struct conv_output_options outputs;
    struct conv_filter_choice filter;
    struct conv_machine_options machine;
    struct conv_report_options report;
    struct conv_bench_choice bench;
};

// Parses argv[1..]. argv is reordered (options first). *limits give defaults and must outlive the
// options. CONV_ERR_USAGE with a text that contains the
// option and, for an unknown one, the nearest known one. An option that the command would ignore is
// refused.
enum conv_status conv_options_parse(struct conv_options *options, const struct conv_limits *limits,
                                    int argc, char **argv, struct conv_err *err);

// The values of an empty command line, before they are checked.
void conv_options_set_defaults(struct conv_options *options);

// True if the option was on the command line.
bool conv_options_given(const struct conv_options *options, const char *name);

// The command that words[0..count) begin with; *used: how many words that takes, at least 1.
// CONV_COMMAND_RUN if they begin with no command.
enum conv_command conv_options_find_command(const char *const *words, int count, int *used);

// Sets alpha and alpha_kept of *choice, options->filter or a copy: --alpha, or what conv FILTER
// does without it, with each filter as it would alone.
void conv_options_choose_alpha(struct conv_filter_choice *choice,
                               const struct conv_options *options,
                               const struct conv_filter *filters, int count);

// CONV_ERR_USAGE if options were given that are meaningless or impossible for outputs of that
// format. `what` is the reason for the format: "--to jpg", "the output a.jpg".
enum conv_status conv_options_check_format(const struct conv_options *options,
                                           const struct conv_format *format, const char *what,
                                           struct conv_err *err);

// --streams and --group, or their defaults; `decodes`: a device may decode.
int conv_options_streams(const struct conv_machine_options *machine, bool decodes);
size_t conv_options_group_bytes(const struct conv_machine_options *machine, bool decodes);

// --mem-limit, or a default that fits into the memory that the process may use. It is lower for an
// `async` backend, where the memory of groups and that of the coders add up.
size_t conv_options_mem_limit(const struct conv_machine_options *machine, bool async);

// The number of this process, from 0, among those of the job on the same machine, by the variables
// of Slurm, Open MPI and other MPI launchers; 0 if they do not say so. option_shard.c
int conv_options_local_rank(void);
