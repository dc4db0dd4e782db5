// SPDX-License-Identifier: MIT
// The device's side of checking the decoder: each image's stream, rows and planes are separate
// allocations, so that compute-sanitizer and emulated/ find accesses outside; planes have guards
// around them and after their rows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/device.h"

#define GUARD 128
#define FILL 0xa5
#define UNTOUCHED 0xdeadbeefu

struct device_image {
    uint8_t *d_stream, *d_rows, *d_split, *d_plane[CONV_IMAGE_MAX_CHANNELS];
    size_t plane_bytes, rows_bytes, split_bytes; // without guards
};

struct device_batch {
    struct device_image own[CHECK_DECODE_MOST];
    struct conv_decode_image images[CHECK_DECODE_MOST];
    struct conv_decode_image *d_images;
    uint8_t *d_scratch;
    size_t scratch_bytes;
    uint32_t *d_status, status[CHECK_DECODE_MOST];
    uint32_t *h_stop; // mapped
    int marks;
};

static bool make_memory(uint8_t **d_memory, size_t size)
{
    size += size == 0; // a stream may have no bytes
    uint8_t *filled = malloc(size);
    if (!filled)
        abort();
    memset(filled, FILL, size);
    bool ok = !device_failed(cudaMalloc((void **)d_memory, size), "cudaMalloc") &&
              !device_failed(cudaMemcpy(*d_memory, filled, size, cudaMemcpyHostToDevice), "copy");
    free(filled);
    return ok;
}

