// SPDX-License-Identifier: MIT
// The CUDA backend: opens a device, uploads the chain's filters and pins staging memory; and for
// calls of the library a device, its memory and events.
#include "engine/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/stencil/cuda/cuda_variants.h"

// --- chains of filters ---------------------------------------------------------------------------

#define OLDEST_CAPABILITY 75 // the oldest that the build has code for, and that CUDA 13 supports

// False where a sanitizer reports memory that was not freed (tests/emulated).
#ifndef CONV_CUDA_FREED_AT_EXIT
#define CONV_CUDA_FREED_AT_EXIT true
#endif

enum conv_status conv_cuda_plans_upload(uint8_t **d_memory, struct conv_stencil_plan *const *plans,
                                        int count, struct conv_err *err)
{
    size_t each = conv_cuda_upload_bytes();
    cudaError_t code = cudaMalloc((void **)d_memory, (size_t)count * each);
    if (code)
        return conv_cuda_device_report(err, code, "allocate memory for the filters");
    for (int i = 0; i < count; i++)
        if (conv_cuda_upload(plans[i], *d_memory + (size_t)i * each))
            return conv_cuda_device_report(err, cudaGetLastError(),
                                           "copy the filters to the device");
    return CONV_OK;
}

enum conv_status conv_cuda_plan_launch(const struct conv_stencil_plan *plan,
                                       const struct conv_stencil_batch *batch, struct conv_err *err)
{
    char doing[96];
    if (plan->variant->run(plan, batch) == CONV_OK)
        return CONV_OK;
    snprintf(doing, sizeof doing, "launch kernel %s", plan->variant->name);
    return conv_cuda_device_report(err, cudaGetLastError(), doing);
}

static enum conv_status upload_chain(struct conv_backend *backend, int depths, struct conv_err *err)
{
    struct conv_stencil_plan *plans[CONV_FILTER_MAX_CHAIN * CONV_CHAIN_DEPTHS];
    int count = depths * backend->op_count;
    for (int i = 0; i < count; i++)
        plans[i] = &backend->chain[i / depths].plan[i % depths];
    return conv_cuda_plans_upload(&backend->d_stencils, plans, count, err);
}

static enum conv_status prepare_chain(struct conv_backend *backend,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err)
{
    int capability;
    enum conv_status status = conv_cuda_device_capability(backend->device, &capability, err);
    if (status)
        return status;
    if (capability < OLDEST_CAPABILITY)
        return conv_err_set(err, CONV_ERR_DEVICE,
                            "CUDA device %d has compute capability %d.%d; 7.5 (Turing) is needed",
                            backend->device, capability / 10, capability % 10);
    status = conv_cuda_device_use(backend->device, err);
    if (status)
        return status;
    status = conv_chain_prepare(backend->chain, config, CONV_ON_CUDA, (unsigned)capability, err);
    return status ? status : upload_chain(backend, conv_chain_depths(config), err);
}

