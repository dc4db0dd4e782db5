// SPDX-License-Identifier: MIT
// The output of an image: whether it is needed, its type and metadata, and what its samples become
// besides being filtered.
#include "run/stages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/files/paths.h"
#include "run/layer_stage.h"

// --- outputs that exist --------------------------------------------------------------------------
// Skips images whose output exists, is newer or is noted as done; plans the rest of a dry run.

static enum conv_status skip(struct conv_job *job, const char *reason)
{
    job->outcome = CONV_OUTCOME_SKIPPED;
    job->reason = reason;
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
        skip(job, "a symbolic link");
        return job->item.is_named ? conv_source_refuse_link(&job->err) : CONV_OK;
    }
    if (conv_sink_is_noted(config->sink, &job->item, &input.info, &job->output, &input)) {
        skip(job, CONV_PLAN_REPLACED);
    } else if (config->dry_run) {
        enum conv_status status =
            conv_sink_check(config->sink, &job->item, &input.info, &job->output, &input, &job->err);
        if (status)
            return status;
        job->outcome = CONV_OUTCOME_PLANNED;
        job->reason = "replaces the input";
    }
    return CONV_OK;
}

// All results go into one file.
static enum conv_status plan_collected(const struct conv_pipeline_config *config,
                                       struct conv_job *job)
{
    snprintf(job->output.path, sizeof job->output.path, "%s", config->layer->collect->path);
    if (config->dry_run) {
        job->outcome = CONV_OUTCOME_PLANNED;
        job->reason = "new";
    }
    return CONV_OK;
}

enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_item *item = &job->item;
    struct conv_existing existing;
    struct stat in;
    if (config->layer && config->layer->collect)
        return plan_collected(config, job);
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
        return skip(job, done);
    if (has_identity && !found)
        return conv_err_errno(&job->err, errno, "cannot open");
    if (!config->dry_run)
        return CONV_OK;
    enum conv_status status =
        found ? conv_sink_check(config->sink, item, &in, &job->output, &existing, &job->err)
              : CONV_OK;
    if (status)
        return status;
    job->outcome = CONV_OUTCOME_PLANNED;
    job->reason = plan_reason(config, &existing);
    return CONV_OK;
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
        job->bytes_in = (size_t)in->st_size;
    return status;
}

// --- the type of the output ----------------------------------------------------------------------

int conv_output_depth(const struct conv_pipeline_config *config, const struct conv_job *job)
{
    int depth = job->header.shape.depth, most = job->output_format->most_depth;
    bool as_file = config->deep && config->output_type == CONV_OUTPUT_SAME;
    if (config->output_type == CONV_OUTPUT_U8 || (as_file && job->file_depth == 8))
        most = 8;
    return depth < most ? depth : most;
}

// An output without a name below the sink, on standard output for example, has the format of its
// input.
static const struct conv_format *choose_format(const struct conv_pipeline_config *config,
                                               const struct conv_job *job)
{
    const struct conv_format *named = conv_formats_of_name(job->output.path);
    return config->output_format ? config->output_format : named ? named : job->format;
}

bool conv_blend_is_needed(const struct conv_blend *blend)
{
    return blend->gray || blend->original > 0 || blend->width > 0;
}

static bool needs_original(const struct conv_blend *blend)
{
    return blend->original > 0 || blend->width > 0;
}

// Sets the channels in which the job's image is filtered, and the spare planes that it needs.
static void plan_blend(const struct conv_blend *blend, struct conv_job *job)
{
    struct conv_image *shape = &job->header.shape;
    job->file_channels = shape->channels;
    shape->spare = needs_original(blend) ? shape->channels : 0;
    if (blend->gray && shape->channels >= 3) {
        shape->spare = shape->channels; // colours are decoded there
        shape->channels -= 2;
    }
    if (conv_blend_is_needed(blend))
        job->header.device_stream = false;
}

// CONV_ERR_UNSUPPORTED if the region contains no pixel of the image.
static enum conv_status check_region(const struct conv_blend *blend, struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    if (blend->width == 0 || (blend->x < shape->width && blend->y < shape->height))
        return CONV_OK;
    return conv_err_set(&job->err, CONV_ERR_UNSUPPORTED,
                        "the region %dx%d+%d+%d lies outside the image of %dx%d", blend->width,
                        blend->height, blend->x, blend->y, shape->width, shape->height);
}

