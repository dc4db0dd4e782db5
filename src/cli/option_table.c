// SPDX-License-Identifier: MIT
#include "cli/option_table.h"

#include <stdio.h>

// --- commands ------------------------------------------------------------------------------------

#define RUN (1u << CONV_COMMAND_RUN)
#define LIST (1u << CONV_COMMAND_LIST)
#define SHOW (1u << CONV_COMMAND_SHOW)
#define VERIFY (1u << CONV_COMMAND_VERIFY)
#define KERNELS (1u << CONV_COMMAND_BENCH_KERNELS)
#define STREAMS (1u << CONV_COMMAND_BENCH_STREAMS)
#define CODEC (1u << CONV_COMMAND_BENCH_CODEC)
#define DEVICES (1u << CONV_COMMAND_DEVICES)
#define EVERY (~0u)
#define WORKING (EVERY & ~(1u << CONV_COMMAND_HELP | 1u << CONV_COMMAND_VERSION))

const struct conv_command_row conv_command_table[] = {
    {CONV_COMMAND_RUN, "FILTER", "INPUT... OUTPUT", "filter images"},
    {CONV_COMMAND_LIST, "list", "", "list the filters"},
    {CONV_COMMAND_SHOW, "show", "FILTER", "explain a filter and how it would run on this machine"},
    {CONV_COMMAND_VERIFY, "verify", "FILTER INPUT...",
     "filter with every kernel of every device and compare the pixels"},
    {CONV_COMMAND_BENCH_KERNELS, "bench kernels", "", "measure every kernel variant"},
    {CONV_COMMAND_BENCH_STREAMS, "bench streams", "FOLDER",
     "compare 1, 2, 4, ... CUDA streams (without a GPU: worker threads)"},
    {CONV_COMMAND_BENCH_CODEC, "bench codec", "FOLDER",
     "measure speed and size of every PNG decoder and encoder"},
    {CONV_COMMAND_DEVICES, "devices", "", "list the GPUs and the CPU"},
    {CONV_COMMAND_HELP, "help", "[COMMAND]", "print this text, or the options of one command"},
    {CONV_COMMAND_VERSION, "version", "", "print the version"},
};
const size_t conv_command_count = sizeof conv_command_table / sizeof conv_command_table[0];

const char *conv_command_name(char *text, size_t size, enum conv_command command)
{
    const char *words = "bench"; // without the word that says what to measure
    for (size_t i = 0; i < conv_command_count; i++)
        if (conv_command_table[i].command == command)
            words = conv_command_table[i].words;
    snprintf(text, size, "conv %s", words);
    return text;
}

// --- options -------------------------------------------------------------------------------------

#define FIELD(name) offsetof(struct conv_options, name)
#define FILTERING (RUN | SHOW | VERIFY | KERNELS | STREAMS | CODEC)
#define READING (RUN | VERIFY | STREAMS | CODEC)

static const char *const coder_choices[] = {"cpu", "auto", "gpu", NULL};
static const char *const alpha_choices[] = {"keep", "filter", "premultiply", NULL};
static const char *const depth_choices[] = {"8", "16", NULL};
static const char *const stage_choices[] = {"all", "device", NULL};
static const char *const when_choices[] = {"auto", "always", "never", NULL};

