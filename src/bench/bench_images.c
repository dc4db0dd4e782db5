// SPDX-License-Identifier: MIT
#include "bench/bench_images.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "cli/commands.h"
#include "device/staging.h"
#include "io/walk.h"
#include "pipeline/stages.h"
#include "png/cpu/interleave.h"

// --- files ---------------------------------------------------------------------------------------

static struct conv_bench_image *new_image(struct conv_bench_images *all)
{
    if (all->count == all->capacity) {
        int capacity = all->capacity ? 2 * all->capacity : 64;
        struct conv_bench_image *images =
            realloc(all->images, (size_t)capacity * sizeof *all->images);
        if (!images)
            return NULL;
        all->images = images;
        all->capacity = capacity;
    }
    all->images[all->count] = (struct conv_bench_image){0};
    return &all->images[all->count++];
}

static enum conv_status load_image(struct conv_bench_images *images, struct conv_job *job,
                                   const struct conv_pipeline_config *config)
{
    struct conv_bench_image *image = new_image(images);
    if (!image)
        return conv_err_set(&job->err, CONV_ERR_MEMORY, "out of memory");
    // The list of images may move: the job fills a file of its own.
    struct conv_file file = {0};
    job->file = &file;
    enum conv_status status = conv_stages_read(config, job);
    image->file = file;
    if (!status)
        status = conv_png_probe(file.data, file.size, &image->header, &job->err);
    if (status)
        return status;
    const struct conv_image *shape = &image->header.shape;
    size_t planes =
        conv_image_plane_bytes(shape->width, shape->height, shape->depth) * (size_t)shape->channels;
    images->most_bytes = planes > images->most_bytes ? planes : images->most_bytes;
    images->samples += conv_interleave_bytes(shape) * (size_t)shape->height;
    images->pixels += (uint64_t)shape->width * (uint64_t)shape->height;
    return CONV_OK;
}

enum conv_status conv_bench_images_load(struct conv_bench_images *images,
                                        const struct conv_options *options, const char *folder,
                                        struct conv_err *err)
{
    struct conv_walk_config walk_config = {
        .operands = {.inputs = &folder, .input_count = 1, .recursive = options->recursive},
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
    };
    struct conv_pipeline_config config = {.max_pixels = options->max_pixels,
                                          .mem_limit = conv_options_mem_limit(options, true),
                                          .strip = true,
                                          .first_frame = true,
                                          .no_save = true};
    struct conv_walk *walk = NULL;
    struct conv_job *job = calloc(1, sizeof *job);
    enum conv_status status = CONV_OK;
    if (!job)
        status = conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    if (!status)
        status = conv_walk_open(&walk, &walk_config, err);
    while (!status) {
        enum conv_source_step step =
            conv_source_next(conv_walk_source(walk), &job->item, &job->err);
        if (step == CONV_SOURCE_END)
            break;
        if (step == CONV_SOURCE_BAD || load_image(images, job, &config))
            status =
                conv_err_set(err, job->err.status, "%.200s: %s", job->item.name, job->err.text);
    }
    if (!status && images->count == 0)
        status = conv_err_set(err, CONV_ERR_USAGE, "no PNG in %s", folder);
    conv_walk_close(walk);
    free(job);
    return status;
}

void conv_bench_images_free(struct conv_bench_images *images)
{
    for (int i = 0; i < images->count; i++) {
        free(images->images[i].file.data);
        free(images->images[i].planes);
    }
    free(images->images);
    *images = (struct conv_bench_images){0};
}

// --- planes --------------------------------------------------------------------------------------

size_t conv_bench_images_place(struct conv_image *image, const struct conv_image *shape,
                               uint8_t *planes)
{
    *image = *shape;
    size_t bytes = conv_image_plane_bytes(shape->width, shape->height, shape->depth);
    for (int c = 0; c < shape->channels; c++) {
        image->plane[c].data = planes + (size_t)c * bytes;
        image->plane[c].stride = (ptrdiff_t)conv_image_stride(shape->width, shape->depth);
    }
    return bytes * (size_t)shape->channels;
}

