// SPDX-License-Identifier: MIT
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/suggest.h"

#define DEFAULT_GROUP ((size_t)16 << 20)
#define DEFAULT_MAX_PIXELS ((uint64_t)1 << 28) // 16384 x 16384

enum kind {
    KIND_FLAG,   // bool
    KIND_INT,    // int within min..max
    KIND_SIZE,   // size_t bytes, "64M"
    KIND_COUNT,  // uint64_t
    KIND_CHOICE, // int: index into choices
    KIND_STRING, // const char *
    KIND_LIST,   // struct conv_string_list
};

struct row {
    const char *name;
    char letter;     // 0: none
    const char *arg; // name of the argument, NULL: none
    enum kind kind;
    size_t offset; // of the field in struct conv_options
    long min, max; // KIND_INT
    const char *const *choices;
    const char *help;    // newlines start further lines
    const char *section; // printed before this row; NULL continues the section
    const char *command; // known after this command only, where it takes precedence; NULL: always
};

#define FIELD(name) offsetof(struct conv_options, name)

static const char *const alpha_choices[] = {"keep", "filter", "premultiply", NULL};
static const char *const depth_choices[] = {"8", "16", NULL};
static const char *const stage_choices[] = {"all", "device", NULL};
static const char *const when_choices[] = {"auto", "always", "never", NULL};

// In the order of --help.
static const struct row rows[] = {
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
     "auto (default), cpu, cuda, cuda:N, all (GPUs), or a list such as\ncuda:0,cuda:1", "Machine",
     NULL},
    {"streams", 0, "N", KIND_INT, FIELD(streams), 1, 64, NULL,
     "CUDA streams of each device (default: 4; 1 is strictly copy, kernel,\ncopy)", NULL, NULL},
    {"group", 0, "SIZE", KIND_SIZE, FIELD(group_bytes), 0, 0, NULL,
     "bytes of pictures that travel to the device together (default: 16M)", NULL, NULL},
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

#define ROW_COUNT (sizeof rows / sizeof rows[0])

// --- help ----------------------------------------------------------------------------------------

#define HELP_COLUMN 28

static void print_row(FILE *stream, const struct row *row)
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
    for (size_t i = 0; i < ROW_COUNT; i++)
        print_row(stream, &rows[i]);
    fputs("\nExit codes: 0 all done or skipped, 1 some failed, 2 usage, 3 no PNG found,\n"
          "4 the device cannot be used, 130/143 ended by a signal.\n",
          stream);
}

// --- values --------------------------------------------------------------------------------------

static enum conv_status parse_number(uint64_t *value, const char *text, bool suffix,
                                     const char *name, struct conv_err *err)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    unsigned long long number = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    bool good = end && errno == 0;
    if (good && suffix && *end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        int shift = unit ? 10 * (int)(unit - units + 1) : 0;
        if (unit && number <= UINT64_MAX >> shift) {
            number <<= shift;
            end++;
            if (end[0] == 'i' && end[1] == 'B')
                end += 2;
            else if (end[0] == 'B')
                end++;
        }
    }
    if (!good || *end)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s takes a %s, not '%s'", name,
                            suffix ? "size such as 512M or 2G" : "number", text);
    *value = number;
    return CONV_OK;
}

static enum conv_status parse_choice(int *value, const struct row *row, const char *text,
                                     struct conv_err *err)
{
    char all[128] = "";
    size_t count = 0;
    for (; row->choices[count]; count++) {
        if (strcmp(text, row->choices[count]) == 0) {
            *value = (int)count;
            return CONV_OK;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", count ? ", " : "", row->choices[count]);
    }
    const char *near = conv_suggest_nearest(text, row->choices, sizeof row->choices[0], count);
    if (near)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s '%s' is unknown; did you mean '%s'? (%s)",
                            row->name, text, near, all);
    return conv_err_set(err, CONV_ERR_USAGE, "--%s takes one of %s, not '%s'", row->name, all,
                        text);
}

static enum conv_status store(struct conv_options *options, const struct row *row, const char *text,
                              struct conv_err *err)
{
    char *field = (char *)options + row->offset;
    uint64_t number = 0;
    enum conv_status status = CONV_OK;
    switch (row->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        break;
    case KIND_STRING:
        *(const char **)(void *)field = text;
        break;
    case KIND_CHOICE:
        status = parse_choice((int *)(void *)field, row, text, err);
        break;
    case KIND_INT:
        status = parse_number(&number, text, false, row->name, err);
        if (!status && (number > (uint64_t)row->max || number < (uint64_t)row->min))
            return conv_err_set(err, CONV_ERR_USAGE, "--%s takes %ld to %ld, not %s", row->name,
                                row->min, row->max, text);
        *(int *)(void *)field = (int)number;
        break;
    case KIND_SIZE:
    case KIND_COUNT:
        status = parse_number(&number, text, row->kind == KIND_SIZE, row->name, err);
        if (!status && number == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s must be more than 0", row->name);
        *(uint64_t *)(void *)field = number;
        break;
    case KIND_LIST: {
        struct conv_string_list *list = (struct conv_string_list *)(void *)field;
        if (list->count == CONV_OPTIONS_MAX_GLOBS)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s can be given %d times", row->name,
                                CONV_OPTIONS_MAX_GLOBS);
        list->items[list->count++] = text;
        break;
    }
    }
    return status;
}

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "KIND_SIZE stores 64 bits");

