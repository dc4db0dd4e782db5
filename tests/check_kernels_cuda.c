// SPDX-License-Identifier: MIT
// The CUDA part of check_kernels: copies a case to the device and runs or times a variant there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_kernels.h"
#include "kernels/stencil/cuda/cuda_variants.h"
#include "support/device.h"

// A case on the device. The guards of planes are copied too, so that writes to them come back.
struct device_case {
    struct device_memory memory;
    uint8_t *d_dst[CHECK_MAX_PLANES];
    struct conv_stencil_plan plan;
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    struct conv_stencil_batch batch;
};

// Exactly the bytes after a source's last row that may be read (kernels/stencil/stencil.h).
static size_t spare(const struct check_memory *memory, const struct conv_stencil_plane *plane)
{
    size_t offset = (size_t)(plane->src - memory->data);
    return offset % 16 || plane->src_stride % 16 ? 0 : (16 - memory->size % 16) % 16;
}

static bool upload(struct device_case *device, const struct check_case *c,
                   const struct conv_variant *variant)
{
    size_t table = conv_cuda_upload_bytes();
    *device = (struct device_case){0};
    struct device_memory *memory = &device->memory;
    uint8_t *d_tables = device_put(memory, NULL, 0, table + sizeof device->planes, "tables");
    for (int p = 0; p < c->count; p++) {
        const struct check_memory *src = &c->src[p], *dst = &c->dst[p];
        size_t more = spare(src, &c->planes[p]);
        uint8_t *d_src = device_put(memory, src->data, src->size, src->size + more, "a plane");
        device->d_dst[p] = device_put(memory, dst->data, dst->size, dst->size, "a plane");
        device->planes[p] = c->planes[p];
        device->planes[p].src = d_src + (c->planes[p].src - src->data);
        device->planes[p].dst = device->d_dst[p] + (c->planes[p].dst - dst->data);
    }
    device->batch = (struct conv_stencil_batch){
        .planes = device->planes,
        .count = c->count,
        .cuda.d_planes = (struct conv_stencil_plane *)(void *)(d_tables + table),
        .cuda.tiles = conv_stencil_tiles(variant, device->planes, c->count),
    };
    size_t cells = conv_stencil_cells(&c->stencil, device->planes, c->count);
    if (cells)
        device->batch.cuda.scratch = device_put(memory, NULL, 0, cells, "scratch memory");
    device_set(memory, d_tables + table, device->planes, sizeof device->planes, "planes");
    conv_stencil_plan_init(&device->plan, variant, &c->stencil);
    return !memory->failed && conv_cuda_upload(&device->plan, d_tables) == CONV_OK;
}

static bool launch(const struct conv_variant *variant, const struct device_case *device)
{
    enum conv_status status = variant->run(&device->plan, &device->batch);
    if (status)
        printf("FAILED %s: launch: %s\n", variant->name, cudaGetErrorString(cudaGetLastError()));
    return status == CONV_OK;
}

// Checks that the table of planes is unchanged: another launch may use it.
static bool leaves_table(const struct conv_variant *variant, struct device_case *device)
{
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    if (!device_get(&device->memory, planes, device->batch.cuda.d_planes, sizeof planes, "planes"))
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
              device_finish(&device.memory, variant->name) && leaves_table(variant, &device);
    for (int p = 0; p < c->count && ok; p++)
        ok = device_get(&device.memory, c->dst[p].data, device.d_dst[p], c->dst[p].size, "a plane");
    device_free(&device.memory);
    return ok;
}
