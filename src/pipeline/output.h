// SPDX-License-Identifier: MIT
// Outputs of another type than the input's.
#ifndef CONV_PIPELINE_OUTPUT_H
#define CONV_PIPELINE_OUTPUT_H

#include "pipeline/job.h"
#include "tensor/npy.h"

// Sets the depths at which the job's image is filtered, from its header, and where it can be coded:
// a device decodes to the file's depth only.
void conv_output_plan(enum conv_output_type type, struct conv_job *job);

// The filtered image `out` as a .npy file of shape (C, H, W), or (H, W) for gray without alpha.
// Rewrites its planes, to which *file points: rows lose their padding, and a passthrough plane
// becomes float32. `header` must live as long as *file.
void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file);

// NAME.png becomes NAME.npy in the item's target. CONV_ERR_LIMIT if that is too long.
enum conv_status conv_output_retarget(struct conv_item *item, struct conv_err *err);

#endif
