// SPDX-License-Identifier: MIT
// The encoder of src/jpeg/cuda/ on random batches: its bytes must be libjpeg-turbo's.
#include <stdio.h>
#include <stdlib.h>

#include "check_codec.h"
#include "jpeg/cuda/cuda_jpeg.h"
#include "jpeg/jpeg.h"
#include "support/device.h"
#include "support/jpeg_make.h"
#include "support/test_image.h"

#define MOST_IMAGES 8
#define LAUNCHES 6 // for any batch
#ifndef CHECK_LARGE_SIDE
#define CHECK_LARGE_SIDE 4000 // of an image, at most
#endif

struct jpeg_item {
    struct conv_image pixels;
    const char *kind;
    int quality; // 0: tables of random numbers
    struct png_file file;
    size_t data_at; // after SOS
};

struct jpeg_case {
    int count;
    struct jpeg_item *items;
    struct conv_jpeg_encode_image *images;
};

// --- images and their files ----------------------------------------------------------------------

static struct jpeg_case open_case(int count)
{
    struct jpeg_case c = {.count = count};
    c.items = calloc((size_t)count, sizeof *c.items);
    c.images = calloc((size_t)count, sizeof *c.images);
    if (!c.items || !c.images)
        abort();
    return c;
}

// What the encoder needs of the file: its quantisation tables, and where its data begin.
static bool read_file(struct jpeg_case *c, int i)
{
    const struct png_file *file = &c->items[i].file;
    struct conv_marker marker;
    size_t at = 0;
    while (conv_marker_next(&marker, file->data, file->size, &at)) {
        for (size_t k = 0; marker.code == CONV_MARKER_DQT && k < 64; k++)
            c->images[i].quant[marker.data[0]][k] = marker.data[1 + k];
        if (marker.code == CONV_MARKER_SOS) {
            c->items[i].data_at = at;
            return true;
        }
    }
    return false;
}

// Samples at the ends of the range make the largest coefficients.
static void draw_extremes(const struct conv_image *pixels)
{
    for (int p = 0; p < pixels->channels; p++)
        for (ptrdiff_t k = 0; k < pixels->height * pixels->plane[p].stride; k++)
            pixels->plane[p].data[k] = pixels->plane[p].data[k] < 128 ? 0 : 255;
}

// Makes the file of the item's pixels, and the encoder's entry.
static void encode_item(struct jpeg_case *c, int i, int h, int v, const unsigned (*quant)[64])
{
    struct jpeg_item *item = &c->items[i];
    const struct conv_image *pixels = &item->pixels;
    struct jpeg_spec spec = {
        .width = pixels->width,
        .height = pixels->height,
        .channels = pixels->channels,
        .quality = item->quality,
        .sampling_h = h,
        .sampling_v = v,
        .pixels = pixels,
        .quant = quant,
    };
    jpeg_make(&item->file, &spec, 0);
    c->images[i] = (struct conv_jpeg_encode_image){
        .stride = pixels->plane[0].stride,
        .width = pixels->width,
        .height = pixels->height,
        .components = pixels->channels,
        .h = h,
        .v = v,
    };
}

static void draw_item(struct jpeg_case *c, int i, int width, int height, uint64_t *state)
{
    static const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}};
    struct jpeg_item *item = &c->items[i];
    enum check_kind kind = (enum check_kind)check_draw_int(state, 0, CHECK_KINDS - 1);
    item->pixels = (struct conv_image){.width = width,
                                       .height = height,
                                       .channels = check_draw_int(state, 0, 4) ? 3 : 1,
                                       .depth = 8};
    check_draw_image(&item->pixels, kind, state);
    item->kind = check_kind_name(kind);
    if (check_draw_int(state, 0, 3) == 0)
        draw_extremes(&item->pixels);
    const int *sampling = samplings[item->pixels.channels == 3 ? check_draw_int(state, 0, 2) : 0];
    unsigned quant[2][64];
    for (int k = 0; k < 2 * 64; k++)
        quant[k / 64][k % 64] = (unsigned)check_draw_int(state, 1, 255);
    item->quality = check_draw_int(state, 0, 2) ? check_draw_int(state, 1, 100)
                                                : 100 * check_draw_int(state, 0, 1);
    encode_item(c, i, sampling[0], sampling[1],
                item->quality ? NULL : (const unsigned(*)[64])quant);
}

