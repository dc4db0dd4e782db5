// SPDX-License-Identifier: MIT
#include "pipeline/stages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/descriptors.h"
#include "base/standard.h"
#include "io/output.h"
#include "io/paths.h"
#include "kernels/stencil/alpha.h"
#include "pipeline/phase.h"
#include "pipeline/pool.h"

#define READ_CHUNK ((size_t)1 << 16)
#define READ_MOST ((size_t)16 << 20) // at once: between two reads a signal is noticed
// Of each file that is fetched ahead: together a bounded part of the page cache.
#define AHEAD_BYTES ((size_t)4 << 20)
#define RETRY_MS 20

// Adds the time since `start` to the stage.
static void end_stage(struct conv_job *job, enum conv_stage stage, uint64_t start)
{
    struct conv_trace_item item = {
        .name = job->path.input,
        .width = job->header.width,
        .height = job->header.height,
    };
    job->ns[stage] += conv_trace_end(job->row, stage, start, &item);
}

static enum conv_status refuse_link(struct conv_err *err)
{
    return conv_err_hint(err, CONV_HINT_NO_LINKS, 0,
                         conv_err_set(err, CONV_ERR_USAGE, "is a symbolic link"));
}

static enum conv_status refuse_file_size(struct conv_err *err)
{
    return conv_err_hint(
        err, CONV_HINT_MEM_LIMIT_FILE, 0,
        conv_err_set(err, CONV_ERR_LIMIT, "the file is larger than the memory limit"));
}

static bool is_dash(const char *path)
{
    return strcmp(path, "-") == 0;
}