const struct conv_option conv_option_table[] = {
    {"batch", 'b', NULL, KIND_FLAG, FIELD(batch), 0, 0, NULL,
     "INPUT and OUTPUT are folders (implied if INPUT is one)", "Which images", RUN},
    {"recursive", 'r', NULL, KIND_FLAG, FIELD(recursive), 0, 0, NULL,
     "also filter the folders below INPUT; OUTPUT gets the same tree", NULL, READING},
    {"include", 0, "GLOB", KIND_LIST, FIELD(include), 0, 0, NULL,
     "take only names that match; can be repeated (default: *.png in upper or lower case)", NULL,
     READING},
    {"exclude", 0, "GLOB", KIND_LIST, FIELD(exclude), 0, 0, NULL,
     "skip names that match; can be repeated", NULL, READING},
    {"files-from", 0, "FILE", KIND_STRING, FIELD(files_from), 0, 0, NULL,
     "read the names of the inputs from FILE, one per line; - is standard input", NULL, RUN},
    {"null", '0', NULL, KIND_FLAG, FIELD(nul), 0, 0, NULL,
     "names in --files-from end in NUL, as find -print0 writes them", NULL, RUN},
    {"skip-existing", 0, NULL, KIND_FLAG, FIELD(skip_existing), 0, 0, NULL,
     "skip images whose output exists", NULL, RUN},
    {"update", 'u', NULL, KIND_FLAG, FIELD(update), 0, 0, NULL,
     "skip images whose output is not older than the input", NULL, RUN},
    {"resume", 0, "FILE", KIND_STRING, FIELD(resume_path), 0, 0, NULL,
     "record finished images in the journal FILE and skip those that it lists as done with the "
     "same settings and unchanged since",
     NULL, RUN},
    {"dry-run", 0, NULL, KIND_FLAG, FIELD(dry_run), 0, 0, NULL,
     "print what would be done and why; write nothing", NULL, RUN},

    {"kernel", 'k', "SPEC", KIND_STRING, FIELD(filter.kernel), 0, 0, NULL,
     "the kernel of the filter 'custom': '3x3: -2,-1,0 -1,1,1 0,1,2', '1 2 1 2 4 2 1 2 1', or "
     "@FILE in libvips' matrix format",
     "Filter", FILTERING},
    {"size", 0, "3|5", KIND_STRING, FIELD(size_text), 0, 0, NULL,
     "use the 3x3 or 5x5 version of the filter (default: as its name says)", NULL, FILTERING},
    {"divisor", 0, "N|sum", KIND_STRING, FIELD(filter.divisor), 0, 0, NULL,
     "divide by N, or by the sum of the coefficients (default: the filter's own divisor)", NULL,
     FILTERING},
    {"bias", 0, "N", KIND_STRING, FIELD(filter.bias), 0, 0, NULL,
     "add N, on the scale of 8-bit samples (default: the filter's own bias)", NULL, FILTERING},
    {"flip", 0, NULL, KIND_FLAG, FIELD(filter.flip), 0, 0, NULL,
     "rotate the kernel by 180 degrees: convolution instead of correlation", NULL, FILTERING},
    {"border", 0, "MODE", KIND_STRING, FIELD(border_text), 0, 0, NULL,
     "pixels outside the image: replicate (default; also edge, clamp, nearest), reflect, "
     "reflect101, wrap, constant[:V]",
     NULL, FILTERING},

    {"alpha", 0, "MODE", KIND_CHOICE, FIELD(alpha), 0, 0, alpha_choices,
     "keep (default), filter or premultiply", "Output", RUN | VERIFY | STREAMS},
    {"strip", 0, NULL, KIND_FLAG, FIELD(strip), 0, 0, NULL,
     "drop metadata (default: keep what stays true after filtering)", NULL, RUN | STREAMS},
    {"first-frame", 0, NULL, KIND_FLAG, FIELD(first_frame), 0, 0, NULL,
     "take the first image of an animated PNG (default: refuse it)", NULL, RUN},
    {"preserve", 'p', NULL, KIND_FLAG, FIELD(preserve), 0, 0, NULL,
     "give the output the input's mode and times", NULL, RUN},
    {"in-place", 0, NULL, KIND_FLAG, FIELD(in_place), 0, 0, NULL,
     "replace each input by its output; there is no OUTPUT", NULL, RUN},
    {"fsync", 0, NULL, KIND_FLAG, FIELD(fsync), 0, 0, NULL,
     "flush each output to the disk before it gets its name", NULL, RUN},
    {"encoder", 0, "NAME", KIND_STRING, FIELD(encoder_text), 0, 0, NULL,
     "fast (default), libpng or stb", NULL, RUN | STREAMS | CODEC},
    {"compress", 'z', "N", KIND_INT, FIELD(png.level), 0, 12, NULL,
     "0 (fastest) to 12 (smallest); libpng and stb: to 9 (default: 1; stb: 8)", NULL,
     RUN | STREAMS | CODEC},
    {"reproducible", 0, NULL, KIND_FLAG, FIELD(reproducible), 0, 0, NULL,
     "write the same file bytes on every machine, by encoding on the CPU", NULL, RUN},

    {"device", 0, "DEVICE", KIND_STRING, FIELD(device_text), 0, 0, NULL,
     "auto (default: a GPU for large jobs, else the CPU), cpu, cuda, cuda:N, all (every GPU), or a "
     "list such as cuda:0,cuda:1",
     "Machine", RUN | VERIFY | KERNELS | STREAMS | CODEC},
    {"decode-on", 0, "WHERE", KIND_CHOICE, FIELD(decode_on), 0, 0, coder_choices,
     "decode PNG on cpu, on gpu, or auto (default: on whichever finishes first)", NULL,
     RUN | STREAMS},
    {"encode-on", 0, "WHERE", KIND_CHOICE, FIELD(encode_on), 0, 0, coder_choices,
     "encode PNG on cpu, on gpu, or auto (default: on the GPU for large jobs)", NULL,
     RUN | STREAMS},
    {"streams", 0, "N", KIND_INT, FIELD(streams), 1, 64, NULL,
     "CUDA streams per GPU (default: 4; 6 if the GPU also decodes PNG)", NULL, RUN},
    {"group", 0, "SIZE", KIND_SIZE, FIELD(group_bytes), 0, 0, NULL,
     "bytes of images copied to the GPU together (default: 16M; 32M if the GPU also decodes PNG)",
     NULL, RUN | STREAMS},
    {"jobs", 'j', "N", KIND_INT, FIELD(jobs), 1, 1024, NULL,
     "worker threads (default: one per core)", NULL, RUN | STREAMS | CODEC},
    {"mem-limit", 0, "SIZE", KIND_SIZE, FIELD(mem_limit), 0, 0, NULL,
     "staging memory for images in flight (default: half of the memory; less in a limited "
     "container "
     "or job)",
     NULL, READING},
    {"max-pixels", 0, "N", KIND_COUNT, FIELD(max_pixels), 0, 0, NULL,
     "refuse larger images (default: 268435456)", NULL, READING},
    {"variant", 0, "NAME", KIND_STRING, FIELD(variant), 0, 0, NULL,
     "use this kernel variant (conv bench kernels lists them)", NULL,
     RUN | SHOW | KERNELS | STREAMS},
    {"no-save", 0, NULL, KIND_FLAG, FIELD(no_save), 0, 0, NULL,
     "do everything except writing the outputs, to measure speed", NULL, RUN},
    {"fail-fast", 0, NULL, KIND_FLAG, FIELD(fail_fast), 0, 0, NULL,
     "stop at the first image that fails", NULL, RUN},

    {"progress", 0, "WHEN", KIND_CHOICE, FIELD(progress), 0, 0, when_choices,
     "auto (default: on a terminal), always, never", "Messages", RUN},
    {"quiet", 'q', NULL, KIND_FLAG, FIELD(quiet), 0, 0, NULL, "print failures only", NULL,
     RUN | VERIFY | KERNELS | STREAMS},
    {"verbose", 'v', NULL, KIND_FLAG, FIELD(verbose), 0, 0, NULL,
     "print each image and the kernel variant in use", NULL, RUN},
    {"json", 0, NULL, KIND_FLAG, FIELD(json), 0, 0, NULL,
     "print JSON on standard output, one object per line", NULL, WORKING},
    {"report", 0, "FILE", KIND_STRING, FIELD(report_path), 0, 0, NULL,
     "write the same JSON lines into FILE", NULL, RUN},
    {"trace", 0, "FILE", KIND_STRING, FIELD(trace_path), 0, 0, NULL,
     "write a timeline of every thread and stream, for Perfetto or chrome://tracing", NULL, RUN},
    {"html", 0, "FILE", KIND_STRING, FIELD(html_path), 0, 0, NULL,
     "write a page about the run or the benchmark, in one self-contained file", NULL,
     RUN | KERNELS | STREAMS},
    {"help", 'h', NULL, KIND_FLAG, FIELD(help), 0, 0, NULL,
     "print this text, or the options of the command before it", NULL, EVERY},
    {"version", 'V', NULL, KIND_FLAG, FIELD(version), 0, 0, NULL, "print the version", NULL, EVERY},

    {"filter", 0, "FILTER", KIND_STRING, FIELD(bench_filter), 0, 0, NULL,
     "the filter to measure with (default: emboss)", "conv bench", KERNELS | STREAMS | CODEC},
    {"image-size", 0, "SIZE", KIND_STRING, FIELD(image_size_text), 0, 0, NULL,
     "bench kernels: WIDTHxHEIGHT, or mix for 1x1 to 4000x3000 (default: 4096x4096)", NULL,
     KERNELS},
    {"images", 0, "N", KIND_INT, FIELD(bench_images), 1, 100000, NULL,
     "bench kernels: images per launch (default: 1; mix: 500); bench codec --device cuda: images "
     "in "
     "flight",
     NULL, KERNELS | CODEC},
    {"depth", 0, "BITS", KIND_CHOICE, FIELD(bench_depth), 0, 0, depth_choices,
     "bench kernels: 8 (default) or 16 bits per sample", NULL, KERNELS},
    {"stage", 0, "STAGE", KIND_CHOICE, FIELD(bench_stage), 0, 0, stage_choices,
     "bench streams: all (default), or device: images start in pinned memory and results are "
     "discarded",
     NULL, STREAMS},
    {"csv", 0, NULL, KIND_FLAG, FIELD(csv), 0, 0, NULL,
     "bench kernels and bench streams: print comma-separated values", NULL, KERNELS | STREAMS},
};

