// SPDX-License-Identifier: MIT
// The output of an image, before the image is decoded: whether it is needed, its format, depth and
// metadata, and what it takes besides filtering.
#include "run/stages.h"

#include <errno.h>
#include <stdio.h>

#include "io/files/paths.h"
#include "run/layer_stage.h"

// --- outputs that exist --------------------------------------------------------------------------
// Skips images whose output exists, is newer or is noted as done; plans the rest of a dry run.

static enum conv_status end_as(struct conv_job *job, enum conv_outcome outcome, const char *reason)
{
    job->record.outcome = outcome;
    job->record.reason = reason;
    return CONV_OK;
}

// Why an existing output makes the image superfluous; NULL: it does not. `in`: the identity of the
// input; NULL: it has none.
static const char *find_done(const struct conv_pipeline_config *config, const struct conv_job *job,
                             const struct stat *in, const struct conv_existing *existing)
{
    const struct stat *archive = conv_item_archive(&job->item), *out = &existing->info;
    // Only a regular file can be an output of an earlier run.
    if (!existing->exists || existing->is_special || !S_ISREG(out->st_mode))
        return NULL;
    if (config->skip_existing)
        return CONV_SINK_EXISTS;
    if (in && config->update && !conv_paths_is_older(out, in) &&
        !(archive && conv_paths_is_older(out, archive)))
        return CONV_SINK_UP_TO_DATE;
    if (in && config->resume &&
        conv_sink_is_noted(config->sink, &job->item, in, &job->output, existing))
        return CONV_SINK_NOTED;
    return NULL;
}

static const char *plan_reason(const struct conv_pipeline_config *config,
                               const struct conv_existing *existing)
{
    if (existing->is_special)
        return "writes to a pipe, a device or a descriptor";
    if (!existing->exists)
        return "new";
    return config->update   ? "the input is newer"
           : config->resume ? "not listed in the journal"
                            : "replaces the output";
}

static enum conv_status plan_in_place(const struct conv_pipeline_config *config,
                                      struct conv_job *job)
{
    struct conv_existing input = {.exists = true};
    if (!job->item.ops->identify(&job->item, &input.info))
        return conv_err_errno(&job->err, errno, "cannot open");
    if (S_ISLNK(input.info.st_mode)) {
        // Replacing the link would separate it from its file; replacing the file would reach out of
        // the folder.
        end_as(job, CONV_OUTCOME_SKIPPED, "a symbolic link");
        return job->item.is_named ? conv_source_refuse_link(&job->err) : CONV_OK;
    }
    if (conv_sink_is_noted(config->sink, &job->item, &input.info, &job->output, &input))
        return end_as(job, CONV_OUTCOME_SKIPPED, CONV_PLAN_REPLACED);
    if (!config->dry_run)
        return CONV_OK;
    enum conv_status status =
        conv_sink_check(config->sink, &job->item, &input.info, &job->output, &input, &job->err);
    return status ? status : end_as(job, CONV_OUTCOME_PLANNED, "replaces the input");
}

enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_item *item = &job->item;
    struct conv_existing existing;
    struct stat in;
    job->record.is_copy = item->is_copy;
    if (config->layer && config->layer->collect) { // all results go into one file
        snprintf(job->output.path, sizeof job->output.path, "%s", config->layer->collect->path);
        return config->dry_run ? end_as(job, CONV_OUTCOME_PLANNED, "new") : CONV_OK;
    }
    if (!config->sink)
        return CONV_OK;
    if (item->in_place)
        return plan_in_place(config, job);
    if (!config->dry_run && !config->skip_existing && !config->update && !config->resume)
        return CONV_OK;
    conv_sink_look(config->sink, &job->output, &existing);
    bool has_identity = item->ops->identify != NULL;
    bool found = has_identity && item->ops->identify(item, &in);
    const char *done = find_done(config, job, found ? &in : NULL, &existing);
    if (done)
        return end_as(job, CONV_OUTCOME_SKIPPED, done);
    if (has_identity && !found)
        return conv_err_errno(&job->err, errno, "cannot open");
    if (!config->dry_run)
        return CONV_OK;
    enum conv_status status =
        found ? conv_sink_check(config->sink, item, &in, &job->output, &existing, &job->err)
              : CONV_OK;
    return status ? status
                  : end_as(job, CONV_OUTCOME_PLANNED,
                           item->is_copy ? "unchanged" : plan_reason(config, &existing));
}

