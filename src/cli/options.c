// SPDX-License-Identifier: MIT
// The command line: getopt_long by the table of options, and what does not go together.
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/suggest.h"
#include "cli/option_table.h"

// Planes of 16 MiB travel at nine tenths of what large copies do. Streams are decoded in as many
// milliseconds however many there are, so that it is better to have more of them in a group (10,000
// photographs on an H200: 0.84 s with 32 MiB, 1.07 s with 16).
#define DEFAULT_GROUP ((size_t)16 << 20)
#define DEFAULT_CODED_GROUP ((size_t)32 << 20)
#define DEFAULT_STREAMS 4
#define DEFAULT_CODED_STREAMS 6
#define DEFAULT_MAX_PIXELS ((uint64_t)1 << 28) // 16384 x 16384

// What may be typed with a command.
struct syntax {
    const struct conv_option *rows[CONV_OPTION_MOST];
    size_t count;
    struct option longs[CONV_OPTION_MOST + 1]; // for getopt_long: a row's value is its index + 256
    char shorts[2 * CONV_OPTION_MOST + 3];
};

static bool is_hidden(const struct conv_option *row, const char *command)
{
    if (row->command)
        return !command || strcmp(row->command, command) != 0;
    for (size_t i = 0; i < conv_option_count && command; i++)
        if (conv_option_table[i].command && strcmp(conv_option_table[i].command, command) == 0 &&
            strcmp(conv_option_table[i].name, row->name) == 0)
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
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
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

static const struct conv_option *find_letter(const struct syntax *syntax, int letter)
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
    const char *names[CONV_OPTION_MOST];
    for (size_t i = 0; i < conv_option_count; i++)
        if (conv_option_table[i].command && strcmp(conv_option_table[i].name, name) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s goes with conv %s", name,
                                conv_option_table[i].command);
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
        const struct conv_option *row = missing ? find_letter(syntax, optopt) : NULL;
        if (row)
            return conv_err_set(err, CONV_ERR_USAGE, "-%c takes an argument: %s", optopt, row->arg);
        return conv_err_set(err, CONV_ERR_USAGE, "unknown option '-%c' (conv --help lists all)",
                            optopt);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    int prefixed = 0;
    for (size_t i = 0; i < syntax->count; i++) {
        const struct conv_option *row = syntax->rows[i];
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

int conv_options_streams(const struct conv_options *options, bool decodes)
{
    int usual = decodes ? DEFAULT_CODED_STREAMS : DEFAULT_STREAMS;
    return options->streams ? options->streams : usual;
}

size_t conv_options_group_bytes(const struct conv_options *options, bool decodes)
{
    size_t usual = decodes ? DEFAULT_CODED_GROUP : DEFAULT_GROUP;
    return options->group_bytes ? options->group_bytes : usual;
}

static void set_defaults(struct conv_options *options)
{
    *options = (struct conv_options){
        .bench_filter = "emboss",
        .bench_width = 4096,
        .bench_height = 4096,
        .png = {.level = -1},
        .decode_on = CONV_CODER_AUTO,
        .encode_on = CONV_CODER_AUTO,
        .max_pixels = DEFAULT_MAX_PIXELS,
        .mem_limit = conv_cpu_memory() / 2,
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

bool conv_options_may_encode_on_gpu(const struct conv_options *options)
{
    return options->png.encoder == CONV_PNG_FAST && options->png.level == -1 &&
           options->alpha != CONV_ALPHA_PREMULTIPLY;
}

static enum conv_status check_coders(const struct conv_options *options, struct conv_err *err)
{
    bool encodes = options->encode_on == CONV_CODER_GPU;
    if (!encodes && options->decode_on != CONV_CODER_GPU)
        return CONV_OK;
    if (options->alpha == CONV_ALPHA_PREMULTIPLY)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s gpu excludes --alpha premultiply",
                            encodes ? "encode-on" : "decode-on");
    if (encodes && !conv_options_may_encode_on_gpu(options))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--encode-on gpu has an encoder of its own: it excludes --encoder and "
                            "--compress");
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
    if (!status)
        status = check_coders(options, err);
    options->jobs_given = options->jobs != 0;
    if (!options->jobs_given)
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
        const struct conv_option *row =
            answer >= 256 ? syntax.rows[answer - 256] : find_letter(&syntax, answer);
        enum conv_status status = conv_option_store(options, row, optarg, err);
        if (status)
            return status;
    }
    options->operands = (const char **)(void *)(argv + optind);
    options->operand_count = argc - optind;
    return finish(options, err);
}
