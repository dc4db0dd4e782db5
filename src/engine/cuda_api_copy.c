// SPDX-License-Identifier: MIT
// Copies between views in host and in device memory. Bands of rows pass through pinned memory, in a
// layout close to that of the host's view, so that the host's threads copy whole rows; the device
// does the rest.
#include <stdlib.h>

#include "engine/cuda_internal.h"
#include "engine/view.h"

#define BAND_BYTES ((size_t)4 << 20) // the work of one thread
#define MOST_BANDS 256               // of a piece
#define PIECES_AHEAD 2               // that are under way while the host copies another one

// Rows of an image, and where they are in a piece.
struct band {
    const conv_image *host, *device; // views of the whole image
    int row, rows;
    size_t at;
};

struct group {
    struct band bands[MOST_BANDS];
    int count;
    size_t bytes;
    struct conv_cuda_piece *piece;
};

struct transfer {
    struct conv_device_context *device;
    bool up; // to the device
    struct group groups[PIECES_AHEAD];
    int first, count;  // of the groups that are under way, when copying from the device
    int part;          // the next stream
    struct group *now; // whose bands the threads copy
};

// --- layout of a band ----------------------------------------------------------------------------

// Bytes from a row of a band to the next.
static size_t pitch_of(const conv_image *host)
{
    size_t row = (size_t)host->width * (size_t)conv_sample_bytes(host->sample);
    return conv_image_align(conv_view_is_packed(host) ? row * (size_t)host->channels : row,
                            CONV_IMAGE_ROW_ALIGN);
}

static size_t band_bytes(const conv_image *host, int rows)
{
    size_t bytes = pitch_of(host) * (size_t)rows;
    return conv_view_is_packed(host) ? bytes : bytes * (size_t)host->channels;
}

// The band as a view of memory that holds it.
static conv_image view_of_band(const struct band *band, uint8_t *memory)
{
    conv_image view = *band->host;
    int64_t sample = conv_sample_bytes(view.sample);
    view.data = memory;
    view.height = band->rows;
    view.row_stride = (int64_t)pitch_of(band->host);
    view.column_stride = conv_view_is_packed(band->host) ? sample * view.channels : sample;
    view.channel_stride = conv_view_is_packed(band->host) ? sample : view.row_stride * band->rows;
    return view;
}

// The band's rows of a whole view.
static conv_image rows_of(const struct band *band, const conv_image *whole)
{
    conv_image view = *whole;
    view.data = (uint8_t *)view.data + band->row * view.row_stride;
    view.height = band->rows;
    return view;
}

// --- on the host ---------------------------------------------------------------------------------

static void copy_band(void *context, int, int index)
{
    struct transfer *transfer = context;
    const struct band *band = &transfer->now->bands[index];
    conv_image staged = view_of_band(band, transfer->now->piece->staging.h_data + band->at);
    conv_image host = rows_of(band, band->host);
    if (transfer->up)
        conv_view_copy(&staged, &host, 0, band->rows);
    else
        conv_view_copy(&host, &staged, 0, band->rows);
}

static void run_threads(struct transfer *transfer, struct group *group)
{
    const struct conv_device_context *device = transfer->device;
    transfer->now = group;
    conv_workers_run(device->workers, group->bytes < BAND_BYTES / 16 ? 1 : device->threads,
                     copy_band, transfer, group->count);
}

// --- on the device -------------------------------------------------------------------------------

static enum conv_status copy_all(struct conv_cuda_copies *copies, const conv_image *to,
                                 const conv_image *from, struct conv_err *err)
{
    struct conv_layout_copy copy = {conv_cuda_view_layout(to), conv_cuda_view_layout(from),
                                    to->width, to->height};
    copy.dst.alpha = copy.src.alpha = false; // all channels are copied
    return conv_cuda_copies_add(copies, &copy, err);
}

