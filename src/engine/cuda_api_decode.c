// SPDX-License-Identifier: MIT
// Batches of files to device memory. Threads of the host check chunks or markers and copy
// compressed data to pinned memory, while earlier data is uploaded, and parts before that are
// decoded.
#include <stdlib.h>
#include <string.h>

#include "engine/cuda_internal.h"

#define MEMORY_FACTOR 6 // of samples: compressed, filtered rows, their parts (2.5), planes
// A part takes about 0.05 ms of the host's time besides copies: that of 2.5 MB of copies.
#define LEAST_PART_BYTES ((size_t)24 << 20)

// For the choice of the faster side: seconds that a call takes however small its images are, and
// speeds in bytes of samples per second. Measured on photographs: one image alone on an H200,
// thousands of them there, one image alone on a core of its host, and the share of each of 16
// threads that work at the same time. JPEG: calls of conv.decode_jpeg take 0.69 ms for one image of
// 768 x 512, 1.93 for one of 24 megapixels, and 48 for 4,000 small ones.
static const struct speeds {
    double device_start, device_alone, device_many, host_alone, host_thread;
} speeds[CONV_DEVICE_CODERS] = {
    [CONV_DEVICE_PNG] = {0, 0.33e9, 60e9, 0.45e9, 0.3e9},
    [CONV_DEVICE_JPEG] = {0.65e-3, 57e9, 98e9, 0.64e9, 0.5e9},
};

// A file of the call that the device may decode.
struct entry {
    int item;         // index in the caller's list
    bool direct;      // straight to the caller's planes
    bool copied;      // its compressed data
    size_t samples;   // bytes
    size_t stream_at; // of its compressed data, relative to the part's
    size_t stream_room;
    size_t scratch; // bytes that decoding takes
    enum conv_device_coder coder;
    int slot;         // of the coder's table of the part
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
        const uint32_t *status[CONV_DEVICE_CODERS]; // of entries with `copied`
    } part[CONV_CUDA_PARTS];
    struct conv_cuda_batch batches[CONV_DEVICE_CODERS]; // of the part that is being filled
    uint8_t *d_memory;                                  // of that part
    struct part_layout *layout;
};

// Where things are in a part's device memory.
struct part_layout {
    size_t streams, table, scratch[CONV_DEVICE_CODERS], planes, bytes;
    size_t tables; // bytes
    int count[CONV_DEVICE_CODERS];
};

// Of the decoded image, upright.
static struct conv_image shape_of(const struct conv_device_decode *item)
{
    struct conv_image shape = item->header.shape;
    shape.width = item->view.width;
    shape.height = item->view.height;
    return shape;
}

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
        const struct conv_format_device *format = item->offered ? item->format->device : NULL;
        struct conv_image shape = item->header.shape;
        if (!format)
            continue;
        size_t room =
            format->stream_bytes ? format->stream_bytes(&item->header, item->size) : item->size;
        size_t scratch = conv_cuda_coders[format->coder].takes_stream(&item->header, room);
        if (scratch == 0)
            continue;
        size_t bytes = (size_t)shape.width * (size_t)shape.height * (size_t)shape.channels *
                       (size_t)(shape.depth / 8);
        decoding->entries[decoding->count++] = (struct entry){.item = i,
                                                              .direct = is_direct(item),
                                                              .samples = bytes,
                                                              .stream_room = room,
                                                              .scratch = scratch,
                                                              .coder = format->coder};
        samples += bytes;
    }
    return samples;
}

// True if the host's threads would finish before the device.
static bool host_is_faster(const struct decoding *decoding)
{
    double alone = 0, together = 0, device_alone = 0, device = 0;
    for (int i = 0; i < decoding->count; i++) {
        const struct speeds *speed = &speeds[decoding->entries[i].coder];
        double bytes = (double)decoding->entries[i].samples;
        alone = bytes / speed->host_alone > alone ? bytes / speed->host_alone : alone;
        together += bytes / (speed->host_thread * decoding->device->threads);
        double one = speed->device_start + bytes / speed->device_alone;
        device_alone = one > device_alone ? one : device_alone;
        device += bytes / speed->device_many;
    }
    return (alone > together ? alone : together) < device_alone + device;
}

