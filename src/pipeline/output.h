// SPDX-License-Identifier: MIT
// Outputs of another type than the input's.
#ifndef CONV_PIPELINE_OUTPUT_H
#define CONV_PIPELINE_OUTPUT_H

#include "base/digest_set.h"
#include "pipeline/job.h"
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

// NAME.png becomes NAME with another extension, such as ".npy", in the item's target.
// CONV_ERR_LIMIT if that is too long.
enum conv_status conv_output_retarget(struct conv_item *item, const char *extension,
                                      struct conv_err *err);

// The same for an item with a place below a sink, where the run gives outputs other extensions than
// their inputs; otherwise nothing. `claimed`: the targets so far. CONV_ERR_USAGE if the new target
// is that of an earlier item, a.png after a.jpg for example; CONV_ERR_MEMORY.
enum conv_status conv_output_rename(const struct conv_pipeline_config *config,
                                    struct conv_item *item, struct conv_digest_set *claimed,
                                    struct conv_err *err);

// Adds the item's target to `claimed`. Errors as above; an item that comes again, as from a folder
// that is watched, keeps its claim.
enum conv_status conv_output_claim(const struct conv_item *item, struct conv_digest_set *claimed,
                                   struct conv_err *err);

#endif
