// SPDX-License-Identifier: MIT
// The records of members, which a report holds until their archive has its name.
#ifndef CONV_RUN_ARCHIVE_RECORDS_H
#define CONV_RUN_ARCHIVE_RECORDS_H

#include "io/walk/walk.h"
#include "report/report.h"

// Once the sink is finished: members of archives that were written are done. Those of the others
// have failed because of `lost`, or with NULL count as not begun. `walk` may be NULL.
void conv_archive_records_settle(struct conv_report *report, struct conv_walk *walk,
                                 const char *lost);

#endif
