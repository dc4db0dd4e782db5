// SPDX-License-Identifier: MIT
#include "run/need.h"

#include "run/stages.h"

static size_t add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void conv_need_estimate(struct conv_need *need, const struct conv_pipeline_config *config,
                        const struct conv_job *job, size_t staging)
{
    size_t file = job->file->capacity;
    const struct conv_image *shape = &job->header.shape;
    // The staging buffer for the result takes no memory before the filter writes to it.
    struct conv_image_header header;
    conv_blend_file_header(job, &header);
    size_t decoding = add(staging, job->format->decode_bytes(&header, job->file->size));
    size_t encoding = add(staging, staging);
    if (config->output_type != CONV_OUTPUT_F32) // which is written from its place in staging
        encoding = add(encoding, job->output_format->encode_bytes(&config->codec, shape));
    size_t filtering = add(staging, staging);
    if (config->ops->scratch_bytes)
        filtering = add(
            filtering, config->ops->scratch_bytes(config->backends[0], shape->width, shape->depth));
    size_t carried = job->meta.capacity;
    encoding = larger(encoding, filtering);
    need->work = add(larger(decoding, encoding), carried);
    need->peak = add(larger(add(decoding, file), encoding), carried);
}
