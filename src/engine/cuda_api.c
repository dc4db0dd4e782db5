// SPDX-License-Identifier: MIT
// Calls of the library for images in the memory of a CUDA device: the device, its memory, events,
// views of its memory, and tables of planes there.
#include "engine/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/image.h"

// --- the current device --------------------------------------------------------------------------

enum conv_status conv_cuda_context_enter(struct conv_device_context *device, int *previous,
                                         struct conv_err *err)
{
    cudaError_t code = cudaGetDevice(previous);
    if (!code && *previous != device->ordinal)
        code = cudaSetDevice(device->ordinal);
    return code ? conv_cuda_device_report(err, code, "select the device") : CONV_OK;
}

void conv_cuda_context_leave(struct conv_device_context *device, int previous)
{
    if (previous != device->ordinal)
        (void)cudaSetDevice(previous);
}

// --- opening -------------------------------------------------------------------------------------

// An event for the order of work only.
static enum conv_status make_event(cudaEvent_t *event, struct conv_err *err)
{
    cudaError_t code = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    if (!code)
        return CONV_OK;
    *event = NULL;
    return conv_cuda_device_report(err, code, "make an event");
}

void conv_cuda_context_close(struct conv_device_context *device)
{
    conv_cuda_parts_close(device);
    conv_cuda_memory_free(&device->own->scratch.memory);
    conv_cuda_event_destroy(&device->own->scratch.used);
    conv_cuda_event_destroy(&device->own->order);
}

enum conv_status conv_cuda_context_open(struct conv_device_context *device, struct conv_err *err)
{
    int previous;
    size_t unused;
    enum conv_status status = conv_cuda_device_check(device->ordinal, err);
    if (status)
        return status;
    device->own = calloc(1, sizeof *device->own);
    if (!device->own)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    status = conv_cuda_context_enter(device, &previous, err);
    if (status)
        return status;
    status = make_event(&device->own->order, err);
    if (!status)
        status = make_event(&device->own->scratch.used, err);
    cudaError_t code = status ? cudaSuccess : cudaMemGetInfo(&unused, &device->own->memory);
    if (code)
        status = conv_cuda_device_report(err, code, "read the device's memory");
    conv_cuda_context_leave(device, previous);
    return status;
}

enum conv_status conv_cuda_context_synchronise(struct conv_device_context *device,
                                               struct conv_err *err)
{
    (void)device;
    cudaError_t code = cudaDeviceSynchronize();
    return code ? conv_cuda_device_report(err, code, "complete the work of the device") : CONV_OK;
}

// --- memory --------------------------------------------------------------------------------------

enum conv_status conv_cuda_context_allocate(struct conv_device_context *device, size_t bytes,
                                            void **data, struct conv_err *err)
{
    struct conv_cuda_memory block = {0};
    (void)device;
    enum conv_status status = conv_cuda_memory_reserve(&block, bytes, 0, "for images", err);
    *data = block.d_data;
    return status;
}

void conv_cuda_context_release(struct conv_device_context *device, void *data)
{
    int previous;
    struct conv_err err;
    if (!conv_cuda_context_enter(device, &previous, &err)) {
        (void)cudaFree(data); // nothing can be done about a failure
        conv_cuda_context_leave(device, previous);
    }
}

enum conv_status conv_cuda_context_scratch(struct conv_device_context *device, size_t bytes,
                                           cudaStream_t stream, uint8_t **d_memory,
                                           struct conv_err *err)
{
    struct conv_cuda_context_scratch *scratch = &device->own->scratch;
    bool grows = bytes > scratch->memory.bytes;
    cudaError_t code =
        grows ? cudaEventSynchronize(scratch->used) : cudaStreamWaitEvent(stream, scratch->used, 0);
    if (code)
        return conv_cuda_device_report(err, code, "wait for a filter");
    enum conv_status status =
        conv_cuda_memory_reserve(&scratch->memory, bytes, bytes / 8, "for planes", err);
    *d_memory = scratch->memory.d_data;
    return status;
}

enum conv_status conv_cuda_context_scratch_used(struct conv_device_context *device,
                                                cudaStream_t stream, struct conv_err *err)
{
    return conv_cuda_event_record(device->own->scratch.used, stream, err);
}

// --- events --------------------------------------------------------------------------------------

enum conv_status conv_cuda_context_record_event(struct conv_device_context *device, void **event,
                                                void *stream, struct conv_err *err)
{
    cudaEvent_t cuda = *event;
    (void)device;
    enum conv_status status = cuda ? CONV_OK : make_event(&cuda, err);
    *event = cuda;
    return status ? status : conv_cuda_event_record(cuda, stream, err);
}

