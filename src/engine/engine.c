// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

const struct conv_device_ops *const conv_engine_devices[CONV_ENGINE_DEVICES] = {
    [CONV_ON_CPU] = &conv_device_cpu,
    [CONV_ON_CUDA] = &conv_device_cuda,
};

const struct conv_device_ops *conv_engine_parse(const struct conv_device_ops *const *backends,
                                                const char *text, size_t size, int *ordinal)
{
    const char *colon = memchr(text, ':', size);
    size_t name = colon ? (size_t)(colon - text) : size, digits = colon ? size - name - 1 : 0;
    *ordinal = 0;
    for (size_t i = 0; i < digits && i < 5; i++)
        *ordinal = 10 * *ordinal + (colon[1 + i] - '0');
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (strlen(backends[i]->name) == name && memcmp(backends[i]->name, text, name) == 0)
            return !colon || (i != CONV_ON_CPU && digits > 0 && digits < 6 &&
                              strspn(colon + 1, "0123456789") >= digits)
                       ? backends[i]
                       : NULL;
    return NULL;
}

// --- a device with memory and threads -----------------------------------------------------------

enum conv_status conv_device_context_open(struct conv_device_context **out,
                                          const struct conv_device_ops *ops, int ordinal,
                                          int threads, size_t keep, struct conv_err *err)
{
    struct conv_device_context *device = calloc(1, sizeof *device);
    if (!device)
        return conv_err_memory(err, "out of memory");
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
    int previous;
    if (!device)
        return;
    conv_workers_close(device->workers);
    bool entered = device->own && !device->ops->enter(device, &previous, NULL);
    if (entered)
        (void)device->ops->synchronise(device, NULL); // a lost device has nothing to do
    conv_memory_close(device->pools);
    if (entered) {
        device->ops->context_close(device);
        device->ops->leave(device, previous);
    }
    free(device->own);
    free(device);
}

// --- opening on a separate thread ----------------------------------------------------------------

struct conv_async_open {
    const struct conv_device_ops *ops;
    struct conv_backend_config config;
    struct conv_backend *backend;
    struct conv_err err;
    atomic_bool over;      // set after the two above
    struct conv_lock lock; // guards the next two, has_thread, and `over` becoming true
    void (*notify)(void *context);
    void *context;
    pthread_cond_t is_over;
    bool has_thread;
    pthread_t thread;
    struct conv_filter filters[];
};

static void *open_main(void *argument)
{
    struct conv_async_open *async = argument;
    async->err.status = async->ops->open(&async->backend, &async->config, &async->err);
    conv_lock_acquire(&async->lock);
    atomic_store(&async->over, true);
    if (async->notify)
        async->notify(async->context);
    pthread_cond_broadcast(&async->is_over);
    conv_lock_release(&async->lock);
    return NULL;
}

enum conv_status conv_async_open_start(struct conv_async_open **out,
                                       const struct conv_device_ops *ops,
                                       const struct conv_backend_config *config,
                                       struct conv_err *err)
{
    size_t filters_size = (size_t)config->filter_count * sizeof config->filters[0];
    struct conv_async_open *async = calloc(1, sizeof *async + filters_size);
    if (!async)
        return conv_err_memory(err, "no memory to open a device");
    async->ops = ops;
    async->config = *config;
    async->config.filters = async->filters;
    memcpy(async->filters, config->filters, filters_size);
    conv_lock_init(&async->lock);
    conv_lock_init_condition(&async->is_over);
    async->has_thread = pthread_create(&async->thread, NULL, open_main, async) == 0;
    if (!async->has_thread)
        open_main(async);
    *out = async;
    return CONV_OK;
}

void conv_async_open_set_notify(struct conv_async_open *async, void (*notify)(void *context),
                                void *context)
{
    conv_lock_acquire(&async->lock);
    async->notify = notify;
    async->context = context;
    if (notify && atomic_load(&async->over))
        notify(context);
    conv_lock_release(&async->lock);
}

bool conv_async_open_is_over(const struct conv_async_open *async)
{
    return atomic_load(&async->over);
}

enum conv_status conv_async_open_result(struct conv_async_open *async,
                                        struct conv_backend **backend, struct conv_err *err)
{
    conv_lock_acquire(&async->lock);
    while (!atomic_load(&async->over))
        (void)conv_lock_wait(&async->lock, &async->is_over, UINT64_MAX);
    // A program that ends after its run does not close the device. The thread has released the
    // lock.
    if (async->has_thread)
        pthread_join(async->thread, NULL);
    async->has_thread = false;
    conv_lock_release(&async->lock);
    *backend = async->backend;
    return async->err.status ? conv_err_set(err, async->err.status, "%s", async->err.text)
                             : CONV_OK;
}

bool conv_async_open_close(struct conv_async_open *async)
{
    if (!async)
        return true;
    if (!conv_async_open_is_over(async)) {
        pthread_detach(async->thread);
        return false;
    }
    if (async->has_thread)
        pthread_join(async->thread, NULL);
    if (async->backend)
        async->ops->close(async->backend);
    conv_lock_destroy(&async->lock);
    pthread_cond_destroy(&async->is_over);
    free(async);
    return true;
}
