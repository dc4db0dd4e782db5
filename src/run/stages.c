// SPDX-License-Identifier: MIT
// Each stage is one call of the format or the backend, with its time and its errors.
#include "run/stages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/parallel.h"
#include "io/files/file_read.h"
#include "run/layer_stage.h"
#include "tensor/tensor_formats.h"

// --- codecs --------------------------------------------------------------------------------------

struct conv_codecs {
    int count;                // conv_format_count
    size_t keep;              // conv_codec_config.keep
    struct conv_buffer image; // as it is stored, to be turned
    struct conv_curve curve;  // the last one that an image needed; {0}: none yet
    struct conv_codec *codec[];
};

enum conv_status conv_codecs_open(struct conv_codecs **out, const struct conv_codec_config *config,
                                  struct conv_err *err)
{
    struct conv_codecs *codecs =
        calloc(1, sizeof *codecs + (size_t)conv_format_count * sizeof codecs->codec[0]);
    enum conv_status status = CONV_OK;
    *out = NULL;
    if (!codecs)
        return conv_err_memory(err, "no memory for the codecs");
    codecs->count = conv_format_count;
    codecs->keep = config->keep ? config->keep : SIZE_MAX;
    for (int i = 0; i < codecs->count && !status; i++)
        status = conv_codec_open(&codecs->codec[i], conv_formats[i], config, err);
    if (status)
        conv_codecs_close(codecs);
    else
        *out = codecs;
    return status;
}

void conv_codecs_close(struct conv_codecs *codecs)
{
    for (int i = 0; codecs && i < codecs->count; i++)
        conv_codec_close(codecs->codec[i]);
    if (codecs)
        conv_buffer_free(&codecs->image);
    free(codecs);
}

struct conv_codec *conv_codecs_of(const struct conv_codecs *codecs,
                                  const struct conv_format *format)
{
    int i = 0;
    while (conv_formats[i] != format)
        i++;
    return codecs->codec[i];
}

void conv_codecs_trim(struct conv_codecs *codecs)
{
    for (int i = 0; i < codecs->count; i++)
        conv_codec_trim(codecs->codec[i]);
    conv_buffer_trim(&codecs->image, codecs->keep);
}

const struct conv_curve *conv_codecs_curve(struct conv_codecs *codecs,
                                           const struct conv_blend *blend,
                                           const struct conv_job *job)
{
    struct conv_curve *curve = &codecs->curve;
    if (blend->linear && (curve->linear[65535] == 0 || curve->gamma != job->header.gamma))
        conv_curve_make(curve, job->header.gamma);
    return blend->linear ? curve : NULL;
}

// --- reading -------------------------------------------------------------------------------------
// Buffers grow with the file; their memory is booked in the budget.

void conv_stages_end(struct conv_job *job, enum conv_stage stage, uint64_t start)
{
    struct conv_trace_item item = {
        .name = job->item.name,
        .width = job->header.shape.width,
        .height = job->header.shape.height,
    };
    job->record.ns[stage] += conv_trace_end(job->track, stage, start, &item);
}

// Files that would take most of the memory for files; a device reads its streams from memory.
static size_t map_from(const struct conv_pipeline_config *config)
{
    return config->maps_inputs && !config->ops->async && !config->layer ? config->memory.files : 0;
}

void conv_stages_announce(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct stat *info = &job->input.info;
    if (!job->item.ops->announce)
        return;
    job->item.ops->announce(&job->item, &job->input);
    // A file larger than allowed will not be read.
    if (S_ISREG(info->st_mode) && (uint64_t)info->st_size <= config->memory.staging &&
        !(map_from(config) > 0 && (uint64_t)info->st_size >= map_from(config)))
        job->want = conv_file_read_capacity((size_t)info->st_size);
}

static void grow(void *context, size_t capacity)
{
    struct conv_job *job = context;
    if (conv_budget_try(job->budget, &job->share, capacity))
        return;
    conv_input_keep(&job->input); // the jobs that it waits for may need a descriptor
    conv_budget_grow(job->budget, &job->share, capacity);
}

// The slice of the stage ends before a wait and a new one begins after it.
static void pause_slice(void *context)
{
    struct conv_job *job = context;
    conv_stages_end(job, CONV_STAGE_READ, job->slice);
}

static void resume_slice(void *context)
{
    ((struct conv_job *)context)->slice = conv_trace_begin(CONV_STAGE_READ);
}

// The worker computes while others help it: worker.h.
static void run_in_phase(struct conv_parallel *parallel, int threads, void (*work)(void *context),
                         void *context)
{
    struct conv_job *job = parallel->owner;
    (void)threads; // reading takes no memory, so there are no fewer for this reason
    conv_phase_begin(job->phase);
    conv_parallel_run(job->parallel, 0, work, context);
    conv_phase_end(job->phase);
}