// --- a part --------------------------------------------------------------------------------------

static struct part_layout lay_out_part(struct decoding *decoding, int first, int end)
{
    struct part_layout layout = {0};
    size_t scratch[CONV_DEVICE_CODERS] = {0}, planes = 0;
    for (int i = first; i < end; i++) {
        struct entry *entry = &decoding->entries[i];
        struct conv_image shape = shape_of(&decoding->items[entry->item]);
        entry->stream_at = layout.streams;
        layout.streams += conv_image_align(entry->stream_room, CONV_IMAGE_ROW_ALIGN);
        scratch[entry->coder] += entry->scratch;
        entry->slot = layout.count[entry->coder]++;
        entry->planes_at = planes;
        if (!entry->direct)
            planes += conv_cuda_part_align(conv_image_bytes(&shape));
    }
    size_t at = layout.table = conv_cuda_part_align(layout.streams);
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        layout.tables +=
            conv_cuda_part_align((size_t)layout.count[f] * conv_cuda_coders[f].decode_entry);
    at += layout.tables;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        layout.scratch[f] = at;
        at += conv_cuda_part_align(scratch[f]);
    }
    layout.planes = at;
    layout.bytes = layout.planes + planes;
    return layout;
}

// The planes that the device decodes to.
static struct conv_layout_view planes_of(const struct decoding *decoding, const struct entry *entry)
{
    const struct conv_device_decode *item = &decoding->items[entry->item];
    struct conv_image shape = shape_of(item);
    if (entry->direct)
        return conv_cuda_view_layout(&item->view);
    return conv_cuda_view_planes(decoding->d_memory + decoding->layout->planes + entry->planes_at,
                                 shape.width, shape.height, shape.channels, shape.depth,
                                 shape.alpha);
}

// Copies a file's compressed data and fills its entry in the coder's table.
static void copy_stream(void *context, int, int index)
{
    struct decoding *decoding = context;
    struct entry *entry = &decoding->entries[decoding->first + index];
    const struct conv_device_decode *item = &decoding->items[entry->item];
    struct conv_group_image image = {.shape = shape_of(item)};
    uint8_t *h_stream = decoding->h_streams + entry->stream_at - decoding->piece_at;
    entry->copied = item->format->device->copy_stream(h_stream, &image.stream_bytes, item->data,
                                                      item->size, &item->header);
    if (!entry->copied)
        return;
    struct conv_layout_view planes = planes_of(decoding, entry);
    struct conv_cuda_coded coded = {
        .image = &image,
        .h_stream = h_stream,
        .d_stream = decoding->d_memory + entry->stream_at,
        .stride = planes.row,
    };
    for (int c = 0; c < image.shape.channels; c++)
        coded.d_plane[c] = planes.channel[c];
    const struct conv_cuda_coder_ops *ops = &conv_cuda_coders[entry->coder];
    (void)ops->put_stream(decoding->batches[entry->coder].h_entries +
                              (size_t)entry->slot * ops->decode_entry,
                          &coded);
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

// Removes the entries of files that have no stream from the tables.
static void close_gaps(struct decoding *decoding, int first, int end)
{
    for (int i = first; i < end; i++) {
        const struct entry *entry = &decoding->entries[i];
        struct conv_cuda_batch *batch = &decoding->batches[entry->coder];
        size_t bytes = conv_cuda_coders[entry->coder].decode_entry;
        if (entry->copied)
            memmove(batch->h_entries + (size_t)batch->count++ * bytes,
                    batch->h_entries + (size_t)entry->slot * bytes, bytes);
    }
}

// From planes of the part to the caller's images.
static enum conv_status queue_copies(const struct decoding *decoding, int first, int end,
                                     cudaStream_t stream, struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = stream};
    enum conv_status status = CONV_OK;
    for (int i = first; i < end && !status; i++) {
        const struct entry *entry = &decoding->entries[i];
        const conv_image *view = &decoding->items[entry->item].view;
        struct conv_layout_copy copy = {conv_cuda_view_layout(view), planes_of(decoding, entry),
                                        view->width, view->height};
        copy.dst.alpha = view->channels % 2 == 0; // as in PNG files
        if (entry->copied && !entry->direct)
            status = conv_cuda_copies_add(&copies, &copy, err);
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
}

// Tables, status words and scratch memory of the part's batches, whose entries are not filled yet.
static void place_batches(struct decoding *decoding, int index, int images)
{
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    const struct part_layout *layout = decoding->layout;
    uint32_t *status = (void *)part->answers.h_data;
    size_t tables = conv_cuda_part_align((size_t)images * sizeof *status), at = 0;
    decoding->d_memory = part->d_memory;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        decoding->batches[f] = (struct conv_cuda_batch){
            .h_entries = part->answers.h_data + tables + at,
            .d_entries = part->d_memory + layout->table + at,
            .d_scratch = part->d_memory + layout->scratch[f],
            .status = status,
            .at_once = decoding->at_once,
        };
        decoding->part[index].status[f] = status;
        status += layout->count[f];
        at += conv_cuda_part_align((size_t)layout->count[f] * conv_cuda_coders[f].decode_entry);
    }
}