static void plan_depths(const struct conv_pipeline_config *config, struct conv_job *job)
{
    enum conv_output_type type = config->output_type;
    struct conv_image *shape = &job->header.shape;
    job->file_depth = shape->depth;
    if (type == CONV_OUTPUT_U16 || config->deep)
        shape->depth = 16;
    if (type == CONV_OUTPUT_F32)
        shape->result_depth = 32;
    if (type == CONV_OUTPUT_F32 || shape->depth != job->file_depth)
        job->header.device_stream = false;
    plan_blend(&config->blend, job);
}

static enum conv_status collect(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_file *file = job->file;
    const struct conv_format *from = job->format, *to = job->output_format;
    struct conv_image_header output = job->header;
    output.shape.depth = conv_output_depth(config, job);
    bool look = config->strip == CONV_STRIP_MOST;
    if (from == to && from->collect)
        return from->collect(file->bytes, file->size, &output, look, &job->meta, &job->err);
    struct conv_common common = {0};
    struct conv_image_header file_header;
    conv_blend_file_header(job, &file_header);
    enum conv_status status =
        from->take_common(file->bytes, file->size, &file_header, look, &common, &job->err);
    if (job->file_channels != output.shape.channels) // gray: not with a profile of colours
        common.icc.size = 0;
    if (!status)
        status = to->put_common(&common, &output.shape, &job->meta, &job->err);
    conv_common_free(&common);
    return status;
}

enum conv_status conv_output_plan(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_image *shape = &job->header.shape;
    job->output_format = choose_format(config, job);
    job->meta.size = job->meta.front = 0;
    plan_depths(config, job);
    if (config->output_type == CONV_OUTPUT_F32)
        return CONV_OK;
    enum conv_status status = check_region(&config->blend, job);
    if (status)
        return status;
    const struct conv_format *format = job->output_format;
    if (shape->width > format->most_side || shape->height > format->most_side)
        return conv_err_set(&job->err, CONV_ERR_UNSUPPORTED,
                            "%d x %d pixels: %s holds at most %d per side", shape->width,
                            shape->height, format->name, format->most_side);
    if (config->output_type == CONV_OUTPUT_U16 && format->most_depth < 16)
        return conv_err_set(&job->err, CONV_ERR_UNSUPPORTED, "%s cannot hold 16 bits per sample",
                            format->name);
    return config->strip == CONV_STRIP_ALL ? CONV_OK : collect(config, job);
}

// In place, where rows of floats take at least the room of rows of samples: backwards from the last
// sample, each is read before it is overwritten.
static void make_floats(struct conv_image *out, int channel, int depth)
{
    struct conv_plane *plane = &out->plane[channel];
    ptrdiff_t stride = (ptrdiff_t)conv_image_stride(out->width, out->depth);
    for (int y = out->height - 1; y >= 0; y--) {
        const uint8_t *row = plane->data + y * plane->stride;
        float *floats = (float *)(void *)(plane->data + y * stride);
        for (int x = out->width - 1; x >= 0; x--)
            floats[x] = depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
    }
    plane->stride = stride;
}

static void close_rows(const struct conv_image *out, int channel)
{
    size_t row = (size_t)out->width * sizeof(float);
    const struct conv_plane *plane = &out->plane[channel];
    for (int y = 1; y < out->height && row != (size_t)plane->stride; y++)
        memmove(plane->data + (size_t)y * row, plane->data + y * plane->stride, row);
}

void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file)
{
    size_t plane = (size_t)out->width * (size_t)out->height * sizeof(float);
    struct conv_tensor_shape shape = {3, {out->channels, out->height, out->width}};
    if (out->channels == 1)
        shape = (struct conv_tensor_shape){2, {out->height, out->width}};
    *file = (struct conv_encoded){0};
    file->part[0].data = header;
    file->part[0].size = file->size = conv_npy_write(header, CONV_ELEMENT_F32, &shape, 0);
    _Static_assert(CONV_ENCODED_PARTS > CONV_IMAGE_MAX_CHANNELS, "a part for each plane");
    for (int c = 0; c < out->channels; c++) {
        if (placed->out_offset[c] == SIZE_MAX)
            make_floats(out, c, placed->in.depth);
        close_rows(out, c);
        file->part[1 + c].data = out->plane[c].data;
        file->part[1 + c].size = plane;
        file->size += plane;
    }
}

// --- --gray, --mix and --roi ---------------------------------------------------------------------

// The spare planes as an image of `channels`.
static void view_spare(const struct conv_job *job, int channels, struct conv_image *image)
{
    *image = job->placed.in;
    image->channels = channels;
    for (int c = 0; c < channels; c++)
        image->plane[c] = job->placed.spare[c];
}