enum conv_status conv_cuda_context_wait_event(struct conv_device_context *device, void *event,
                                              void *stream, struct conv_err *err)
{
    (void)device;
    cudaError_t code = cudaStreamWaitEvent(stream, event, 0);
    return code ? conv_cuda_device_report(err, code, "order the work of streams") : CONV_OK;
}

void conv_cuda_context_destroy_event(struct conv_device_context *device, void *event)
{
    (void)device;
    if (event)
        (void)cudaEventDestroy(event);
}

enum conv_status conv_cuda_context_wait_stream(struct conv_device_context *device, void *stream,
                                               struct conv_err *err)
{
    (void)device;
    cudaError_t code = cudaStreamSynchronize(stream);
    return code ? conv_cuda_device_report(err, code, "complete the work of a stream") : CONV_OK;
}

// --- views ---------------------------------------------------------------------------------------

struct conv_layout_view conv_cuda_view_layout(const conv_image *view)
{
    struct conv_layout_view layout = {
        .row = view->row_stride,
        .column = view->column_stride,
        .channels = view->channels,
        .sample_bytes = (int32_t)conv_sample_bytes(view->sample),
        .alpha = view->has_alpha && view->channels > 1,
    };
    for (int c = 0; c < view->channels; c++)
        layout.channel[c] = (uint8_t *)view->data + c * view->channel_stride;
    return layout;
}

struct conv_layout_view conv_cuda_view_planes(uint8_t *memory, int width, int height, int channels,
                                              int depth, bool alpha)
{
    size_t bytes = conv_image_plane_bytes(width, height, depth);
    struct conv_layout_view layout = {
        .row = (int64_t)conv_image_stride(width, depth),
        .column = depth / 8,
        .channels = channels,
        .sample_bytes = depth / 8,
        .alpha = alpha,
        .padded = true,
    };
    for (int c = 0; c < channels; c++)
        layout.channel[c] = memory + (size_t)c * bytes;
    return layout;
}

bool conv_cuda_view_is_aligned(const conv_image *view, bool whole)
{
    int64_t sample = conv_sample_bytes(view->sample);
    uintptr_t all = (uintptr_t)view->data | (uintptr_t)view->row_stride;
    if (view->channels > 1)
        all |= (uintptr_t)view->channel_stride;
    if (whole)
        all |= (uintptr_t)(view->width * sample);
    // Rows of a view that is only read may overlap.
    return view->column_stride == sample && view->row_stride >= view->width * sample &&
           all % CONV_IMAGE_ROW_ALIGN == 0;
}

enum conv_status conv_cuda_copies_flush(struct conv_cuda_copies *copies, struct conv_err *err)
{
    int count = copies->count;
    copies->count = 0;
    return count > 0 && conv_cuda_layout_copy(copies->list, count, copies->stream)
               ? conv_cuda_device_report(err, cudaGetLastError(), "launch kernel copy_layout")
               : CONV_OK;
}

enum conv_status conv_cuda_copies_add(struct conv_cuda_copies *copies,
                                      const struct conv_layout_copy *copy, struct conv_err *err)
{
    copies->list[copies->count++] = *copy;
    return copies->count == CONV_CUDA_COPIES ? conv_cuda_copies_flush(copies, err) : CONV_OK;
}

// --- tables --------------------------------------------------------------------------------------

// The upload of a table must not stop the caller, so it is copied from pinned memory, which stays
// until the device has read it. A filter that runs on the same images again finds its table there.

// A table for up to 46 planes. Memory for all such tables is taken at once, so that later calls
// take none, however fast they follow each other.
#define SMALL_BYTES ((size_t)4 << 10)

static void free_pair(uint8_t *h_data, uint8_t *d_data)
{
    if (h_data)
        (void)cudaFreeHost(h_data); // nothing can be done about failures
    if (d_data)
        (void)cudaFree(d_data);
}

static enum conv_status take_pair(uint8_t **h_data, uint8_t **d_data, size_t bytes,
                                  struct conv_err *err)
{
    void *h_new = NULL, *d_new = NULL;
    cudaError_t code = cudaHostAlloc(&h_new, bytes, cudaHostAllocDefault);
    if (code)
        return conv_cuda_device_report(err, code, "allocate pinned memory for tables");
    code = cudaMalloc(&d_new, bytes);
    if (code) {
        (void)cudaFreeHost(h_new);
        return conv_cuda_device_report(err, code, "allocate memory for tables");
    }
    *h_data = h_new;
    *d_data = d_new;
    return CONV_OK;
}

