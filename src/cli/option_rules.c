// SPDX-License-Identifier: MIT
// Rules about combinations of options, and the options of similar programs.
#include "cli/option_table.h"

#define RUN (1u << CONV_COMMAND_RUN)
#define STREAMS (1u << CONV_COMMAND_BENCH_STREAMS)
#define LAYERS (1u << CONV_COMMAND_BENCH_LAYERS)
#define CODEC (1u << CONV_COMMAND_BENCH_CODEC)
#define NEEDS(NAME, OTHER) .name = NAME, .relation = OPTION_NEEDS, .other = OTHER
#define EXCLUDES(NAME, OTHER) .name = NAME, .relation = OPTION_EXCLUDES, .other = OTHER

#define NOT_PNG "results are .npy files"
#define REPLACES "results replace the images"
#define RESULTS "results lie next to the images"

// --- rules ---------------------------------------------------------------------------------------

const struct conv_option_rule conv_option_rules[] = {
    {NEEDS("null", "files-from")},
    {EXCLUDES("recursive", "files-from"), .reason = "the list names the images"},
    {EXCLUDES("include", "files-from"), .reason = "the list names the images"},
    {EXCLUDES("exclude", "files-from"), .reason = "the list names the images"},
    {EXCLUDES("no-ignore", "files-from"), .reason = "the list names the images"},
    {EXCLUDES("watch", "files-from"), .reason = "folders are watched"},
    {EXCLUDES("watch", "in-place"), .reason = "each result would be a new arrival"},
    {EXCLUDES("watch", "beside"), .reason = "each result would be a new arrival"},
    {EXCLUDES("watch", "dry-run"), .reason = "a watch has no end"},
    {NEEDS("shard-by", "shard")},
    {NEEDS("shard-of", "shard")},
    {EXCLUDES("beside", "shard"), .reason = "other processes would list the results"},
    {EXCLUDES("limit", "shard"), .reason = "each process lists all images"},
    {EXCLUDES("sample", "shard"), .reason = "each process lists all images"},
    {EXCLUDES("watch", "shard"), .reason = "arriving images are not divided"},
    {EXCLUDES("watch", "sample"), .reason = "a watch has no end"},
    {EXCLUDES("limit", "sample")},
    {NEEDS("seed", "sample")},
    {EXCLUDES("skip-existing", "update")},
    {EXCLUDES("skip-existing", "resume")},
    {EXCLUDES("update", "resume")},
    {EXCLUDES("output-type", "in-place"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "encoder"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "compress"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "encode-on"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "strip"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "to"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output-type", "quality"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("in-place", "to"), .reason = "the name of an image says its format"},
    {EXCLUDES("output-type", "html"), .choice = "f32", .commands = RUN, .reason = NOT_PNG},
    {EXCLUDES("output", "beside"), .reason = RESULTS},
    {EXCLUDES("output", "in-place"), .reason = REPLACES},
    {EXCLUDES("beside", "in-place"), .reason = REPLACES},
    {EXCLUDES("suffix", "in-place"), .reason = REPLACES},
    {EXCLUDES("in-place", "skip-existing"), .reason = "every output exists"},
    {EXCLUDES("in-place", "update"), .reason = "every output exists"},
    {EXCLUDES("in-place", "first-frame"), .reason = "the other frames would be lost"},
    {EXCLUDES("dry-run", "no-save")},
    {EXCLUDES("reproducible", "encode-on"), .reason = "--reproducible encodes on the CPU"},
    {EXCLUDES("quiet", "verbose")},
    {EXCLUDES("format", "in-place"), .reason = "archives cannot be replaced"},
    {EXCLUDES("on-error", "fail-fast")},
    {EXCLUDES("on-error", "in-place"), .choice = "copy", .commands = RUN,
     .reason = "an image that fails stays as it is"},
    {EXCLUDES("json", "csv")},
    {EXCLUDES("json", "svg")},
    {EXCLUDES("csv", "svg")},
    {NEEDS("maps", "shape"), .commands = LAYERS},
    {NEEDS("kernel", "shape"), .commands = LAYERS},
    {NEEDS("html", "shape"), .commands = LAYERS},
    {NEEDS("svg", "shape"), .commands = LAYERS},
    // conv bench codec without --jobs times each coder alone, on the images as they are.
    {NEEDS("filter", "jobs"), .commands = CODEC},
    {NEEDS("kernel", "jobs"), .commands = CODEC},
    {NEEDS("size", "jobs"), .commands = CODEC},
    {NEEDS("divisor", "jobs"), .commands = CODEC},
    {NEEDS("bias", "jobs"), .commands = CODEC},
    {NEEDS("flip", "jobs"), .commands = CODEC},
    {NEEDS("border", "jobs"), .commands = CODEC},
    {NEEDS("encoder", "jobs"), .commands = CODEC},
    {EXCLUDES("stage", "decode-on"), .choice = "device", .commands = STREAMS,
     .reason = "it does not decode or encode PNG"},
    {EXCLUDES("stage", "encode-on"), .choice = "device", .commands = STREAMS,
     .reason = "it does not decode or encode PNG"},
    {EXCLUDES("stage", "encoder"), .choice = "device", .commands = STREAMS,
     .reason = "it does not decode or encode PNG"},
    {EXCLUDES("stage", "compress"), .choice = "device", .commands = STREAMS,
     .reason = "it does not decode or encode PNG"},
    {EXCLUDES("stage", "strip"), .choice = "device", .commands = STREAMS,
     .reason = "it does not decode or encode PNG"},
};
const size_t conv_option_rule_count = sizeof conv_option_rules / sizeof conv_option_rules[0];

// --- synonyms ------------------------------------------------------------------------------------

#define REPLACED "existing outputs are replaced, unless --skip-existing or --update is given"

const struct conv_option_synonym conv_option_synonyms[] = {
    {"out", 0, "use --output OUTPUT, or give it as the last operand"},
    {"target-directory", 0, "use --output FOLDER"},
    {"dir", 0, "use --output FOLDER"},
    {"threads", 't', "use --jobs N"},
    {"workers", 0, "use --jobs N"},
    {NULL, 'n', "use --dry-run"},
    {NULL, 'f', REPLACED "; --force replaces write-protected ones, too"},
    {"overwrite", 0, REPLACED},
    {"no-clobber", 0, "use --skip-existing"},
    {"level", 0, "use --compress N"},
    {"gpu", 0, "use --device cuda"},
    {"cpu", 0, "use --device cpu"},
    {"silent", 's', "use --quiet"},
    {"list", 0, "conv list prints the filters"},
};
const size_t conv_option_synonym_count =
    sizeof conv_option_synonyms / sizeof conv_option_synonyms[0];