bool conv_bench_images_equal(const struct conv_image *a, const struct conv_image *b)
{
    size_t row = (size_t)a->width * (size_t)(a->depth / 8);
    for (int c = 0; c < a->channels; c++)
        for (int y = 0; y < a->height; y++)
            if (memcmp(a->plane[c].data + y * a->plane[c].stride,
                       b->plane[c].data + y * b->plane[c].stride, row) != 0)
                return false;
    return true;
}

// What filters them: the CPU, with room for the largest.
struct darkroom {
    struct conv_backend *backend;
    struct conv_stream *stream;
    struct conv_png_codec *codec;
    struct conv_group group;
    struct conv_group_plane planes[CONV_IMAGE_MAX_CHANNELS];
};

static enum conv_status open_darkroom(struct darkroom *room, const struct conv_options *options,
                                      size_t bytes, struct conv_err *err)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_backend_config config = {
        .filters = filters, .border = options->border, .border_value = options->border_value};
    struct conv_codec_config png = {.level = -1};
    void *sides[2] = {NULL, NULL};
    enum conv_status status = conv_commands_parse_chain(options, options->bench_filter, filters,
                                                        &config.filter_count, err);
    if (!status)
        status = conv_backends[CONV_ON_CPU]->open(&room->backend, &config, err);
    if (!status)
        status = conv_backends[CONV_ON_CPU]->stream_open(room->backend, &room->stream, bytes, err);
    if (!status)
        status = conv_png_codec_open(&room->codec, &png, err);
    for (int i = 0; i < 2 && !status; i++)
        status = conv_staging_alloc(&sides[i], bytes, err);
    room->group = (struct conv_group){
        .h_in = sides[0],
        .h_out = sides[1],
        .capacity = bytes,
        .planes = room->planes,
        .plane_capacity = CONV_IMAGE_MAX_CHANNELS,
    };
    return status;
}

static void close_darkroom(struct darkroom *room)
{
    conv_backends[CONV_ON_CPU]->stream_close(room->stream);
    conv_backends[CONV_ON_CPU]->close(room->backend);
    conv_png_codec_close(room->codec);
    conv_staging_free(room->group.h_in, room->group.capacity);
    conv_staging_free(room->group.h_out, room->group.capacity);
}

static enum conv_status develop(struct darkroom *room, struct conv_bench_image *image,
                                struct conv_err *err)
{
    struct conv_image in, out;
    size_t offsets[CONV_IMAGE_MAX_CHANNELS];
    conv_group_reset(&room->group);
    conv_group_place(&room->group, &image->header.shape, true, 0, &in, offsets);
    enum conv_status status =
        conv_png_decode(room->codec, image->file.data, image->file.size, &image->header, &in, err);
    if (!status)
        status = conv_backends[CONV_ON_CPU]->stream_run(room->stream, &room->group, err);
    if (status)
        return status;
    conv_group_result(&room->group, &in, offsets, &out);
    size_t bytes = conv_bench_images_place(&image->filtered, &out, NULL);
    image->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, bytes);
    if (!image->planes)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    conv_bench_images_place(&image->filtered, &out, image->planes);
    for (int c = 0; c < out.channels; c++)
        memcpy(image->filtered.plane[c].data, out.plane[c].data, bytes / (size_t)out.channels);
    return CONV_OK;
}

enum conv_status conv_bench_images_filter(struct conv_bench_images *images,
                                          const struct conv_options *options, struct conv_err *err)
{
    struct darkroom room = {0};
    size_t bytes = 0;
    for (int i = 0; i < images->count; i++) {
        size_t need = conv_group_need(&images->images[i].header.shape, true, 0);
        bytes = need > bytes ? need : bytes;
    }
    enum conv_status status = open_darkroom(&room, options, bytes, err);
    for (int i = 0; i < images->count && !status; i++)
        status = develop(&room, &images->images[i], err);
    close_darkroom(&room);
    return status;
}
