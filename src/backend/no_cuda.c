// SPDX-License-Identifier: MIT
// Stands in for cuda.c in a build without CUDA.
#include "backend/backend.h"

const struct conv_backend_ops *conv_backend_cuda(void)
{
    return NULL;
}

bool conv_backend_cuda_has_driver(void)
{
    return false;
}

enum conv_status conv_backend_cuda_devices(struct conv_device_info *info, int room, int *count,
                                           struct conv_err *err)
{
    (void)info;
    (void)room;
    *count = 0;
    return conv_err_set(err, CONV_ERR_DEVICE, "built without CUDA");
}
