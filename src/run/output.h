// SPDX-License-Identifier: MIT
// Outputs of another type than the input's.
#ifndef CONV_RUN_OUTPUT_H
#define CONV_RUN_OUTPUT_H

#include "run/job.h"
#include "tensor/npy.h"

// Sets, once the header is read, the format of the job's output, the depths and channels in which
// its image is filtered, where that can be coded (a device decodes to the file's depth only), and
// the metadata that are carried over. CONV_ERR_UNSUPPORTED if the output's format has no room for
// the image, or a region no pixel of it; CONV_ERR_MEMORY.
enum conv_status conv_output_plan(const struct conv_pipeline_config *config, struct conv_job *job);

// Bits per sample of the output, unless it is a .npy file; at most those of the filtered image.
int conv_output_depth(const struct conv_pipeline_config *config, const struct conv_job *job);

// The filtered image `out` as a .npy file of shape (C, H, W), or (H, W) for gray without alpha.
// Rewrites its planes, to which *file points: rows lose their padding, and a passthrough plane
// becomes float32. `header` must live as long as *file.
void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file);

#endif
