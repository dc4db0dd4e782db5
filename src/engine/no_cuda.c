// SPDX-License-Identifier: MIT
// Stands in for cuda.c in a build without CUDA.
#include "engine/engine.h"

static bool has_driver(void)
{
    return false;
}

static enum conv_status devices(struct conv_device_info *, int, int *count, struct conv_err *err)
{
    *count = 0;
    return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
}

static enum conv_status open_none(struct conv_backend **backend, const struct conv_backend_config *,
                                  struct conv_err *err)
{
    int count;
    *backend = NULL;
    return devices(NULL, 0, &count, err);
}

static enum conv_status open_no_context(struct conv_device_context *, struct conv_err *err)
{
    int count;
    return devices(NULL, 0, &count, err);
}

static enum conv_status open_no_tensor(int, unsigned *offers, struct conv_err *err)
{
    int count;
    *offers = 0;
    return devices(NULL, 0, &count, err);
}

static const struct conv_tensor_ops no_tensors = {.open = open_no_tensor};

const struct conv_device_ops conv_device_cuda = {
    .name = "cuda",
    .title = "CUDA",
    .place = CONV_ON_CUDA,
    .built = false,
    .async = true,
    .has_driver = has_driver,
    .devices = devices,
    .open = open_none,
    .context_open = open_no_context,
    .tensors = &no_tensors,
};