static enum conv_status queue_layouts(struct transfer *transfer, const struct group *group,
                                      struct conv_cuda_part *part, struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = part->cuda};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < group->count && !status; i++) {
        const struct band *band = &group->bands[i];
        conv_image staged = view_of_band(band, part->d_memory + band->at);
        conv_image device = rows_of(band, band->device);
        status = transfer->up ? copy_all(&copies, &device, &staged, err)
                              : copy_all(&copies, &staged, &device, err);
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
}

static enum conv_status end_group(struct transfer *transfer, struct conv_err *err)
{
    struct group *group = &transfer->groups[transfer->first];
    transfer->first = (transfer->first + 1) % PIECES_AHEAD;
    transfer->count--;
    enum conv_status status = conv_cuda_piece_wait(group->piece, err);
    if (!status)
        run_threads(transfer, group);
    group->piece->held = false;
    return status;
}

static enum conv_status queue_group(struct transfer *transfer, struct group *group,
                                    struct conv_err *err)
{
    struct conv_device_context *device = transfer->device;
    struct conv_cuda_part *part = &device->own->parts[transfer->part];
    transfer->part = (transfer->part + 1) % CONV_CUDA_PARTS;
    enum conv_status status = conv_cuda_part_wait(part, err);
    if (!status)
        status = conv_cuda_part_open(device, part, group->bytes, 0, err);
    if (!status)
        status = conv_cuda_piece_open(device, group->bytes, &group->piece, err);
    if (status)
        return status;
    if (transfer->up) {
        run_threads(transfer, group);
        status =
            conv_cuda_piece_upload(group->piece, part->d_memory, group->bytes, part->cuda, err);
    }
    if (!status)
        status = queue_layouts(transfer, group, part, err);
    if (!status && !transfer->up) {
        status =
            conv_cuda_piece_download(group->piece, part->d_memory, group->bytes, part->cuda, err);
        transfer->count++;
    }
    return status ? status : conv_cuda_part_queued(part, err);
}

// --- the call ------------------------------------------------------------------------------------

// The group to be filled next.
static enum conv_status next_group(struct transfer *transfer, struct group **group,
                                   struct conv_err *err)
{
    enum conv_status status = transfer->count == PIECES_AHEAD ? end_group(transfer, err) : CONV_OK;
    *group = &transfer->groups[(transfer->first + transfer->count) % PIECES_AHEAD];
    (*group)->count = 0;
    (*group)->bytes = 0;
    return status;
}

// Adds an image to groups, and queues those that are full.
static enum conv_status add_image(struct transfer *transfer, struct group **group,
                                  const conv_image *host, const conv_image *device,
                                  struct conv_err *err)
{
    size_t row_bytes = band_bytes(host, 1);
    int most = (int)(row_bytes < BAND_BYTES ? BAND_BYTES / row_bytes : 1);
    enum conv_status status = CONV_OK;
    for (int row = 0, rows; row < host->height && !status; row += rows) {
        rows = host->height - row < most ? host->height - row : most;
        size_t bytes = band_bytes(host, rows);
        if ((*group)->count == MOST_BANDS ||
            ((*group)->count > 0 && (*group)->bytes + bytes > CONV_CUDA_PIECE_BYTES)) {
            status = queue_group(transfer, *group, err);
            if (!status)
                status = next_group(transfer, group, err);
        }
        if (status)
            break;
        (*group)->bands[(*group)->count++] =
            (struct band){host, device, row, rows, (*group)->bytes};
        (*group)->bytes += bytes;
    }
    return status;
}

// Copies the images whose views are in host and device memory, in one direction.
static enum conv_status transfer_all(struct transfer *transfer, const conv_image *results,
                                     const conv_image *sources, int count, struct conv_err *err)
{
    struct group *group;
    enum conv_status status = next_group(transfer, &group, err);
    for (int i = 0; i < count && !status; i++) {
        const conv_image *host = transfer->up ? &sources[i] : &results[i];
        const conv_image *device = transfer->up ? &results[i] : &sources[i];
        if (host->memory == CONV_HOST && device->memory == CONV_DEVICE)
            status = add_image(transfer, &group, host, device, err);
    }
    if (!status && group->count > 0)
        status = queue_group(transfer, group, err);
    while (!status && transfer->count > 0)
        status = end_group(transfer, err);
    return status;
}

