// SPDX-License-Identifier: MIT
#include "engine/engine.h"

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
