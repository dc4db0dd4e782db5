// SPDX-License-Identifier: MIT
// Buffers grow with the file; their memory comes from the budget for files.
#include "pipeline/fetch.h"

#include <stdlib.h>

#include "base/cancel.h"
#include "pipeline/stages.h"

#define READ_CHUNK ((size_t)1 << 16)
#define READ_MOST ((size_t)16 << 20) // at once: a signal is noticed between two reads

void conv_fetch_announce(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct stat *info = &job->input.info;
    if (!job->item.ops->announce)
        return;
    job->item.ops->announce(&job->item, &job->input);
    // A file larger than allowed will not be read.
    if (S_ISREG(info->st_mode) && (uint64_t)info->st_size <= config->mem_limit)
        job->want = conv_image_align((size_t)info->st_size + 1, READ_CHUNK);
}

static enum conv_status refuse_size(struct conv_err *err)
{
    return conv_err_hint(
        err, CONV_HINT_MEM_LIMIT_FILE, 0,
        conv_err_set(err, CONV_ERR_LIMIT, "the file is larger than the memory limit"));
}

static enum conv_status reserve(struct conv_job *job, size_t size)
{
    struct conv_file *file = job->file;
    if (size <= file->capacity)
        return CONV_OK;
    size_t capacity = conv_image_align(size, READ_CHUNK);
    if (!conv_budget_try(job->budget, &job->share, capacity)) {
        conv_input_keep(&job->input); // the jobs that it waits for may need a descriptor
        conv_budget_grow(job->budget, &job->share, capacity);
    }
    uint8_t *data = realloc(file->data, capacity);
    if (!data)
        return conv_err_set(&job->err, CONV_ERR_MEMORY, "no memory for a file of %zu bytes", size);
    file->data = data;
    file->capacity = capacity;
    return CONV_OK;
}

// The slice of the stage ends before the wait and a new one begins after it. False if the run is to
// stop.
static bool wait_readable(const struct conv_pipeline_config *config, struct conv_job *job,
                          uint64_t *start)
{
    conv_stages_end(job, CONV_STAGE_READ, *start);
    bool readable = conv_input_wait(&job->input, config->stop);
    *start = conv_trace_begin(CONV_STAGE_READ);
    return readable;
}

// Finds the format of the file once enough of it is there.
static enum conv_status check_head(struct conv_job *job)
{
    const struct conv_file *file = job->file;
    const struct conv_format *format = conv_formats_find(file->data, file->size);
    if (file->size < format->head_bytes)
        return CONV_OK;
    job->format = format;
    return format->check_head(file->data, file->size, &job->err);
}

static enum conv_status read_all(const struct conv_pipeline_config *config, struct conv_job *job,
                                 size_t expected, uint64_t *start)
{
    struct conv_file *file = job->file;
    struct conv_err *err = &job->err;
    bool regular = conv_input_is_file(&job->input);
    file->size = 0;
    job->format = NULL;
    // One byte more than expected lets a single read see the end of the file.
    enum conv_status status = reserve(job, expected + 1);
    while (!status) {
        if (!regular && !wait_readable(config, job, start))
            return conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for input");
        if (conv_cancel_is_asked(config->stop))
            return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
        // The first bytes are read alone: no memory is taken for a file that is no image.
        bool first = !job->format;
        size_t room = file->capacity - file->size, most = first ? READ_CHUNK : READ_MOST;
        ssize_t got = job->item.ops->read(&job->input, file->data + file->size,
                                          room < most ? room : most, err);
        if (got == CONV_INPUT_LATER)
            continue;
        if (got < 0)
            return err->status;
        if (got == 0)
            return job->item.ops->unchanged(&job->input, err);
        file->size += (size_t)got;
        if (first)
            status = check_head(job);
        if (!status && file->size > config->mem_limit)
            return refuse_size(err);
        if (!status && file->size == file->capacity)
            status = reserve(job, 2 * file->capacity);
    }
    return status;
}

enum conv_status conv_fetch_read(const struct conv_pipeline_config *config, struct conv_job *job,
                                 uint64_t *start)
{
    enum conv_status status = job->item.ops->open(&job->item, &job->input, &job->err);
    if (status)
        return status;
    bool regular = conv_input_is_file(&job->input);
    size_t expected = regular ? (size_t)job->input.info.st_size : READ_CHUNK - 1;
    if (!regular)
        conv_input_keep(&job->input); // the writer of a pipe may take long
    status = expected > config->mem_limit ? refuse_size(&job->err)
                                          : read_all(config, job, expected, start);
    job->item.ops->close(&job->input);
    return status;
}
