// SPDX-License-Identifier: MIT
// The CUDA device of the programs that check what runs on it.
#ifndef CONV_TESTS_DEVICE_H
#define CONV_TESTS_DEVICE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if CONV_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/common/place.h"

// Prints what failed.
static inline bool device_failed(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
    return error != cudaSuccess;
}
#endif

// What device 0 offers to the kernels of this program, as conv_place_offers() takes it: its compute
// capability, such as 90, if they were compiled for that. 0, and the reason, if there is none.
static inline int device_capability(const char **reason)
{
#if CONV_HAVE_CUDA
    int major = 0, minor = 0, count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (error == cudaSuccess && count > 0)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    *reason = error != cudaSuccess ? cudaGetErrorString(error) : "no CUDA device";
    return error == cudaSuccess ? conv_cuda_code_capability(10 * major + minor) : 0;
#else
    *reason = "built without CUDA";
    return 0;
#endif
}

// Prints that there is no device and returns the exit code: 77, which ctest counts as skipped
// (SKIP_RETURN_CODE), or 1 where CONV_REQUIRE_CUDA=1 says that there must be one.
static inline int device_missing(const char *what, const char *reason)
{
    const char *required = getenv("CONV_REQUIRE_CUDA");
    bool fail = required && strcmp(required, "1") == 0;
    printf("%s %s: %s\n", what, fail ? "FAILED" : "skipped", reason);
    return fail ? 1 : 77;
}

#endif
