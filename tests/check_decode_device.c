// SPDX-License-Identifier: MIT
// The device's side of checking the decoder: each image's stream, rows and planes are separate
// allocations; planes have guards around them and after their rows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/device.h"

#define UNTOUCHED 0xdeadbeefu

struct device_batch {
    struct device_memory memory;
    size_t plane_bytes[CHECK_DECODE_MOST];
    uint8_t *d_split[CHECK_DECODE_MOST]; // not the planner's
    struct conv_decode_image images[CHECK_DECODE_MOST];
    struct conv_decode_image *d_images;
    uint32_t *d_status, status[CHECK_DECODE_MOST];
    uint32_t *h_stop; // mapped
    int marks;
};

static void upload_image(struct device_batch *batch, int i, const struct check_stream *stream)
{
    struct conv_decode_image *image = &batch->images[i];
    size_t before = check_decode_random(17); // the stream ends where its memory ends
    size_t row = conv_image_stride(stream->width, stream->depth), all = before + stream->size;
    *image = (struct conv_decode_image){
        .stride = (int64_t)(row + CONV_IMAGE_ROW_ALIGN * check_decode_random(3)),
        .stream_bytes = (uint32_t)stream->size,
        .width = stream->width,
        .height = stream->height,
        .channels = stream->channels,
        .depth = stream->depth,
    };
    uint8_t *d_stream = device_put(&batch->memory, NULL, 0, all, "a stream");
    image->d_stream = d_stream + before;
    device_set(&batch->memory, d_stream + before, stream->bytes, stream->size, "a stream");
    batch->plane_bytes[i] = (size_t)image->stride * (size_t)(stream->height - 1) + row;
    for (int c = 0; c < stream->channels; c++)
        image->d_plane[c] = device_take(&batch->memory, batch->plane_bytes[i], "plane");
}

// Each image comes once, the longest stream first.
static bool turns_are_right(const struct conv_decode_image *images, int count)
{
    bool seen[CHECK_DECODE_MOST] = {false}, right = true;
    for (int i = 0; i < count && right; i++) {
        uint32_t turn = images[i].turn;
        right = turn < (uint32_t)count && !seen[turn] &&
                (i == 0 || images[turn].stream_bytes <= images[images[i - 1].turn].stream_bytes);
        if (right)
            seen[turn] = true;
    }
    if (!right)
        printf("FAILED: the planner's order of images\n");
    return right;
}

// Cuts a stream into a random number of parts of 8 bytes or more, with memory of the exact size.
static void plan_parts(struct device_batch *batch, int i, int most)
{
    struct conv_decode_image *image = &batch->images[i];
    unsigned parts = 2 + check_decode_random((unsigned)most - 1);
    unsigned least = 8, bytes = (image->stream_bytes + parts - 1) / parts;
    bytes = bytes < least ? least : bytes;
    image->part_bytes = bytes;
    image->parts = (image->stream_bytes + bytes - 1) / bytes;
    if (image->parts == 0 || image->rows_bytes >= 1u << 28)
        return;
    size_t size = conv_cuda_decode_split_bytes(image);
    image->d_split = batch->d_split[i] = device_take(&batch->memory, size, "parts");
}

// The planner's memory is one block. Every other time each image gets separate rows of the exact
// size instead.
static bool plan(struct device_batch *batch, int count, const struct check_decode_run *how)
{
    struct device_memory *memory = &batch->memory;
    size_t scratch = 0, table = (size_t)count * sizeof *batch->images;
    size_t words = (size_t)count * sizeof *batch->status;
    for (int i = 0; i < count; i++)
        scratch += conv_cuda_decode_scratch(&batch->images[i]);
    conv_cuda_decode_plan(batch->images, count, device_take(memory, scratch, "scratch"));
    if (!turns_are_right(batch->images, count))
        return false;
    bool apart = check_decode_random(2);
    for (int i = 0; i < count && apart; i++)
        batch->images[i].d_rows =
            device_take(memory, conv_cuda_decode_scratch(&batch->images[i]), "rows");
    for (int i = 0; i < count && how->parts; i++)
        plan_parts(batch, i, how->parts);
    for (int i = 0; i < count; i++)
        batch->status[i] = UNTOUCHED;
    batch->d_images = (void *)device_put(memory, batch->images, table, table, "the table");
    batch->d_status = (void *)device_put(memory, batch->status, words, words, "results");
    batch->h_stop = (void *)device_add(memory, sizeof *batch->h_stop, true, "a word");
    return !memory->failed;
}

static void count_mark(void *context, const char *kernel)
{
    struct device_batch *batch = context;
    batch->marks += kernel[0] != '\0';
}

