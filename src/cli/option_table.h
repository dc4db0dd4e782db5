// SPDX-License-Identifier: MIT
// The table of options (private to src/cli/options*.c and option_*.c): what the parser and --help
// know.
#ifndef CONV_CLI_OPTION_TABLE_H
#define CONV_CLI_OPTION_TABLE_H

#include "cli/options.h"

enum conv_option_kind {
    KIND_FLAG,   // bool
    KIND_INT,    // int within min..max
    KIND_SIZE,   // size_t bytes, "64M"
    KIND_COUNT,  // uint64_t
    KIND_CHOICE, // int: index into choices
    KIND_STRING, // const char *
    KIND_LIST,   // struct conv_string_list
};

struct conv_option {
    const char *name;
    char letter;     // 0: none
    const char *arg; // name of the argument, NULL: none
    enum conv_option_kind kind;
    size_t offset; // of the field in struct conv_options
    long min, max; // KIND_INT
    const char *const *choices;
    const char *help;    // newlines start further lines
    const char *section; // printed before this row; NULL continues the section
    const char *command; // known after this command only, where it takes precedence; NULL: always
};

#define CONV_OPTION_MOST 80 // rows of the table

// In the order of --help.
extern const struct conv_option conv_option_table[];
extern const size_t conv_option_count;

// Writes the value that `text` stands for into the option's field. CONV_ERR_USAGE, naming the
// option. option_values.c
enum conv_status conv_option_store(struct conv_options *options, const struct conv_option *row,
                                   const char *text, struct conv_err *err);

#endif
