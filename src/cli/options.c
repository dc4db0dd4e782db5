// SPDX-License-Identifier: MIT
// The command line: getopt_long with the options that the command takes, and the rules between
// them.
#include "cli/options.h"

#include <ctype.h>
#include <getopt.h>
#include <string.h>

#include "base/features.h"
#include "base/limits.h"
#include "base/suggest.h"
#include "cli/option_table.h"
#include "png/png.h"

// Planes of 16 MiB travel at nine tenths of what large copies do. Streams are decoded in as many
// milliseconds however many there are, so that it is better to have more of them in a group (10,000
// photographs on an H200: 0.84 s with 32 MiB, 1.07 s with 16).
#define DEFAULT_GROUP ((size_t)16 << 20)
#define DEFAULT_CODED_GROUP ((size_t)32 << 20)
#define DEFAULT_STREAMS 4
#define DEFAULT_CODED_STREAMS 6
#define DEFAULT_MAX_PIXELS ((uint64_t)1 << 28) // 16384 x 16384

// Workers beyond this number do not pay, whatever they wait for: memory is shared among them.
#define JOBS_PER_CORE 4
#define LEAST_JOBS_LIMIT 64

// The options that a command takes.
struct syntax {
    enum conv_command command;
    const struct conv_option *rows[CONV_OPTIONS_MOST];
    size_t count;
    struct option longs[CONV_OPTIONS_MOST + 1]; // for getopt_long: a row's value is its index + 256
    char shorts[2 * CONV_OPTIONS_MOST + 3];
};

#define ALL_COMMANDS (~0u)
#define BENCH_COMMANDS                                                                             \
    (1u << CONV_COMMAND_BENCH_KERNELS | 1u << CONV_COMMAND_BENCH_STREAMS |                         \
     1u << CONV_COMMAND_BENCH_CODEC)

// `start`: "+" stops at the first word that is no option, "" takes options anywhere.
static void build_syntax(struct syntax *syntax, unsigned commands, const char *start)
{
    char *shorts = stpcpy(syntax->shorts, start);
    syntax->count = 0;
    *shorts++ = ':'; // tell a missing argument from an unknown option
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
        if (!(row->commands & commands))
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

enum conv_command conv_options_find_command(const char *const *words, int count, int *used)
{
    *used = 1;
    for (size_t i = 1; i < conv_command_count && count > 0; i++) {
        const struct conv_command_row *row = &conv_command_table[i];
        size_t first = strcspn(row->words, " ");
        if (strncmp(words[0], row->words, first) != 0 || words[0][first])
            continue;
        if (!row->words[first])
            return row->command;
        *used = 2;
        if (count > 1 && strcmp(words[1], row->words + first + 1) == 0)
            return row->command;
    }
    *used = 1;
    return count > 0 && strcmp(words[0], "bench") == 0 ? CONV_COMMAND_BENCH : CONV_COMMAND_RUN;
}

// The command is the first word that is no option, or the first two. *any: there is such a word.
static enum conv_command find_command(int argc, char **argv, bool *any)
{
    struct syntax syntax;
    const char *words[2];
    int count = 0, used;
    build_syntax(&syntax, ALL_COMMANDS, "+");
    opterr = 0;
    optind = 0; // start anew, and with another way to order the words
    for (; count < 2; optind++) {
        while (getopt_long(argc, argv, syntax.shorts, syntax.longs, NULL) != -1)
            ;
        if (optind >= argc)
            break;
        words[count++] = argv[optind];
    }
    *any = count > 0;
    return conv_options_find_command(words, count, &used);
}

static const struct conv_option *find_letter(const struct syntax *syntax, int letter)
{
    for (size_t i = 0; i < syntax->count; i++)
        if (syntax->rows[i]->letter == letter)
            return syntax->rows[i];
    return NULL;
}

static size_t find_row(const char *name)
{
    size_t i = 0;
    while (i < conv_option_count && strcmp(conv_option_table[i].name, name) != 0)
        i++;
    return i;
}

bool conv_options_given(const struct conv_options *options, const char *name)
{
    size_t i = find_row(name);
    return i < conv_option_count && options->given[i];
}

// An option of other commands.
static enum conv_status refuse_foreign(const struct syntax *syntax, const struct conv_option *row,
                                       struct conv_err *err)
{
    char here[32], others[128] = "", name[32];
    conv_command_name(here, sizeof here, syntax->command);
    if (strcmp(row->name, "batch") == 0 && syntax->command > CONV_COMMAND_BENCH)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--batch is not an option of %s; --images N sets how many images",
                            here);
    for (size_t i = 0; i < conv_command_count; i++) {
        enum conv_command command = conv_command_table[i].command;
        size_t used = strlen(others);
        if (row->commands & 1u << command)
            snprintf(others + used, sizeof others - used, "%s%s", used ? ", " : "",
                     conv_command_name(name, sizeof name, command));
    }
    return conv_err_set(err, CONV_ERR_USAGE, "--%s is not an option of %s, but of %s", row->name,
                        here, others);
}

