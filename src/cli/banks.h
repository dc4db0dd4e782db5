// SPDX-License-Identifier: MIT
// The output of conv list and conv show about filter banks. Each function returns the exit status
// of the process.
#ifndef CONV_CLI_BANKS_H
#define CONV_CLI_BANKS_H

#include "cli/options.h"
#include "filter/bank.h"

// The families, one per line; with --json one object per line.
int conv_banks_list(const struct conv_report_options *report);

// The maps and filters of a bank, with their coefficients.
int conv_banks_show(const struct conv_report_options *report, const char *name);

#endif
