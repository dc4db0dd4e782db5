// SPDX-License-Identifier: MIT
#include "bench/bench_codec.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/view.h"
#include "image/interleave.h"
#include "run/stages.h"

// --- files ---------------------------------------------------------------------------------------

static enum conv_status load_image(struct conv_bench_images *images, struct conv_job *job,
                                   const struct conv_pipeline_config *config)
{
    struct conv_bench_image *all =
        conv_array_grow(images->images, (size_t)images->count, sizeof *all);
    if (!all)
        return conv_err_memory(&job->err, "out of memory");
    images->images = all;
    struct conv_bench_image *image = &all[images->count++];
    *image = (struct conv_bench_image){0};
    // The list of images may move: the job fills a file of its own.
    struct conv_file file = {0};
    job->file = &file;
    enum conv_status status = conv_stages_read(config, job);
    if (!status && file.bytes != file.data) { // a member of an archive, which is closed before
        file.data = malloc(file.size);
        if (!file.data)
            return conv_err_memory(&job->err, "out of memory");
        memcpy(file.data, file.bytes, file.size);
        file.bytes = file.data;
    }
    image->file = file;
    if (!status)
        status = conv_png_format.probe(file.data, file.size, &image->header, &job->err);
    if (status)
        return status;
    const struct conv_image *shape = &image->header.shape;
    size_t planes = conv_image_bytes(shape);
    images->most_bytes = planes > images->most_bytes ? planes : images->most_bytes;
    images->samples += conv_interleave_bytes(shape) * (size_t)shape->height;
    images->pixels += (uint64_t)shape->width * (uint64_t)shape->height;
    return CONV_OK;
}

enum conv_status conv_bench_images_load(struct conv_bench_images *images,
                                        const struct conv_bench_options *options,
                                        struct conv_err *err)
{
    struct conv_pipeline_config config = {
        .max_pixels = options->choice->inputs.max_pixels,
        .memory.staging = options->mem_limit,
        .strip = CONV_STRIP_ALL,
        .first_frame = true,
        .no_save = true,
    };
    static const char *const png_names[] = {"*.[pP][nN][gG]"};
    struct conv_walk_config names = options->walk;
    struct conv_walk *walk = NULL;
    struct conv_job *job = calloc(1, sizeof *job);
    if (names.rules.include_count == 0) {
        names.rules.include = png_names;
        names.rules.include_count = 1;
    }
    enum conv_status status = CONV_OK;
    if (!job)
        status = conv_err_memory(err, "out of memory");
    if (!status)
        status = conv_walk_open(&walk, &names, err);
    while (!status) {
        enum conv_source_step step =
            conv_source_next(conv_walk_source(walk), &job->item, &job->err);
        if (step == CONV_SOURCE_END)
            break;
        bool is_link = step == CONV_SOURCE_ITEM && job->item.is_copy; // to a member of an archive
        bool bad = step == CONV_SOURCE_BAD || (!is_link && load_image(images, job, &config));
        conv_item_release(&job->item);
        if (bad)
            status =
                conv_err_set(err, job->err.status, "%.200s: %s", job->item.name, job->err.text);
    }
    if (!status && images->count == 0)
        status = conv_err_usage(err, "no PNG in %s", options->walk.operands.inputs[0]);
    conv_walk_close(walk);
    free(job);
    return status;
}

void conv_bench_images_free(struct conv_bench_images *images)
{
    for (int i = 0; i < images->count; i++) {
        free(images->images[i].file.data);
        free(images->images[i].planes);
        free(images->images[i].stream);
    }
    free(images->images);
    *images = (struct conv_bench_images){0};
}

// --- samples -------------------------------------------------------------------------------------

enum conv_status conv_bench_images_take(struct conv_bench_image *image, struct conv_err *err)
{
    const struct conv_image *shape = &image->header.shape;
    image->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, conv_image_bytes(shape));
    if (!image->planes)
        return conv_err_memory(err, "out of memory");
    conv_image_lay_out(&image->image, shape, image->planes);
    return CONV_OK;
}

static enum conv_status filter(struct conv_backend *backend, struct conv_codec *codec,
                               struct conv_bench_image *image, struct conv_err *err)
{
    enum conv_status status = conv_bench_images_take(image, err);
    if (!status)
        status = conv_png_format.decode(codec, image->file.data, image->file.size, &image->header,
                                        &image->image, NULL, err);
    conv_image view = conv_view_of(&image->image);
    return status ? status : conv_device_cpu.filter_run(backend, &view, &view, 1, NULL, err);
}

enum conv_status conv_bench_images_filter(struct conv_bench_images *images,
                                          const struct conv_bench_options *options,
                                          struct conv_err *err)
{
    struct conv_backend_config config = {
        .filters = options->filters,
        .filter_count = options->filter_count,
        .border = options->choice->filter.border,
        .border_value = options->choice->filter.border_value,
        .alpha = CONV_ALPHA_FILTER,
    };
    struct conv_codec_config png = {.level = -1};
    struct conv_backend *backend = NULL;
    struct conv_codec *codec = NULL;
    enum conv_status status =
        conv_device_context_open(&config.context, &conv_device_cpu, 0, 1, 0, err);
    if (!status)
        status = conv_device_cpu.open(&backend, &config, err);
    if (!status)
        status = conv_codec_open(&codec, &conv_png_format, &png, err);
    for (int i = 0; i < images->count && !status; i++)
        status = filter(backend, codec, &images->images[i], err);
    conv_codec_close(codec);
    conv_device_cpu.close(backend);
    conv_device_context_close(config.context);
    return status;
}

// --- results of encoders -------------------------------------------------------------------------

enum conv_status conv_bench_read_back(struct conv_bench_reader *reader,
                                      const struct conv_encoded *bytes,
                                      const struct conv_image *image, struct conv_err *err)
{
    struct conv_image_header header;
    struct conv_image got;
    struct conv_image_difference first;
    reader->file.size = 0;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if (!conv_buffer_append(&reader->file, bytes->part[i].data, bytes->part[i].size))
            return conv_err_memory(err, "out of memory");
    enum conv_status status =
        conv_png_format.probe(reader->file.data, reader->file.size, &header, err);
    if (status)
        return status;
    if (header.shape.width != image->width || header.shape.height != image->height ||
        header.shape.channels != image->channels || header.shape.depth != image->depth)
        return conv_err_format(err, "another size or kind of image");
    if (!conv_buffer_reserve(&reader->planes, conv_image_bytes(image)))
        return conv_err_memory(err, "out of memory");
    conv_image_lay_out(&got, image, reader->planes.data);
    status = conv_libpng_decode(&reader->scratch, reader->file.data, reader->file.size, &header,
                                &got, NULL, NULL, err);
    return status || !conv_image_differ(image, &got, &first) ? status
                                                             : conv_err_format(err, "WRONG pixels");
}

void conv_bench_reader_free(struct conv_bench_reader *reader)
{
    conv_buffer_free(&reader->file);
    conv_buffer_free(&reader->scratch);
    conv_buffer_free(&reader->planes);
}