static bool run(struct device_batch *batch, int count, const struct check_decode_run *how)
{
    *batch->h_stop = how->stopped;
    struct conv_decode_batch work = {
        .images = batch->images,
        .d_images = batch->d_images,
        .count = count,
        .threads = how->threads,
        .at_once = how->at_once,
        .split = how->parts ? CONV_DECODE_SPLIT_ALWAYS : CONV_DECODE_SPLIT_AUTO,
        .at_any_cost = how->at_any_cost,
        .d_stop = batch->h_stop,
        .d_status = batch->d_status,
        .mark = count_mark,
        .context = batch,
    };
    if (conv_cuda_decode(&work)) {
        (void)device_failed(cudaGetLastError(), "conv_cuda_decode");
        return false;
    }
    if (batch->marks < 1) {
        printf("FAILED: %d marks\n", batch->marks);
        return false;
    }
    return device_finish(&batch->memory, "decoding") &&
           device_get(&batch->memory, batch->status, batch->d_status,
                      (size_t)count * sizeof(uint32_t), "results") &&
           device_guards_hold(&batch->memory);
}

// After their samples rows may hold anything up to the next multiple of 16 bytes.
static const char *compare_plane(const uint8_t *memory, size_t bytes,
                                 const struct conv_decode_image *image,
                                 const struct conv_plane *expected)
{
    size_t samples = (size_t)image->width * (size_t)image->depth / 8;
    size_t row = conv_image_stride(image->width, image->depth);
    for (size_t at = 0; at < bytes; at++) {
        size_t y = at / (size_t)image->stride, x = at % (size_t)image->stride;
        if (x >= row && memory[at] != DEVICE_FILL)
            return "writes after a row";
        if (x < samples && expected &&
            memory[at] != expected->data[(ptrdiff_t)y * expected->stride + (ptrdiff_t)x])
            return "other samples";
    }
    return NULL;
}

// True if the image was decoded in parts, not by one block of threads.
static bool is_split(struct device_batch *batch, int i)
{
    uint32_t failed = 1;
    return batch->d_split[i] &&
           device_get(&batch->memory, &failed, batch->d_split[i], sizeof failed, "parts") &&
           failed == 0;
}

static const char *compare(struct device_batch *batch, int i, const struct check_stream *stream,
                           const struct conv_image *planes, enum check_verdict verdict)
{
    const struct conv_decode_image *image = &batch->images[i];
    size_t size = batch->plane_bytes[i];
    const char *what = NULL;
    if (batch->status[i] >= CONV_DECODE_RESULTS)
        return "no such result";
    if (stream->result == CONV_DECODE_COSTLY || stream->result == CONV_DECODE_STOPPED)
        verdict = CHECK_MUST_REFUSE;
    bool decoded = batch->status[i] == CONV_DECODE_DECODED;
    if (decoded ? verdict == CHECK_MUST_REFUSE : verdict == CHECK_MUST_DECODE)
        return decoded ? "not refused" : "refused";
    if (stream->result != CHECK_ANY_RESULT && (int)batch->status[i] != stream->result)
        return "refused for another reason";
    for (int c = 0; c < planes->channels && !what; c++) {
        uint8_t *memory = malloc(size);
        if (!memory)
            abort();
        what = device_get(&batch->memory, memory, image->d_plane[c], size, "a plane")
                   ? compare_plane(memory, size, image, decoded ? &planes->plane[c] : NULL)
                   : "no copy";
        free(memory);
    }
    return what;
}

bool check_decode_batch(const struct check_stream *streams, const struct conv_image *planes,
                        const enum check_verdict *verdicts, int count,
                        const struct check_decode_run *how, int *split)
{
    struct device_batch batch = {0};
#ifdef CONV_EMULATED
    emulated_seed(how->seed);
#endif
    for (int i = 0; i < count; i++)
        upload_image(&batch, i, &streams[i]);
    bool ok = plan(&batch, count, how) && run(&batch, count, how);
    *split = 0;
    for (int i = 0; i < count && ok; i++) {
        *split += is_split(&batch, i);
        const char *what = compare(&batch, i, &streams[i], &planes[i], verdicts[i]);
        if (!what)
            continue;
        printf("FAILED image %d, %s: %s (result %u; %dx%d, %d channels, %d bits, %zu bytes, "
               "%d threads, %d parts)\n",
               i, streams[i].kind, what, batch.status[i], streams[i].width, streams[i].height,
               streams[i].channels, streams[i].depth, streams[i].size, how->threads, how->parts);
        ok = false;
    }
    device_free(&batch.memory);
    return ok;
}
