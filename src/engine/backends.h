// SPDX-License-Identifier: MIT
// The table of backends. A program passes its table to the functions that open devices, so that a
// test can bring a backend of its own; these functions do not use the table of this file by
// themselves.
#ifndef CONV_ENGINE_BACKENDS_H
#define CONV_ENGINE_BACKENDS_H

#include "engine/backend.h"

#define CONV_BACKENDS 2 // one for each enum conv_place

// Indexed by place. The entry of a backend that is not in the build fails to open and says
// so; its `built` is false.
extern const struct conv_backend_ops *const conv_backends[CONV_BACKENDS];

// The backend whose name is the first `size` characters of `name`; NULL if there is none.
const struct conv_backend_ops *conv_backends_find(const struct conv_backend_ops *const *backends,
                                                  const char *name, size_t size);

// The backend that runs a kernel, by the kernel's name ("cuda_tma"); NULL if no backend's name
// precedes the underscore.
const struct conv_backend_ops *
conv_backends_of_kernel(const struct conv_backend_ops *const *backends, const char *kernel);

// The GPUs to use if none is requested: the first backend besides the CPU that has a driver, or
// else the first, which can report what is missing.
const struct conv_backend_ops *conv_backends_gpu(const struct conv_backend_ops *const *backends);

#endif