static bool becomes_gray(const struct conv_job *job)
{
    return job->file_channels != job->header.shape.channels;
}

void conv_blend_file_header(const struct conv_job *job, struct conv_image_header *header)
{
    *header = job->header;
    header->shape.depth = job->file_depth;
    header->shape.channels = job->file_channels;
}

void conv_blend_target(const struct conv_job *job, struct conv_image *planes)
{
    if (becomes_gray(job))
        view_spare(job, job->file_channels, planes);
    else
        *planes = job->placed.in;
}

static unsigned read_sample(const uint8_t *row, int depth, int x)
{
    return depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

static void write_sample(uint8_t *row, int depth, int x, unsigned value)
{
    if (depth == 16)
        ((uint16_t *)(void *)row)[x] = (uint16_t)value;
    else
        row[x] = (uint8_t)value;
}

static unsigned divide_half_even(uint64_t sum, unsigned divisor)
{
    uint64_t quotient = sum / divisor, rest = 2 * (sum % divisor);
    return (unsigned)(quotient + (rest > divisor || (rest == divisor && quotient % 2 != 0)));
}

static uint8_t *row_of(const struct conv_image *image, int channel, int y)
{
    return image->plane[channel].data + y * image->plane[channel].stride;
}

// The luma of BT.601 in thousandths, of the samples as they are stored.
static void weigh(const struct conv_image *gray, const struct conv_image *colours)
{
    int depth = colours->depth;
    for (int y = 0; y < colours->height; y++) {
        const uint8_t *rows[3];
        for (int c = 0; c < 3; c++)
            rows[c] = row_of(colours, c, y);
        uint8_t *out = row_of(gray, 0, y);
        for (int x = 0; x < colours->width; x++) {
            unsigned sum = 299 * read_sample(rows[0], depth, x) +
                           587 * read_sample(rows[1], depth, x) +
                           114 * read_sample(rows[2], depth, x);
            write_sample(out, depth, x, divide_half_even(sum, 1000));
        }
    }
}

static void copy_channel(const struct conv_image *dst, int to, const struct conv_image *src,
                         int from)
{
    struct conv_image a = *dst, b = *src;
    a.channels = b.channels = 1;
    a.plane[0] = dst->plane[to];
    b.plane[0] = src->plane[from];
    conv_image_copy(&a, &b);
}

void conv_blend_begin(const struct conv_blend *blend, struct conv_job *job,
                      const struct conv_image *planes)
{
    const struct conv_image *in = &job->placed.in;
    if (becomes_gray(job)) {
        weigh(in, planes);
        if (planes->alpha)
            copy_channel(in, 1, planes, 3);
    }
    if (!needs_original(blend))
        return;
    struct conv_image original;
    view_spare(job, in->channels, &original);
    conv_image_copy(&original, in);
}

static void mix_row(uint8_t *out, const uint8_t *original, int depth, int from, int to,
                    unsigned share)
{
    for (int x = from; x < to; x++) {
        uint64_t sum = (uint64_t)share * read_sample(original, depth, x) +
                       (uint64_t)(CONV_BLEND_WHOLE - share) * read_sample(out, depth, x);
        write_sample(out, depth, x, divide_half_even(sum, CONV_BLEND_WHOLE));
    }
}

static int within(int64_t value, int most)
{
    return value < most ? (int)value : most;
}

void conv_blend_end(const struct conv_blend *blend, struct conv_job *job, struct conv_image *out,
                    bool narrow)
{
    struct conv_image original;
    if (!needs_original(blend))
        return;
    view_spare(job, out->channels, &original);
    if (narrow)
        conv_image_narrow(&original);
    int left = blend->width ? blend->x : 0, top = blend->width ? blend->y : 0;
    int right = blend->width ? within((int64_t)left + blend->width, out->width) : out->width;
    int bottom = blend->width ? within((int64_t)top + blend->height, out->height) : out->height;
    for (int c = 0; c < out->channels; c++) {
        for (int y = 0; y < out->height; y++) {
            uint8_t *to = row_of(out, c, y);
            const uint8_t *from = row_of(&original, c, y);
            bool inside = y >= top && y < bottom;
            mix_row(to, from, out->depth, 0, inside ? left : out->width, CONV_BLEND_WHOLE);
            if (!inside)
                continue;
            if (blend->original > 0)
                mix_row(to, from, out->depth, left, right, (unsigned)blend->original);
            mix_row(to, from, out->depth, right, out->width, CONV_BLEND_WHOLE);
        }
    }
}
