// SPDX-License-Identifier: MIT
// The CUDA part of check_layers: copies a case to the device and runs a variant there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_layers.h"
#include "support/device.h"

// Bytes around dst on a real device, checked after the run. The emulated device finds every access
// outside an allocation by itself.
#ifdef CONV_EMULATED
#define DST_GUARD 0
#else
#define DST_GUARD 256
#endif

// A case on the device. Each memory is an allocation of its own, so that tools that look for
// accesses outside (compute-sanitizer, emulated/) find them.
struct device_case {
    struct conv_layer_plan plan;
    struct conv_layer_batch batch;
    void *padded, *packed; // on the host
    void *d_src, *d_dst, *d_packed, *d_scratch;
};

static void free_device(const struct device_case *device)
{
    cudaFree(device->d_src);
    cudaFree(device->d_dst);
    cudaFree(device->d_packed);
    cudaFree(device->d_scratch);
    free(device->padded);
    free(device->packed);
}

static void *must_allocate(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!memory) {
        perror("check_layers: aligned_alloc");
        exit(1);
    }
    return memory;
}

// Copies `size` bytes to a new allocation of `room` bytes.
static bool upload(void **d_memory, const void *memory, size_t size, size_t room)
{
    return !device_failed(cudaMalloc(d_memory, room), "cudaMalloc") &&
           !device_failed(cudaMemsetAsync(*d_memory, check_memory_pattern, room, NULL),
                          "cudaMemset") &&
           (size == 0 ||
            !device_failed(cudaMemcpy(*d_memory, memory, size, cudaMemcpyHostToDevice), "copy"));
}

// The source, padded on the host if the variant leaves that to its caller.
static bool upload_source(struct device_case *device, const struct check_case *c)
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
    if (!upload(&device->d_src, src, size, (size + 15) / 16 * 16))
        return false;
    device->batch.src = device->d_src;
    return true;
}

static bool prepare(struct device_case *device, const struct conv_layer_variant *variant,
                    unsigned have, const struct check_case *c)
{
    *device = (struct device_case){0};
    if (!conv_layer_plan_find(&device->plan, variant, &c->layer, &c->shape, have) ||
        !upload_source(device, c))
        return false;
    size_t packed = device->plan.packed_bytes;
    if (packed)
        device->packed = must_allocate(packed);
    conv_layer_plan_pack(&device->plan, device->packed);
    if (!upload(&device->d_packed, device->packed, packed, packed ? packed : 1) ||
        !upload(&device->d_scratch, NULL, 0, device->plan.scratch ? device->plan.scratch : 1) ||
        !upload(&device->d_dst, NULL, 0, c->dst.size + 2 * DST_GUARD))
        return false;
    device->plan.d_packed = device->d_packed;
    device->batch.scratch = device->d_scratch;
    device->batch.dst = (uint8_t *)device->d_dst + DST_GUARD;
    return true;
}

// Copies dst back; false if that fails or if the bytes around it were written.
static bool download(const struct conv_layer_variant *variant, const struct device_case *device,
                     struct check_case *c)
{
    size_t size = c->dst.size + 2 * DST_GUARD;
    uint8_t *memory = must_allocate(size);
    bool ok = !device_failed(cudaMemcpy(memory, device->d_dst, size, cudaMemcpyDeviceToHost),
                             "copy back");
    memcpy(c->dst.data, memory + DST_GUARD, c->dst.size);
    for (size_t i = 0; i < size && ok; i++) {
        bool inside = i + 1 > DST_GUARD && i < DST_GUARD + c->dst.size;
        ok = inside || memory[i] == check_memory_pattern;
        if (!ok)
            printf("FAILED %s: wrote to byte %td of dst\n", variant->name,
                   (ptrdiff_t)i - DST_GUARD);
    }
    free(memory);
    return ok;
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
    ok = ok && !device_failed(cudaDeviceSynchronize(), variant->name) &&
         download(variant, &device, c);
    free_device(&device);
    return ok;
}