enum conv_status conv_plan_check_output(const struct conv_pipeline_config *config,
                                        struct conv_job *job)
{
    const struct conv_item *item = &job->item;
    const struct stat *in = &job->input.info;
    struct conv_existing existing;
    bool may_be_read = S_ISREG(in->st_mode) || (item->is_named && !item->in_place);
    bool is_known = in->st_mode != 0 || !item->ops->identify;
    if (config->no_save || !config->sink || !is_known || !may_be_read || S_ISDIR(in->st_mode) ||
        !conv_sink_should_look(config->sink))
        return CONV_OK;
    conv_sink_look(config->sink, &job->output, &existing);
    enum conv_status status =
        conv_sink_check(config->sink, item, in, &job->output, &existing, &job->err);
    if (status && S_ISREG(in->st_mode))
        job->record.bytes_in = (size_t)in->st_size;
    return status;
}

// --- the type of the output ----------------------------------------------------------------------

int conv_output_depth(const struct conv_pipeline_config *config, const struct conv_job *job)
{
    bool back = config->blend.linear && config->output_type != CONV_OUTPUT_U16;
    int depth = back ? job->file_depth : job->header.shape.depth;
    int most = job->output_format->most_depth;
    if (config->output_type == CONV_OUTPUT_U8)
        most = 8;
    return depth < most ? depth : most;
}

struct conv_image conv_output_shape(const struct conv_pipeline_config *config,
                                    const struct conv_job *job)
{
    struct conv_image shape = job->header.shape;
    shape.depth = conv_output_depth(config, job);
    shape.channels = job->output_channels;
    return shape;
}

bool conv_blend_needs_original(const struct conv_blend *blend)
{
    return blend->original > 0 || blend->width > 0;
}

bool conv_blend_replaces_luma(const struct conv_job *job)
{
    int filtered = job->header.shape.channels;
    return job->file_channels > filtered && job->output_channels > filtered;
}

// True if the file's luma can be replaced in its own format, and the output has its encoding.
static bool keeps_chroma(const struct conv_pipeline_config *config, const struct conv_job *job)
{
    const struct conv_format *format = job->format;
    struct conv_kept kept = {0};
    if (format != job->output_format || !format->take_luma || !format->keep ||
        config->codec.quality || job->header.orientation > 1)
        return false;
    format->keep(job->file->bytes, job->file->size, &job->header, &kept);
    return kept.luma_apart;
}

// Sets the channels in which the job's image is filtered, and the spare planes that it needs.
static void plan_blend(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_blend *blend = &config->blend;
    struct conv_image *shape = &job->header.shape;
    bool colours = shape->channels >= 3, original = conv_blend_needs_original(blend);
    job->meta.source = 0;
    job->output_channels = shape->channels;
    if (blend->luma && colours && keeps_chroma(config, job)) {
        job->format->take_luma(&job->header);
        job->meta.source = job->file->size;
        colours = false;
    }
    job->file_channels = shape->channels;
    shape->spare = original ? shape->channels : 0;
    if (blend->gray && colours) {
        shape->spare = shape->channels; // colours are decoded there
        job->header.weighed = true;
        job->output_channels = shape->channels -= 2;
    } else if (blend->luma && colours) {
        shape->spare += shape->channels; // they stay there
        shape->channels -= 2;
        job->header.device_stream = false;
    }
    if (original)
        job->header.device_stream = false;
}

// CONV_ERR_UNSUPPORTED if the region contains no pixel of the image.
static enum conv_status check_region(const struct conv_blend *blend, struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    if (blend->width == 0 || (blend->x < shape->width && blend->y < shape->height))
        return CONV_OK;
    return conv_err_unsupported(&job->err, "the region %dx%d+%d+%d lies outside the image of %dx%d",
                                blend->width, blend->height, blend->x, blend->y, shape->width,
                                shape->height);
}

static enum conv_status check_gamma(struct conv_job *job)
{
    uint32_t gamma = job->header.gamma;
    if (gamma == 0 || (gamma >= CONV_CURVE_LEAST_GAMMA && gamma <= CONV_CURVE_MOST_GAMMA))
        return CONV_OK;
    return conv_err_unsupported(
        &job->err,
        "states a gamma of %g; there is no linear light for less than 0.1 and more than 10",
        gamma / 1e5);
}

static void plan_depths(const struct conv_pipeline_config *config, struct conv_job *job)
{
    enum conv_output_type type = config->output_type;
    struct conv_image *shape = &job->header.shape;
    job->file_depth = shape->depth;
    if (type == CONV_OUTPUT_U16 || config->blend.linear)
        shape->depth = 16;
    if (type == CONV_OUTPUT_F32)
        shape->result_depth = 32;
    if (type == CONV_OUTPUT_F32 || shape->depth != job->file_depth || config->blend.linear)
        job->header.device_stream = false;
    plan_blend(config, job);
}