// `name`: of a long option, or NULL; then `letter`.
static enum conv_status explain_unknown(const struct syntax *syntax, const char *name, int letter,
                                        struct conv_err *err)
{
    const char *names[CONV_OPTIONS_MOST];
    char written[80];
    if (name)
        snprintf(written, sizeof written, "--%s", name);
    else
        snprintf(written, sizeof written, "-%c", letter);
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
        if (name ? strcmp(row->name, name) == 0 : row->letter == letter)
            return refuse_foreign(syntax, row, err);
    }
    for (size_t i = 0; i < conv_option_synonym_count; i++) {
        const struct conv_option_synonym *row = &conv_option_synonyms[i];
        if (name ? row->name && strcmp(row->name, name) == 0 : row->letter && row->letter == letter)
            return conv_err_set(err, CONV_ERR_USAGE, "unknown option '%s'; %s", written,
                                row->advice);
    }
    for (size_t i = 0; i < syntax->count; i++)
        names[i] = syntax->rows[i]->name;
    const char *near =
        name ? conv_suggest_nearest(name, names, sizeof names[0], syntax->count) : NULL;
    if (near)
        return conv_err_set(err, CONV_ERR_USAGE, "unknown option '%s'; did you mean '--%s'?",
                            written, near);
    return conv_err_set(err, CONV_ERR_USAGE, "unknown option '%s' (conv --help lists all)",
                        written);
}

// What getopt_long answered with '?' or ':': says what was wrong with `word`.
static enum conv_status explain(const struct syntax *syntax, const char *word, bool missing,
                                struct conv_err *err)
{
    if (strncmp(word, "--", 2) != 0) {
        const struct conv_option *row = missing ? find_letter(syntax, optopt) : NULL;
        if (row)
            return conv_err_set(err, CONV_ERR_USAGE, "-%c takes an argument: %s", optopt, row->arg);
        return explain_unknown(syntax, NULL, optopt, err);
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
    return explain_unknown(syntax, name, 0, err);
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

// An image on the CPU takes its staging memory and half as much again for the coders, so that two
// thirds of what is left are the most that staging can use. On a device up to 2.6 times the limit
// are taken (README): three eighths of what is left.
size_t conv_options_mem_limit(const struct conv_options *options, bool async)
{
    const struct conv_limits *limits = conv_limits_at_start();
    size_t half = limits->physical / 2, left = conv_limits_memory_left(limits);
    size_t part = async ? left / 8 * 3 : left / 3 * 2;
    if (options->mem_limit)
        return options->mem_limit;
    return conv_limits_memory_is_limited(limits) && part < half ? part : half;
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
    };
}

static bool parse_sides(struct conv_options *options, const char *text)
{
    int width, height, used = 0;
    if (sscanf(text, "%5dx%5d%n", &width, &height, &used) == 2 && text[used] == '\0' && width > 0 &&
        height > 0) {
        options->bench_width = width;
        options->bench_height = height;
        return true;
    }
    if (strcmp(text, "mix") != 0)
        return false;
    options->bench_width = options->bench_height = 0;
    return true;
}

static enum conv_status parse_size(struct conv_options *options, struct conv_err *err)
{
    const char *text = options->size_text;
    bool of_images = options->command == CONV_COMMAND_BENCH_KERNELS;
    if (strcmp(text, "3") == 0 || strcmp(text, "5") == 0)
        options->filter.size = text[0] - '0';
    else
        return conv_err_set(err, CONV_ERR_USAGE, "--size takes 3 or 5%s, not '%s'",
                            of_images ? " (--image-size: WIDTHxHEIGHT or mix)" : "", text);
    return CONV_OK;
}

static enum conv_status parse_image_size(struct conv_options *options, struct conv_err *err)
{
    if (parse_sides(options, options->image_size_text))
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE, "--image-size takes WIDTHxHEIGHT or mix, not '%s'",
                        options->image_size_text);
}

// What was typed, so that a shell would take it again.
static void join_command(struct conv_options *options, int argc, char **argv)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "@%+=:,./_-~";
    char *at = options->command_line, *end = at + sizeof options->command_line - 8;
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