// --- the parser ----------------------------------------------------------------------------------

// What may be typed with a command.
struct syntax {
    const struct row *rows[ROW_COUNT];
    size_t count;
    struct option longs[ROW_COUNT + 1]; // for getopt_long: a row's value is its index + 256
    char shorts[2 * ROW_COUNT + 3];
};

static bool is_hidden(const struct row *row, const char *command)
{
    if (row->command)
        return !command || strcmp(row->command, command) != 0;
    for (size_t i = 0; i < ROW_COUNT && command; i++)
        if (rows[i].command && strcmp(rows[i].command, command) == 0 &&
            strcmp(rows[i].name, row->name) == 0)
            return true;
    return false;
}

static void build_syntax(struct syntax *syntax, const char *command)
{
    char *shorts = syntax->shorts;
    syntax->count = 0;
    if (!command)
        *shorts++ = '+'; // stop at the first word that is no option
    *shorts++ = ':';     // tell a missing argument from an unknown option
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &rows[i];
        if (is_hidden(row, command))
            continue;
        syntax->longs[syntax->count] = (struct option){
            row->name, row->arg ? required_argument : no_argument, NULL, (int)syntax->count + 256};
        syntax->rows[syntax->count++] = row;
        if (row->letter) {
            *shorts++ = row->letter;
            if (row->arg)
                *shorts++ = ':';
        }
    }
    syntax->longs[syntax->count] = (struct option){0};
    *shorts = '\0';
}

// The first word that is no option: a command, or the filter. "" if there is none.
static const char *find_command(int argc, char **argv)
{
    struct syntax syntax;
    build_syntax(&syntax, NULL);
    opterr = 0;
    optind = 0; // start anew, and with another way to order the words
    while (getopt_long(argc, argv, syntax.shorts, syntax.longs, NULL) != -1)
        ;
    return optind < argc ? argv[optind] : "";
}

static const struct row *find_letter(const struct syntax *syntax, int letter)
{
    for (size_t i = 0; i < syntax->count; i++)
        if (syntax->rows[i]->letter == letter)
            return syntax->rows[i];
    return NULL;
}

// An option that belongs to another command, or the nearest one that belongs to this.
static enum conv_status explain_unknown(const struct syntax *syntax, const char *name,
                                        struct conv_err *err)
{
    const char *names[ROW_COUNT];
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (rows[i].command && strcmp(rows[i].name, name) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s goes with conv %s", name,
                                rows[i].command);
    for (size_t i = 0; i < syntax->count; i++)
        names[i] = syntax->rows[i]->name;
    const char *near = conv_suggest_nearest(name, names, sizeof names[0], syntax->count);
    if (near)
        return conv_err_set(err, CONV_ERR_USAGE, "unknown option '--%s'; did you mean '--%s'?",
                            name, near);
    return conv_err_set(err, CONV_ERR_USAGE, "unknown option '--%s' (conv --help lists all)", name);
}

