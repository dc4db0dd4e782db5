// SPDX-License-Identifier: MIT
#include "engine/async_open.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct conv_async_open {
    const struct conv_device_ops *ops;
    struct conv_backend_config config;
    struct conv_backend *backend;
    struct conv_err err;
    atomic_bool over;            // set after the two above
    pthread_mutex_t notify_lock; // guards the two below, and `over` becoming true
    void (*notify)(void *context);
    void *context;
    pthread_mutex_t lock;
    bool joined; // guarded by the lock
    bool has_thread;
    pthread_t thread;
    struct conv_filter filters[];
};

static void *open_main(void *argument)
{
    struct conv_async_open *async = argument;
    async->err.status = async->ops->open(&async->backend, &async->config, &async->err);
    pthread_mutex_lock(&async->notify_lock);
    atomic_store(&async->over, true);
    if (async->notify)
        async->notify(async->context);
    pthread_mutex_unlock(&async->notify_lock);
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
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to open a device");
    async->ops = ops;
    async->config = *config;
    async->config.filters = async->filters;
    memcpy(async->filters, config->filters, filters_size);
    pthread_mutex_init(&async->lock, NULL); // never fails on Linux
    pthread_mutex_init(&async->notify_lock, NULL);
    async->has_thread = pthread_create(&async->thread, NULL, open_main, async) == 0;
    if (!async->has_thread)
        open_main(async);
    *out = async;
    return CONV_OK;
}

void conv_async_open_set_notify(struct conv_async_open *async, void (*notify)(void *context),
                                void *context)
{
    pthread_mutex_lock(&async->notify_lock);
    async->notify = notify;
    async->context = context;
    if (notify && atomic_load(&async->over))
        notify(context);
    pthread_mutex_unlock(&async->notify_lock);
}

bool conv_async_open_is_over(const struct conv_async_open *async)
{
    return atomic_load(&async->over);
}

enum conv_status conv_async_open_result(struct conv_async_open *async,
                                        struct conv_backend **backend, struct conv_err *err)
{
    pthread_mutex_lock(&async->lock);
    if (async->has_thread && !async->joined)
        pthread_join(async->thread, NULL);
    async->joined = true;
    pthread_mutex_unlock(&async->lock);
    *backend = async->backend;
    return async->err.status ? conv_err_set(err, async->err.status, "%s", async->err.text)
                             : CONV_OK;
}

bool conv_async_open_close(struct conv_async_open *async)
{
    struct conv_backend *backend = NULL;
    if (!async)
        return true;
    if (!conv_async_open_is_over(async)) {
        pthread_detach(async->thread);
        return false;
    }
    if (conv_async_open_result(async, &backend, NULL) == CONV_OK)
        async->ops->close(backend);
    pthread_mutex_destroy(&async->lock);
    pthread_mutex_destroy(&async->notify_lock);
    free(async);
    return true;
}