// Waits for a pipe are not part of the stage.
static enum conv_status read_file(const struct conv_pipeline_config *config, struct conv_job *job)
{
    struct conv_parallel parallel = {
        .most = conv_parallel_most(job->parallel, 0), .run = run_in_phase, .owner = job};
    struct conv_file_read how = {
        .limit = config->memory.staging,
        .pixel_limit = config->max_pixels,
        .map_from = map_from(config),
        .stop = config->stop,
        .parallel = &parallel,
        .grow = grow,
        .pause = pause_slice,
        .resume = resume_slice,
        .context = job,
    };
    return conv_file_read(&how, &job->item, &job->input, job->file, &job->format, &job->err);
}

static enum conv_status read_header(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_file *file = job->file;
    const struct conv_format *format = job->format;
    enum conv_status status = conv_image_reader_probe(format, file->bytes, file->size,
                                                      config->max_pixels, &job->header, &job->err);
    if (status)
        return status;
    if (!config->first_frame)
        status = conv_image_reader_check_single(format, file, &job->item, &job->input, &job->err);
    if (status)
        return status;
    return config->layer ? conv_layer_stage_check(config->layer, job)
                         : conv_output_plan(config, job);
}

enum conv_status conv_stages_read(const struct conv_pipeline_config *config, struct conv_job *job)
{
    job->slice = conv_trace_begin(CONV_STAGE_READ);
    enum conv_status status = read_file(config, job);
    if (!status)
        status = read_header(config, job);
    // A file that fails is rarely read to its end. The size of a pipe is not known before.
    bool regular = conv_input_is_file(&job->input);
    job->record.bytes_in = regular ? (size_t)job->input.info.st_size : job->file->size;
    conv_stages_end(job, CONV_STAGE_READ, job->slice);
    return status;
}

// --- the other stages ----------------------------------------------------------------------------

// Into planes of the file's depth and of the sides of the image upright.
static enum conv_status decode_file(struct conv_codecs *codecs, struct conv_job *job,
                                    const struct conv_image *planes)
{
    struct conv_codec *codec = conv_codecs_of(codecs, job->format);
    struct conv_image_header header;
    struct conv_image stored;
    conv_blend_file_header(job, &header);
    if (header.orientation <= 1)
        return job->format->decode(codec, job->file->bytes, job->file->size, &header, planes, NULL,
                                   &job->err);
    if (!conv_buffer_reserve(&codecs->image, conv_image_bytes(&header.shape)))
        return conv_err_memory(&job->err, "no memory to turn the image");
    conv_image_lay_out(&stored, &header.shape, codecs->image.data);
    enum conv_status status = job->format->decode(codec, job->file->bytes, job->file->size, &header,
                                                  &stored, NULL, &job->err);
    if (!status)
        conv_image_turn(planes, &stored, header.orientation);
    return status;
}

enum conv_status conv_stages_check_mapped(struct conv_job *job, struct conv_err *err)
{
    return job->file->is_mapped ? job->item.ops->unchanged(&job->input, err) : CONV_OK;
}

enum conv_status conv_stages_decode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    const struct conv_blend blend = config->blend; // the worker may be left behind: job.h
    conv_phase_begin(job->phase);
    struct conv_image planes, decoded;
    conv_blend_target(job, &planes);
    decoded = planes;
    decoded.depth = job->file_depth;
    enum conv_status status = decode_file(codecs, job, &decoded);
    if (!status)
        status = conv_stages_check_mapped(job, &job->err);
    if (!status)
        conv_blend_begin(&blend, job, &planes, conv_codecs_curve(codecs, &blend, job));
    conv_phase_end(job->phase);
    conv_codecs_trim(codecs);
    conv_stages_end(job, CONV_STAGE_DECODE, start);
    return status;
}

bool conv_stages_pass_on(struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    struct conv_group *group = &job->slot->group;
    struct conv_group_image *image = &group->images[job->image];
    struct conv_image_header header;
    conv_blend_file_header(job, &header);
    bool found = job->format->device->copy_stream(group->h_in + image->stream, &image->stream_bytes,
                                                  job->file->bytes, job->file->size, &header);
    conv_stages_end(job, CONV_STAGE_DECODE, start);
    return found;
}

enum conv_status conv_stages_filter(const struct conv_pipeline_config *config,
                                    struct conv_stream *stream, struct conv_job *job)
{
    if (conv_cancel_is_asked(config->stop))
        return conv_err_cancelled(&job->err);
    uint64_t start = conv_trace_begin(CONV_STAGE_KERNEL);
    const struct conv_device_ops *ops = config->ops; // as in conv_stages_decode()
    conv_phase_begin(job->phase);
    enum conv_status status = ops->stream_run(stream, &job->slot->group, &job->err);
    conv_phase_end(job->phase);
    conv_stages_end(job, CONV_STAGE_KERNEL, start);
    return status;
}

