// SPDX-License-Identifier: MIT
// A CUDA device for images in its memory: opening it, its memory, events, and views of its memory.
#include "engine/cuda_context.h"

#include <stdio.h>
#include <stdlib.h>

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

enum conv_status conv_cuda_context_event(cudaEvent_t *event, struct conv_err *err)
{
    cudaError_t code = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    if (!code)
        return CONV_OK;
    *event = NULL;
    return conv_cuda_device_report(err, code, "make an event");
}

void conv_cuda_context_close(struct conv_device_context *device)
{
    int previous;
    struct conv_err err;
    if (device->own && !conv_cuda_context_enter(device, &previous, &err)) {
        conv_cuda_parts_close(device);
        conv_cuda_memory_free(&device->own->scratch.memory);
        conv_cuda_event_destroy(&device->own->scratch.used);
        conv_cuda_event_destroy(&device->own->order);
        conv_cuda_context_leave(device, previous);
    }
    free(device->own);
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
    status = conv_cuda_context_event(&device->own->order, err);
    if (!status)
        status = conv_cuda_context_event(&device->own->scratch.used, err);
    cudaError_t code = status ? cudaSuccess : cudaMemGetInfo(&unused, &device->own->memory);
    if (code)
        status = conv_cuda_device_report(err, code, "read the device's memory");
    conv_cuda_context_leave(device, previous);
    return status;
}

// Restores the caller's device after a call of CUDA.
static enum conv_status end_call(struct conv_device_context *device, int previous, cudaError_t code,
                                 const char *doing, struct conv_err *err)
{
    enum conv_status status = code ? conv_cuda_device_report(err, code, doing) : CONV_OK;
    conv_cuda_context_leave(device, previous);
    return status;
}

enum conv_status conv_cuda_context_synchronise(struct conv_device_context *device,
                                               struct conv_err *err)
{
    int previous;
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    return status ? status
                  : end_call(device, previous, cudaDeviceSynchronize(),
                             "complete the work of the device", err);
}

// --- memory --------------------------------------------------------------------------------------

enum conv_status conv_cuda_context_allocate(struct conv_device_context *device, size_t bytes,
                                            void **data, struct conv_err *err)
{
    int previous;
    struct conv_cuda_memory block = {0};
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    if (status)
        return status;
    status = conv_cuda_memory_reserve(&block, bytes, 0, "for images", err);
    conv_cuda_context_leave(device, previous);
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
    int previous;
    cudaEvent_t cuda = *event;
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    if (status)
        return status;
    if (!cuda)
        status = conv_cuda_context_event(&cuda, err);
    *event = cuda;
    if (!status)
        status = conv_cuda_event_record(cuda, stream, err);
    conv_cuda_context_leave(device, previous);
    return status;
}

enum conv_status conv_cuda_context_wait_event(struct conv_device_context *device, void *event,
                                              void *stream, struct conv_err *err)
{
    int previous;
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    return status ? status
                  : end_call(device, previous, cudaStreamWaitEvent(stream, event, 0),
                             "order the work of streams", err);
}

void conv_cuda_context_destroy_event(struct conv_device_context *device, void *event)
{
    int previous;
    struct conv_err err;
    if (event && !conv_cuda_context_enter(device, &previous, &err)) {
        (void)cudaEventDestroy(event);
        conv_cuda_context_leave(device, previous);
    }
}

enum conv_status conv_cuda_context_wait_stream(struct conv_device_context *device, void *stream,
                                               struct conv_err *err)
{
    int previous;
    enum conv_status status = conv_cuda_context_enter(device, &previous, err);
    return status ? status
                  : end_call(device, previous, cudaStreamSynchronize(stream),
                             "complete the work of a stream", err);
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