// What getopt_long answered with '?' or ':': says what was wrong with `word`.
static enum conv_status explain(const struct syntax *syntax, const char *word, bool missing,
                                struct conv_err *err)
{
    if (strncmp(word, "--", 2) != 0) {
        const struct row *row = missing ? find_letter(syntax, optopt) : NULL;
        if (row)
            return conv_err_set(err, CONV_ERR_USAGE, "-%c takes an argument: %s", optopt, row->arg);
        return conv_err_set(err, CONV_ERR_USAGE, "unknown option '-%c' (conv --help lists all)",
                            optopt);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    int prefixed = 0;
    for (size_t i = 0; i < syntax->count; i++) {
        const struct row *row = syntax->rows[i];
        if (strcmp(row->name, name) == 0 || (missing && optopt == (int)i + 256)) {
            return row->arg
                       ? conv_err_set(err, CONV_ERR_USAGE, "--%s takes an argument: %s", row->name,
                                      row->arg)
                       : conv_err_set(err, CONV_ERR_USAGE, "--%s takes no argument", row->name);
        }
        prefixed += strncmp(row->name, name, strlen(name)) == 0;
    }
    if (prefixed > 1)
        return conv_err_set(err, CONV_ERR_USAGE, "'--%s' is ambiguous (conv --help lists all)",
                            name);
    return explain_unknown(syntax, name, err);
}

static void set_defaults(struct conv_options *options)
{
    *options = (struct conv_options){
        .bench_filter = "emboss",
        .bench_width = 4096,
        .bench_height = 4096,
        .png = {.level = -1},
        .group_bytes = DEFAULT_GROUP,
        .max_pixels = DEFAULT_MAX_PIXELS,
        .mem_limit = conv_cpu_memory() / 2,
        .streams = 4,
    };
}

// --size: a filter's side, or for `conv bench` pictures' sides.
static enum conv_status parse_size(struct conv_options *options, struct conv_err *err)
{
    const char *text = options->size_text;
    int width, height, used = 0;
    if (strcmp(text, "3") == 0 || strcmp(text, "5") == 0) {
        options->filter.size = text[0] - '0';
        return CONV_OK;
    }
    if (sscanf(text, "%5dx%5d%n", &width, &height, &used) == 2 && text[used] == '\0' && width > 0 &&
        height > 0) {
        options->bench_width = width;
        options->bench_height = height;
        return CONV_OK;
    }
    if (strcmp(text, "mix") == 0) {
        options->bench_width = options->bench_height = 0;
        return CONV_OK;
    }
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--size takes 3 or 5 (for conv bench: WxH or mix), not '%s'", text);
}

// What was typed, so that a shell would take it again.
static void join_command(struct conv_options *options, int argc, char **argv)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "@%+=:,./_-~";
    char *at = options->command, *end = at + sizeof options->command - 8;
    for (int i = 0; i < argc && at < end; i++) {
        const char *word = i == 0 ? "conv" : argv[i];
        bool quoted = !*word || word[strspn(word, plain)];
        if (i > 0)
            *at++ = ' ';
        if (quoted)
            *at++ = '\'';
        for (; *word && at < end; word++) {
            *at++ = *word;
            if (*word == '\'')
                at = stpcpy(at, "\\\'\'");
        }
        if (quoted)
            *at++ = '\'';
    }
    strcpy(at, at < end ? "" : "…");
}

// --trace and --html are about work that takes time.
static enum conv_status check_shown(const struct conv_options *options, struct conv_err *err)
{
    static const char *const commands[] = {"list", "show", "devices", "verify"};
    if (options->operand_count == 0 || (!options->trace_path && !options->html_path))
        return CONV_OK;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(options->operands[0], commands[i]) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s does not go with conv %s",
                                options->trace_path ? "trace" : "html", commands[i]);
    return CONV_OK;
}

// Values that are more than a number or a word.
static enum conv_status finish(struct conv_options *options, struct conv_err *err)
{
    enum conv_status status = check_shown(options, err);
    if (!status && options->size_text)
        status = parse_size(options, err);
    if (!status && options->border_text)
        status = conv_filter_parse_border(&options->border, &options->border_value,
                                          options->border_text, err);
    if (!status && options->encoder_text)
        status = conv_png_parse_encoder(&options->png.encoder, options->encoder_text, err);
    if (!status)
        status = conv_png_check_level(&options->png, err);
    if (options->jobs == 0)
        options->jobs = conv_cpu_count();
    if (!status && options->skip_existing + options->update + (options->resume_path != NULL) > 1)
        status = conv_err_set(err, CONV_ERR_USAGE,
                              "--skip-existing, --update and --resume exclude each other");
    if (!status && options->in_place && (options->skip_existing || options->update))
        status =
            conv_err_set(err, CONV_ERR_USAGE,
                         "--in-place excludes --skip-existing and --update: every output exists");
    if (!status && options->nul && !options->files_from)
        status = conv_err_set(err, CONV_ERR_USAGE, "--null goes with --files-from");
    return status;
}

enum conv_status conv_options_parse(struct conv_options *options, int argc, char **argv,
                                    struct conv_err *err)
{
    struct syntax syntax;
    build_syntax(&syntax, find_command(argc, argv));
    set_defaults(options);
    join_command(options, argc, argv);
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = optind > 0 ? optind : 1;
        const char *word = at < argc ? argv[at] : "";
        int answer = getopt_long(argc, argv, syntax.shorts, syntax.longs, NULL);
        if (answer == -1)
            break;
        if (answer == '?' || answer == ':') {
            // After a long option optind has moved on to the next word; inside a cluster it has
            // not.
            const char *culprit = optind > 0 && strncmp(argv[optind - 1], "--", 2) == 0 &&
                                          (optopt == 0 || optopt >= 256)
                                      ? argv[optind - 1]
                                      : word;
            return explain(&syntax, culprit, answer == ':', err);
        }
        const struct row *row =
            answer >= 256 ? syntax.rows[answer - 256] : find_letter(&syntax, answer);
        enum conv_status status = store(options, row, optarg, err);
        if (status)
            return status;
    }
    options->operands = (const char **)(void *)(argv + optind);
    options->operand_count = argc - optind;
    return finish(options, err);
}