static enum conv_status transfer_host(struct conv_device_context *device, const conv_image *results,
                                      const conv_image *sources, int count, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return conv_err_memory(err, "out of memory");
    for (int up = 1; up >= 0 && !status; up--) {
        *transfer = (struct transfer){.device = device, .up = up};
        status = transfer_all(transfer, results, sources, count, err);
    }
    free(transfer);
    enum conv_status finished = conv_cuda_parts_finish(device, status ? NULL : err);
    return status ? status : finished;
}

static enum conv_status copy_on_device(const conv_image *results, const conv_image *sources,
                                       int count, cudaStream_t stream, bool *host,
                                       struct conv_err *err)
{
    struct conv_cuda_copies copies = {.stream = stream};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < count && !status; i++) {
        if (results[i].memory == CONV_DEVICE && sources[i].memory == CONV_DEVICE)
            status = copy_all(&copies, &results[i], &sources[i], err);
        else
            *host = true;
    }
    return status ? status : conv_cuda_copies_flush(&copies, err);
}

enum conv_status conv_cuda_context_copy(struct conv_device_context *device,
                                        const conv_image *results, const conv_image *sources,
                                        int count, void *stream, struct conv_err *err)
{
    bool host = false, up = false;
    enum conv_status status = copy_on_device(results, sources, count, stream, &host, err);
    for (int i = 0; i < count; i++)
        up |= sources[i].memory == CONV_HOST && results[i].memory == CONV_DEVICE;
    if (!status && up) { // the stream may be writing to the sources, which threads read
        cudaError_t code = cudaStreamSynchronize(stream);
        status = conv_cuda_check(code, "wait for a stream", err);
    }
    if (!status && host)
        status = conv_cuda_parts_start(device, stream, err);
    if (!status && host)
        status = transfer_host(device, results, sources, count, err);
    return status;
}

// --- bytes ---------------------------------------------------------------------------------------

#define ROW_BYTES ((size_t)64 << 10) // of the images as which large blocks of bytes are copied
#define FEW_BYTES ((size_t)1 << 20)  // up to which the driver's own copies are as fast

static enum conv_status copy_few(void *result, const void *source, size_t bytes,
                                 enum cudaMemcpyKind kind, cudaStream_t stream,
                                 struct conv_err *err)
{
    cudaError_t code = cudaMemcpyAsync(result, source, bytes, kind, stream);
    if (!code && kind != cudaMemcpyDeviceToDevice)
        code = cudaStreamSynchronize(stream);
    return conv_cuda_check(code, "copy memory", err);
}

enum conv_status conv_cuda_context_copy_bytes(struct conv_device_context *device, void *result,
                                              conv_memory result_memory, const void *source,
                                              conv_memory source_memory, size_t bytes, void *stream,
                                              struct conv_err *err)
{
    bool up = source_memory == CONV_HOST, down = result_memory == CONV_HOST;
    size_t rows = up != down && bytes >= FEW_BYTES ? bytes / ROW_BYTES : 0;
    size_t most = (size_t)INT32_MAX;
    enum conv_status status = CONV_OK;
    for (size_t row = 0; row < rows && !status; row += most) {
        int count = (int)(rows - row < most ? rows - row : most);
        conv_image to = conv_image_planar((uint8_t *)result + row * ROW_BYTES, (int)ROW_BYTES,
                                          count, 1, CONV_SAMPLE_U8, result_memory);
        conv_image from = to; // the source is only read
        from.data = (uint8_t *)(uintptr_t)source + row * ROW_BYTES;
        from.memory = source_memory;
        status = conv_cuda_context_copy(device, &to, &from, 1, stream, err);
    }
    size_t done = rows * ROW_BYTES;
    return status || done == bytes
               ? status
               : copy_few((uint8_t *)result + done, (const uint8_t *)source + done, bytes - done,
                          up     ? cudaMemcpyHostToDevice
                          : down ? cudaMemcpyDeviceToHost
                                 : cudaMemcpyDeviceToDevice,
                          stream, err);
}
