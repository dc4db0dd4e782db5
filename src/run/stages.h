// SPDX-License-Identifier: MIT
// What a worker does to one image, stage by stage. Each function fills job->err on failure and adds
// its time to job->record.ns; none of them locks anything.
#pragma once

#include "engine/engine.h"
#include "run/job.h"
#include "run/pipeline.h"
#include "tensor/tensor_formats.h"

// --- before it is read: output_plan.c ------------------------------------------------------------

#define CONV_PLAN_REPLACED "filtered in place already"

// Sets job->record.outcome: DONE if the image will be filtered, SKIPPED or, in a dry run, PLANNED;
// job->record.reason says why. Fails if a dry run sees that the image would fail.
enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job);

// Fails if the sink would refuse the output of the input whose identity job->input has. An input
// whose identity is not known yet, or that reading would refuse, passes.
enum conv_status conv_plan_check_output(const struct conv_pipeline_config *config,
                                        struct conv_job *job);

// --- outputs of another type than the input's: output_plan.c, output_samples.c -------------------

// Sets, once the header is read, the format of the job's output, the depths and channels in which
// its image is filtered, where that can be coded (a device decodes to the file's depth only), and
// the metadata that are carried over. CONV_ERR_UNSUPPORTED if the output's format has no room for
// the image, or a region no pixel of it; CONV_ERR_MEMORY.
enum conv_status conv_output_plan(const struct conv_pipeline_config *config, struct conv_job *job);

// Bits per sample of the output, unless it is a .npy file; at most those of the filtered image.
int conv_output_depth(const struct conv_pipeline_config *config, const struct conv_job *job);

// Width, height, channels and depth of the output.
struct conv_image conv_output_shape(const struct conv_pipeline_config *config,
                                    const struct conv_job *job);

// The filtered image `out` as a .npy file of shape (C, H, W), or (H, W) for gray without alpha.
// Rewrites its planes, to which *file points: rows lose their padding, and a passthrough plane
// becomes float32. `header` must live as long as *file.
void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file);

// --- --gray, --luma, --linear, --mix and --roi: output_samples.c ---------------------------------
// What they do to an image besides filtering: colours become luminance before the filters, and get
// the filtered luminance back with `luma`; that or colours become linear light and are stored
// again; after that the result is blended with the original, and the original stays outside of a
// region. Workers do it on planes in staging memory that no device uses, so that it is the same for
// every backend; a device that decodes makes the same luminance. One thread at a time per image.

// True if the output has parts of the image as it was before filtering: then a device must neither
// decode nor encode.
bool conv_blend_needs_original(const struct conv_blend *blend);

// True if colours get the filtered luminance in place of their own. Not for a JPEG that becomes a
// JPEG: that is filtered as the gray image of its luma and encoded with its chroma.
bool conv_blend_replaces_luma(const struct conv_job *job);

// The header of the job's file, whose depth, channels and sides may differ from those of filtering.
void conv_blend_file_header(const struct conv_job *job, struct conv_image_header *header);

// The planes that the job's file is to be decoded into, with the channels of the file.
void conv_blend_target(const struct conv_job *job, struct conv_image *planes);

// After decoding: `planes` is that target at the depth of filtering, with samples of the depth of
// the file. Fills the planes to filter. `curve`: conv_codecs_curve.
void conv_blend_begin(const struct conv_blend *blend, struct conv_job *job,
                      const struct conv_image *planes, const struct conv_curve *curve);

// Makes the output of the filtered image, which becomes 8 bits of 16 with `narrow`.
void conv_blend_end(const struct conv_blend *blend, struct conv_job *job, struct conv_image *out,
                    bool narrow, const struct conv_curve *curve);

// --- codecs --------------------------------------------------------------------------------------
// The codecs of one worker, one for each image format.

struct conv_codecs;

// CONV_ERR_MEMORY, and as conv_format.open; *codecs is then NULL. Keeps *config.
enum conv_status conv_codecs_open(struct conv_codecs **codecs,
                                  const struct conv_codec_config *config, struct conv_err *err);
void conv_codecs_close(struct conv_codecs *codecs); // NULL is fine

// The codec of a format in conv_formats.
struct conv_codec *conv_codecs_of(const struct conv_codecs *codecs,
                                  const struct conv_format *format);

// The curve of the job's samples, until the next call; NULL without `linear`.
const struct conv_curve *conv_codecs_curve(struct conv_codecs *codecs,
                                           const struct conv_blend *blend,
                                           const struct conv_job *job);

// Calls conv_format.trim of each format.
void conv_codecs_trim(struct conv_codecs *codecs);

// --- stages --------------------------------------------------------------------------------------

// Adds the time since `start` to the stage.
void conv_stages_end(struct conv_job *job, enum conv_stage stage, uint64_t start);

// Instead of decoding, copies the compressed data to the image's place in its group, for a device.
// False: the CPU has to decode this file.
bool conv_stages_pass_on(struct conv_job *job);

// Makes the system fetch the file while other images are being processed; sets job->input and
// job->want.
void conv_stages_announce(const struct conv_pipeline_config *config, struct conv_job *job);

// Reads the file into job->file, its header into job->header, its metadata into job->meta. If the
// file is larger than job->share, waits until job->budget has more.
enum conv_status conv_stages_read(const struct conv_pipeline_config *config, struct conv_job *job);

// CONV_ERR_IO if the file is mapped and was changed since it was opened.
enum conv_status conv_stages_check_mapped(struct conv_job *job, struct conv_err *err);

// Decodes into job->placed, and begins the blend.
enum conv_status conv_stages_decode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, struct conv_job *job);

// Writes the output, unless nothing is saved.
enum conv_status conv_stages_write(const struct conv_pipeline_config *config, int worker,
                                   struct conv_job *job, const struct conv_encoded *file);

// Writes the item's bytes as they are.
enum conv_status conv_stages_copy(const struct conv_pipeline_config *config, int worker,
                                  struct conv_job *job);

// Filters the image, which is alone in its group, on this thread.
enum conv_status conv_stages_filter(const struct conv_pipeline_config *config,
                                    struct conv_stream *stream, struct conv_job *job);

// Encodes the group's result and writes the output.
enum conv_status conv_stages_encode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, int worker, struct conv_job *job);
