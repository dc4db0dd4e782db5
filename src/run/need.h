// SPDX-License-Identifier: MIT
// The memory that an image takes on a worker that decodes, filters and encodes it. For runs whose
// memory is limited by a container, a batch system or a shell.
#ifndef CONV_RUN_NEED_H
#define CONV_RUN_NEED_H

#include "run/config.h"
#include "run/job.h"

struct conv_need {
    size_t work; // bytes from decoding to encoding, without the buffer of the input file
    size_t peak; // bytes at the worst moment, with that buffer as long as it exists
};

// `staging` is the image's part of either staging buffer. Upper bounds, except for some KiB and a
// few rows of the filter; an image that compresses well takes less while it is encoded. SIZE_MAX if
// a number does not fit. Any thread.
void conv_need_estimate(struct conv_need *need, const struct conv_pipeline_config *config,
                        const struct conv_job *job, size_t staging);

#endif
