// SPDX-License-Identifier: MIT
// How the families of bank.c are put together. One bank belongs to one thread.
#ifndef CONV_FILTER_BANK_BUILD_H
#define CONV_FILTER_BANK_BUILD_H

#include "filter/bank.h"

// Reserves room for that number of filters and maps. CONV_ERR_MEMORY.
enum conv_status conv_bank_reserve(struct conv_bank *bank, int filters, int maps,
                                   struct conv_err *err);

// Adds a filter of zeros with `terms` terms of zeros, and its label (printf). NULL without memory.
// There must be room for it.
__attribute__((format(printf, 5, 6))) struct conv_bank_filter *
conv_bank_add_filter(struct conv_bank *bank, int height, int width, int terms, const char *label,
                     ...);

// Adds a map of the last `count` filters. There must be room for it.
__attribute__((format(printf, 4, 5))) void conv_bank_add_map(struct conv_bank *bank,
                                                             enum conv_bank_combine combine,
                                                             int count, const char *label, ...);

// Adds a map of the last filter with that filter's label.
void conv_bank_add_plain_map(struct conv_bank *bank);

// Sets coef to the sum of the terms.
void conv_bank_sum_terms(struct conv_bank_filter *filter);

// Subtracts the mean from all coefficients and divides them by the sum of their magnitudes, as
// Varma and Zisserman do with every filter of their banks. A separable filter uses its last term,
// which must be zeros, for the mean.
void conv_bank_normalise(struct conv_bank_filter *filter);

// exp(-x^2 / (2 sigma^2)) for x = -half to half, not normalised.
void conv_bank_gaussian(double *line, int half, double sigma);

// Parameters of a family, as many as its usage line shows.
struct conv_bank_parameters {
    const char *text; // the whole name, for messages
    double value[2];
    int count;
};

// One function per family: fills an empty bank.
enum conv_status conv_bank_gabor(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                 struct conv_err *err);
enum conv_status conv_bank_lm(struct conv_bank *bank, const struct conv_bank_parameters *given,
                              struct conv_err *err);
enum conv_status conv_bank_mr8(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err);
enum conv_status conv_bank_schmid(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                  struct conv_err *err);
enum conv_status conv_bank_laws(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                struct conv_err *err);
enum conv_status conv_bank_gradient(struct conv_bank *bank,
                                    const struct conv_bank_parameters *given, struct conv_err *err);
enum conv_status conv_bank_log(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err);
enum conv_status conv_bank_dog(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err);

#endif