static bool is_newer_or_same(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

static bool skip(struct conv_job *job, const char *reason)
{
    job->outcome = CONV_OUTCOME_SKIPPED;
    job->reason = reason;
    return true;
}

// True if what is there already makes the image superfluous. `in` is NULL for standard input.
static bool is_done(const struct conv_pipeline_config *config, struct conv_job *job,
                    const struct stat *in, const struct stat *out)
{
    struct conv_journal_fact fact = {job->path.input, job->path.output, in, out, {0}};
    if (config->skip_existing)
        return skip(job, "the output exists");
    if (in && config->update && is_newer_or_same(&out->st_mtim, &in->st_mtim))
        return skip(job, "the output is up to date");
    if (in && config->journal && conv_journal_knows(config->journal, &fact))
        return skip(job, "done before, says the journal");
    return false;
}

static const char *plan_reason(const struct conv_pipeline_config *config, bool special, bool exists)
{
    if (special)
        return "writes to a pipe, a device or a descriptor";
    if (!exists)
        return "new";
    return config->update    ? "the input is newer"
           : config->journal ? "the journal knows no such output"
                             : "replaces the output";
}

static enum conv_status plan_in_place(const struct conv_pipeline_config *config,
                                      struct conv_job *job)
{
    struct stat in;
    if (lstat(job->path.input, &in) != 0)
        return conv_err_errno(&job->err, errno, "cannot open");
    if (S_ISLNK(in.st_mode)) {
        // Replacing a link would part it from its file, replacing the file reach out of the folder.
        skip(job, "a symbolic link");
        return job->path.named ? refuse_link(&job->err) : CONV_OK;
    }
    struct conv_journal_fact fact = {.out = &in};
    if (config->journal)
        fact.birth = conv_journal_birth(config->journal, AT_FDCWD, job->path.input);
    if (config->journal && conv_journal_knows(config->journal, &fact)) {
        skip(job, CONV_OUTPUT_REPLACED);
    } else if (config->dry_run) {
        job->outcome = CONV_OUTCOME_PLANNED;
        job->reason = "replaces the input";
    }
    return CONV_OK;
}

enum conv_status conv_stages_plan(const struct conv_pipeline_config *config, struct conv_job *job)
{
    if (config->in_place)
        return plan_in_place(config, job);
    if (!config->dry_run && !config->skip_existing && !config->update && !config->journal)
        return CONV_OK;
    struct stat in, out;
    bool standard = is_dash(job->path.input);
    bool exists = !is_dash(job->path.output) && stat(job->path.output, &out) == 0;
    bool special = exists && conv_output_is_special(job, &out);
    bool found = !standard && stat(job->path.input, &in) == 0;
    // Only a regular file can be an output of an earlier run.
    if (exists && !special && S_ISREG(out.st_mode) &&
        is_done(config, job, found ? &in : NULL, &out))
        return CONV_OK;
    if (!standard && !found)
        return conv_err_errno(&job->err, errno, "cannot open");
    if (!config->dry_run)
        return CONV_OK;
    if (found)
        job->info = in;
    if (exists && found && conv_output_check(job, &out, &job->err))
        return job->err.status;
    job->outcome = CONV_OUTCOME_PLANNED;
    job->reason = plan_reason(config, special, exists);
    return CONV_OK;
}

// The input stays open for longer: others do not wait for its descriptor.
static void keep_input(struct conv_job *job)
{
    if (job->counted != CONV_INPUT_TAKEN)
        return;
    conv_descriptors_give(1);
    conv_descriptors_keep(1);
    job->counted = CONV_INPUT_KEPT;
}

static enum conv_status reserve_file(struct conv_job *job, size_t size)
{
    struct conv_file *file = job->file;
    if (size <= file->capacity)
        return CONV_OK;
    size_t capacity = conv_image_align(size, READ_CHUNK);
    if (!conv_budget_try(job->budget, &job->share, capacity)) {
        keep_input(job); // those who are waited for may need a descriptor
        conv_budget_grow(job->budget, &job->share, capacity);
    }
    uint8_t *data = realloc(file->data, capacity);
    if (!data)
        return conv_err_set(&job->err, CONV_ERR_MEMORY, "no memory for a file of %zu bytes", size);
    file->data = data;
    file->capacity = capacity;
    return CONV_OK;
}

// A file that somebody is still writing may hold half of the old and half of the new.
static enum conv_status check_unchanged(struct conv_job *job, int fd)
{
    struct stat now;
    if (fstat(fd, &now) != 0)
        return conv_err_errno(&job->err, errno, "cannot stat");
    if (S_ISREG(now.st_mode) && !conv_paths_is_unchanged(&job->info, &now))
        return conv_err_set(&job->err, CONV_ERR_IO, "changed while it was read");
    return CONV_OK;
}

// Whoever writes into a pipe may take his time, which is not that of reading: the slice ends before
// the wait and a new one begins after it. False if the run is to stop.
static bool wait_readable(const struct conv_pipeline_config *config, struct conv_job *job, int fd,
                          uint64_t *start)
{
    end_stage(job, CONV_STAGE_READ, *start);
    bool readable = conv_paths_wait_readable(fd, config->stop);
    *start = conv_trace_begin(CONV_STAGE_READ);
    return readable;
}

static enum conv_status read_all(const struct conv_pipeline_config *config, struct conv_job *job,
                                 int fd, size_t expected, uint64_t *start)
{
    struct conv_file *file = job->file;
    struct conv_err *err = &job->err;
    bool regular = S_ISREG(job->info.st_mode);
    file->size = 0;
    // One byte more than expected lets a single read see the end of the file.
    enum conv_status status = reserve_file(job, expected + 1);
    while (!status) {
        if (!regular && !wait_readable(config, job, fd, start))
            return conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for input");
        if (conv_cancel_is_asked(config->stop))
            return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
        // The first bytes come alone: what is no PNG is not worth its memory.
        bool first = file->size < CONV_PNG_SIGNATURE_SIZE;
        size_t room = file->capacity - file->size;
        size_t most = first ? READ_CHUNK : READ_MOST;
        ssize_t got = read(fd, file->data + file->size, room < most ? room : most);
        if (got < 0 && errno == EINTR)
            continue;
        // Files of /proc and /sys pass for regular ones, and reading some of them waits:
        // /proc/kmsg.
        if (got < 0 && errno == EAGAIN && regular)
            return conv_err_set(err, CONV_ERR_IO,
                                "has no data yet; only a pipe named on the command line is waited "
                                "for");
        if (got < 0 && errno == EAGAIN) {
            poll(NULL, 0, RETRY_MS); // another reader was faster, or the device cannot be polled
            continue;
        }
        if (got < 0)
            return conv_err_errno(err, errno, "cannot read");
        if (got == 0)
            return check_unchanged(job, fd);
        file->size += (size_t)got;
        if (first && file->size >= CONV_PNG_SIGNATURE_SIZE)
            status = conv_png_check_signature(file->data, file->size, err);
        if (status)
            return status;
        if (file->size > config->mem_limit)
            return refuse_file_size(err);
        if (file->size == file->capacity)
            status = reserve_file(job, 2 * file->capacity);
    }
    return status;
}

// Without O_NONBLOCK a pipe nobody writes to would hold up this call, out of reach of a signal.
static int open_input(const struct conv_pipeline_config *config, const char *path)
{
    int no_links = config->in_place ? O_NOFOLLOW : 0;
    return conv_paths_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | no_links);
}