_Static_assert(sizeof conv_option_table / sizeof conv_option_table[0] <= CONV_OPTIONS_MOST,
               "the parser's arrays hold every option");
const size_t conv_option_count = sizeof conv_option_table / sizeof conv_option_table[0];

// --- rules ---------------------------------------------------------------------------------------

const struct conv_option_rule conv_option_rules[] = {
    {"null", OPTION_NEEDS, "files-from", NULL, EVERY, NULL},
    {"recursive", OPTION_EXCLUDES, "files-from", "the list names the images", EVERY, NULL},
    {"include", OPTION_EXCLUDES, "files-from", "the list names the images", EVERY, NULL},
    {"exclude", OPTION_EXCLUDES, "files-from", "the list names the images", EVERY, NULL},
    {"skip-existing", OPTION_EXCLUDES, "update", NULL, EVERY, NULL},
    {"skip-existing", OPTION_EXCLUDES, "resume", NULL, EVERY, NULL},
    {"update", OPTION_EXCLUDES, "resume", NULL, EVERY, NULL},
    {"in-place", OPTION_EXCLUDES, "skip-existing", "every output exists", EVERY, NULL},
    {"in-place", OPTION_EXCLUDES, "update", "every output exists", EVERY, NULL},
    {"in-place", OPTION_EXCLUDES, "first-frame", "the other frames would be lost", EVERY, NULL},
    {"dry-run", OPTION_EXCLUDES, "no-save", NULL, EVERY, NULL},
    {"reproducible", OPTION_EXCLUDES, "encode-on", "--reproducible encodes on the CPU", EVERY,
     NULL},
    {"quiet", OPTION_EXCLUDES, "verbose", NULL, EVERY, NULL},
    {"json", OPTION_EXCLUDES, "csv", NULL, EVERY, NULL},
    // conv bench codec without --jobs times each coder alone, on the images as they are.
    {"filter", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"kernel", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"size", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"divisor", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"bias", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"flip", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"border", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"encoder", OPTION_NEEDS, "jobs", NULL, CODEC, NULL},
    {"stage", OPTION_EXCLUDES, "decode-on", "it codes no PNG", STREAMS, "device"},
    {"stage", OPTION_EXCLUDES, "encode-on", "it codes no PNG", STREAMS, "device"},
    {"stage", OPTION_EXCLUDES, "encoder", "it codes no PNG", STREAMS, "device"},
    {"stage", OPTION_EXCLUDES, "compress", "it codes no PNG", STREAMS, "device"},
    {"stage", OPTION_EXCLUDES, "strip", "it codes no PNG", STREAMS, "device"},
};
const size_t conv_option_rule_count = sizeof conv_option_rules / sizeof conv_option_rules[0];

// --- synonyms ------------------------------------------------------------------------------------

#define REPLACED "existing outputs are replaced, unless --skip-existing or --update is given"

const struct conv_option_synonym conv_option_synonyms[] = {
    {"output", 'o', "the output is the last operand: conv FILTER INPUT... OUTPUT"},
    {"out", 0, "the output is the last operand: conv FILTER INPUT... OUTPUT"},
    {"threads", 't', "use --jobs N"},
    {"workers", 0, "use --jobs N"},
    {NULL, 'n', "use --dry-run"},
    {"force", 'f', REPLACED},
    {"overwrite", 0, REPLACED},
    {"no-clobber", 0, "use --skip-existing"},
    {"level", 0, "use --compress N"},
    {"quality", 0, "PNG is lossless; --compress N trades speed for file size"},
    {"gpu", 0, "use --device cuda"},
    {"cpu", 0, "use --device cpu"},
    {"silent", 's', "use --quiet"},
    {"list", 0, "conv list prints the filters"},
};
const size_t conv_option_synonym_count =
    sizeof conv_option_synonyms / sizeof conv_option_synonyms[0];
