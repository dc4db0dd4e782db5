// SPDX-License-Identifier: MIT
// What --gray, --mix and --roi do to an image besides filtering: colours become luminance before
// the filters; after them the result is blended with the original, and the original stays outside
// of a region. Workers do all of it, on planes in staging memory that no device uses, so that it is
// the same for every backend. One thread at a time per image.
#ifndef CONV_RUN_BLEND_H
#define CONV_RUN_BLEND_H

#include "run/job.h"

// True if a device must neither decode nor encode.
bool conv_blend_is_needed(const struct conv_blend *blend);

// Sets the channels in which the job's image is filtered, and the spare planes that it needs.
void conv_blend_plan(const struct conv_blend *blend, struct conv_job *job);

// CONV_ERR_UNSUPPORTED if the region contains no pixel of the image.
enum conv_status conv_blend_check(const struct conv_blend *blend, struct conv_job *job);

// The header of the job's file, whose depth and channels may differ from those of filtering.
void conv_blend_file_header(const struct conv_job *job, struct conv_image_header *header);

// The planes that the job's file is to be decoded into, with the channels of the file.
void conv_blend_target(const struct conv_job *job, struct conv_image *planes);

// After decoding: `planes` is that target at the depth of filtering. Fills the planes to filter.
void conv_blend_begin(const struct conv_blend *blend, struct conv_job *job,
                      const struct conv_image *planes);

// Blends the filtered image, which has the depth of the output: 8 bits where `narrow` is set, even
// if it was filtered at 16 bits.
void conv_blend_end(const struct conv_blend *blend, struct conv_job *job, struct conv_image *out,
                    bool narrow);

#endif
