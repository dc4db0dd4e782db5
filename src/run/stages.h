// SPDX-License-Identifier: MIT
// What a worker does to one image, stage by stage. Each function fills job->err on failure and adds
// its time to job->ns; none of them locks anything.
#ifndef CONV_RUN_STAGES_H
#define CONV_RUN_STAGES_H

#include "engine/filter_image.h"
#include "run/codecs.h"
#include "run/config.h"
#include "run/job.h"

// Adds the time since `start` to the stage.
void conv_stages_end(struct conv_job *job, enum conv_stage stage, uint64_t start);

// Instead of decoding, copies the compressed data to the image's place in its group, for a device.
// False: the CPU has to decode this file.
bool conv_stages_pass_on(struct conv_job *job);

// Reads the file into job->file, its header into job->header, its metadata into job->meta. If the
// file is larger than job->share, waits until job->budget has more.
enum conv_status conv_stages_read(const struct conv_pipeline_config *config, struct conv_job *job);

// Decodes into job->placed, begins the blend, and multiplies colours by alpha if asked.
enum conv_status conv_stages_decode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, struct conv_job *job,
                                    bool premultiply);

// Writes the item's bytes as they are.
enum conv_status conv_stages_copy(const struct conv_pipeline_config *config, int worker,
                                  struct conv_job *job);

// Filters the image, which the context has placed, on this thread.
enum conv_status conv_stages_filter(const struct conv_pipeline_config *config,
                                    struct conv_filter_context *context, struct conv_job *job);

// Encodes the group's result and writes the output.
enum conv_status conv_stages_encode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, int worker, struct conv_job *job);

#endif
