// SPDX-License-Identifier: MIT
// Batches of images in device memory to PNG files. The device makes whole IDAT chunks; they are
// downloaded to pinned memory, and threads of the host put the files together while the next part
// is encoded.
#include <stdlib.h>

#include "engine/cuda_png_files.h"

#define ALIGN 256
#define MEMORY_FACTOR 6 // of samples: planes, scanlines, bits of blocks, chunks
// The encoder reaches 160 GB/s with 132 photographs at a time and 190 with 1,000.
#define LEAST_PART_BYTES ((size_t)64 << 20)

static size_t align(size_t bytes)
{
    return conv_image_align(bytes, ALIGN);
}

static uint64_t list_entries(struct conv_cuda_encoding *encoding, int count)
{
    uint64_t samples = 0;
    for (int i = 0; i < count; i++) {
        const conv_image *view = &encoding->items[i].view;
        struct conv_image shape = conv_cuda_encoding_shape(view);
        if (!conv_cuda_encode_bound(shape.width, shape.height, shape.channels, shape.depth))
            continue;
        size_t bytes = (size_t)shape.width * (size_t)shape.height * (size_t)shape.channels *
                       (size_t)(shape.depth / 8);
        encoding->entries[encoding->count++] = (struct conv_cuda_encoding_entry){
            .item = i, .direct = conv_cuda_view_is_aligned(view, true), .samples = bytes};
        samples += bytes;
    }
    return samples;
}

// --- the device's half ---------------------------------------------------------------------------

static struct conv_layout_view planes_of(const struct conv_cuda_encoding *encoding,
                                         const struct conv_cuda_encoding_entry *entry,
                                         uint8_t *d_planes)
{
    const conv_image *view = &encoding->items[entry->item].view;
    struct conv_image shape = conv_cuda_encoding_shape(view);
    if (entry->direct)
        return conv_cuda_view_layout(view);
    // NULL + 0 is not defined.
    uint8_t *planes = d_planes ? d_planes + entry->planes_at : NULL;
    return conv_cuda_view_planes(planes, shape.width, shape.height, shape.channels, shape.depth,
                                 shape.alpha);
}

// Places the planes of images that are rearranged; returns their bytes.
static size_t place_planes(struct conv_cuda_encoding *encoding, int first, int end)
{
    size_t bytes = 0;
    for (int i = first; i < end; i++) {
        struct conv_cuda_encoding_entry *entry = &encoding->entries[i];
        struct conv_image shape = conv_cuda_encoding_shape(&encoding->items[entry->item].view);
        entry->planes_at = bytes;
        if (!entry->direct)
            bytes += align(conv_image_bytes(&shape));
    }
    return bytes;
}

static void fill_table(const struct conv_cuda_encoding *encoding, struct conv_encode_image *table,
                       int first, int end, uint8_t *d_planes)
{
    for (int i = first; i < end; i++, table++) {
        const struct conv_cuda_encoding_entry *entry = &encoding->entries[i];
        struct conv_image shape = conv_cuda_encoding_shape(&encoding->items[entry->item].view);
        struct conv_layout_view planes = planes_of(encoding, entry, d_planes);
        *table = (struct conv_encode_image){
            .stride = planes.row,
            .width = shape.width,
            .height = shape.height,
            .channels = shape.channels,
            .depth = shape.depth,
        };
        for (int c = 0; c < shape.channels; c++)
            table->plane[c] = planes.channel[c];
    }
}

static enum conv_status queue_copies(const struct conv_cuda_encoding *encoding, int first, int end,
                                     uint8_t *d_planes, cudaStream_t stream, struct conv_err *err)
{
    struct conv_layout_copy copies[64];
    int count = 0;
    enum conv_status status = CONV_OK;
    for (int i = first; i < end && !status; i++) {
        const struct conv_cuda_encoding_entry *entry = &encoding->entries[i];
        const conv_image *view = &encoding->items[entry->item].view;
        if (!entry->direct) {
            struct conv_layout_copy *copy = &copies[count++];
            *copy =
                (struct conv_layout_copy){planes_of(encoding, entry, d_planes),
                                          conv_cuda_view_layout(view), view->width, view->height};
            copy->dst.alpha = copy->src.alpha = false; // all channels are copied
        }
        if (count > 0 && (count == 64 || i + 1 == end)) {
            status = conv_cuda_view_copy(copies, count, stream, err);
            count = 0;
        }
    }
    return status;
}