// Whether the first option of a rule was given, and with the value that the rule is about.
static bool applies(const struct conv_options *options, const struct conv_option_rule *rule)
{
    if (!(rule->commands & 1u << options->command) || !conv_options_given(options, rule->name))
        return false;
    const struct conv_option *row = &conv_option_table[find_row(rule->name)];
    const char *field = (const char *)options + row->offset;
    return !rule->choice ||
           strcmp(row->choices[*(const int *)(const void *)field], rule->choice) == 0;
}

static enum conv_status check_rules(const struct conv_options *options, struct conv_err *err)
{
    for (size_t i = 0; i < conv_option_rule_count; i++) {
        const struct conv_option_rule *rule = &conv_option_rules[i];
        bool needs = rule->relation == OPTION_NEEDS;
        if (!applies(options, rule) || conv_options_given(options, rule->other) == needs)
            continue;
        if (needs)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s needs --%s", rule->name, rule->other);
        return conv_err_set(err, CONV_ERR_USAGE, "--%s%s%s and --%s cannot be combined%s%s",
                            rule->name, rule->choice ? " " : "", rule->choice ? rule->choice : "",
                            rule->other, rule->reason ? ": " : "",
                            rule->reason ? rule->reason : "");
    }
    return CONV_OK;
}

// On a GPU conv bench codec measures only the GPU's own coders.
static enum conv_status check_codec(const struct conv_options *options, struct conv_err *err)
{
    static const char *const ignored[] = {"jobs", "compress"};
    bool cuda = options->device_text && strncmp(options->device_text, "cuda", 4) == 0;
    if (options->command != CONV_COMMAND_BENCH_CODEC)
        return CONV_OK;
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        if (cuda && conv_options_given(options, ignored[i]))
            return conv_err_set(err, CONV_ERR_USAGE, "--%s and --device %s cannot be combined",
                                ignored[i], options->device_text);
    if (!cuda && options->bench_images)
        return conv_err_set(err, CONV_ERR_USAGE, "--images needs --device cuda");
    return CONV_OK;
}

// More workers than pay are not started, and the user is told.
static void limit_jobs(struct conv_options *options)
{
    int cores = conv_cpu_count();
    int limit = JOBS_PER_CORE * cores > LEAST_JOBS_LIMIT ? JOBS_PER_CORE * cores : LEAST_JOBS_LIMIT;
    options->jobs_given = options->jobs != 0;
    if (!options->jobs_given)
        options->jobs = cores;
    if (options->jobs <= limit)
        return;
    snprintf(options->note, sizeof options->note,
             "--jobs %d: using %d worker threads, as many as pay with %d core%s", options->jobs,
             limit, cores, cores == 1 ? "" : "s");
    options->jobs = limit;
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
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--%s gpu cannot be combined with --alpha premultiply",
                            encodes ? "encode-on" : "decode-on");
    if (encodes && !conv_options_may_encode_on_gpu(options))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--encode-on gpu has its own encoder and cannot be combined with "
                            "--encoder or --compress");
    return CONV_OK;
}

// Values that are more than a number or a word.
static enum conv_status finish(struct conv_options *options, struct conv_err *err)
{
    enum conv_status status = check_rules(options, err);
    if (!status && options->size_text)
        status = parse_size(options, err);
    if (!status && options->image_size_text)
        status = parse_image_size(options, err);
    if (!status && options->border_text)
        status = conv_filter_parse_border(&options->border, &options->border_value,
                                          options->border_text, err);
    if (!status && options->encoder_text)
        status = conv_png_parse_encoder(&options->png.encoder, options->encoder_text, err);
    if (!status)
        status = conv_png_check_level(&options->png, err);
    if (options->reproducible)
        options->encode_on = CONV_CODER_CPU;
    if (!status)
        status = check_coders(options, err);
    if (!status)
        status = check_codec(options, err);
    limit_jobs(options);
    return status;
}

enum conv_status conv_options_parse(struct conv_options *options, int argc, char **argv,
                                    struct conv_err *err)
{
    struct syntax syntax;
    bool any;
    set_defaults(options);
    options->command = syntax.command = find_command(argc, argv, &any);
    build_syntax(&syntax,
                 !any                                     ? ALL_COMMANDS
                 : options->command == CONV_COMMAND_BENCH ? BENCH_COMMANDS
                                                          : 1u << options->command,
                 "");
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
        options->given[row - conv_option_table] = true;
    }
    options->operands = (const char **)(void *)(argv + optind);
    options->operand_count = argc - optind;
    return finish(options, err);
}
