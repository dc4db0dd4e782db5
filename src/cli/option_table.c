// SPDX-License-Identifier: MIT
#include "cli/option_table.h"

#include <string.h>

#define FIELD(name) offsetof(struct conv_options, name)

static const char *const coder_choices[] = {"cpu", "auto", "gpu", NULL};
static const char *const alpha_choices[] = {"keep", "filter", "premultiply", NULL};
static const char *const depth_choices[] = {"8", "16", NULL};
static const char *const stage_choices[] = {"all", "device", NULL};
static const char *const when_choices[] = {"auto", "always", "never", NULL};

const struct conv_option conv_option_table[] = {
    {"batch", 'b', NULL, KIND_FLAG, FIELD(batch), 0, 0, NULL,
     "INPUT and OUTPUT are folders (implied when INPUT is one)", "Which pictures", NULL},
    {"recursive", 'r', NULL, KIND_FLAG, FIELD(recursive), 0, 0, NULL,
     "the tree below INPUT, its shape kept", NULL, NULL},
    {"include", 0, "GLOB", KIND_LIST, FIELD(include), 0, 0, NULL,
     "only names that match; may be repeated (default: *.png in any case)", NULL, NULL},
    {"exclude", 0, "GLOB", KIND_LIST, FIELD(exclude), 0, 0, NULL,
     "not names that match; may be repeated", NULL, NULL},
    {"files-from", 0, "FILE", KIND_STRING, FIELD(files_from), 0, 0, NULL,
     "names from a list, one a line, below INPUT or the current folder;\n- is standard input", NULL,
     NULL},
    {"null", '0', NULL, KIND_FLAG, FIELD(nul), 0, 0, NULL,
     "names in --files-from end in NUL, as find -print0 writes them", NULL, NULL},
    {"skip-existing", 0, NULL, KIND_FLAG, FIELD(skip_existing), 0, 0, NULL,
     "leave pictures out whose output exists", NULL, NULL},
    {"update", 'u', NULL, KIND_FLAG, FIELD(update), 0, 0, NULL,
     "leave pictures out whose output is not older than the input", NULL, NULL},
    {"resume", 0, "FILE", KIND_STRING, FIELD(resume_path), 0, 0, NULL,
     "leave pictures out that the journal FILE says are done with these\nsettings from this input, "
     "and note in it what is done now",
     NULL, NULL},
    {"dry-run", 0, NULL, KIND_FLAG, FIELD(dry_run), 0, 0, NULL,
     "print what would be done and why; do nothing", NULL, NULL},

    {"kernel", 'k', "SPEC", KIND_STRING, FIELD(filter.kernel), 0, 0, NULL,
     "the kernel of FILTER `custom`: '3x3: -2,-1,0 -1,1,1 0,1,2',\n"
     "'1 2 1 2 4 2 1 2 1', or @FILE in libvips' matrix format",
     "Filter", NULL},
    {"size", 0, "3|5", KIND_STRING, FIELD(size_text), 0, 0, NULL,
     "the family's filter of this size (default: as the name says)", NULL, NULL},
    {"divisor", 0, "N|sum", KIND_STRING, FIELD(filter.divisor), 0, 0, NULL,
     "divide by N, or by the sum of the coefficients (default: as the\nfilter says; never "
     "normalised "
     "silently)",
     NULL, NULL},
    {"bias", 0, "N", KIND_STRING, FIELD(filter.bias), 0, 0, NULL,
     "add N, in 8-bit units (default: as the filter says)", NULL, NULL},
    {"flip", 0, NULL, KIND_FLAG, FIELD(filter.flip), 0, 0, NULL,
     "turn the kernel by 180 degrees: convolution instead of correlation", NULL, NULL},
    {"border", 0, "MODE", KIND_STRING, FIELD(border_text), 0, 0, NULL,
     "replicate (default; also edge, clamp, nearest), reflect, reflect101,\nwrap, constant[:V]",
     NULL, NULL},

    {"alpha", 0, "MODE", KIND_CHOICE, FIELD(alpha), 0, 0, alpha_choices,
     "keep (default), filter or premultiply", "Output", NULL},
    {"strip", 0, NULL, KIND_FLAG, FIELD(strip), 0, 0, NULL,
     "drop metadata (default: colour, print and text chunks are kept)", NULL, NULL},
    {"preserve", 'p', NULL, KIND_FLAG, FIELD(preserve), 0, 0, NULL,
     "give the output the input's mode and times", NULL, NULL},
    {"in-place", 0, NULL, KIND_FLAG, FIELD(in_place), 0, 0, NULL,
     "no OUTPUT is named: each output replaces its input", NULL, NULL},
    {"fsync", 0, NULL, KIND_FLAG, FIELD(fsync), 0, 0, NULL,
     "have each output on the disk before it gets its name", NULL, NULL},
    {"encoder", 0, "NAME", KIND_STRING, FIELD(encoder_text), 0, 0, NULL,
     "fast (default), libpng or stb", NULL, NULL},
    {"compress", 'z', "N", KIND_INT, FIELD(png.level), 0, 12, NULL,
     "0 (fast) to 12 (small), libpng and stb to 9 (default: 1; stb: 8)", NULL, NULL},

    {"device", 0, "DEVICE", KIND_STRING, FIELD(device_text), 0, 0, NULL,
     "auto (default: a GPU where there is much to do), cpu, cuda, cuda:N,\nall (GPUs), or a list such as cuda:0,cuda:1", "Machine",
     NULL},
    {"decode-on", 0, "WHERE", KIND_CHOICE, FIELD(decode_on), 0, 0, coder_choices,
     "who reads picture data: cpu, gpu (what it cannot, the CPU does), or\nauto (default: who is done "
     "first)",
     NULL, NULL},
    {"encode-on", 0, "WHERE", KIND_CHOICE, FIELD(encode_on), 0, 0, coder_choices,
     "who writes picture data: cpu, gpu, or auto (default: the GPU where\nthere is much to do)",
     NULL, NULL},
    {"streams", 0, "N", KIND_INT, FIELD(streams), 1, 64, NULL,
     "CUDA streams of each device (default: 4, where that decodes 6; 1 is\nstrictly copy, kernel, copy)", NULL, NULL},
    {"group", 0, "SIZE", KIND_SIZE, FIELD(group_bytes), 0, 0, NULL,
     "bytes of pictures that travel to the device together (default: 16M,\nwhere that decodes 32M)", NULL, NULL},
    {"jobs", 'j', "N", KIND_INT, FIELD(jobs), 0, 1024, NULL, "worker threads (default: one a core)",
     NULL, NULL},
    {"mem-limit", 0, "SIZE", KIND_SIZE, FIELD(mem_limit), 0, 0, NULL,
     "staging memory for pictures in flight (default: half of the memory)", NULL, NULL},
    {"max-pixels", 0, "N", KIND_COUNT, FIELD(max_pixels), 0, 0, NULL,
     "refuse larger pictures (default: 268435456)", NULL, NULL},
    {"variant", 0, "NAME", KIND_STRING, FIELD(variant), 0, 0, NULL,
     "force a kernel (conv bench kernels lists them)", NULL, NULL},
    {"no-save", 0, NULL, KIND_FLAG, FIELD(no_save), 0, 0, NULL,
     "do everything but the write, for measuring", NULL, NULL},
    {"fail-fast", 0, NULL, KIND_FLAG, FIELD(fail_fast), 0, 0, NULL,
     "stop at the first picture that fails", NULL, NULL},

    {"progress", 0, "WHEN", KIND_CHOICE, FIELD(progress), 0, 0, when_choices,
     "auto (default: on a terminal), always, never", "Messages", NULL},
    {"quiet", 'q', NULL, KIND_FLAG, FIELD(quiet), 0, 0, NULL, "failures only", NULL, NULL},
    {"verbose", 'v', NULL, KIND_FLAG, FIELD(verbose), 0, 0, NULL,
     "every picture, and which kernel runs", NULL, NULL},
    {"json", 0, NULL, KIND_FLAG, FIELD(json), 0, 0, NULL, "JSON Lines on standard output", NULL,
     NULL},
    {"report", 0, "FILE", KIND_STRING, FIELD(report_path), 0, 0, NULL, "JSON Lines into a file",
     NULL, NULL},
    {"trace", 0, "FILE", KIND_STRING, FIELD(trace_path), 0, 0, NULL,
     "what each thread and stream did when, for Perfetto or chrome://tracing", NULL, NULL},
    {"html", 0, "FILE", KIND_STRING, FIELD(html_path), 0, 0, NULL,
     "a page about the run or the benchmark, complete in one file", NULL, NULL},
    {"help", 'h', NULL, KIND_FLAG, FIELD(help), 0, 0, NULL, "this text", NULL, NULL},
    {"version", 'V', NULL, KIND_FLAG, FIELD(version), 0, 0, NULL, "the version", NULL, NULL},

    {"filter", 0, "FILTER", KIND_STRING, FIELD(bench_filter), 0, 0, NULL,
     "what is measured with (default: emboss); the pictures of\n`conv bench kernels` are --size "
     "WxH "
     "or --size mix (default: 4096x4096)",
     "conv bench", "bench"},
    {"batch", 'b', "N", KIND_INT, FIELD(bench_pictures), 1, 100000, NULL,
     "pictures in one launch (default: 1; of a mix: 500)", NULL, "bench"},
    {"depth", 0, "BITS", KIND_CHOICE, FIELD(bench_depth), 0, 0, depth_choices,
     "8 (default) or 16 bits a sample", NULL, "bench"},
    {"stage", 0, "STAGE", KIND_CHOICE, FIELD(bench_stage), 0, 0, stage_choices,
     "`conv bench streams`: all (default), or device: pictures wait in pinned\nmemory, results are "
     "dropped",
     NULL, "bench"},
    {"csv", 0, NULL, KIND_FLAG, FIELD(csv), 0, 0, NULL, "a table for other programs", NULL,
     "bench"},
    {"svg", 0, "FILE", KIND_STRING, FIELD(svg_path), 0, 0, NULL, "a bar chart into a file", NULL,
     "bench"},
};