static enum conv_status queue_part(struct decoding *decoding, int index, int first, int end,
                                   struct part_layout *layout, struct conv_err *err)
{
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    struct conv_stream stream = {.cuda = part->cuda};
    decoding->layout = layout;
    place_batches(decoding, index, end - first);
    enum conv_status status = upload_streams(decoding, part, first, end, layout->streams, err);
    if (status)
        return status;
    close_gaps(decoding, first, end);
    decoding->part[index].first = first;
    decoding->part[index].end = end;
    for (int f = 0; f < CONV_DEVICE_CODERS; f++) {
        const struct conv_cuda_batch *batch = &decoding->batches[f];
        if (batch->count > 0)
            conv_cuda_coders[f].plan_decoding(batch->h_entries, batch->count, batch->d_scratch);
    }
    cudaError_t code =
        cudaMemcpyAsync(part->d_memory + layout->table, decoding->batches[0].h_entries,
                        layout->tables, cudaMemcpyHostToDevice, part->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    for (int f = 0; f < CONV_DEVICE_CODERS; f++)
        if (decoding->batches[f].count > 0 &&
            conv_cuda_coders[f].decode(&stream, &decoding->batches[f]))
            return conv_cuda_device_report(err, cudaGetLastError(), "launch the decoder");
    status = queue_copies(decoding, first, end, part->cuda, err);
    return status ? status : conv_cuda_part_queued(part, err);
}

// Waits for the part on a stream and notes which images were decoded.
static enum conv_status end_part(struct decoding *decoding, int index, struct conv_err *err)
{
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    if (!part->busy)
        return CONV_OK;
    enum conv_status status = conv_cuda_part_wait(part, err);
    const uint32_t **results = decoding->part[index].status;
    for (int i = decoding->part[index].first; i < decoding->part[index].end && !status; i++) {
        const struct entry *entry = &decoding->entries[i];
        if (entry->copied)
            decoding->items[entry->item].done = *results[entry->coder]++ == 0;
    }
    return status;
}

static enum conv_status end_all_parts(struct decoding *decoding, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < CONV_CUDA_PARTS; i++) {
        enum conv_status ended = end_part(decoding, i, status ? NULL : err);
        status = status ? status : ended;
    }
    enum conv_status finished = conv_cuda_parts_finish(decoding->device, status ? NULL : err);
    return status ? status : finished;
}

// Starts a part on a stream. If memory is short, it waits for all other parts and takes their
// memory; the host decodes what does not fit even then.
static enum conv_status start_part(struct decoding *decoding, int index, int first, int end,
                                   struct conv_err *err)
{
    struct part_layout layout = lay_out_part(decoding, first, end);
    struct conv_cuda_part *part = &decoding->device->own->parts[index];
    size_t answers = conv_cuda_part_align((size_t)(end - first) * sizeof(uint32_t)) + layout.tables;
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
    return conv_cuda_check(part->cuda ? cudaStreamSynchronize(part->cuda) : cudaSuccess,
                           "end a part of a batch", err);
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
    enum conv_status ended = end_all_parts(decoding, status ? NULL : err);
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
    if (decoding.count > 0 && !host_is_faster(&decoding)) {
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
