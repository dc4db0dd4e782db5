// SPDX-License-Identifier: MIT
// The command line: getopt_long with the options that the command takes. option_checks.c checks the
// values.
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/option_table.h"

// --- arguments -----------------------------------------------------------------------------------

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
        return conv_err_usage(err, "--%s takes a %s, not '%s'", name,
                              suffix ? "size such as 512M or 2G" : "number", text);
    *value = number;
    return CONV_OK;
}

static enum conv_status parse_choice(int *value, const struct conv_option *row, const char *text,
                                     struct conv_err *err)
{
    char all[128] = "";
    size_t count = 0;
    for (; row->choices[count]; count++) {
        if (strcmp(text, row->choices[count]) == 0) {
            *value = (int)count;
            return CONV_OK;
        }
        conv_text_add(all, sizeof all, ", ", "%s", row->choices[count]);
    }
    const char *near = conv_suggest_nearest(text, row->choices, sizeof row->choices[0], count);
    if (near)
        return conv_err_usage(err, "--%s '%s' is unknown; did you mean '%s'? (%s)", row->name, text,
                              near, all);
    return conv_err_usage(err, "--%s takes one of %s, not '%s'", row->name, all, text);
}

// Writes the value that `text` stands for into the option's field. CONV_ERR_USAGE, with a text that
// contains the option's name.
static enum conv_status store(struct conv_options *options, const struct conv_option *row,
                              const char *text, struct conv_err *err)
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
            return conv_err_usage(err, "--%s takes %ld to %ld, not %s", row->name, row->min,
                                  row->max, text);
        *(int *)(void *)field = (int)number;
        break;
    case KIND_SIZE:
    case KIND_COUNT:
        status = parse_number(&number, text, row->kind == KIND_SIZE, row->name, err);
        if (!status && number == 0 && strcmp(row->name, "seed") != 0)
            return conv_err_usage(err, "--%s must be more than 0", row->name);
        *(uint64_t *)(void *)field = number;
        break;
    case KIND_LIST: {
        struct conv_string_list *list = (struct conv_string_list *)(void *)field;
        if (list->count == CONV_OPTIONS_MAX_GLOBS)
            return conv_err_usage(err, "--%s can be given %d times", row->name,
                                  CONV_OPTIONS_MAX_GLOBS);
        list->items[list->count++] = text;
        break;
    }
    }
    return status;
}

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "KIND_SIZE stores 64 bits");

// --- the command line ----------------------------------------------------------------------------

// The options that a command takes.
struct syntax {
    enum conv_command command;
    const struct conv_option *rows[CONV_OPTIONS_MOST];
    size_t count;
    struct option longs[CONV_OPTIONS_MOST + 1]; // for getopt_long: a row's value is its index + 256
    char shorts[2 * CONV_OPTIONS_MOST + 3];
};

#define SYNONYM 1 // getopt_long's value for a synonym; no letter

#define ALL_COMMANDS (~0u)

// A synonym that is the beginning of an option's name is not an abbreviation of it.
static void add_synonyms(struct syntax *syntax)
{
    struct option *end = &syntax->longs[syntax->count];
    for (size_t i = 0; i < conv_option_synonym_count; i++) {
        const char *name = conv_option_synonyms[i].name;
        bool begins = false;
        for (size_t k = 0; k < syntax->count && name; k++)
            begins |= strncmp(syntax->rows[k]->name, name, strlen(name)) == 0;
        if (begins && end < &syntax->longs[CONV_OPTIONS_MOST])
            *end++ = (struct option){name, optional_argument, NULL, SYNONYM};
    }
    *end = (struct option){0};
}

// `start`: "+" stops at the first word that is not an option, "" takes options anywhere.
static void build_syntax(struct syntax *syntax, unsigned commands, const char *start)
{
    char *shorts = stpcpy(syntax->shorts, start);
    syntax->count = 0;
    *shorts++ = ':'; // getopt then reports a missing argument as ":"
    const struct conv_option *row;
    for (size_t i = 0; (row = conv_option_next(&i, commands, NULL));) {
        syntax->longs[syntax->count] = (struct option){row->name,
                                                       row->arg       ? required_argument
                                                       : row->implied ? optional_argument
                                                                      : no_argument,
                                                       NULL, (int)syntax->count + 256};
        syntax->rows[syntax->count++] = row;
        if (row->letter) {
            *shorts++ = row->letter;
            if (row->arg)
                *shorts++ = ':';
        }
    }
    add_synonyms(syntax);
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
    if (count > 0 && strcmp(words[0], "report") == 0)
        return CONV_COMMAND_REPORT_MERGE; // which says that a word is missing
    return count > 0 && strcmp(words[0], "bench") == 0 ? CONV_COMMAND_BENCH : CONV_COMMAND_RUN;
}

