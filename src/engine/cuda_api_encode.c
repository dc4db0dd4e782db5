// SPDX-License-Identifier: MIT
// Batches of images in device memory to PNG files. The device makes whole IDAT chunks; they are
// downloaded to pinned memory, and threads of the host put the files together while the next part
// is encoded.
#include <stdlib.h>
#include <string.h>

#include "engine/cuda_internal.h"
#include "png/cpu/cpu_png.h"
#include "png/cuda/cuda_png.h"
#include "png/png.h"

#define MEMORY_FACTOR 6 // of samples: planes, scanlines, bits of blocks, chunks
// The encoder reaches 160 GB/s with 132 photographs at a time and 190 with 1,000.
#define LEAST_PART_BYTES ((size_t)64 << 20)

#define AHEAD 2 // pieces that are downloaded while the host copies another one

// An image of the call that the device encodes.
struct entry {
    int item;                         // index in the caller's list
    bool direct;                      // from the caller's planes
    size_t samples;                   // bytes
    size_t planes_at;                 // of its planes, if they are not the caller's
    struct conv_encode_result result; // its chunk in the part's output
};

// A piece that is downloaded.
struct fetch {
    struct conv_cuda_piece *piece;
    int first, end; // entries
    uint64_t from;  // of its first byte in the part's output
};

struct encoding {
    struct conv_device_context *device;
    struct conv_device_encode *items;
    struct conv_file_memory *files; // of the caller, or NULL
    struct entry *entries;
    int count; // number of entries
    struct fetch fetches[AHEAD];
    int fetch_first, fetch_count;
    const struct fetch *copying; // what the threads copy from
};

// A part that has been queued.
struct queued_part {
    int index;      // of its stream
    int first, end; // entries
    size_t output;  // of the chunks in the part's memory
};

static struct conv_image shape_of(const conv_image *view)
{
    return (struct conv_image){
        .width = view->width,
        .height = view->height,
        .channels = view->channels,
        .depth = view->sample == CONV_SAMPLE_U16 ? 16 : 8,
        .alpha = view->has_alpha && view->channels > 1,
    };
}

static uint64_t list_entries(struct encoding *encoding, int count)
{
    uint64_t samples = 0;
    for (int i = 0; i < count; i++) {
        const conv_image *view = &encoding->items[i].view;
        struct conv_image shape = shape_of(view);
        if (!encoding->items[i].offered || encoding->items[i].format != &conv_png_format ||
            !conv_cuda_encode_bound(shape.width, shape.height, shape.channels, shape.depth))
            continue;
        size_t bytes = (size_t)shape.width * (size_t)shape.height * (size_t)shape.channels *
                       (size_t)(shape.depth / 8);
        encoding->entries[encoding->count++] = (struct entry){
            .item = i, .direct = conv_cuda_view_is_aligned(view, true), .samples = bytes};
        samples += bytes;
    }
    return samples;
}

// --- files ---------------------------------------------------------------------------------------

static size_t file_size(const struct entry *entry)
{
    return CONV_ENCODE_HEAD + (size_t)entry->result.size + CONV_ENCODE_TAIL;
}

// Asks the caller for the memory of a piece's files.
static void ask_for_memory(struct encoding *encoding, const struct fetch *fetch)
{
    struct conv_file_memory *files = encoding->files;
    if (!files)
        return;
    files->count = 0;
    for (int i = fetch->first; i < fetch->end; i++)
        conv_file_memory_add(files, encoding->entries[i].item, file_size(&encoding->entries[i]));
    conv_file_memory_call(files);
}

// Memory for the file of entry `index` of the piece; NULL: the host's encoder will report it.
static void *memory_of(struct encoding *encoding, int index, const struct entry *entry)
{
    struct conv_err err;
    void *data = NULL;
    if (encoding->files)
        return encoding->files->memory[index];
    return conv_memory_take(encoding->device->pools, CONV_HOST, file_size(entry), &data, &err)
               ? NULL
               : data;
}

// Puts a file together.
static void make_file(void *context, int worker, int index)
{
    struct encoding *encoding = context;
    const struct fetch *fetch = encoding->copying;
    const struct entry *entry = &encoding->entries[fetch->first + index];
    struct conv_device_encode *item = &encoding->items[entry->item];
    struct conv_image shape = shape_of(&item->view);
    size_t chunk = (size_t)entry->result.size;
    void *data = memory_of(encoding, index, entry);
    (void)worker;
    if (!data)
        return;
    uint8_t *at = conv_encode_put_head(data, &shape);
    memcpy(at, fetch->piece->staging.h_data + (entry->result.offset - fetch->from), chunk);
    memcpy(at + chunk, conv_encode_tail, CONV_ENCODE_TAIL);
    item->data = data;
    item->size = file_size(entry);
    item->done = true;
}

// Waits for the piece that was queued first, and makes its files.
static enum conv_status end_fetch(struct encoding *encoding, struct conv_err *err)
{
    struct conv_device_context *device = encoding->device;
    struct fetch fetch = encoding->fetches[encoding->fetch_first];
    encoding->fetch_first = (encoding->fetch_first + 1) % AHEAD;
    encoding->fetch_count--;
    enum conv_status status = conv_cuda_piece_wait(fetch.piece, err);
    if (status)
        return status;
    ask_for_memory(encoding, &fetch);
    encoding->copying = &fetch;
    conv_workers_run(device->workers, device->threads, make_file, encoding,
                     fetch.end - fetch.first);
    fetch.piece->held = false;
    return CONV_OK;
}

