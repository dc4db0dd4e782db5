// SPDX-License-Identifier: MIT
// The CUDA tenant: prepares the chain's filters on a device and pins staging memory.
#include "backend/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/stencil/cuda/cuda_variants.h"

#define OLDEST_CAPABILITY 75 // what the build has code for, and toolkits since CUDA 13 at all

static enum conv_status prepare_step(struct conv_backend *backend, int index,
                                     const struct conv_backend_config *config, int capability,
                                     struct conv_err *err)
{
    struct conv_cuda_step *step = &backend->steps[index];
    for (int d = 0; d < 2; d++)
        conv_stencil_init(&step->stencil[d], &config->filters[index], d ? 16 : 8, config->border,
                          config->border_value);
    enum conv_status status = conv_backend_pick(step->plan, step->stencil, CONV_ON_CUDA,
                                                (unsigned)capability, config, err);
    for (int d = 0; d < 2 && !status; d++) {
        size_t at = (size_t)(2 * index + d) * conv_cuda_upload_bytes();
        if (conv_cuda_upload(&step->stencil[d], backend->d_stencils + at))
            status =
                conv_cuda_device_report(err, cudaGetLastError(), "copy the filters to the device");
    }
    return status;
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
    size_t bytes = 2 * (size_t)backend->step_count * conv_cuda_upload_bytes();
    cudaError_t code = cudaMalloc((void **)&backend->d_stencils, bytes);
    if (code)
        return conv_cuda_device_report(err, code, "take memory for the filters");
    for (int i = 0; !status && i < backend->step_count; i++)
        status = prepare_step(backend, i, config, capability, err);
    return status;
}

// Lets the device read the word that a signal handler writes. Where that is not possible, groups
// that are on the device are waited for.
static void map_stop(struct conv_backend *backend, atomic_int *stop)
{
    _Static_assert(sizeof *stop == sizeof *backend->d_stop, "kernels read 32 bits");
    if (!stop)
        return;
    cudaError_t code =
        cudaHostRegister(stop, sizeof *stop, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (!code)
        backend->stop = stop; // else the backend of another device may have mapped it
    void *d_stop = NULL;
    if ((!code || code == cudaErrorHostMemoryAlreadyRegistered) &&
        cudaHostGetDevicePointer(&d_stop, stop, 0) == cudaSuccess)
        backend->d_stop = d_stop;
    (void)cudaGetLastError();
}

static void cuda_close(struct conv_backend *backend)
{
    if (!backend)
        return;
    // Nothing can be done about a failure to free, here and below.
    if (backend->stop && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaHostUnregister(backend->stop);
    if (backend->d_stencils && cudaSetDevice(backend->device) == cudaSuccess)
        (void)cudaFree(backend->d_stencils);
    free(backend);
}

static enum conv_status cuda_open(struct conv_backend **out,
                                  const struct conv_backend_config *config, struct conv_err *err)
{
    int devices;
    enum conv_status status = conv_cuda_device_count(&devices, err);
    if (status)
        return status;
    if (config->device < 0 || config->device >= devices)
        return conv_err_set(err, CONV_ERR_DEVICE, "no CUDA device %d: the devices are 0 to %d",
                            config->device, devices - 1);

    size_t steps_size = (size_t)config->filter_count * sizeof(struct conv_cuda_step);
    struct conv_backend *backend = calloc(1, sizeof *backend + steps_size);
    if (!backend)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the filters");
    backend->device = config->device;
    backend->step_count = config->filter_count;
    backend->premultiplied = config->alpha == CONV_ALPHA_PREMULTIPLY;
    status = prepare_chain(backend, config, err);
    if (!status)
        map_stop(backend, config->stop);
    if (status)
        cuda_close(backend);
    else
        *out = backend;
    return status;
}

static void cuda_describe(const struct conv_backend *backend, char *text, size_t size)
{
    snprintf(text, size, "cuda:%d", backend->device);
}

static const char *cuda_variant(const struct conv_backend *backend, int step, int depth)
{
    return backend->steps[step].plan[depth == 16].variant->name;
}

static bool cuda_host_pin(struct conv_backend *backend, void *memory, size_t size)
{
    return conv_cuda_memory_pin(backend->device, memory, size);
}

static bool cuda_host_unpin(struct conv_backend *backend, void *memory)
{
    return conv_cuda_memory_unpin(backend->device, memory);
}

static const struct conv_backend_ops cuda_ops = {
    .name = "cuda",
    .async = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .variant = cuda_variant,
    .table_bytes = conv_cuda_stream_table_bytes,
    .takes_stream = conv_cuda_coder_takes_stream,
    .chunks_bytes = conv_cuda_coder_chunks_bytes,
    .host_pin = cuda_host_pin,
    .host_unpin = cuda_host_unpin,
    .stream_open = conv_cuda_stream_open,
    .stream_close = conv_cuda_stream_close,
    .stream_run = conv_cuda_stream_run,
    .stream_again = conv_cuda_stream_again,
    .stream_copy = conv_cuda_stream_copy,
    .time_copies = conv_cuda_copies_time,
    .time_coding = conv_cuda_coding_time,
};

const struct conv_backend_ops *conv_backend_cuda(void)
{
    return &cuda_ops;
}

bool conv_backend_cuda_has_driver(void)
{
    return conv_cuda_device_has_driver();
}

enum conv_status conv_backend_cuda_devices(struct conv_device_info *info, int room, int *count,
                                           struct conv_err *err)
{
    return conv_cuda_device_list(info, room, count, err);
}
