// SPDX-License-Identifier: MIT
// What conv list and conv show print of filter banks. Each returns the process's exit status.
#ifndef CONV_CLI_BANKS_H
#define CONV_CLI_BANKS_H

#include "cli/options.h"
#include "filter/bank.h"

// The families, one per line; with --json one object per line.
int conv_banks_list(const struct conv_options *options);

// The maps and filters of a bank, with their coefficients.
int conv_banks_show(const struct conv_options *options, const char *name);

#endif
