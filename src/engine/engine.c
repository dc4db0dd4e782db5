// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

const struct conv_device_ops *const conv_engine_devices[CONV_ENGINE_DEVICES] = {
    [CONV_ON_CPU] = &conv_device_cpu,
    [CONV_ON_CUDA] = &conv_device_cuda,
};

const struct conv_device_ops *conv_engine_find(const struct conv_device_ops *const *backends,
                                               const char *name, size_t size)
{
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (strlen(backends[i]->name) == size && memcmp(backends[i]->name, name, size) == 0)
            return backends[i];
    return NULL;
}

const struct conv_device_ops *conv_engine_of_kernel(const struct conv_device_ops *const *backends,
                                                    const char *kernel)
{
    size_t size = strcspn(kernel, "_");
    return kernel[size] ? conv_engine_find(backends, kernel, size) : NULL;
}

const struct conv_device_ops *conv_engine_gpu(const struct conv_device_ops *const *backends)
{
    // The check for a driver loads it, which takes time, so it is made only if there is a choice.
    const struct conv_device_ops *first = NULL;
    int count = 0;
    for (int i = CONV_ENGINE_DEVICES - 1; i >= 0; i--) {
        if (backends[i]->place != CONV_ON_CPU) {
            first = backends[i];
            count++;
        }
    }
    for (int i = 0; i < CONV_ENGINE_DEVICES && count > 1; i++)
        if (backends[i]->place != CONV_ON_CPU && backends[i]->has_driver())
            return backends[i];
    return first;
}

// --- a device with memory and threads -----------------------------------------------------------

enum conv_status conv_device_context_open(struct conv_device_context **out,
                                          const struct conv_device_ops *ops, int ordinal,
                                          int threads, size_t keep, struct conv_err *err)
{
    struct conv_device_context *device = calloc(1, sizeof *device);
    if (!device)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    *device = (struct conv_device_context){.ops = ops, .ordinal = ordinal, .threads = threads};
    enum conv_status status = conv_workers_open(&device->workers, threads, err);
    if (!status)
        status = conv_memory_open(&device->pools, device, keep, err);
    if (!status && ops->context_open)
        status = ops->context_open(device, err);
    if (status)
        conv_device_context_close(device);
    else
        *out = device;
    return status;
}

void conv_device_context_close(struct conv_device_context *device)
{
    struct conv_err err;
    if (!device)
        return;
    conv_workers_close(device->workers);
    if (device->own)
        (void)device->ops->synchronise(device, &err); // a lost device has nothing to do
    conv_memory_close(device->pools);
    if (device->ops->context_close)
        device->ops->context_close(device);
    free(device);
}
