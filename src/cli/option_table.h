// SPDX-License-Identifier: MIT
// The tables of commands and options: what the parser accepts, what it refuses and what --help
// prints. Private to src/cli/option*.c, commands.c and settings.c.
#pragma once

#include "cli/options.h"

// --- commands ------------------------------------------------------------------------------------

struct conv_command_row {
    enum conv_command command;
    const char *words;    // "bench streams"; of the main job "FILTER"
    const char *operands; // "FILTER INPUT...", "" if there are none
    const char *summary;
};

// In the order of --help. The first row is the main job.
extern const struct conv_command_row conv_command_table[];
extern const size_t conv_command_count;

// The bit of a command in struct conv_option; of `bench` without a word, those of all its commands.
unsigned conv_command_bits(enum conv_command command);

// "conv bench streams"
const char *conv_command_name(char *text, size_t size, enum conv_command command);

// --- options -------------------------------------------------------------------------------------

enum conv_option_kind {
    KIND_FLAG,   // bool
    KIND_INT,    // int within min..max
    KIND_SIZE,   // size_t bytes, "64M"
    KIND_COUNT,  // uint64_t
    KIND_CHOICE, // an enum whose values are indexes into choices
    KIND_STRING, // const char *
    KIND_LIST,   // struct conv_string_list
};

// What an option changes; settings.c prints those that are not neutral. An option that decides
// whether an image fails, and not what its result is, is neutral: images that are done stay done.
enum conv_option_effect {
    CONV_OPTION_NEUTRAL = 1, // no byte of a result
    CONV_OPTION_DECIDES,     // results
    CONV_OPTION_PARSED,      // results, or members, by what its text is parsed into
    CONV_OPTION_MEMBERS,     // which members an archive has, or their names
};

struct conv_option {
    enum conv_option_effect effect;
    const char *name;
    char letter;     // 0: none
    const char *arg; // name of the argument, NULL: none
    enum conv_option_kind kind;
    size_t offset; // of the field in struct conv_options
    long min, max; // KIND_INT
    const char *const *choices;
    const char
        *implied; // a KIND_CHOICE without `arg`: the choice of --NAME; others are --NAME=CHOICE
    const char *values;  // what completions offer, separated by blanks; NULL: the choices
    const char *help;    // one line, which --help wraps
    const char *section; // printed before this row; NULL continues the section
    unsigned commands;   // 1u << enum conv_command for each command that takes it
};

// In the order of --help. At most CONV_OPTIONS_MOST rows, each name and letter once.
extern const struct conv_option conv_option_table[];
extern const size_t conv_option_count;

// The next row from *at on that one of the commands takes; NULL: there is none. *at becomes the
// index after it, and *section, unless it is NULL, the row's section.
const struct conv_option *conv_option_next(size_t *at, unsigned commands, const char **section);

// NULL if there is no such option.
const struct conv_option *conv_option_find(const char *name);

// After the command line was read: parses values with a syntax of their own, fills in defaults and
// applies the rules below. CONV_ERR_USAGE. option_checks.c
enum conv_status conv_option_check(struct conv_options *options, struct conv_err *err);

// Parses --shard into options->inputs.shard, and replaces "{shard}" by the shard's number in the
// names of the output and of the files that the run writes about itself. CONV_ERR_USAGE, also if
// all tasks of --shard auto would write one file. option_shard.c
enum conv_status conv_option_check_shard(struct conv_options *options, struct conv_err *err);

// --- which options depend on each other ----------------------------------------------------------

// Each of the others cannot be combined with the option, or needs it.
enum conv_option_relation { OPTION_EXCLUDES, OPTION_ALLOWS };

struct conv_option_rule {
    const char *name;
    enum conv_option_relation relation;
    const char *others[12]; // ended by NULL
    const char *reason;     // or NULL
    unsigned commands;      // where the rule holds, as in struct conv_option; 0: everywhere
    const char *choice;     // of a KIND_CHOICE: the rule holds for this value only; NULL: for all
};

extern const struct conv_option_rule conv_option_rules[];
extern const size_t conv_option_rule_count;

// --- options of other programs -------------------------------------------------------------------

// Options that users of similar programs try, and what to use here.
struct conv_option_synonym {
    const char *name; // or NULL
    char letter;      // or 0
    const char *advice;
};

extern const struct conv_option_synonym conv_option_synonyms[];
extern const size_t conv_option_synonym_count;