static bool upload_image(struct device_image *own, struct conv_decode_image *image,
                         const struct check_stream *stream)
{
    size_t before = check_decode_random(17); // the stream ends where its memory ends
    size_t row = conv_image_stride(stream->width, stream->depth);
    *image = (struct conv_decode_image){
        .stride = (int64_t)(row + CONV_IMAGE_ROW_ALIGN * check_decode_random(3)),
        .stream_bytes = (uint32_t)stream->size,
        .width = stream->width,
        .height = stream->height,
        .channels = stream->channels,
        .depth = stream->depth,
    };
    if (!make_memory(&own->d_stream, before + stream->size) ||
        device_failed(
            cudaMemcpy(own->d_stream + before, stream->bytes, stream->size, cudaMemcpyHostToDevice),
            "copy of a stream"))
        return false;
    image->d_stream = own->d_stream + before;
    own->plane_bytes = (size_t)image->stride * (size_t)(stream->height - 1) + row;
    for (int c = 0; c < stream->channels; c++) {
        if (!make_memory(&own->d_plane[c], own->plane_bytes + 2 * GUARD))
            return false;
        image->d_plane[c] = own->d_plane[c] + GUARD;
    }
    return true;
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
static bool plan_parts(struct device_image *own, struct conv_decode_image *image, int most)
{
    unsigned parts = 2 + check_decode_random((unsigned)most - 1);
    unsigned least = 8, bytes = (image->stream_bytes + parts - 1) / parts;
    bytes = bytes < least ? least : bytes;
    image->part_bytes = bytes;
    image->parts = (image->stream_bytes + bytes - 1) / bytes;
    if (image->parts == 0 || image->rows_bytes >= 1u << 28)
        return true;
    own->split_bytes = conv_cuda_decode_split_bytes(image);
    if (!make_memory(&own->d_split, own->split_bytes + 2 * GUARD))
        return false;
    image->d_split = own->d_split + GUARD;
    return true;
}

// The planner's memory is one block. Every other time each image gets separate rows of the exact
// size instead.
static bool plan(struct device_batch *batch, int count, const struct check_decode_run *how)
{
    size_t scratch = 0;
    for (int i = 0; i < count; i++)
        scratch += conv_cuda_decode_scratch(&batch->images[i]);
    batch->scratch_bytes = scratch;
    if (!make_memory(&batch->d_scratch, scratch + 2 * GUARD))
        return false;
    conv_cuda_decode_plan(batch->images, count, batch->d_scratch + GUARD);
    if (!turns_are_right(batch->images, count))
        return false;
    bool apart = check_decode_random(2);
    for (int i = 0; i < count && apart; i++) {
        struct device_image *own = &batch->own[i];
        own->rows_bytes = conv_cuda_decode_scratch(&batch->images[i]);
        if (!make_memory(&own->d_rows, own->rows_bytes + 2 * GUARD))
            return false;
        batch->images[i].d_rows = own->d_rows + GUARD;
    }
    for (int i = 0; i < count && how->parts; i++)
        if (!plan_parts(&batch->own[i], &batch->images[i], how->parts))
            return false;
    size_t table = (size_t)count * sizeof *batch->images;
    uint32_t *untouched = batch->status;
    for (int i = 0; i < count; i++)
        untouched[i] = UNTOUCHED;
    size_t words = (size_t)count * sizeof *untouched;
    return !device_failed(cudaMalloc((void **)&batch->d_images, table), "cudaMalloc") &&
           !device_failed(cudaMemcpy(batch->d_images, batch->images, table, cudaMemcpyHostToDevice),
                          "copy of the table") &&
           !device_failed(cudaMalloc((void **)&batch->d_status, words), "cudaMalloc") &&
           !device_failed(cudaMemcpy(batch->d_status, untouched, words, cudaMemcpyHostToDevice),
                          "copy");
}

static void count_mark(void *context, const char *kernel)
{
    struct device_batch *batch = context;
    batch->marks += kernel[0] != '\0';
}

static bool run(struct device_batch *batch, int count, const struct check_decode_run *how)
{
    if (device_failed(
            cudaHostAlloc((void **)&batch->h_stop, sizeof *batch->h_stop, cudaHostAllocMapped),
            "cudaHostAlloc"))
        return false;
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
    return !device_failed(cudaDeviceSynchronize(), "decoding") &&
           !device_failed(cudaMemcpy(batch->status, batch->d_status,
                                     (size_t)count * sizeof(uint32_t), cudaMemcpyDeviceToHost),
                          "copy back");
}

// The guards around memory of `size` bytes.
static bool guards_hold(const uint8_t *d_memory, size_t size)
{
    uint8_t guards[2 * GUARD];
    if (device_failed(cudaMemcpy(guards, d_memory, GUARD, cudaMemcpyDeviceToHost), "copy") ||
        device_failed(
            cudaMemcpy(guards + GUARD, d_memory + GUARD + size, GUARD, cudaMemcpyDeviceToHost),
            "copy"))
        return false;
    for (size_t i = 0; i < sizeof guards; i++)
        if (guards[i] != FILL)
            return false;
    return true;
}

// After their samples rows may hold anything up to the next multiple of 16 bytes.
static const char *compare_plane(const uint8_t *memory, const struct device_image *own,
                                 const struct conv_decode_image *image,
                                 const struct conv_plane *expected)
{
    size_t samples = (size_t)image->width * (size_t)image->depth / 8;
    size_t row = conv_image_stride(image->width, image->depth);
    for (size_t i = 0; i < own->plane_bytes + 2 * GUARD; i++) {
        size_t at = i - GUARD, x = at % (size_t)image->stride;
        bool inside = i >= GUARD && at < own->plane_bytes && x < row;
        if (!inside && memory[i] != FILL)
            return "writes beside the plane";
        if (inside && x < samples && expected) {
            size_t y = at / (size_t)image->stride;
            if (memory[i] != expected->data[(ptrdiff_t)y * expected->stride + (ptrdiff_t)x])
                return "other samples";
        }
    }
    return NULL;
}

// True if the image was decoded in parts, not by one block of threads.
static bool is_split(const struct device_image *own)
{
    uint32_t failed = 1;
    return own->d_split &&
           !cudaMemcpy(&failed, own->d_split + GUARD, sizeof failed, cudaMemcpyDeviceToHost) &&
           failed == 0;
}

static const char *compare(const struct device_batch *batch, int i,
                           const struct check_stream *stream, const struct conv_image *planes,
                           enum check_verdict verdict)
{
    const struct device_image *own = &batch->own[i];
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
    if (own->d_rows && !guards_hold(own->d_rows, own->rows_bytes))
        return "writes beside the rows";
    if (own->d_split && !guards_hold(own->d_split, own->split_bytes))
        return "writes beside the parts";
    for (int c = 0; c < planes->channels && !what; c++) {
        size_t size = own->plane_bytes + 2 * GUARD;
        uint8_t *memory = malloc(size);
        if (!memory)
            abort();
        what =
            device_failed(cudaMemcpy(memory, own->d_plane[c], size, cudaMemcpyDeviceToHost), "copy")
                ? "no copy"
                : compare_plane(memory, own, &batch->images[i], decoded ? &planes->plane[c] : NULL);
        free(memory);
    }
    return what;
}

static void free_batch(struct device_batch *batch)
{
    for (int i = 0; i < CHECK_DECODE_MOST; i++) {
        cudaFree(batch->own[i].d_stream);
        cudaFree(batch->own[i].d_rows);
        cudaFree(batch->own[i].d_split);
        for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++)
            cudaFree(batch->own[i].d_plane[c]);
    }
    cudaFree(batch->d_images);
    cudaFree(batch->d_scratch);
    cudaFree(batch->d_status);
    cudaFreeHost(batch->h_stop);
}

bool check_decode_batch(const struct check_stream *streams, const struct conv_image *planes,
                        const enum check_verdict *verdicts, int count,
                        const struct check_decode_run *how, int *split)
{
    struct device_batch batch = {0};
    bool ok = true;
#ifdef CONV_EMULATED
    emulated_seed(how->seed);
#endif
    for (int i = 0; i < count && ok; i++)
        ok = upload_image(&batch.own[i], &batch.images[i], &streams[i]);
    ok = ok && plan(&batch, count, how) && run(&batch, count, how);
    if (ok && !guards_hold(batch.d_scratch, batch.scratch_bytes)) {
        printf("FAILED: writes beside the scratch\n");
        ok = false;
    }
    *split = 0;
    for (int i = 0; i < count && ok; i++) {
        *split += is_split(&batch.own[i]);
        const char *what = compare(&batch, i, &streams[i], &planes[i], verdicts[i]);
        if (!what)
            continue;
        printf("FAILED image %d, %s: %s (result %u; %dx%d, %d channels, %d bits, %zu bytes, "
               "%d threads, %d parts)\n",
               i, streams[i].kind, what, batch.status[i], streams[i].width, streams[i].height,
               streams[i].channels, streams[i].depth, streams[i].size, how->threads, how->parts);
        ok = false;
    }
    free_batch(&batch);
    return ok;
}