// Before the other plans, which are for the image as it is filtered.
static void plan_orientation(struct conv_job *job)
{
    struct conv_image *shape = &job->header.shape;
    job->header.orientation =
        conv_format_orientation(job->format, job->file->bytes, job->file->size);
    if (job->header.orientation >= 5) {
        int width = shape->width;
        shape->width = shape->height;
        shape->height = width;
    }
}

// False: out of memory.
static bool collect(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_file *file = job->file;
    const struct conv_format *from = job->format, *to = job->output_format;
    struct conv_image_header output = job->header;
    output.shape = conv_output_shape(config, job);
    const struct conv_cleaning cleaning = {.look = config->strip == CONV_STRIP_MOST,
                                           .orientation = job->header.orientation,
                                           .reshaped = output.shape.depth != job->file_depth ||
                                                       output.shape.channels != job->file_channels};
    if (from == to && from->collect)
        return from->collect(file->bytes, file->size, &output, cleaning, &job->meta);
    if (!from->take_common || !to->put_common)
        return true;
    struct conv_common common = {0};
    struct conv_image_header file_header;
    conv_blend_file_header(job, &file_header);
    bool ok = from->take_common(file->bytes, file->size, &file_header, cleaning, &common);
    if (job->file_channels > job->output_channels) // gray: not with a profile of colours
        common.icc.size = 0;
    ok = ok && to->put_common(&common, &output.shape, &job->meta);
    conv_common_free(&common);
    return ok;
}

// What is done to integers besides filtering is not done to float32 samples, whose range is
// unknown.
static enum conv_status check_floats(const struct conv_pipeline_config *config,
                                     struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    const struct conv_format *format = job->output_format;
    const struct conv_blend *blend = &config->blend;
    enum conv_output_type type = config->output_type;
    if (shape->depth < 32)
        return CONV_OK;
    if (type == CONV_OUTPUT_U8 || type == CONV_OUTPUT_U16)
        return conv_err_unsupported(&job->err, "float32 samples are not made integers");
    if (type == CONV_OUTPUT_SAME && format->most_depth < 32)
        return conv_err_advise(&job->err, CONV_ERR_UNSUPPORTED, CONV_HINT_FLOAT_FORMAT,
                               "%s cannot hold float32 samples", format->name);
    if (conv_blend_needs_original(blend) || blend->linear ||
        ((blend->gray || blend->luma) && shape->channels >= 3))
        return conv_err_unsupported(&job->err, "float32 samples are filtered as they are: neither "
                                               "blended nor made gray, luminance or linear");
    if (shape->alpha && config->alpha == CONV_ALPHA_PREMULTIPLY)
        return conv_err_advise(&job->err, CONV_ERR_UNSUPPORTED, CONV_HINT_KEEP_ALPHA,
                               "float32 samples are not multiplied by alpha");
    return CONV_OK;
}

enum conv_status conv_output_plan(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    // Without a name below the sink, on standard output for example, it is that of the input.
    const struct conv_format *named = conv_formats_of_name(job->output.path);
    job->output_format = config->output_format ? config->output_format
                         : named               ? named
                                               : job->format;
    job->meta.bytes.size = job->meta.front = job->meta.source = 0;
    enum conv_status floats = check_floats(config, job);
    if (floats)
        return floats;
    if (config->auto_orient)
        plan_orientation(job);
    plan_depths(config, job);
    if (config->output_type == CONV_OUTPUT_F32)
        return CONV_OK;
    enum conv_status status = check_region(&config->blend, job);
    if (!status && config->blend.linear)
        status = check_gamma(job);
    if (status)
        return status;
    const struct conv_format *format = job->output_format;
    if (shape->width > format->most_side || shape->height > format->most_side)
        return conv_err_unsupported(&job->err, "%d x %d pixels: %s holds at most %d per side",
                                    shape->width, shape->height, format->name, format->most_side);
    if (config->output_type == CONV_OUTPUT_U16 && format->most_depth < 16)
        return conv_err_unsupported(&job->err, "%s cannot hold 16 bits per sample", format->name);
    struct conv_buffer *carried = &job->meta.bytes;
    if ((config->strip != CONV_STRIP_ALL && !collect(config, job)) ||
        !conv_buffer_append(carried, job->file->bytes, job->meta.source))
        return conv_err_memory(&job->err, "out of memory");
    carried->size -= job->meta.source;
    job->meta.kept = (struct conv_kept){0};
    if (job->format == format && format->keep)
        format->keep(job->file->bytes, job->file->size, &job->header, &job->meta.kept);
    job->meta.kept.lossy = job->header.lossy;
    if (format->device)
        job->encoding = (struct conv_device_encoding){.coder = format->device->coder};
    if (format->device && format->device->choose)
        format->device->choose(&config->codec, shape, &job->meta, &job->encoding);
    return CONV_OK;
}
