// SPDX-License-Identifier: MIT
// The bytes of an image's file: from its source into memory, within the limits of the run.
#ifndef CONV_RUN_FETCH_H
#define CONV_RUN_FETCH_H

#include "run/config.h"
#include "run/job.h"

// Makes the system fetch the file while other images are being processed; sets job->input and
// job->want.
void conv_fetch_announce(const struct conv_pipeline_config *config, struct conv_job *job);

// Reads the file into job->file. If the file is larger than job->share, waits until job->budget has
// room for it. *start is when the current slice of CONV_STAGE_READ began; it moves on over waits
// for a pipe, which are not part of the stage. CONV_ERR_IO, CONV_ERR_FORMAT, CONV_ERR_LIMIT,
// CONV_ERR_MEMORY, CONV_ERR_CANCELLED.
enum conv_status conv_fetch_read(const struct conv_pipeline_config *config, struct conv_job *job,
                                 uint64_t *start);

#endif
