// SPDX-License-Identifier: MIT
// Stands in for cuda_api*.c in a build without CUDA.
#include "api/api_device.h"

static enum conv_status list(struct conv_device_description *devices, int room, int *count,
                             struct conv_err *err)
{
    (void)devices;
    (void)room;
    *count = 0;
    return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
}

static enum conv_status open_none(struct conv_api_device **device, int ordinal,
                                  const struct conv_api_host *host, struct conv_err *err)
{
    int count;
    (void)device;
    (void)ordinal;
    (void)host;
    return list(NULL, 0, &count, err);
}

const struct conv_api_device_ops conv_api_device_cuda = {
    .backend = &conv_backend_cuda,
    .list = list,
    .open = open_none,
};