// Lets the device read the word that a signal handler writes. Where that is impossible, the end of
// a run waits for the groups on the device.
static void map_stop(struct conv_backend *backend, atomic_int *stop)
{
    _Static_assert(sizeof *stop == sizeof *backend->d_stop, "kernels read 32 bits");
    if (!stop)
        return;
    cudaError_t code =
        cudaHostRegister(stop, sizeof *stop, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (!code)
        backend->stop = stop; // otherwise the backend of another device may have mapped it
    void *d_stop = NULL;
    if ((!code || code == cudaErrorHostMemoryAlreadyRegistered) &&
        cudaHostGetDevicePointer(&d_stop, stop, 0) == cudaSuccess)
        backend->d_stop = d_stop;
    (void)cudaGetLastError();
}

static void close_chain(struct conv_backend *backend)
{
    // Nothing can be done about a failure to free, here and below.
    if (backend->stop && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaHostUnregister(backend->stop);
    if (backend->d_stencils && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaFree(backend->d_stencils);
    free(backend);
}

// A stream and its coders take 15 times the bytes of a group of photographs. Streams with several
// groups at once may take this part of the device's memory, and half of what is unused.
#define STREAM_BYTES 16
#define MOST_STREAMS 8
#define PART_OF_MEMORY 4

// More images per launch are decoded and encoded faster.
static enum conv_status choose_together(struct conv_backend *backend, size_t group_bytes,
                                        struct conv_err *err)
{
    size_t unused = 0, all = 0;
    cudaError_t code = cudaMemGetInfo(&unused, &all);
    if (code)
        return conv_cuda_device_report(err, code, "read the device's memory");
    size_t each = STREAM_BYTES * MOST_STREAMS * (group_bytes ? group_bytes : 1);
    size_t most = (all / PART_OF_MEMORY < unused / 2 ? all / PART_OF_MEMORY : unused / 2) / each;
    backend->together = most < 1                            ? 1
                        : most < CONV_BACKEND_MOST_TOGETHER ? (int)most
                                                            : CONV_BACKEND_MOST_TOGETHER;
    return CONV_OK;
}

static enum conv_status open_chain(struct conv_backend **out,
                                   const struct conv_backend_config *config, struct conv_err *err)
{
    enum conv_status status = conv_cuda_device_check(config->device, err);
    if (status)
        return status;

    size_t chain_size = (size_t)config->filter_count * sizeof(struct conv_chain_op);
    struct conv_backend *backend = calloc(1, sizeof *backend + chain_size);
    if (!backend)
        return conv_err_memory(err, "no memory for the filters");
    backend->device = config->device;
    backend->context = config->context;
    backend->op_count = config->filter_count;
    backend->premultiplied = config->alpha == CONV_ALPHA_PREMULTIPLY;
    backend->alpha_kept = config->alpha_kept;
    status = prepare_chain(backend, config, err);
    if (!status)
        status = choose_together(backend, config->launch_bytes, err);
    if (!status)
        map_stop(backend, config->stop);
    if (status)
        close_chain(backend);
    else
        *out = backend;
    return status;
}

static void cuda_close(struct conv_backend *backend)
{
    if (!backend)
        return;
    conv_cuda_views_close(backend->views);
    close_chain(backend);
}

static enum conv_status cuda_open(struct conv_backend **out,
                                  const struct conv_backend_config *config, struct conv_err *err)
{
    struct conv_backend *backend = NULL;
    enum conv_status status = open_chain(&backend, config, err);
    if (!status && config->context)
        status = conv_cuda_views_open(&backend->views, backend, config, err);
    if (status)
        cuda_close(backend);
    else
        *out = backend;
    return status;
}

static const char *cuda_variant(const struct conv_backend *backend, int index, int depth)
{
    return backend->chain[index].plan[conv_chain_at(depth)].variant->name;
}

// A stream and its coders take some ten times the bytes of a group. Half of the memory is left for
// other processes.
static bool cuda_has_room(struct conv_backend *backend)
{
    size_t unused = 0, all = 0;
    if (cudaSetDevice(backend->device) == cudaSuccess &&
        cudaMemGetInfo(&unused, &all) == cudaSuccess)
        return unused >= all / 2;
    (void)cudaGetLastError();
    return false;
}

// The driver sets up every visible device when it starts, one after the other: 0.1 s for each H200.
static void show_first_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char first[64] = "0";
    size_t size = visible ? strcspn(visible, ",") : 0;
    if (visible && (!visible[size] || size >= sizeof first))
        return; // one or none
    if (visible)
        snprintf(first, sizeof first, "%.*s", (int)size, visible);
    (void)setenv("CUDA_VISIBLE_DEVICES", first, true);
}

static int cuda_together(const struct conv_backend *backend)
{
    return backend->together;
}

// By default the driver opens several channels for each kind of copy. With one, a process starts
// 26 ms and ends 16 ms sooner (H100); copies in one direction run one after the other anyway.
static void cuda_set_up_process(bool first_only)
{
    (void)setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "1", false); // a failure only costs this time
    if (first_only)
        show_first_device();
}

static bool cuda_host_pin(struct conv_backend *backend, void *memory, size_t size)
{
    return conv_cuda_memory_pin(backend->device, memory, size);
}

static bool cuda_host_unpin(struct conv_backend *backend, void *memory)
{
    return conv_cuda_memory_unpin(backend->device, memory);
}

// --- the current device --------------------------------------------------------------------------

// Makes the device current until cuda_leave, which restores the caller's.
static enum conv_status cuda_enter(struct conv_device_context *device, int *previous,
                                   struct conv_err *err)
{
    cudaError_t code = cudaGetDevice(previous);
    if (!code && *previous != device->ordinal)
        code = cudaSetDevice(device->ordinal);
    return conv_cuda_check(code, "select the device", err);
}

static void cuda_leave(struct conv_device_context *device, int previous)
{
    if (previous != device->ordinal)
        (void)cudaSetDevice(previous);
}

// --- opening -------------------------------------------------------------------------------------

static void cuda_context_close(struct conv_device_context *device)
{
    conv_cuda_parts_close(device);
    conv_cuda_memory_free(&device->own->scratch.memory);
    conv_cuda_event_destroy(&device->own->scratch.used);
    conv_cuda_event_destroy(&device->own->order);
}

static enum conv_status cuda_context_open(struct conv_device_context *device, struct conv_err *err)
{
    int previous;
    size_t unused;
    enum conv_status status = conv_cuda_device_check(device->ordinal, err);
    if (status)
        return status;
    device->own = calloc(1, sizeof *device->own);
    if (!device->own)
        return conv_err_memory(err, "out of memory");
    status = cuda_enter(device, &previous, err);
    if (status)
        return status;
    status = conv_cuda_event_create(&device->own->order, cudaEventDisableTiming, err);
    if (!status)
        status = conv_cuda_event_create(&device->own->scratch.used, cudaEventDisableTiming, err);
    cudaError_t code = status ? cudaSuccess : cudaMemGetInfo(&unused, &device->own->memory);
    if (code)
        status = conv_cuda_device_report(err, code, "read the device's memory");
    cuda_leave(device, previous);
    return status;
}

static enum conv_status cuda_synchronise(struct conv_device_context *device, struct conv_err *err)
{
    (void)device;
    return conv_cuda_check(cudaDeviceSynchronize(), "complete the work of the device", err);
}

// --- memory --------------------------------------------------------------------------------------

static enum conv_status cuda_allocate(struct conv_device_context *, size_t bytes, void **data,
                                      struct conv_err *err)
{
    struct conv_cuda_memory block = {0};
    enum conv_status status = conv_cuda_memory_reserve(&block, bytes, 0, "for images", err);
    *data = block.d_data;
    return status;
}

static void cuda_release(struct conv_device_context *device, void *data)
{
    int previous;
    if (!cuda_enter(device, &previous, NULL)) {
        (void)cudaFree(data); // nothing can be done about a failure
        cuda_leave(device, previous);
    }
}

// --- events --------------------------------------------------------------------------------------

static enum conv_status cuda_event_record(struct conv_device_context *, void **event, void *stream,
                                          struct conv_err *err)
{
    cudaEvent_t cuda = *event;
    enum conv_status status =
        cuda ? CONV_OK : conv_cuda_event_create(&cuda, cudaEventDisableTiming, err);
    *event = cuda;
    return status ? status : conv_cuda_event_record(cuda, stream, err);
}

static enum conv_status cuda_event_wait(struct conv_device_context *, void *event, void *stream,
                                        struct conv_err *err)
{
    return conv_cuda_check(cudaStreamWaitEvent(stream, event, 0), "order the work of streams", err);
}

static void cuda_event_destroy(struct conv_device_context *, void *event)
{
    if (event)
        (void)cudaEventDestroy(event);
}

static enum conv_status cuda_stream_wait(struct conv_device_context *, void *stream,
                                         struct conv_err *err)
{
    return conv_cuda_check(cudaStreamSynchronize(stream), "complete the work of a stream", err);
}

// --- the table -----------------------------------------------------------------------------------

const struct conv_device_ops conv_device_cuda = {
    .name = "cuda",
    .title = "CUDA",
    .place = CONV_ON_CUDA,
    .built = true,
    .async = true,
    .freed_at_exit = CONV_CUDA_FREED_AT_EXIT,
    .set_up_process = cuda_set_up_process,
    .has_driver = conv_cuda_device_has_driver,
    .devices = conv_cuda_device_list,
    .read_memory = conv_cuda_device_read_memory,
    .open = cuda_open,
    .close = cuda_close,
    .variant = cuda_variant,
    .table_bytes = conv_cuda_stream_table_bytes,
    .takes_stream = conv_cuda_coder_takes_stream,
    .encoded_bytes = conv_cuda_coder_encoded_bytes,
    .host_pin = cuda_host_pin,
    .host_unpin = cuda_host_unpin,
    .stream_open = conv_cuda_stream_open,
    .stream_close = conv_cuda_stream_close,
    .has_room = cuda_has_room,
    .together = cuda_together,
    .stream_run = conv_cuda_stream_run,
    .context_open = cuda_context_open,
    .context_close = cuda_context_close,
    .synchronise = cuda_synchronise,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_destroy = cuda_event_destroy,
    .stream_wait = cuda_stream_wait,
    .copy_bytes = conv_cuda_context_copy_bytes,
    .copy = conv_cuda_context_copy,
    .decode = conv_cuda_context_decode,
    .encode = conv_cuda_context_encode,
    .filter_run = conv_cuda_filter_run,
    .tensors = &conv_cuda_tensors,
};