static enum conv_status launch_encoder(struct conv_cuda_part *part,
                                       const struct conv_encode_image *table,
                                       const struct conv_encode_plan *plan, size_t table_at,
                                       size_t scratch_at, size_t output_at, struct conv_err *err)
{
    cudaError_t code =
        cudaMemcpyAsync(part->d_memory + table_at, table, (size_t)plan->count * sizeof *table,
                        cudaMemcpyHostToDevice, part->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    struct conv_encode_batch batch = {
        .plan = *plan,
        .d_images = (const void *)(part->d_memory + table_at),
        .d_scratch = part->d_memory + scratch_at,
        .output = part->d_memory + output_at,
        .results = (void *)part->answers.h_data,
        .stream = part->cuda,
    };
    return conv_cuda_encode(&batch)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch the encoder")
               : CONV_OK;
}

// Queues the encoding of a part. CONV_ERR_MEMORY: the device has too little; nothing is queued.
static enum conv_status queue_part(struct conv_cuda_encoding *encoding,
                                   struct conv_cuda_encoding_part *queued, struct conv_err *err)
{
    struct conv_cuda_part *part = &encoding->device->own->parts[queued->index];
    int first = queued->first, end = queued->end;
    size_t images = (size_t)(end - first);
    size_t table_at = align(images * sizeof(struct conv_encode_result));
    size_t table_bytes = images * sizeof(struct conv_encode_image);
    struct conv_encode_plan plan;
    // The sizes do not depend on where the planes are: plan first, with room in the answers.
    enum conv_status status =
        conv_cuda_part_open(encoding->device, part, 0, table_at + table_bytes, err);
    if (status)
        return status;
    size_t planes = place_planes(encoding, first, end);
    struct conv_encode_image *table = (void *)(part->answers.h_data + table_at);
    fill_table(encoding, table, first, end, NULL);
    if (conv_cuda_encode_plan(&plan, table, (int)images))
        return conv_err_set(err, CONV_ERR_MEMORY, "the part is too large to be encoded on CUDA");
    size_t d_table = align(planes), scratch = d_table + align(table_bytes);
    queued->output = scratch + align(plan.scratch_bytes);
    status =
        conv_cuda_part_open(encoding->device, part, queued->output + plan.output_bytes, 0, err);
    if (status)
        return status;
    fill_table(encoding, table, first, end, part->d_memory);
    (void)conv_cuda_encode_plan(&plan, table, (int)images); // as above
    status = queue_copies(encoding, first, end, part->d_memory, part->cuda, err);
    if (!status)
        status = launch_encoder(part, table, &plan, d_table, scratch, queued->output, err);
    return status ? status : conv_cuda_part_queued(part, err);
}

// --- the call ------------------------------------------------------------------------------------

static enum conv_status encode_parts(struct conv_cuda_encoding *encoding, size_t part_bytes,
                                     struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct conv_cuda_encoding_part before = {0}, queued = {0};
    for (int first = 0, end; first < encoding->count && !status; first = end) {
        size_t bytes = 0;
        for (end = first; end < encoding->count && (end == first || bytes < part_bytes); end++)
            bytes += encoding->entries[end].samples;
        queued.index = (before.index + 1) % CONV_CUDA_PARTS;
        queued.first = first;
        queued.end = end;
        status = queue_part(encoding, &queued, err);
        if (status == CONV_ERR_MEMORY) { // the host encodes them
            status = CONV_OK;
            continue;
        }
        if (!status && before.end > 0)
            status = conv_cuda_encoding_fetch_part(encoding, &before, err);
        before = queued;
    }
    if (!status && before.end > 0)
        status = conv_cuda_encoding_fetch_part(encoding, &before, err);
    while (!status && encoding->fetch_count > 0)
        status = conv_cuda_encoding_end_fetch(encoding, err);
    struct conv_err later;
    enum conv_status finished = conv_cuda_parts_finish(encoding->device, status ? &later : err);
    return status ? status : finished;
}

static void drop_files(struct conv_cuda_encoding *encoding)
{
    for (int i = 0; i < encoding->count; i++) {
        struct conv_device_encode *item = &encoding->items[encoding->entries[i].item];
        if (!encoding->files)
            conv_memory_give(encoding->device->pools, CONV_HOST, item->data);
        item->data = NULL;
        item->done = false;
    }
}

enum conv_status conv_cuda_context_encode(struct conv_device_context *device,
                                          struct conv_device_encode *items, int count,
                                          struct conv_file_memory *files, void *stream,
                                          struct conv_err *err)
{
    struct conv_cuda_encoding encoding = {.device = device, .items = items, .files = files};
    int previous;
    encoding.entries = calloc((size_t)count, sizeof *encoding.entries);
    if (!encoding.entries)
        return CONV_OK; // the host encodes them, or says that there is no memory
    uint64_t samples = list_entries(&encoding, count);
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    if (!status) {
        size_t part_bytes = conv_cuda_part_bytes(device, samples, LEAST_PART_BYTES, MEMORY_FACTOR);
        status = conv_cuda_parts_start(device, stream, err);
        if (!status)
            status = encode_parts(&encoding, part_bytes, err);
        conv_cuda_context_leave(device, previous);
    }
    if (status)
        drop_files(&encoding);
    free(encoding.entries);
    return status;
}
