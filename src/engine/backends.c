// SPDX-License-Identifier: MIT
#include "engine/backends.h"

#include <string.h>

const struct conv_backend_ops *const conv_backends[CONV_BACKENDS] = {
    [CONV_ON_CPU] = &conv_backend_cpu,
    [CONV_ON_CUDA] = &conv_backend_cuda,
};

const struct conv_backend_ops *conv_backends_find(const struct conv_backend_ops *const *backends,
                                                  const char *name, size_t size)
{
    for (int i = 0; i < CONV_BACKENDS; i++)
        if (strlen(backends[i]->name) == size && memcmp(backends[i]->name, name, size) == 0)
            return backends[i];
    return NULL;
}

const struct conv_backend_ops *
conv_backends_of_kernel(const struct conv_backend_ops *const *backends, const char *kernel)
{
    size_t size = strcspn(kernel, "_");
    return kernel[size] ? conv_backends_find(backends, kernel, size) : NULL;
}

const struct conv_backend_ops *conv_backends_gpu(const struct conv_backend_ops *const *backends)
{
    // The check for a driver loads it, which takes time, so it is made only if there is a choice.
    const struct conv_backend_ops *first = NULL;
    int count = 0;
    for (int i = CONV_BACKENDS - 1; i >= 0; i--) {
        if (backends[i]->place != CONV_ON_CPU) {
            first = backends[i];
            count++;
        }
    }
    for (int i = 0; i < CONV_BACKENDS && count > 1; i++)
        if (backends[i]->place != CONV_ON_CPU && backends[i]->has_driver())
            return backends[i];
    return first;
}