void conv_stages_announce(const struct conv_pipeline_config *config, struct conv_job *job)
{
    struct stat info;
    const char *path = job->path.input;
    if (is_dash(path))
        return;
    bool ahead = conv_descriptors_try_ahead();
    if (ahead) {
        job->fd = open_input(config, path); // whoever reads it says why it cannot be
        job->is_open = job->fd >= 0;
        if (!job->is_open)
            conv_descriptors_end_ahead();
        if (!job->is_open)
            return;
        (void)posix_fadvise(job->fd, 0, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    }
    // What is larger than allowed will not be read.
    if ((ahead ? fstat(job->fd, &info) : stat(path, &info)) == 0 && S_ISREG(info.st_mode) &&
        (uint64_t)info.st_size <= config->mem_limit)
        job->want = conv_image_align((size_t)info.st_size + 1, READ_CHUNK);
}

// Takes over what was opened ahead, or opens the file.
static int begin_input(const struct conv_pipeline_config *config, struct conv_job *job)
{
    job->counted = CONV_INPUT_UNCOUNTED;
    if (is_dash(job->path.input))
        return STDIN_FILENO;
    if (job->is_open) {
        job->is_open = false;
        job->counted = CONV_INPUT_AHEAD;
        return job->fd;
    }
    conv_descriptors_take(1);
    job->counted = CONV_INPUT_TAKEN;
    return open_input(config, job->path.input);
}

static void end_input(struct conv_job *job, int fd)
{
    if (fd >= 0 && job->counted != CONV_INPUT_UNCOUNTED)
        close(fd);
    if (job->counted == CONV_INPUT_AHEAD)
        conv_descriptors_end_ahead();
    else if (job->counted == CONV_INPUT_TAKEN)
        conv_descriptors_give(1);
    else if (job->counted == CONV_INPUT_KEPT)
        conv_descriptors_keep(-1);
}

static enum conv_status read_file(const struct conv_pipeline_config *config, struct conv_job *job,
                                  uint64_t *start)
{
    struct conv_err *err = &job->err;
    if (is_dash(job->path.input) && conv_standard_is_closed(STDIN_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot read: it is closed");
    enum conv_status status = CONV_OK;
    struct stat out;
    int fd = begin_input(config, job);
    if (fd < 0 && errno == ELOOP && config->in_place)
        status = refuse_link(err);
    else if (fd < 0)
        status = conv_err_errno(err, errno, "cannot open");
    else if (fstat(fd, &job->info) != 0)
        status = conv_err_errno(err, errno, "cannot stat");
    else if (S_ISDIR(job->info.st_mode))
        status = conv_err_set(err, CONV_ERR_FORMAT, "is a folder, not an image");
    else if (!S_ISREG(job->info.st_mode) && (!job->path.named || config->in_place))
        status = conv_err_set(err, CONV_ERR_FORMAT, "is no regular file");
    else if (!config->no_save && !is_dash(job->path.output) && conv_output_may_exist() &&
             stat(job->path.output, &out) == 0)
        status = conv_output_check(job, &out, err);
    if (!status) {
        bool regular = S_ISREG(job->info.st_mode);
        size_t expected = regular ? (size_t)job->info.st_size : READ_CHUNK - 1;
        if (!regular)
            keep_input(job); // whoever writes into a pipe may take long
        if (expected > config->mem_limit)
            status = refuse_file_size(err);
        else {
            if (expected > AHEAD_BYTES)
                (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
            status = read_all(config, job, fd, expected, start);
        }
    }
    end_input(job, fd);
    return status;
}

static enum conv_status read_header(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_file *file = job->file;
    enum conv_status status = conv_png_probe(file->data, file->size, &job->header, &job->err);
    if (status)
        return status;
    uint64_t pixels = (uint64_t)job->header.width * (uint64_t)job->header.height;
    if (pixels > config->max_pixels)
        return conv_err_hint(&job->err, CONV_HINT_MAX_PIXELS, 0,
                             conv_err_set(&job->err, CONV_ERR_LIMIT,
                                          "%d x %d pixels are more than the limit of %" PRIu64,
                                          job->header.width, job->header.height,
                                          config->max_pixels));
    status = conv_png_check_size(file->data, file->size, &job->header, &job->err);
    if (status)
        return status;
    if (!config->first_frame && conv_png_is_animated(file->data, file->size))
        return conv_err_hint(&job->err,
                             config->in_place ? CONV_HINT_TAKE_FIRST_COPY : CONV_HINT_TAKE_FIRST, 0,
                             conv_err_set(&job->err, CONV_ERR_UNSUPPORTED,
                                          "animated PNG: all frames but one would be lost"));
    job->meta.size = job->meta.front = 0;
    if (!config->strip)
        status = conv_png_meta_collect(file->data, file->size, &job->header, &job->meta, &job->err);
    return status;
}

enum conv_status conv_stages_read(const struct conv_pipeline_config *config, struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_READ);
    job->info.st_mode = 0;
    enum conv_status status = read_file(config, job, &start);
    if (!status)
        status = read_header(config, job);
    // A file that fails is rarely read to its end. Of a pipe nothing else is known.
    bool regular = S_ISREG(job->info.st_mode);
    job->bytes_in = regular ? (size_t)job->info.st_size : job->file->size;
    end_stage(job, CONV_STAGE_READ, start);
    return status;
}

enum conv_status conv_stages_decode(const struct conv_pipeline_config *config,
                                    struct conv_png_codec *codec, struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    bool premultiply = config->alpha == CONV_ALPHA_PREMULTIPLY;
    conv_phase_begin(job->phase);
    enum conv_status status =
        conv_png_decode(codec, job->file->data, job->file->size, &job->header, &job->in, &job->err);
    if (!status && premultiply)
        conv_alpha_multiply(&job->in);
    conv_phase_end(job->phase);
    conv_png_codec_trim(codec);
    end_stage(job, CONV_STAGE_DECODE, start);
    return status;
}

bool conv_stages_pass_on(struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_DECODE);
    struct conv_group *group = &job->slot->group;
    struct conv_group_image *image = &group->images[job->image];
    bool found = conv_png_copy_stream(group->h_in + image->stream, &image->stream_bytes,
                                      job->file->data, job->file->size, &job->header);
    end_stage(job, CONV_STAGE_DECODE, start);
    return found;
}

enum conv_status conv_stages_filter(const struct conv_pipeline_config *config,
                                    struct conv_stream *stream, struct conv_job *job)
{
    if (conv_cancel_is_asked(config->stop))
        return conv_err_set(&job->err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    uint64_t start = conv_trace_begin(CONV_STAGE_KERNEL);
    conv_phase_begin(job->phase);
    enum conv_status status = config->ops->stream_run(stream, &job->slot->group, &job->err);
    conv_phase_end(job->phase);
    end_stage(job, CONV_STAGE_KERNEL, start);
    return status;
}

// What a device has encoded wants no more than a frame.
static enum conv_status encode(const struct conv_pipeline_config *config,
                               struct conv_png_codec *codec, struct conv_job *job,
                               struct conv_encoded *bytes)
{
    const struct conv_group *group = &job->slot->group;
    if (group->encoded) {
        const struct conv_group_image *image = &group->images[job->image];
        conv_png_frame(codec, &image->shape, &job->meta, group->h_result + image->chunks,
                       image->chunks_bytes, bytes);
        return CONV_OK;
    }
    struct conv_image out;
    conv_group_result(group, &job->in, job->out_offset, &out);
    bool premultiplied = config->alpha == CONV_ALPHA_PREMULTIPLY;
    conv_phase_begin(job->phase);
    if (premultiplied)
        conv_alpha_divide(&out);
    enum conv_status status = conv_png_encode(codec, &out, &job->meta, bytes, &job->err);
    conv_phase_end(job->phase);
    return status;
}

enum conv_status conv_stages_encode(const struct conv_pipeline_config *config,
                                    struct conv_png_codec *codec, int worker, struct conv_job *job)
{
    uint64_t start = conv_trace_begin(CONV_STAGE_ENCODE);
    struct conv_encoded bytes;
    enum conv_status status = encode(config, codec, job, &bytes);
    job->decoded = !status && job->slot->group.decoded;
    job->encoded = !status && job->slot->group.encoded;
    end_stage(job, CONV_STAGE_ENCODE, start);
    if (!status)
        job->bytes_out = bytes.size;
    if (!status && !config->no_save) {
        start = conv_trace_begin(CONV_STAGE_WRITE);
        status = conv_output_write(worker, job, &bytes, &job->err);
        end_stage(job, CONV_STAGE_WRITE, start);
    }
    conv_png_codec_trim(codec);
    return status;
}
