// SPDX-License-Identifier: MIT
#include "backend/async_open.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct conv_async_open {
    const struct conv_backend_ops *ops;
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
    struct conv_async_open *opening = argument;
    opening->err.status = opening->ops->open(&opening->backend, &opening->config, &opening->err);
    pthread_mutex_lock(&opening->notify_lock);
    atomic_store(&opening->over, true);
    if (opening->notify)
        opening->notify(opening->context);
    pthread_mutex_unlock(&opening->notify_lock);
    return NULL;
}

enum conv_status conv_async_open_start(struct conv_async_open **out,
                                       const struct conv_backend_ops *ops,
                                       const struct conv_backend_config *config,
                                       struct conv_err *err)
{
    size_t filters_size = (size_t)config->filter_count * sizeof config->filters[0];
    struct conv_async_open *opening = calloc(1, sizeof *opening + filters_size);
    if (!opening)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to open a device");
    opening->ops = ops;
    opening->config = *config;
    opening->config.filters = opening->filters;
    memcpy(opening->filters, config->filters, filters_size);
    pthread_mutex_init(&opening->lock, NULL); // never fails on Linux
    pthread_mutex_init(&opening->notify_lock, NULL);
    opening->has_thread = pthread_create(&opening->thread, NULL, open_main, opening) == 0;
    if (!opening->has_thread)
        open_main(opening);
    *out = opening;
    return CONV_OK;
}

void conv_async_open_set_notify(struct conv_async_open *opening, void (*notify)(void *context),
                                void *context)
{
    pthread_mutex_lock(&opening->notify_lock);
    opening->notify = notify;
    opening->context = context;
    if (notify && atomic_load(&opening->over))
        notify(context);
    pthread_mutex_unlock(&opening->notify_lock);
}

bool conv_async_open_is_over(const struct conv_async_open *opening)
{
    return atomic_load(&opening->over);
}

enum conv_status conv_async_open_result(struct conv_async_open *opening,
                                        struct conv_backend **backend, struct conv_err *err)
{
    pthread_mutex_lock(&opening->lock);
    if (opening->has_thread && !opening->joined)
        pthread_join(opening->thread, NULL);
    opening->joined = true;
    pthread_mutex_unlock(&opening->lock);
    *backend = opening->backend;
    return opening->err.status ? conv_err_set(err, opening->err.status, "%s", opening->err.text)
                               : CONV_OK;
}

bool conv_async_open_close(struct conv_async_open *opening)
{
    struct conv_backend *backend = NULL;
    if (!opening)
        return true;
    if (!conv_async_open_is_over(opening)) {
        pthread_detach(opening->thread);
        return false;
    }
    if (conv_async_open_result(opening, &backend, NULL) == CONV_OK)
        opening->ops->close(backend);
    pthread_mutex_destroy(&opening->lock);
    pthread_mutex_destroy(&opening->notify_lock);
    free(opening);
    return true;
}