static void free_case(struct jpeg_case *c)
{
    for (int i = 0; i < c->count; i++) {
        image_free(&c->items[i].pixels);
        png_make_free(&c->items[i].file);
    }
    free(c->items);
    free(c->images);
}

// --- a batch on the device -----------------------------------------------------------------------

struct jpeg_run {
    struct conv_encode_batch batch;
    struct device_memory memory; // each plane is a piece
    int launches;
};

static void count_launch(void *context, const char *kernel)
{
    struct jpeg_run *run = context;
    (void)kernel;
    run->launches++;
}

static bool prepare_run(struct jpeg_run *run, struct jpeg_case *c)
{
    struct conv_encode_plan *plan = &run->batch.plan;
    struct device_memory *memory = &run->memory;
    size_t table = (size_t)c->count * sizeof c->images[0];
    for (int i = 0; i < c->count; i++) {
        const struct conv_image *pixels = &c->items[i].pixels;
        if (!read_file(c, i))
            return false;
        for (int p = 0; p < pixels->channels; p++) {
            size_t size = (size_t)pixels->plane[p].stride * (size_t)pixels->height;
            c->images[i].plane[p] = device_put(memory, pixels->plane[p].data, size, size, "planes");
        }
    }
    if (conv_cuda_jpeg_encode_plan(plan, c->images, c->count)) {
        printf("FAILED: no plan for %d images\n", c->count);
        return false;
    }
    run->batch.d_images = (void *)device_put(memory, c->images, table, table, "table");
    run->batch.d_scratch = device_put(memory, NULL, 0, plan->scratch_bytes, "scratch memory");
    run->batch.output = device_take(memory, plan->output_bytes, "output");
    run->batch.results = (void *)device_take(
        memory, (size_t)c->count * sizeof(struct conv_encode_result), "results");
    run->batch.mark = count_launch;
    run->batch.context = run;
    return !memory->failed;
}

static bool run_batch(struct jpeg_run *run)
{
    run->launches = 0;
    if (conv_cuda_jpeg_encode(&run->batch)) {
        printf("FAILED: launch: %s\n", cudaGetErrorString(cudaGetLastError()));
        return false;
    }
    if (run->launches != LAUNCHES)
        printf("FAILED: %d launches for %d images\n", run->launches, run->batch.plan.count);
    return run->launches == LAUNCHES && device_finish(&run->memory, "encode");
}

// --- results -------------------------------------------------------------------------------------

static bool report(const struct jpeg_case *c, int i, const char *message, size_t at)
{
    const struct conv_jpeg_encode_image *image = &c->images[i];
    printf("FAILED: image %d of %d, %s, %dx%d, %d components, %dx%d, quality %d: %s %zu\n", i,
           c->count, c->items[i].kind, image->width, image->height, image->components, image->h,
           image->v, c->items[i].quality, message, at);
    return false;
}

// Data follow each other with zeros between them, and nothing is written after the last.
static bool check_output(const struct jpeg_case *c, const uint8_t *output, size_t room,
                         const struct conv_encode_result *results)
{
    size_t at = 0;
    for (int i = 0; i < c->count; i++) {
        const struct jpeg_item *item = &c->items[i];
        const uint8_t *data = item->file.data + item->data_at;
        size_t size = item->file.size - item->data_at;
        if (results[i].offset != at)
            return report(c, i, "at another place than", at);
        for (size_t k = 0; k < size && k < results[i].size; k++)
            if (data[k] != output[at + k])
                return report(c, i, "another byte than libjpeg's:", k);
        if (results[i].size != size)
            return report(c, i, "another size than", size);
        if (size > conv_cuda_jpeg_encode_bound(&c->images[i]))
            return report(c, i, "larger than its bound:", size);
        for (at += size; at % CONV_ENCODE_ALIGN; at++)
            if (output[at] != 0)
                return report(c, i, "no zero after the data:", at);
    }
    for (; at < room; at++)
        if (output[at] != DEVICE_FILL)
            return report(c, c->count - 1, "a byte after the last data is written:", at);
    return true;
}

