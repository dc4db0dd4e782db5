// SPDX-License-Identifier: MIT
// The closing line of a run, on stderr.
#ifndef CONV_REPORT_CLOSING_H
#define CONV_REPORT_CLOSING_H

#include "report/report.h"

// Counts, rates and devices of a run; a run of one image that went well prints nothing. `rest` is
// what a signal has left undone, or NULL.
void conv_closing_print(const struct conv_report_config *config, const struct conv_totals *totals,
                        const struct conv_report_rest *rest);

#endif