// The command is the first word that is not an option, or the first two. *any: there is one.
static enum conv_command find_command(int argc, char **argv, bool *any)
{
    struct syntax syntax;
    const char *words[2];
    int count = 0, used;
    build_syntax(&syntax, ALL_COMMANDS, "+");
    opterr = 0;
    optind = 0; // restarts getopt with the other order of words
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

// The error about an option of other commands.
static enum conv_status refuse_foreign(const struct syntax *syntax, const struct conv_option *row,
                                       struct conv_err *err)
{
    char here[32], others[128] = "", name[32];
    conv_command_name(here, sizeof here, syntax->command);
    if (strcmp(row->name, "batch") == 0 && syntax->command > CONV_COMMAND_BENCH)
        return conv_err_usage(
            err, "--batch is not an option of %s; --images N sets how many images", here);
    if (syntax->command == CONV_COMMAND_HELP)
        return conv_err_usage(err, "for --%s write conv help %s", row->name, row->name);
    for (size_t i = 0; i < conv_command_count; i++) {
        enum conv_command command = conv_command_table[i].command;
        if (row->commands & 1u << command)
            conv_text_add(others, sizeof others, ", ", "%s",
                          conv_command_name(name, sizeof name, command));
    }
    return conv_err_usage(err, "--%s is not an option of %s, but of %s", row->name, here, others);
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
            return conv_err_usage(err, "unknown option '%s'; %s", written, row->advice);
    }
    for (size_t i = 0; i < syntax->count; i++)
        names[i] = syntax->rows[i]->name;
    const char *near =
        name ? conv_suggest_nearest(name, names, sizeof names[0], syntax->count) : NULL;
    if (near)
        return conv_err_usage(err, "unknown option '%s'; did you mean '--%s'?", written, near);
    return conv_err_usage(err, "unknown option '%s' (conv --help lists all)", written);
}

// Called after getopt_long returned '?' or ':' (`missing`): explains what is wrong with `word`.
static enum conv_status explain(const struct syntax *syntax, const char *word, bool missing,
                                struct conv_err *err)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    const char *filter = word + strspn(word, "-");
    int count;
    if (!conv_filter_parse_chain(filters, &count, filter, &(struct conv_filter_settings){0}, NULL))
        return conv_err_usage(err, "filters have no dash: conv %s ...", filter);
    if (strncmp(word, "--", 2) != 0) {
        const struct conv_option *row = missing ? find_letter(syntax, optopt) : NULL;
        if (row)
            return conv_err_usage(err, "-%c takes an argument: %s", optopt, row->arg);
        return explain_unknown(syntax, NULL, optopt, err);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    int prefixed = 0;
    for (size_t i = 0; i < syntax->count; i++) {
        const struct conv_option *row = syntax->rows[i];
        if (strcmp(row->name, name) == 0 || (missing && optopt == (int)i + 256))
            return row->arg ? conv_err_usage(err, "--%s takes an argument: %s", row->name, row->arg)
                            : conv_err_usage(err, "--%s takes no argument", row->name);
        prefixed += strncmp(row->name, name, strlen(name)) == 0;
    }
    if (prefixed > 1)
        return conv_err_usage(err, "'--%s' is ambiguous (conv --help lists all)", name);
    return explain_unknown(syntax, name, 0, err);
}

// The command line as typed, quoted for a shell.
static void join_command(struct conv_options *options, int argc, char **argv)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "@%+=:,./_-~";
    char *at = options->report.command_line, *end = at + sizeof options->report.command_line - 8;
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

enum conv_status conv_options_parse(struct conv_options *options, const struct conv_limits *limits,
                                    int argc, char **argv, struct conv_err *err)
{
    struct syntax syntax;
    bool any;
    conv_options_set_defaults(options);
    options->machine.limits = limits;
    options->command = syntax.command = find_command(argc, argv, &any);
    build_syntax(&syntax, any ? conv_command_bits(options->command) : ALL_COMMANDS, "");
    join_command(options, argc, argv);
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = optind > 0 ? optind : 1;
        const char *word = at < argc ? argv[at] : "";
        int index = 0, answer = getopt_long(argc, argv, syntax.shorts, syntax.longs, &index);
        if (answer == -1)
            break;
        if (answer == SYNONYM)
            return explain_unknown(&syntax, syntax.longs[index].name, 0, err);
        if (answer == '?' || answer == ':') {
            // After a long option optind points to the next word; inside a cluster of letters it
            // still points to the current one.
            const char *culprit = optind > 0 && strncmp(argv[optind - 1], "--", 2) == 0 &&
                                          (optopt == 0 || optopt >= 256)
                                      ? argv[optind - 1]
                                      : word;
            return explain(&syntax, culprit, answer == ':', err);
        }
        const struct conv_option *row =
            answer >= 256 ? syntax.rows[answer - 256] : find_letter(&syntax, answer);
        enum conv_status status = store(options, row, optarg ? optarg : row->implied, err);
        if (status)
            return status;
        for (size_t i = 0; i < conv_option_count; i++) // its other name as well
            options->given[i] |= conv_option_table[i].offset == row->offset;
        options->help_is_short |= answer == 'h';
    }
    options->operands = (const char **)(void *)(argv + optind);
    options->operand_count = argc - optind;
    return conv_option_check(options, err);
}
