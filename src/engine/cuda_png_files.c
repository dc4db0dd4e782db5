// SPDX-License-Identifier: MIT
// The host's half of encoding on a CUDA device: chunks are downloaded to pinned memory, and threads
// put the files together while the next part is encoded.
#include "engine/cuda_png_files.h"

#include <string.h>

#include "png/cpu/encode.h"

static size_t file_size(const struct conv_cuda_encoding_entry *entry)
{
    return CONV_ENCODE_HEAD + (size_t)entry->result.size + CONV_ENCODE_TAIL;
}

// Asks the caller for the memory of a piece's files.
static void ask_for_memory(struct conv_cuda_encoding *encoding,
                           const struct conv_cuda_encoding_fetch *fetch)
{
    struct conv_file_memory *files = encoding->files;
    if (!files)
        return;
    files->count = 0;
    for (int i = fetch->first; i < fetch->end; i++)
        conv_file_memory_add(files, encoding->items[encoding->entries[i].item].index,
                             file_size(&encoding->entries[i]));
    conv_file_memory_call(files);
}

// Memory for the file of entry `index` of the piece; NULL: the host's encoder will report it.
static void *memory_of(struct conv_cuda_encoding *encoding, int index,
                       const struct conv_cuda_encoding_entry *entry)
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
    struct conv_cuda_encoding *encoding = context;
    const struct conv_cuda_encoding_fetch *fetch = encoding->copying;
    const struct conv_cuda_encoding_entry *entry = &encoding->entries[fetch->first + index];
    struct conv_device_encode *item = &encoding->items[entry->item];
    struct conv_image shape = conv_cuda_encoding_shape(&item->view);
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

enum conv_status conv_cuda_encoding_end_fetch(struct conv_cuda_encoding *encoding,
                                              struct conv_err *err)
{
    struct conv_device_context *device = encoding->device;
    struct conv_cuda_encoding_fetch fetch = encoding->fetches[encoding->fetch_first];
    encoding->fetch_first = (encoding->fetch_first + 1) % CONV_CUDA_ENCODING_AHEAD;
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

static enum conv_status start_fetch(struct conv_cuda_encoding *encoding,
                                    const struct conv_cuda_encoding_part *queued, int first,
                                    int end, struct conv_err *err)
{
    struct conv_cuda_part *part = &encoding->device->own->parts[queued->index];
    uint64_t from = encoding->entries[first].result.offset;
    const struct conv_encode_result *last = &encoding->entries[end - 1].result;
    size_t bytes = (size_t)(last->offset + last->size - from);
    struct conv_cuda_encoding_fetch *fetch =
        &encoding
             ->fetches[(encoding->fetch_first + encoding->fetch_count) % CONV_CUDA_ENCODING_AHEAD];
    *fetch = (struct conv_cuda_encoding_fetch){.first = first, .end = end, .from = from};
    enum conv_status status = conv_cuda_piece_open(encoding->device, bytes, &fetch->piece, err);
    if (status)
        return status;
    cudaError_t code =
        cudaMemcpyAsync(fetch->piece->staging.h_data, part->d_memory + queued->output + from, bytes,
                        cudaMemcpyDeviceToHost, part->cuda);
    if (code)
        return conv_cuda_device_report(err, code, "copy files from the device");
    encoding->fetch_count++;
    fetch->piece->held = true;
    return conv_cuda_piece_queued(fetch->piece, part->cuda, err);
}

enum conv_status conv_cuda_encoding_fetch_part(struct conv_cuda_encoding *encoding,
                                               const struct conv_cuda_encoding_part *queued,
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
        if (encoding->fetch_count == CONV_CUDA_ENCODING_AHEAD)
            status = conv_cuda_encoding_end_fetch(encoding, err);
        if (!status)
            status = start_fetch(encoding, queued, first, end, err);
    }
    return status;
}
