// SPDX-License-Identifier: MIT
// The CPU as a device of the library.
#include <stdio.h>
#include <stdlib.h>

#include "api/api_device.h"
#include "api/api_filter_cpu.h"
#include "base/features.h"
#include "base/limits.h"

#define ALIGN 256

static enum conv_status list(struct conv_device_description *devices, int room, int *count,
                             struct conv_err *err)
{
    (void)err;
    *count = 1;
    if (room < 1)
        return CONV_OK;
    struct conv_limits limits;
    conv_limits_read(&limits);
    *devices = (conv_device_description){.device = "cpu", .memory = limits.memory};
    conv_cpu_model(devices->name, sizeof devices->name);
    return CONV_OK;
}

struct conv_api_device {
    struct conv_api_host host;
};

static enum conv_status open_cpu(struct conv_api_device **out, int ordinal,
                                 const struct conv_api_host *host, struct conv_err *err)
{
    (void)ordinal;
    struct conv_api_device *device = malloc(sizeof *device);
    if (!device)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    device->host = *host;
    *out = device;
    return CONV_OK;
}

static void close_cpu(struct conv_api_device *device)
{
    free(device);
}

static enum conv_status synchronise_cpu(struct conv_api_device *device, struct conv_err *err)
{
    (void)device;
    (void)err;
    return CONV_OK;
}

static enum conv_status enter_cpu(struct conv_api_device *device, int *previous,
                                  struct conv_err *err)
{
    (void)device;
    (void)err;
    *previous = 0;
    return CONV_OK;
}

static void leave_cpu(struct conv_api_device *device, int previous)
{
    (void)device;
    (void)previous;
}

static enum conv_status allocate(struct conv_api_device *device, conv_memory memory, size_t bytes,
                                 void **data, struct conv_err *err)
{
    (void)device;
    (void)memory;
    *data = aligned_alloc(ALIGN, bytes);
    return *data ? CONV_OK
                 : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu KiB", bytes >> 10);
}

static void release(struct conv_api_device *device, conv_memory memory, void *data, size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
    free(data);
}

static enum conv_status filter_open(struct conv_api_device *device, struct conv_api_filter **filter,
                                    const struct conv_backend_config *config, struct conv_err *err)
{
    return conv_api_filter_cpu_open(filter, &device->host, config, err);
}

const struct conv_api_device_ops conv_api_device_cpu = {
    .backend = &conv_backend_cpu,
    .list = list,
    .open = open_cpu,
    .close = close_cpu,
    .synchronise = synchronise_cpu,
    .enter = enter_cpu,
    .leave = leave_cpu,
    .allocate = allocate,
    .release = release,
    .filter_open = filter_open,
    .filter_close = conv_api_filter_cpu_close,
    .filter_kernel = conv_api_filter_cpu_kernel,
    .filter_run = conv_api_filter_cpu_run,
};
