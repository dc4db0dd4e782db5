// SPDX-License-Identifier: MIT
// The CPU as a device: a worker filters its own image, straight after decoding it, on its own core.
#include <stdlib.h>

#include "base/features.h"
#include "base/limits.h"
#include "engine/cpu.h"

static enum conv_status cpu_open(struct conv_backend **out,
                                 const struct conv_backend_config *config, struct conv_err *err)
{
    size_t chain_size = (size_t)config->filter_count * sizeof(struct conv_chain_op);
    struct conv_backend *backend = calloc(1, sizeof *backend + chain_size);
    if (!backend)
        return conv_err_memory(err, "no memory for the filters");
    backend->op_count = config->filter_count;
    backend->alpha = config->alpha;
    backend->alpha_kept = config->alpha_kept;
    backend->floats = config->floats;
    backend->wraps = config->border == CONV_BORDER_WRAP;
    backend->grid = 1;
    backend->device = config->context;
    enum conv_status status =
        conv_chain_prepare(backend->chain, config, CONV_ON_CPU, conv_cpu_features(), err);
    for (int i = 0; i < config->filter_count && !status; i++) {
        const struct conv_filter *filter = &config->filters[i];
        int side = filter->height > filter->real.side ? filter->height : filter->real.side;
        int last = conv_chain_depths(config) - 1; // floats reach further
        int coarse = conv_decimated_reach(&backend->chain[i].stencil[last].decimated);
        backend->reach += side / 2 + coarse;
        backend->grid = coarse > 0 ? CONV_DECIMATED_GRID : backend->grid;
    }
    if (status) {
        free(backend);
        return status;
    }
    *out = backend;
    return CONV_OK;
}

static void cpu_close(struct conv_backend *backend)
{
    free(backend);
}

static const char *cpu_variant(const struct conv_backend *backend, int index, int depth)
{
    return backend->chain[index].plan[conv_chain_at(depth)].variant->name;
}

static size_t cpu_table_bytes(int, bool)
{
    return 0;
}

static size_t cpu_scratch_bytes(const struct conv_backend *backend, int width, int depth)
{
    size_t most = 0;
    for (int s = 0; s < backend->op_count; s++) {
        const struct conv_stencil_plan *plan = &backend->chain[s].plan[conv_chain_at(depth)];
        size_t bytes = conv_stencil_plan_scratch(plan, width);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int cpu_reach(const struct conv_backend *backend, int *grid)
{
    *grid = backend->grid;
    return backend->wraps ? -1 : backend->reach;
}

static enum conv_status cpu_devices(struct conv_device_info *info, int room, int *count,
                                    struct conv_err *)
{
    *count = 1;
    if (room < 1)
        return CONV_OK;
    struct conv_limits limits;
    conv_limits_read(&limits);
    *info = (struct conv_device_info){.offers = conv_cpu_features(), .memory = limits.memory};
    conv_cpu_model(info->name, sizeof info->name);
    return CONV_OK;
}

// --- images in memory ----------------------------------------------------------------------------

static enum conv_status enter_cpu(struct conv_device_context *, int *previous, struct conv_err *)
{
    *previous = 0;
    return CONV_OK;
}

static void leave_cpu(struct conv_device_context *, int)
{
}

const struct conv_device_ops conv_device_cpu = {
    .name = "cpu",
    .title = "the CPU",
    .place = CONV_ON_CPU,
    .built = true,
    .async = false,
    .devices = cpu_devices,
    .open = cpu_open,
    .close = cpu_close,
    .variant = cpu_variant,
    .table_bytes = cpu_table_bytes,
    .scratch_bytes = cpu_scratch_bytes,
    .reach = cpu_reach,
    .stream_open = conv_cpu_stream_open,
    .stream_close = conv_cpu_stream_close,
    .stream_run = conv_cpu_stream_run,
    .enter = enter_cpu,
    .leave = leave_cpu,
    .filter_run = conv_cpu_filter_run,
    .tensors = &conv_cpu_tensors,
};
