// SPDX-License-Identifier: MIT
// The CUDA part of check_layers: copies a case to the device and runs a variant there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_layers.h"
#include "support/device.h"

// A case on the device.
struct device_case {
    struct conv_layer_plan plan;
    struct conv_layer_batch batch;
    void *padded, *packed; // on the host
    struct device_memory memory;
};

static void *must_allocate(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!memory) {
        perror("check_layers: aligned_alloc");
        exit(1);
    }
    return memory;
}

// The source, padded on the host if the variant leaves that to its caller.
static void upload_source(struct device_case *device, const struct check_case *c)
{
    const struct conv_layer_plan *plan = &device->plan;
    device->batch = check_case_batch(c);
    const void *src = c->src.data;
    size_t size = c->src.size;
    if (plan->pads) {
        int64_t row = plan->shape.width * (int64_t)sizeof(float);
        int64_t plane = row * plan->shape.height;
        size = (size_t)(c->images * c->layer.channels * plane);
        src = device->padded = must_allocate(size);
        conv_layer_pad(&c->layer, &c->shape, &device->batch, device->padded);
        device->batch.src_row = row;
        device->batch.src_plane = plane;
        device->batch.src_image = plane * c->layer.channels;
    }
    // Exactly the bytes after the last plane that may be read (layer.h).
    device->batch.src = device_put(&device->memory, src, size, (size + 15) / 16 * 16, "source");
}

static bool prepare(struct device_case *device, const struct conv_layer_variant *variant,
                    unsigned have, const struct check_case *c)
{
    struct device_memory *memory = &device->memory;
    *device = (struct device_case){0};
    if (!conv_layer_plan_find(&device->plan, variant, &c->layer, &c->shape, have))
        return false;
    upload_source(device, c);
    size_t packed = device->plan.packed_bytes;
    if (packed)
        device->packed = must_allocate(packed);
    conv_layer_plan_pack(&device->plan, device->packed);
    device->plan.d_packed = device_put(memory, device->packed, packed, packed, "weights");
    device->batch.scratch = device_put(memory, NULL, 0, device->plan.scratch, "scratch memory");
    device->batch.dst = device_take(memory, c->dst.size, "dst");
    return !memory->failed;
}

bool check_cuda_run(const struct conv_layer_variant *variant, unsigned have, struct check_case *c)
{
    struct device_case device;
#ifdef CONV_EMULATED
    emulated_seed(check_case_order(c)); // the order of threads is repeated with the case
#endif
    bool ok = prepare(&device, variant, have, c);
    if (ok && variant->run(&device.plan, &device.batch) != CONV_OK) {
        printf("FAILED %s: launch: %s\n", variant->name, cudaGetErrorString(cudaGetLastError()));
        ok = false;
    }
    ok = ok && device_finish(&device.memory, variant->name) &&
         device_get(&device.memory, c->dst.data, device.batch.dst, c->dst.size, "dst") &&
         device_guards_hold(&device.memory);
    device_free(&device.memory);
    free(device.padded);
    free(device.packed);
    return ok;
}
