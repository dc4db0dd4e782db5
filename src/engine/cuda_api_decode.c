// SPDX-License-Identifier: MIT
// Batches of PNG files to device memory. Threads of the host check chunks and copy compressed data
// to pinned memory, while earlier data is uploaded, and parts before that are decoded.
#include <stdlib.h>
#include <string.h>

#include "engine/cuda_internal.h"
#include "png/cuda/cuda_png.h"
#include "png/png.h"

#define MEMORY_FACTOR 6 // of samples: compressed, filtered rows, their parts (2.5), planes
// A part takes about 0.05 ms of the host's time besides copies: that of 2.5 MB of copies.
#define LEAST_PART_BYTES ((size_t)24 << 20)

// Speeds in bytes of samples per second, for the choice of the faster side. Measured on
// photographs: one image alone on an H200, a thousand of them there, one image alone on a core of
// its host, and the share of each of 16 threads that work at the same time.
#define DEVICE_ALONE 0.33e9
#define DEVICE_MANY 60e9
#define HOST_ALONE 0.45e9
#define HOST_THREAD 0.3e9

// A file of the call that the device may decode.
struct entry {
    int item;         // index in the caller's list
    bool direct;      // straight to the caller's planes
    bool copied;      // its compressed data
    size_t samples;   // bytes
    size_t stream_at; // of its compressed data, relative to the part's
    size_t stream_bytes;
    size_t planes_at; // of its planes, if they are not the caller's
};

struct decoding {
    struct conv_device_context *device;
    struct conv_device_decode *items;
    struct entry *entries;
    int count;          // of entries
    uint8_t *h_streams; // of the piece that is being filled
    int first;          // entry of that piece
    size_t piece_at;    // of the piece, relative to the part
    int at_once;        // images that the device decodes at the same time
    struct {            // of each stream's part
        int first, end; // entries
        int tables;     // entries that are decoded: the first ones with `copied`
    } part[CONV_CUDA_PARTS];
};

static bool is_direct(const struct conv_device_decode *item)
{
    const struct conv_image *shape = &item->header.shape;
    const conv_image *view = &item->view;
    return view->channels == shape->channels &&
           conv_sample_bytes(view->sample) * 8 == shape->depth &&
           conv_cuda_view_is_aligned(view, true);
}

// Lists what the device can decode; returns the bytes of its samples.
static uint64_t list_entries(struct decoding *decoding, int count)
{
    uint64_t samples = 0;
    for (int i = 0; i < count; i++) {
        const struct conv_device_decode *item = &decoding->items[i];
        struct conv_image shape = item->header.shape;
        if (!item->offered ||
            !conv_cuda_coder_takes_stream(CONV_DEVICE_PNG, &item->header, item->size))
            continue;
        size_t bytes = (size_t)shape.width * (size_t)shape.height * (size_t)shape.channels *
                       (size_t)(shape.depth / 8);
        decoding->entries[decoding->count++] =
            (struct entry){.item = i, .direct = is_direct(item), .samples = bytes};
        samples += bytes;
    }
    return samples;
}

// True if the host's threads would finish before the device.
static bool host_is_faster(const struct decoding *decoding, uint64_t samples)
{
    size_t largest = 0;
    for (int i = 0; i < decoding->count; i++)
        if (largest < decoding->entries[i].samples)
            largest = decoding->entries[i].samples;
    double alone = (double)largest / HOST_ALONE;
    double together = (double)samples / (HOST_THREAD * decoding->device->threads);
    return (alone > together ? alone : together) <
           (double)largest / DEVICE_ALONE + (double)samples / DEVICE_MANY;
}

// --- a part --------------------------------------------------------------------------------------

// Where things are in a part's device memory.
struct part_layout {
    size_t streams, table, rows, planes, bytes;
};

static struct part_layout lay_out_part(struct decoding *decoding, int first, int end)
{
    struct part_layout layout = {0};
    size_t rows = 0, planes = 0;
    for (int i = first; i < end; i++) {
        struct entry *entry = &decoding->entries[i];
        const struct conv_device_decode *item = &decoding->items[entry->item];
        struct conv_image shape = item->header.shape;
        struct conv_decode_image image = {
            .width = shape.width,
            .height = shape.height,
            .channels = shape.channels,
            .depth = shape.depth,
        };
        entry->stream_at = layout.streams;
        layout.streams += conv_image_align(item->size, CONV_IMAGE_ROW_ALIGN);
        rows += conv_cuda_decode_scratch(&image);
        entry->planes_at = planes;
        if (!entry->direct)
            planes += conv_cuda_part_align(conv_image_bytes(&shape));
    }
    layout.table = conv_cuda_part_align(layout.streams);
    layout.rows = layout.table +
                  conv_cuda_part_align((size_t)(end - first) * sizeof(struct conv_decode_image));
    layout.planes = layout.rows + conv_cuda_part_align(rows);
    layout.bytes = layout.planes + planes;
    return layout;
}

