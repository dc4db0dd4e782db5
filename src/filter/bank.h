// SPDX-License-Identifier: MIT
// Filter banks: many filters that are applied to the same plane, and how their responses become
// maps. Any thread; a bank is constant once it is made. `conv layer gabor:4x8 ...` computes the
// maps of a bank.
#pragma once

#include <stdbool.h>

#include "filter/filter.h"

#define CONV_BANK_MAX_SIDE 63
#define CONV_BANK_MAX_TERMS 3

// One filter, correlated with the plane. Its centre is the middle sample.
struct conv_bank_filter {
    char label[32];    // "edge 2 30": what and which
    int height, width; // odd, 1 to CONV_BANK_MAX_SIDE
    // Row by row, top left first. Where the filter is separable this is the sum of its terms.
    double *coef;
    // A separable filter is the sum of `terms` products columns[t][u] * rows[t][v] and is computed
    // as such (rows first); 0: it is not separable, or not worth it.
    int terms;
    double *columns, *rows; // [terms][height], [terms][width]
};

enum conv_bank_combine {
    CONV_BANK_ONLY,      // the response of one filter
    CONV_BANK_MAGNITUDE, // sqrt(a^2 + b^2) of two
    CONV_BANK_MAX,       // the largest of several
};

// One map of the result, computed from the responses of filters first to first + count - 1.
struct conv_bank_map {
    char label[32];
    enum conv_bank_combine combine;
    int first, count; // count is 1 for ONLY, 2 for MAGNITUDE, at least 1 for MAX
};

struct conv_bank {
    char name[64]; // as the user wrote it: "gabor:4x8"
    struct conv_bank_filter *filters;
    int filter_count;
    struct conv_bank_map *maps;
    int map_count;
    double *memory, *unused; // what the filters point to; the rest of it while the bank is made
};

// The families, in the order to print them; *count is set.
const struct conv_filter_family *conv_bank_families(int *count);

// True if `text` begins with the name of a family, so that it is meant as a bank and not a file.
bool conv_bank_is_name(const char *text);

// Makes the bank that `text` describes, for example "gabor:4x8" or "log:2.5". On success the caller
// owns it (conv_bank_free); on failure it is empty. CONV_ERR_USAGE, with an example, for unknown
// names and for parameters out of range; CONV_ERR_MEMORY.
enum conv_status conv_bank_parse(struct conv_bank *bank, const char *text, struct conv_err *err);

// True if conv_bank_parse makes a bank of the text.
bool conv_bank_accepts(const char *text);

// Accepts an empty bank.
void conv_bank_free(struct conv_bank *bank);
