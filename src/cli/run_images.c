// SPDX-License-Identifier: MIT
// From the options to a run of the pipeline.
#include "cli/run.h"

#include <malloc.h>

#include "base/limits.h"
#include "pipeline/pipeline.h"

// Freed memory is to return to the system. By default glibc raises its threshold to the size of a
// large block that is freed, and each thread then keeps blocks of that size: sixteen workers with
// files of 10 MiB held 300 MiB that way under a limit of 24.
static void give_memory_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

// If a container or job limits the process: by the memory that is left now that devices are open.
static void limit_memory(struct conv_pipeline_config *config, bool refuse_beyond)
{
    struct conv_limits limits;
    conv_limits_read(&limits);
    if (!conv_limits_memory_is_limited(&limits))
        return;
    config->memory = conv_limits_memory_left(&limits);
    if (limits.counts_address_space) {
        // Buffers and stacks map more address space than they use, and each further arena of glibc
        // maps 64 MiB.
        config->memory -= config->memory / 4;
#ifdef __GLIBC__
        (void)mallopt(M_ARENA_MAX, 1);
#endif
    }
    config->refuse_beyond = refuse_beyond;
    size_t keep = conv_pipeline_keep(config->memory, config->jobs);
    if (config->codec.keep > keep)
        config->codec.keep = keep;
}

enum conv_status conv_run_images(const struct conv_options *options, struct conv_device *device,
                                 struct conv_source *source, struct conv_sink *sink,
                                 uint64_t expected, struct conv_report *report,
                                 struct conv_trace *trace, atomic_int *stop, struct conv_err *err)
{
    bool decodes = device->decode_on != CONV_CODER_CPU;
    struct conv_pipeline_config config = {
        .ops = device->ops,
        .backends = device->backends,
        .device_count = device->count,
        .device_names = device->names,
        .openings = device->openings,
        .filter_count = device->filter_count,
        .fallback_ops = device->fallback_ops,
        .fallback = device->fallback,
        .jobs = options->jobs,
        .streams = conv_options_streams(options, decodes),
        .group_bytes = conv_options_group_bytes(options, decodes),
        .mem_limit = conv_options_mem_limit(options, device->ops->async),
        .max_pixels = options->max_pixels,
        .codec = options->png,
        .alpha = options->alpha,
        .output_type = (enum conv_output_type)options->output_type,
        .decode_on = device->decode_on,
        .encode_on = device->encode_on,
        .strip = options->strip,
        .first_frame = options->first_frame,
        .sink = sink,
        .expected_images = expected,
        .resume = options->resume_path != NULL,
        .skip_existing = options->skip_existing,
        .update = options->update,
        .dry_run = options->dry_run,
        .no_save = options->no_save || !sink,
        .fail_fast = options->fail_fast,
        .trace = trace,
        .stop = stop,
        .left_threads = &device->left_threads,
    };
    // Coders and file buffers of all workers keep at most about half of the limit: each worker has
    // four, for the file, the filtered rows of both directions, and the result.
    config.codec.keep = config.mem_limit / 8 / (size_t)options->jobs + 1;
    limit_memory(&config, !options->mem_limit);
    config.codec.stop = stop;
    give_memory_back();
    return conv_pipeline_run(&config, source, report, err);
}