static enum conv_status encode(const struct conv_pipeline_config *config,
                               struct conv_codecs *codecs, struct conv_job *job,
                               uint8_t npy_header[CONV_NPY_OWN_HEADER], struct conv_encoded *bytes)
{
    const struct conv_group *group = &job->slot->group;
    const struct conv_format *format = job->output_format;
    struct conv_codec *codec = conv_codecs_of(codecs, format);
    const struct conv_metadata *metadata = &job->meta;
    if (group->encoded) { // by the device: the file's frame is missing
        const struct conv_group_image *image = &group->images[job->image];
        format->device->frame(codec, &image->shape, &image->encoding, metadata,
                              group->h_result + image->encoded, image->encoded_bytes, bytes);
        return CONV_OK;
    }
    struct conv_image out;
    conv_group_result(group, &job->placed, &out);
    if (config->output_type == CONV_OUTPUT_F32) {
        conv_output_npy(&out, &job->placed, npy_header, bytes);
        return CONV_OK;
    }
    bool narrow = conv_output_depth(config, job) < out.depth;
    const struct conv_blend blend = config->blend; // as in conv_stages_decode()
    conv_phase_begin(job->phase);
    conv_blend_end(&blend, job, &out, narrow, conv_codecs_curve(codecs, &blend, job));
    enum conv_status status =
        format->encode(codec, &out, metadata, 0, out.height, bytes, &job->err);
    conv_phase_end(job->phase);
    return status;
}

static enum conv_status write_output(const struct conv_pipeline_config *config, int worker,
                                     struct conv_job *job, const struct conv_encoded *file)
{
    enum conv_sink_result result = CONV_SINK_WRITTEN;
    enum conv_status status = config->sink->ops->write(
        config->sink, worker, &job->item, &job->input.info, &job->output, file, &result, &job->err);
    job->is_written = !status;
    job->record.replaced = !status && result & CONV_SINK_OVER_FILE;
    result &= ~CONV_SINK_OVER_FILE;
    if (result == CONV_SINK_REPLACED) {
        job->record.outcome = CONV_OUTCOME_SKIPPED;
        job->record.reason = CONV_PLAN_REPLACED;
    } else if (result == CONV_SINK_WITHOUT_LIST) {
        job->record.reason = CONV_SINK_LIST_LOST;
        job->record.notable = true;
    }
    return status;
}

// Makes all parts of a file that is not saved.
static enum conv_status pass_over(struct conv_job *job, struct conv_encoded file)
{
    enum conv_status status = CONV_OK;
    do
        status = file.next ? file.next(&file, &job->err) : CONV_OK;
    while (!status && file.next && file.size > 0);
    return status;
}

enum conv_status conv_stages_write(const struct conv_pipeline_config *config, int worker,
                                   struct conv_job *job, const struct conv_encoded *file)
{
    job->record.bytes_out = file->size;
    if (config->no_save && !file->next)
        return CONV_OK;
    job->slice = conv_trace_begin(CONV_STAGE_WRITE);
    enum conv_status status =
        config->no_save ? pass_over(job, *file) : write_output(config, worker, job, file);
    conv_stages_end(job, CONV_STAGE_WRITE, job->slice);
    return status;
}

// Maps a file that is copied. CONV_OK: to be unmapped, unless it is empty.
static enum conv_status map_file(struct conv_job *job, struct conv_encoded *bytes)
{
    enum conv_status status = job->item.ops->open(&job->item, &job->input, &job->err);
    if (status || job->input.info.st_size <= 0)
        return status;
    bytes->size = bytes->part[0].size = (size_t)job->input.info.st_size;
    void *map = mmap(NULL, bytes->size, PROT_READ, MAP_PRIVATE, job->input.fd, 0);
    if (map == MAP_FAILED)
        return conv_err_errno(&job->err, errno, "cannot read");
    bytes->part[0].data = map;
    return CONV_OK;
}

enum conv_status conv_stages_copy(const struct conv_pipeline_config *config, int worker,
                                  struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_WRITE);
    struct conv_encoded bytes = {0};
    bool maps = !job->item.ops->view;
    enum conv_status status =
        maps ? map_file(job, &bytes)
             : job->item.ops->view(&job->item, &job->input, &bytes.part[0].data,
                                   &bytes.part[0].size, &job->err);
    bytes.size = bytes.part[0].size;
    if (!status && !config->no_save)
        status = write_output(config, worker, job, &bytes);
    job->record.bytes_in = job->record.bytes_out = bytes.size;
    if (maps && bytes.part[0].data)
        munmap((void *)(uintptr_t)bytes.part[0].data, bytes.size);
    if (maps)
        job->item.ops->close(&job->input);
    conv_stages_end(job, CONV_STAGE_WRITE, start);
    return status;
}

enum conv_status conv_stages_encode(const struct conv_pipeline_config *config,
                                    struct conv_codecs *codecs, int worker, struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_ENCODE);
    struct conv_encoded bytes;
    uint8_t npy_header[CONV_NPY_OWN_HEADER];
    enum conv_status status = encode(config, codecs, job, npy_header, &bytes);
    job->record.decoded_on_device = !status && job->slot->group.decoded;
    job->record.encoded_on_device = !status && job->slot->group.encoded;
    conv_stages_end(job, CONV_STAGE_ENCODE, start);
    if (!status)
        status = conv_stages_write(config, worker, job, &bytes);
    conv_codecs_trim(codecs);
    return status;
}