static void copy_stream(void *context, int worker, int index)
{
    struct decoding *decoding = context;
    struct entry *entry = &decoding->entries[decoding->first + index];
    const struct conv_device_decode *item = &decoding->items[entry->item];
    (void)worker;
    entry->copied = conv_png_format.device->copy_stream(
        decoding->h_streams + entry->stream_at - decoding->piece_at, &entry->stream_bytes,
        item->data, item->size, &item->header);
}

// Uploads the compressed data of a part, piece by piece.
static enum conv_status upload_streams(struct decoding *decoding, struct conv_cuda_part *part,
                                       int first, int end, size_t streams, struct conv_err *err)
{
    struct conv_device_context *device = decoding->device;
    for (int from = first, to; from < end; from = to) {
        size_t at = decoding->entries[from].stream_at, bytes = 0;
        for (to = from; to < end; to++) {
            size_t with_next = (to + 1 < end ? decoding->entries[to + 1].stream_at : streams) - at;
            if (to > from && with_next > CONV_CUDA_PIECE_BYTES)
                break;
            bytes = with_next;
        }
        struct conv_cuda_piece *piece;
        enum conv_status status = conv_cuda_piece_open(device, bytes, &piece, err);
        if (status)
            return status;
        decoding->h_streams = piece->staging.h_data;
        decoding->first = from;
        decoding->piece_at = at;
        conv_workers_run(device->workers, device->threads, copy_stream, decoding, to - from);
        status = conv_cuda_piece_upload(piece, part->d_memory + at, bytes, part->cuda, err);
        if (status)
            return status;
    }
    return CONV_OK;
}

// The planes that the device decodes to.
static struct conv_layout_view planes_of(const struct decoding *decoding, const struct entry *entry,
                                         uint8_t *d_planes)
{
    const struct conv_device_decode *item = &decoding->items[entry->item];
    struct conv_image shape = item->header.shape;
    if (entry->direct)
        return conv_cuda_view_layout(&item->view);
    return conv_cuda_view_planes(d_planes + entry->planes_at, shape.width, shape.height,
                                 shape.channels, shape.depth, shape.alpha);
}

static int fill_table(const struct decoding *decoding, struct conv_decode_image *table, int first,
                      int end, uint8_t *d_memory, const struct part_layout *layout)
{
    int count = 0;
    for (int i = first; i < end; i++) {
        const struct entry *entry = &decoding->entries[i];
        if (!entry->copied)
            continue;
        struct conv_image shape = decoding->items[entry->item].header.shape;
        struct conv_layout_view planes = planes_of(decoding, entry, d_memory + layout->planes);
        table[count] = (struct conv_decode_image){
            .d_stream = d_memory + entry->stream_at,
            .stride = planes.row,
            .stream_bytes = (uint32_t)entry->stream_bytes,
            .width = shape.width,
            .height = shape.height,
            .channels = shape.channels,
            .depth = shape.depth,
        };
        memcpy(table[count++].d_plane, planes.channel, sizeof planes.channel);
    }
    if (count > 0)
        conv_cuda_decode_plan(table, count, d_memory + layout->rows);
    return count;
}

// From planes of the part to the caller's images.
static enum conv_status queue_copies(const struct decoding *decoding, int first, int end,
                                     uint8_t *d_planes, cudaStream_t stream, struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = stream};
    enum conv_status status = CONV_OK;
    for (int i = first; i < end && !status; i++) {
        const struct entry *entry = &decoding->entries[i];
        const conv_image *view = &decoding->items[entry->item].view;
        struct conv_layout_copy copy = {conv_cuda_view_layout(view),
                                        planes_of(decoding, entry, d_planes), view->width,
                                        view->height};
        copy.dst.alpha = view->channels % 2 == 0; // as in PNG files
        if (entry->copied && !entry->direct)
            status = conv_cuda_copies_add(&copies, &copy, err);
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
}

