// SPDX-License-Identifier: MIT
// All images of a source through the program:
//   source -> read -> decode -> [upload -> filter -> download] -> encode -> write -> sink
// Workers (threads) do everything but the middle, which stream threads do. On a backend that is not
// async a worker does the middle too, so that an image stays in one core's cache.
#ifndef CONV_RUN_PIPELINE_H
#define CONV_RUN_PIPELINE_H

#include "io/source.h"
#include "io/walk/walk.h"
#include "report/report.h"
#include "run/config.h"

// Runs every image of the source and hands a record of each to the report. An image that fails is
// reported and does not end the run. Failures of the run itself: CONV_ERR_MEMORY, CONV_ERR_DEVICE,
// CONV_ERR_IO (no thread could be started). *config, the source, the sink and the report belong to
// this run until it returns; several runs may be in progress in one process.
enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_source *source, struct conv_report *report,
                                   struct conv_err *err);

// Once the sink is finished: members of archives that were written are done. Those of the others
// have failed because of `lost`, or with NULL count as not begun. `walk` may be NULL.
void conv_pipeline_settle(struct conv_report *report, struct conv_walk *walk, const char *lost);

#endif
