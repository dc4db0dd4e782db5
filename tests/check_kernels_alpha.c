// SPDX-License-Identifier: MIT
// Compares the device's steps of alpha around the filters of a chain
// (kernels/stencil/cuda/alpha.cu) with the CPU's, byte for byte.
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_kernels.h"
#include "kernels/stencil/alpha.h"
#include "support/device.h"

#define ROUNDS 20
#define SPARE 3 // samples after each row, which must not change

struct alpha_case {
    enum conv_alpha_step step;
    bool before; // at the source
    int depth, count;
    struct conv_stencil_plane planes[CHECK_MAX_PLANES]; // offsets into memory for pointers
    size_t alpha[CHECK_MAX_PLANES];                     // offset of the alpha; 0: none
    size_t size;                                        // of memory; sources are its second half
    uint8_t *memory;
};

// Colours and alphas of random planes, one after the other; every fourth plane has no alpha. 0 and
// the maximum are more frequent in the noise than by chance.
static bool make_case(struct alpha_case *c, struct check_random *random)
{
    *c = (struct alpha_case){.depth = check_random_below(random, 2) ? 16 : 8};
    c->count = 1 + check_random_below(random, CHECK_MAX_PLANES);
    size_t offsets[CHECK_MAX_PLANES];
    c->size = 16;
    for (int p = 0; p < c->count; p++) {
        // Wide planes have more tiles than blocks; 16: for accesses of as many bytes.
        int width = 1 + check_random_below(random, check_random_below(random, 8) ? 100 : 3000);
        int height = 1 + check_random_below(random, 40);
        int64_t align = check_random_below(random, 2) ? 16 : 1;
        int64_t stride = ((width + SPARE) * (c->depth / 8) + align - 1) / align * align;
        size_t bytes = ((size_t)stride * (size_t)height + 15) / 16 * 16;
        c->planes[p] =
            (struct conv_stencil_plane){.dst_stride = stride, .width = width, .height = height};
        offsets[p] = c->size;
        c->alpha[p] = check_random_below(random, 4) ? c->size + bytes : 0;
        c->size += 2 * bytes;
    }
    c->step = (enum conv_alpha_step)check_random_below(random, CONV_ALPHA_RESTORE + 1);
    c->before = c->step != CONV_ALPHA_RESTORE && check_random_below(random, 2);
    c->size *= 2;
    c->memory = malloc(c->size);
    if (!c->memory) {
        perror("check_kernels: malloc");
        return false;
    }
    for (size_t i = 0; i < c->size; i++) {
        uint64_t noise = check_random_next(random);
        c->memory[i] = noise % 5 == 0 ? 0 : noise % 5 == 1 ? 255 : (uint8_t)(noise >> 8);
    }
    for (int p = 0; p < c->count; p++) {
        c->planes[p].dst = c->memory + offsets[p];
        c->planes[p].src = c->planes[p].dst + c->size / 2;
    }
    return true;
}

// The same planes in another memory.
static void move_planes(struct conv_stencil_plane *planes, const struct alpha_case *c,
                        uint8_t *d_memory)
{
    for (int p = 0; p < c->count; p++) {
        planes[p] = c->planes[p];
        planes[p].dst = d_memory + (c->planes[p].dst - c->memory);
        planes[p].src = planes[p].dst + c->size / 2;
        planes[p].alpha = c->alpha[p] ? d_memory + c->alpha[p] : NULL;
    }
}

static bool run_on_device(const struct alpha_case *c, uint8_t *result)
{
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    struct device_memory memory = {0};
    uint8_t *d_memory = device_put(&memory, c->memory, c->size, c->size, "planes");
    move_planes(planes, c, d_memory);
    void *d_planes =
        device_put(&memory, planes, (size_t)c->count * sizeof *planes, sizeof planes, "table");
    bool ok =
        !memory.failed &&
        conv_cuda_alpha_run(c->step, c->before, d_planes, c->count, c->depth, NULL) == CONV_OK &&
        device_finish(&memory, "launch") &&
        device_get(&memory, result, d_memory, c->size, "planes");
    device_free(&memory);
    return ok;
}

static bool check_one(uint64_t seed)
{
    struct check_random random = {seed};
    struct alpha_case c;
    if (!make_case(&c, &random))
        return false;
    uint8_t *result = malloc(c.size);
    bool ok = result && run_on_device(&c, result);
    struct conv_stencil_plane planes[CHECK_MAX_PLANES];
    move_planes(planes, &c, c.memory);
    for (int p = 0; p < c.count; p++) {
        if (c.before && planes[p].alpha) {
            planes[p].dst += c.size / 2;
            planes[p].alpha += c.size / 2;
        }
        conv_alpha_run(c.step, &planes[p], c.depth);
    }
    if (ok && memcmp(result, c.memory, c.size) != 0) {
        size_t at = 0;
        while (result[at] == c.memory[at])
            at++;
        printf("FAILED alpha: %d planes of %d bits, seed %" PRIu64
               ": byte %zu is %d, expected %d\n",
               c.count, c.depth, seed, at, result[at], c.memory[at]);
        ok = false;
    }
    free(result);
    free(c.memory);
    return ok;
}

bool check_cuda_alpha(uint64_t seed)
{
    bool ok = true;
    for (uint64_t i = 0; i < ROUNDS && ok; i++)
        ok = check_one(seed + i);
    printf("alpha between filters: %s\n", ok ? "equal" : "FAILED");
    return ok;
}
