// SPDX-License-Identifier: MIT
// Launches of CUDA kernels, timed with events on a stream of their own.
#include "bench/bench_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_cuda_timer.h"
#include "kernels/stencil/cuda/cuda_variants.h"

struct state {
    struct conv_bench_timer timer;
    uint8_t *d_stencils; // conv_cuda_upload_bytes() per filter
    struct conv_stencil_plane *d_tables;
    size_t table_bytes;
};

static enum conv_status cuda_open(struct conv_bench_launch *launch, int ordinal,
                                  struct conv_err *err)
{
    struct state *state = launch->state = calloc(1, sizeof *state);
    if (!state)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    cudaError_t code = conv_bench_timer_open(&state->timer, ordinal);
    size_t bytes = conv_cuda_upload_bytes();
    if (!code)
        code = cudaMalloc((void **)&state->d_stencils, (size_t)launch->filter_count * bytes);
    for (int f = 0; f < launch->filter_count && !code; f++)
        if (conv_cuda_upload(&launch->plans[f], state->d_stencils + (size_t)f * bytes))
            code = cudaGetLastError();
    return conv_bench_timer_report(code, "prepare the filters", err);
}

static void free_buffers(struct conv_bench_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        (void)cudaFree(launch->buffers[i]);
        launch->buffers[i] = NULL;
    }
}

static void cuda_close(struct conv_bench_launch *launch)
{
    struct state *state = launch->state;
    if (!state)
        return;
    free_buffers(launch);
    (void)cudaFree(state->d_stencils);
    (void)cudaFree(state->d_tables);
    conv_bench_timer_close(&state->timer);
    free(state);
}

static enum conv_status cuda_reserve(struct conv_bench_launch *launch, size_t bytes,
                                     struct conv_err *err)
{
    free_buffers(launch);
    launch->capacity = bytes;
    cudaError_t code = cudaMalloc((void **)&launch->buffers[0], bytes);
    if (!code)
        code = cudaMalloc((void **)&launch->buffers[1], bytes);
    return conv_bench_timer_report(code, "allocate memory for the images", err);
}

static enum conv_status cuda_prepare(struct conv_bench_launch *launch, const uint8_t *source,
                                     struct conv_err *err)
{
    struct state *state = launch->state;
    size_t entries = (size_t)launch->filter_count * (size_t)launch->plane_count;
    size_t bytes = entries * sizeof *launch->tables;
    cudaError_t code =
        cudaMemcpy(launch->buffers[0], source, launch->bytes, cudaMemcpyHostToDevice);
    if (!code && bytes > state->table_bytes) {
        (void)cudaFree(state->d_tables);
        state->d_tables = NULL;
        state->table_bytes = bytes;
        code = cudaMalloc((void **)&state->d_tables, bytes);
    }
    if (!code)
        code = cudaMemcpy(state->d_tables, launch->tables, bytes, cudaMemcpyHostToDevice);
    return conv_bench_timer_report(code, "copy the images to the device", err);
}

static enum conv_status cuda_run(struct conv_bench_launch *launch, uint64_t *ns,
                                 struct conv_err *err)
{
    const struct state *state = launch->state;
    cudaError_t code = conv_bench_timer_start(&state->timer);
    for (int f = 0; f < launch->filter_count && !code; f++) {
        size_t first = (size_t)f * (size_t)launch->plane_count;
        struct conv_stencil_batch batch = {
            .planes = launch->tables + first,
            .cuda.d_planes = state->d_tables + first,
            .count = launch->plane_count,
            .cuda.tiles = launch->tiles[f],
            .cuda.stream = state->timer.stream,
        };
        if (launch->variant->run(&launch->plans[f], &batch))
            code = cudaGetLastError();
    }
    if (!code)
        code = conv_bench_timer_stop(&state->timer, ns);
    char doing[96];
    snprintf(doing, sizeof doing, "launch kernel %s", launch->variant->name);
    return conv_bench_timer_report(code, doing, err);
}

static enum conv_status cuda_copy(struct conv_bench_launch *launch, uint64_t *ns,
                                  struct conv_err *err)
{
    const struct state *state = launch->state;
    cudaError_t code = conv_bench_timer_start(&state->timer);
    if (!code)
        code = cudaMemcpyAsync(launch->buffers[1], launch->buffers[0], launch->bytes,
                               cudaMemcpyDeviceToDevice, state->timer.stream);
    if (!code)
        code = conv_bench_timer_stop(&state->timer, ns);
    return conv_bench_timer_report(code, "copy images within the device", err);
}

static enum conv_status cuda_read(const uint8_t *from, uint8_t *to, size_t size,
                                  struct conv_err *err)
{
    return conv_bench_timer_report(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost),
                                   "copy the results from the device", err);
}

static const struct conv_bench_launch_ops launch_ops = {
    .open = cuda_open,
    .close = cuda_close,
    .reserve = cuda_reserve,
    .prepare = cuda_prepare,
    .run = cuda_run,
    .copy = cuda_copy,
    .read = cuda_read,
};

const struct conv_bench_cuda *conv_bench_cuda(void)
{
    static const struct conv_bench_cuda cuda = {
        .launch = &launch_ops,
        .layers = &conv_bench_layers_cuda,
        .time_copies = conv_bench_cuda_time_copies,
        .time_coding = conv_bench_cuda_time_coding,
    };
    return &cuda;
}