void conv_cuda_table_free(struct conv_cuda_table_cache *tables)
{
    for (int i = 0; i < tables->count; i++) {
        struct conv_cuda_table *table = &tables->table[i];
        if (table->large)
            free_pair(table->h_data, table->d_data);
        conv_cuda_event_destroy(&table->used);
    }
    free_pair(tables->h_block, tables->d_block);
    *tables = (struct conv_cuda_table_cache){0};
}

// Memory of its own for a table that no work reads; its content is lost.
static enum conv_status grow(struct conv_cuda_table *table, size_t bytes, struct conv_err *err)
{
    uint8_t *h_data = NULL, *d_data = NULL;
    size_t capacity = (bytes + bytes / 4 + SMALL_BYTES - 1) / SMALL_BYTES * SMALL_BYTES;
    enum conv_status status = take_pair(&h_data, &d_data, capacity, err);
    if (status)
        return status;
    if (table->large)
        free_pair(table->h_data, table->d_data);
    table->h_data = h_data;
    table->d_data = d_data;
    table->capacity = capacity;
    table->bytes = 0;
    table->large = true;
    return CONV_OK;
}

static struct conv_cuda_table *find_equal(struct conv_cuda_table_cache *tables, const void *content,
                                          size_t bytes)
{
    // The most recent tables are compared first.
    for (int i = 1; i <= tables->count; i++) {
        int at = (tables->next - i + tables->count) % tables->count;
        struct conv_cuda_table *table = &tables->table[at];
        if (table->bytes == bytes && memcmp(table->h_data, content, bytes) == 0)
            return table;
    }
    return NULL;
}

// A table that no work reads any more. The oldest is the first to become free.
static enum conv_status find_free(struct conv_cuda_table_cache *tables,
                                  struct conv_cuda_table **out, struct conv_err *err)
{
    cudaError_t code = cudaSuccess;
    if (tables->count > 0) {
        struct conv_cuda_table *oldest = &tables->table[tables->next % tables->count];
        code = tables->count < CONV_CUDA_TABLES ? cudaEventQuery(oldest->used)
                                                : cudaEventSynchronize(oldest->used);
        if (!code) {
            tables->next = (tables->next + 1) % tables->count;
            *out = oldest;
            return CONV_OK;
        }
    }
    if (code && code != cudaErrorNotReady)
        return conv_cuda_device_report(err, code, "wait for a filter");
    (void)cudaGetLastError();
    // All are in use: adds another one, which is the most recent.
    struct conv_cuda_table *added = &tables->table[tables->count];
    enum conv_status status = tables->h_block ? CONV_OK
                                              : take_pair(&tables->h_block, &tables->d_block,
                                                          CONV_CUDA_TABLES * SMALL_BYTES, err);
    if (!status)
        status = make_event(&added->used, err);
    if (status)
        return status;
    added->h_data = tables->h_block + (size_t)tables->count * SMALL_BYTES;
    added->d_data = tables->d_block + (size_t)tables->count * SMALL_BYTES;
    added->capacity = SMALL_BYTES;
    tables->count++;
    // The order of use starts again, which costs one more table at most.
    tables->next = 0;
    *out = added;
    return CONV_OK;
}

enum conv_status conv_cuda_table_get(struct conv_cuda_table_cache *tables, const void *content,
                                     size_t bytes, cudaStream_t stream,
                                     struct conv_cuda_table **out, struct conv_err *err)
{
    struct conv_cuda_table *table = find_equal(tables, content, bytes);
    cudaError_t code = cudaSuccess;
    if (table) {
        // Its last use may be on another stream, and kernels keep counters in it. Comparing streams
        // does not help: a new one may have the address of one that has been destroyed. Only the
        // default stream is always the same.
        if (stream != NULL || !table->on_default)
            code = cudaStreamWaitEvent(stream, table->used, 0);
    } else {
        enum conv_status status = find_free(tables, &table, err);
        if (!status && bytes > table->capacity)
            status = grow(table, bytes, err);
        if (status)
            return status;
        memcpy(table->h_data, content, bytes);
        table->bytes = bytes;
        code = cudaMemcpyAsync(table->d_data, table->h_data, bytes, cudaMemcpyHostToDevice, stream);
    }
    if (code)
        return conv_cuda_device_report(err, code, "copy a table to the device");
    *out = table;
    return CONV_OK;
}

enum conv_status conv_cuda_table_used(struct conv_cuda_table *table, cudaStream_t stream,
                                      struct conv_err *err)
{
    table->on_default = stream == NULL;
    return conv_cuda_event_record(table->used, stream, err);
}
