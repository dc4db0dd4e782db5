// SPDX-License-Identifier: MIT
// The CUDA part of check_kernels: copies a case to the device and runs or times a variant there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_kernels.h"
#include "kernels/stencil/cuda/cuda_variants.h"
#include "support/device.h"

// A case on the device. Each plane's source and result are allocations of their own, so that tools
// that look for accesses outside (compute-sanitizer, emulated/) find them. The guards are copied
// too, so that writes to them come back.
struct device_case {
    uint8_t *d_tables, *d_cells;
    uint8_t *d_src[CHECK_MAX_PLANES], *d_dst[CHECK_MAX_PLANES];
    struct conv_stencil_plan plan;
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    struct conv_stencil_batch batch;
};

static void free_device(const struct device_case *device)
{
    cudaFree(device->d_tables);
    cudaFree(device->d_cells);
    for (int p = 0; p < CHECK_MAX_PLANES; p++) {
        cudaFree(device->d_src[p]);
        cudaFree(device->d_dst[p]);
    }
}

// Exactly the bytes after a source's last row that may be read (kernels/stencil/stencil.h).
static size_t spare(const struct check_memory *memory, const struct conv_stencil_plane *plane)
{
    size_t offset = (size_t)(plane->src - memory->data);
    return offset % 16 || plane->src_stride % 16 ? 0 : (16 - memory->size % 16) % 16;
}

static bool upload_memory(uint8_t **d_memory, const struct check_memory *memory, size_t more)
{
    return !device_failed(cudaMalloc((void **)d_memory, memory->size + more), "cudaMalloc") &&
           !device_failed(cudaMemcpy(*d_memory, memory->data, memory->size, cudaMemcpyHostToDevice),
                          "copy of a plane");
}

static bool upload(struct device_case *device, const struct check_case *c,
                   const struct conv_variant *variant)
{
    size_t table = conv_cuda_upload_bytes();
    *device = (struct device_case){0};
    if (device_failed(cudaMalloc((void **)&device->d_tables, table + sizeof device->planes),
                      "cudaMalloc"))
        return false;
    for (int p = 0; p < c->count; p++) {
        size_t more = spare(&c->src[p], &c->planes[p]);
        if (!upload_memory(&device->d_src[p], &c->src[p], more) ||
            !upload_memory(&device->d_dst[p], &c->dst[p], 0))
            return false;
        device->planes[p] = c->planes[p];
        device->planes[p].src = device->d_src[p] + (c->planes[p].src - c->src[p].data);
        device->planes[p].dst = device->d_dst[p] + (c->planes[p].dst - c->dst[p].data);
    }
    device->batch = (struct conv_stencil_batch){
        .planes = device->planes,
        .count = c->count,
        .cuda.d_planes = (struct conv_stencil_plane *)(void *)(device->d_tables + table),
        .cuda.tiles = conv_stencil_tiles(variant, device->planes, c->count),
    };
    size_t cells = conv_stencil_cells(&c->stencil, device->planes, c->count);
    if (cells && device_failed(cudaMalloc((void **)&device->d_cells, cells), "cudaMalloc"))
        return false;
    device->batch.cuda.scratch = device->d_cells;
    if (device_failed(cudaMemcpy(device->d_tables + table, device->planes, sizeof device->planes,
                                 cudaMemcpyHostToDevice),
                      "copy of planes"))
        return false;
    conv_stencil_plan_init(&device->plan, variant, &c->stencil);
    return conv_cuda_upload(&device->plan, device->d_tables) == CONV_OK;
}

static bool launch(const struct conv_variant *variant, const struct device_case *device)
{
    enum conv_status status = variant->run(&device->plan, &device->batch);
    if (status)
        printf("FAILED %s: launch: %s\n", variant->name, cudaGetErrorString(cudaGetLastError()));
    return status == CONV_OK;
}

// Checks that the table of planes is unchanged: another launch may use it.
static bool leaves_table(const struct conv_variant *variant, const struct device_case *device)
{
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    if (device_failed(
            cudaMemcpy(planes, device->batch.cuda.d_planes, sizeof planes, cudaMemcpyDeviceToHost),
            "copy of planes back"))
        return false;
    bool same = memcmp(planes, device->planes, sizeof planes) == 0;
    if (!same)
        printf("FAILED %s: changed the table of planes\n", variant->name);
    return same;
}

bool check_cuda_run(const struct conv_variant *variant, struct check_case *c)
{
    struct device_case device;
#ifdef CONV_EMULATED
    emulated_seed(c->seed); // the order of threads is repeated with the case
#endif
    bool ok = upload(&device, c, variant) && launch(variant, &device) &&
              !device_failed(cudaDeviceSynchronize(), variant->name) &&
              leaves_table(variant, &device);
    for (int p = 0; p < c->count && ok; p++)
        ok = !device_failed(
            cudaMemcpy(c->dst[p].data, device.d_dst[p], c->dst[p].size, cudaMemcpyDeviceToHost),
            "copy back");
    free_device(&device);
    return ok;
}