static bool check_run(struct jpeg_run *run, const struct jpeg_case *c)
{
    size_t room = run->batch.plan.output_bytes;
    size_t size = (size_t)c->count * sizeof(struct conv_encode_result);
    uint8_t *output = malloc(room);
    void *results = malloc(size);
    bool ok = output && results &&
              device_get(&run->memory, output, run->batch.output, room, "output") &&
              device_get(&run->memory, results, run->batch.results, size, "results") &&
              device_guards_hold(&run->memory) && check_output(c, output, room, results);
    free(output);
    free(results);
    return ok;
}

static bool check_case(struct jpeg_case *c, uint64_t seed)
{
    struct jpeg_run run = {0};
#ifdef CONV_EMULATED
    emulated_seed(seed); // so that the case's seed also determines the order of threads
#endif
    bool ok = prepare_run(&run, c) && run_batch(&run) && check_run(&run, c);
    device_free(&run.memory);
    free_case(c);
    if (!ok)
        printf("  again: --part jpeg_encode --seed %llu --rounds 1\n", (unsigned long long)seed);
    return ok;
}

static bool check_random(uint64_t seed)
{
    uint64_t state = seed;
    struct jpeg_case c = open_case(check_draw_int(&state, 1, MOST_IMAGES));
    for (int i = 0; i < c.count; i++) {
        int side = check_draw_int(&state, 0, 1) ? 40 : 150;
        int width = check_draw_int(&state, 1, side), height = check_draw_int(&state, 1, side);
        draw_item(&c, i, width, height, &state);
    }
    return check_case(&c, seed);
}

// The first one has more chunks than a thread block that places them has threads.
static bool check_large(uint64_t seed)
{
    uint64_t state = seed;
    struct jpeg_case c = open_case(3);
    for (int i = 0; i < c.count; i++) {
        int least = i == 0 ? CHECK_LARGE_SIDE / 4 * 3 : 1, most = i == 0 ? CHECK_LARGE_SIDE : 300;
        int width = check_draw_int(&state, least, most);
        int height = check_draw_int(&state, least, most);
        draw_item(&c, i, width, height, &state);
    }
    return check_case(&c, seed);
}

static bool check_refusals(void)
{
    struct conv_encode_plan plan;
    const struct conv_jpeg_encode_image fine = {
        .stride = 16, .width = 9, .height = 9, .components = 3, .h = 2, .v = 2};
    struct conv_jpeg_encode_image wrong[5] = {fine, fine, fine, fine, fine};
    wrong[0].h = 1;
    wrong[1].v = 4;
    wrong[2].components = 1;
    wrong[3].width = 65501;
    wrong[4].width = wrong[4].height = 65500;
    bool ok = conv_cuda_jpeg_encode_bound(&fine) > 0;
    for (int i = 0; i < 5; i++)
        ok = ok && conv_cuda_jpeg_encode_bound(&wrong[i]) == 0 &&
             conv_cuda_jpeg_encode_plan(&plan, &wrong[i], 1) == CONV_ERR_UNSUPPORTED;
    if (!ok)
        printf("FAILED: images that cannot be encoded are not refused\n");
    return ok;
}

bool check_jpeg_encode(const struct check_options *options)
{
    bool ok = check_refusals();
    for (int i = 0; i < options->rounds && ok; i++)
        ok = check_random(options->seed + (uint64_t)i);
    if (options->rounds > 1)
        ok = ok && check_large(options->seed);
    if (ok)
        printf("jpeg_encode: %d batches of images are libjpeg's\n", options->rounds);
    return ok;
}