_Static_assert(sizeof conv_option_table / sizeof conv_option_table[0] <= CONV_OPTION_MOST,
               "tables of the parser have room for as many");
const size_t conv_option_count = sizeof conv_option_table / sizeof conv_option_table[0];

// --- help ----------------------------------------------------------------------------------------

#define HELP_COLUMN 28

static void print_row(FILE *stream, const struct conv_option *row)
{
    if (row->section)
        fprintf(stream, "\n%s:\n", row->section);
    char left[64];
    int used = snprintf(left, sizeof left, "  %c%c%s--%s%s%s", row->letter ? '-' : ' ',
                        row->letter ? row->letter : ' ', row->letter ? ", " : "  ", row->name,
                        row->arg ? " " : "", row->arg ? row->arg : "");
    fprintf(stream, "%-*s", HELP_COLUMN, left);
    if (used >= HELP_COLUMN)
        fprintf(stream, "\n%*s", HELP_COLUMN, "");
    for (const char *line = row->help;;) {
        size_t length = strcspn(line, "\n");
        fprintf(stream, "%.*s\n", (int)length, line);
        line += length;
        if (!*line++)
            break;
        fprintf(stream, "%*s", HELP_COLUMN, "");
    }
}

void conv_options_print_help(FILE *stream)
{
    fputs("conv " CONV_VERSION
          ": filters PNG pictures by convolution, on CUDA devices and CPU cores\n"
          "\n"
          "Usage:\n"
          "  conv FILTER[,FILTER...] [options] INPUT... OUTPUT\n"
          "  conv emboss -b input_dir output_dir     every PNG of a folder\n"
          "  conv blur,sharpen photo.png out.png     one picture, two filters\n"
          "  conv emboss - -                         standard input to standard output\n"
          "\n"
          "  conv list                     the filters\n"
          "  conv show FILTER              what a filter is and how it would run here\n"
          "  conv verify FILTER INPUT...   filter on every device, compare byte for byte\n"
          "  conv bench kernels            speed of every kernel variant\n"
          "  conv bench streams FOLDER     one stream against several, on your pictures\n"
          "  conv bench codec FOLDER       speed and size of every PNG coder on your pictures\n"
          "  conv devices                  what can filter here\n"
          "\n"
          "FILTER is a name from `conv list`, `custom` with --kernel, or a matrix file\n"
          "(with a slash in its path or ending in .mat).\n",
          stream);
    for (size_t i = 0; i < conv_option_count; i++)
        print_row(stream, &conv_option_table[i]);
    fputs("\nExit codes: 0 all done or skipped, 1 some failed, 2 usage, 3 no PNG found,\n"
          "4 the device cannot be used, 130/143 ended by a signal.\n",
          stream);
}
