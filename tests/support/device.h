// SPDX-License-Identifier: MIT
// The CUDA device of the programs that check what runs on it.
#pragma once

#include <stdbool.h>
#include <stdint.h>
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

// --- memory --------------------------------------------------------------------------------------

// The emulated device finds every access outside of an allocation by itself.
#ifdef CONV_EMULATED
#define DEVICE_GUARD 0
#else
#define DEVICE_GUARD 256
#endif
#define DEVICE_FILL 0xa5 // each byte, at first

struct device_piece {
    uint8_t *memory;
    size_t guarded; // bytes between guards; 0: none
    bool on_host;
    const char *what; // in messages
};

// Memory that is freed together; starts as {0}. Each piece is an allocation of its own, so that
// tools that look for accesses outside (compute-sanitizer, emulated/) find them. The first failure
// is printed; after it nothing is done, and what is taken is NULL.
struct device_memory {
    struct device_piece *pieces;
    int count;
    bool failed;
};

static inline uint8_t *device_add(struct device_memory *memory, size_t size, bool on_host,
                                  const char *what)
{
    struct device_piece piece = {.on_host = on_host, .what = what};
    void *pieces = realloc(memory->pieces, (size_t)(memory->count + 1) * sizeof piece);
    size += size == 0;
    if (!pieces)
        abort();
    memory->pieces = pieces;
    if (!memory->failed)
        memory->failed =
            device_failed(on_host ? cudaHostAlloc((void **)&piece.memory, size, cudaHostAllocMapped)
                                  : cudaMalloc((void **)&piece.memory, size),
                          what);
    if (!memory->failed && !on_host)
        memory->failed =
            device_failed(cudaMemsetAsync(piece.memory, DEVICE_FILL, size, NULL), what);
    memory->pieces[memory->count++] = piece;
    return piece.memory;
}

static inline void device_set(struct device_memory *memory, void *d_to, const void *from,
                              size_t size, const char *what)
{
    if (!memory->failed && size > 0)
        memory->failed = device_failed(cudaMemcpy(d_to, from, size, cudaMemcpyHostToDevice), what);
}

// A copy of `size` bytes in memory of `room` bytes.
static inline uint8_t *device_put(struct device_memory *memory, const void *from, size_t size,
                                  size_t room, const char *what)
{
    uint8_t *d_to = device_add(memory, room, false, what);
    device_set(memory, d_to, from, size, what);
    return d_to;
}

// Memory that a kernel writes, between guards.
static inline uint8_t *device_take(struct device_memory *memory, size_t size, const char *what)
{
    uint8_t *d_memory = device_add(memory, size + 2 * DEVICE_GUARD, false, what);
    memory->pieces[memory->count - 1].guarded = size;
    return d_memory ? d_memory + DEVICE_GUARD : NULL;
}

static inline bool device_get(struct device_memory *memory, void *to, const void *d_from,
                              size_t size, const char *what)
{
    if (!memory->failed && size > 0)
        memory->failed = device_failed(cudaMemcpy(to, d_from, size, cudaMemcpyDeviceToHost), what);
    return !memory->failed;
}

static inline bool device_finish(struct device_memory *memory, const char *what)
{
    if (!memory->failed)
        memory->failed = device_failed(cudaDeviceSynchronize(), what);
    return !memory->failed;
}

// After the kernels: whether all guards hold what they held.
static inline bool device_guards_hold(struct device_memory *memory)
{
    uint8_t guards[2 * DEVICE_GUARD + 1];
    for (int i = 0; i < memory->count; i++) {
        const struct device_piece *piece = &memory->pieces[i];
        if (!piece->guarded || !device_get(memory, guards, piece->memory, DEVICE_GUARD, "guards") ||
            !device_get(memory, guards + DEVICE_GUARD,
                        piece->memory + DEVICE_GUARD + piece->guarded, DEVICE_GUARD, "guards"))
            continue;
        for (int k = 0; k < 2 * DEVICE_GUARD && !memory->failed; k++)
            if (guards[k] != DEVICE_FILL) {
                printf("FAILED: writes outside of the %s\n", piece->what);
                memory->failed = true;
            }
    }
    return !memory->failed;
}

static inline void device_free(struct device_memory *memory)
{
    for (int i = 0; i < memory->count; i++)
        (void)(memory->pieces[i].on_host ? cudaFreeHost(memory->pieces[i].memory)
                                         : cudaFree(memory->pieces[i].memory));
    free(memory->pieces);
    *memory = (struct device_memory){0};
}

#endif

// --- the device ----------------------------------------------------------------------------------

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
