// SPDX-License-Identifier: MIT
#include "run/archive_records.h"

#include <stdatomic.h>
#include <stddef.h>

void conv_archive_records_settle(struct conv_report *report, struct conv_walk *walk,
                                 const char *lost)
{
    int count, held;
    const struct conv_archive_target *targets = walk ? conv_walk_targets(walk, &count) : NULL;
    while ((held = conv_report_held(report)))
        conv_report_settle(report, held,
                           atomic_load(&targets[held - 1].is_written) ? CONV_REPORT_KEPT
                           : lost                                     ? CONV_REPORT_LOST
                                                                      : CONV_REPORT_FORGOTTEN,
                           lost ? lost : "");
}