static enum conv_status queue_part(struct decoding *decoding, int index, int first, int end,
                                   const struct part_layout *layout, struct conv_err *err)
{
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    size_t table_at = conv_cuda_part_align((size_t)(end - first) * sizeof(uint32_t));
    struct conv_decode_image *table = (void *)(part->answers.h_data + table_at);
    enum conv_status status = upload_streams(decoding, part, first, end, layout->streams, err);
    if (status)
        return status;
    int count = fill_table(decoding, table, first, end, part->d_memory, layout);
    decoding->part[index].first = first;
    decoding->part[index].end = end;
    decoding->part[index].tables = count;
    if (count == 0)
        return conv_cuda_part_queued(part, err);
    cudaError_t code =
        cudaMemcpyAsync(part->d_memory + layout->table, table, (size_t)count * sizeof *table,
                        cudaMemcpyHostToDevice, part->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    struct conv_decode_batch batch = {
        .images = table,
        .d_images = (const void *)(part->d_memory + layout->table),
        .count = count,
        .at_once = decoding->at_once,
        .d_status = (void *)part->answers.h_data,
        .stream = part->cuda,
    };
    if (conv_cuda_decode(&batch))
        return conv_cuda_device_report(err, cudaGetLastError(), "launch the decoder");
    status = queue_copies(decoding, first, end, part->d_memory + layout->planes, part->cuda, err);
    return status ? status : conv_cuda_part_queued(part, err);
}

// Waits for the part on a stream and notes which images were decoded.
static enum conv_status end_part(struct decoding *decoding, int index, struct conv_err *err)
{
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    if (!part->busy)
        return CONV_OK;
    enum conv_status status = conv_cuda_part_wait(part, err);
    const uint32_t *results = (const void *)part->answers.h_data;
    int at = 0;
    for (int i = decoding->part[index].first; i < decoding->part[index].end && !status; i++) {
        const struct entry *entry = &decoding->entries[i];
        if (entry->copied)
            decoding->items[entry->item].done = results[at++] == CONV_DECODE_DECODED;
    }
    return status;
}

static enum conv_status end_all_parts(struct decoding *decoding, struct conv_err *err)
{
    struct conv_err later;
    enum conv_status status = CONV_OK;
    for (int i = 0; i < CONV_CUDA_PARTS; i++) {
        enum conv_status ended = end_part(decoding, i, status ? &later : err);
        status = status ? status : ended;
    }
    enum conv_status finished = conv_cuda_parts_finish(decoding->device, status ? &later : err);
    return status ? status : finished;
}

// Starts a part on a stream. If memory is short, it waits for all other parts and takes their
// memory; the host decodes what does not fit even then.
static enum conv_status start_part(struct decoding *decoding, int index, int first, int end,
                                   struct conv_err *err)
{
    struct part_layout layout = lay_out_part(decoding, first, end);
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    size_t answers = conv_cuda_part_align((size_t)(end - first) * sizeof(uint32_t)) +
                     (size_t)(end - first) * sizeof(struct conv_decode_image);
    enum conv_status status = end_part(decoding, index, err);
    if (!status)
        status = conv_cuda_part_open(decoding->device, part, layout.bytes, answers, err);
    if (status == CONV_ERR_MEMORY) {
        status = end_all_parts(decoding, err);
        if (!status)
            status = conv_cuda_part_open(decoding->device, part, layout.bytes, answers, err);
    }
    if (!status)
        status = queue_part(decoding, index, first, end, &layout, err);
    if (status != CONV_ERR_MEMORY)
        return status;
    cudaError_t code = part->cuda ? cudaStreamSynchronize(part->cuda) : cudaSuccess;
    return code ? conv_cuda_device_report(err, code, "end a part of a batch") : CONV_OK;
}

// --- the call ------------------------------------------------------------------------------------

static enum conv_status decode_parts(struct decoding *decoding, size_t part_bytes,
                                     struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int index = 0;
    for (int first = 0, end; first < decoding->count && !status; first = end) {
        size_t bytes = 0;
        for (end = first; end < decoding->count && (end == first || bytes < part_bytes); end++)
            bytes += decoding->entries[end].samples;
        status = start_part(decoding, index, first, end, err);
        index = (index + 1) % CONV_CUDA_PARTS;
    }
    struct conv_err later;
    enum conv_status ended = end_all_parts(decoding, status ? &later : err);
    return status ? status : ended;
}

enum conv_status conv_cuda_context_decode(struct conv_device_context *device,
                                          struct conv_device_decode *items, int count, void *stream,
                                          struct conv_err *err)
{
    struct decoding decoding = {.device = device, .items = items};
    decoding.entries = calloc((size_t)count, sizeof *decoding.entries);
    if (!decoding.entries)
        return CONV_OK; // the host decodes them, or says that there is no memory
    uint64_t samples = list_entries(&decoding, count);
    enum conv_status status = CONV_OK;
    if (decoding.count > 0 && !host_is_faster(&decoding, samples)) {
        size_t part_bytes = conv_cuda_part_bytes(device, samples, LEAST_PART_BYTES, MEMORY_FACTOR);
        uint64_t most = (uint64_t)CONV_CUDA_PARTS * part_bytes;
        decoding.at_once =
            most >= samples ? decoding.count : (int)((uint64_t)decoding.count * most / samples) + 1;
        status = conv_cuda_parts_start(device, stream, err);
        if (!status)
            status = decode_parts(&decoding, part_bytes, err);
    }
    free(decoding.entries);
    return status;
}