static enum conv_status start_fetch(struct encoding *encoding, const struct queued_part *queued,
                                    int first, int end, struct conv_err *err)
{
    struct conv_cuda_part *part = &encoding->device->own->parts[queued->index];
    uint64_t from = encoding->entries[first].result.offset;
    const struct conv_encode_result *last = &encoding->entries[end - 1].result;
    size_t bytes = (size_t)(last->offset + last->size - from);
    struct fetch *fetch =
        &encoding->fetches[(encoding->fetch_first + encoding->fetch_count) % AHEAD];
    *fetch = (struct fetch){.first = first, .end = end, .from = from};
    enum conv_status status = conv_cuda_piece_open(encoding->device, bytes, &fetch->piece, err);
    if (status)
        return status;
    encoding->fetch_count++;
    return conv_cuda_piece_download(fetch->piece, part->d_memory + queued->output + from, bytes,
                                    part->cuda, err);
}

// Waits for a part and downloads its chunks piece by piece. The last pieces are under way on
// return.
static enum conv_status fetch_part(struct encoding *encoding, const struct queued_part *queued,
                                   struct conv_err *err)
{
    struct conv_cuda_part *part = &encoding->device->own->parts[queued->index];
    enum conv_status status = conv_cuda_part_wait(part, err);
    if (status)
        return status;
    const struct conv_encode_result *results = (const void *)part->answers.h_data;
    for (int i = queued->first; i < queued->end; i++)
        encoding->entries[i].result = results[i - queued->first];
    for (int first = queued->first, end; first < queued->end && !status; first = end) {
        uint64_t from = encoding->entries[first].result.offset;
        for (end = first + 1; end < queued->end; end++) {
            const struct conv_encode_result *next = &encoding->entries[end].result;
            if (next->offset + next->size - from > CONV_CUDA_PIECE_BYTES)
                break;
        }
        if (encoding->fetch_count == AHEAD)
            status = end_fetch(encoding, err);
        if (!status)
            status = start_fetch(encoding, queued, first, end, err);
    }
    return status;
}

// --- the device's half ---------------------------------------------------------------------------

static struct conv_layout_view planes_of(const struct encoding *encoding, const struct entry *entry,
                                         uint8_t *d_planes)
{
    const conv_image *view = &encoding->items[entry->item].view;
    struct conv_image shape = shape_of(view);
    if (entry->direct)
        return conv_cuda_view_layout(view);
    // NULL + 0 is not defined.
    uint8_t *planes = d_planes ? d_planes + entry->planes_at : NULL;
    return conv_cuda_view_planes(planes, shape.width, shape.height, shape.channels, shape.depth,
                                 shape.alpha);
}

// Places the planes of images that are rearranged; returns their bytes.
static size_t place_planes(struct encoding *encoding, int first, int end)
{
    size_t bytes = 0;
    for (int i = first; i < end; i++) {
        struct entry *entry = &encoding->entries[i];
        struct conv_image shape = shape_of(&encoding->items[entry->item].view);
        entry->planes_at = bytes;
        if (!entry->direct)
            bytes += conv_cuda_part_align(conv_image_bytes(&shape));
    }
    return bytes;
}

static void fill_table(const struct encoding *encoding, struct conv_encode_image *table, int first,
                       int end, uint8_t *d_planes)
{
    for (int i = first; i < end; i++, table++) {
        const struct entry *entry = &encoding->entries[i];
        struct conv_image shape = shape_of(&encoding->items[entry->item].view);
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

static enum conv_status queue_copies(const struct encoding *encoding, int first, int end,
                                     uint8_t *d_planes, cudaStream_t stream, struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = stream};
    enum conv_status status = CONV_OK;
    for (int i = first; i < end && !status; i++) {
        const struct entry *entry = &encoding->entries[i];
        const conv_image *view = &encoding->items[entry->item].view;
        struct conv_layout_copy copy = {planes_of(encoding, entry, d_planes),
                                        conv_cuda_view_layout(view), view->width, view->height};
        copy.dst.alpha = copy.src.alpha = false; // all channels are copied
        if (!entry->direct)
            status = conv_cuda_copies_add(&copies, &copy, err);
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
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
static enum conv_status queue_part(struct encoding *encoding, struct queued_part *queued,
                                   struct conv_err *err)
{
    struct conv_cuda_part *part = &encoding->device->own->parts[queued->index];
    int first = queued->first, end = queued->end;
    size_t images = (size_t)(end - first);
    size_t table_at = conv_cuda_part_align(images * sizeof(struct conv_encode_result));
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
    size_t d_table = conv_cuda_part_align(planes),
           scratch = d_table + conv_cuda_part_align(table_bytes);
    queued->output = scratch + conv_cuda_part_align(plan.scratch_bytes);
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

static enum conv_status encode_parts(struct encoding *encoding, size_t part_bytes,
                                     struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct queued_part before = {0}, queued = {0};
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
            status = fetch_part(encoding, &before, err);
        before = queued;
    }
    if (!status && before.end > 0)
        status = fetch_part(encoding, &before, err);
    while (!status && encoding->fetch_count > 0)
        status = end_fetch(encoding, err);
    struct conv_err later;
    enum conv_status finished = conv_cuda_parts_finish(encoding->device, status ? &later : err);
    return status ? status : finished;
}

static void drop_files(struct encoding *encoding)
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
    struct encoding encoding = {.device = device, .items = items, .files = files};
    encoding.entries = calloc((size_t)count, sizeof *encoding.entries);
    if (!encoding.entries)
        return CONV_OK; // the host encodes them, or says that there is no memory
    uint64_t samples = list_entries(&encoding, count);
    size_t part_bytes = conv_cuda_part_bytes(device, samples, LEAST_PART_BYTES, MEMORY_FACTOR);
    enum conv_status status = conv_cuda_parts_start(device, stream, err);
    if (!status)
        status = encode_parts(&encoding, part_bytes, err);
    if (status)
        drop_files(&encoding);
    free(encoding.entries);
    return status;
}
