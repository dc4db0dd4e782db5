// SPDX-License-Identifier: MIT
// From the options to a run of the pipeline.
#include "cli/run.h"

#include <malloc.h>

#include "run/pipeline.h"
#include "run/streams.h"

// Makes freed memory return to the system. By default glibc raises its threshold to the size of a
// large block that is freed, and each thread then keeps blocks of that size: sixteen workers with
// files of 10 MiB held 300 MiB that way under a limit of 24.
// Where mapped addresses count, each further arena maps 64 MiB.
static void give_memory_back(bool addresses_count)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (addresses_count)
        (void)mallopt(M_ARENA_MAX, 1);
#else
    (void)addresses_count;
#endif
}

enum conv_status conv_run_images(const struct conv_options *options, struct conv_device *device,
                                 const struct conv_filter *filters, struct conv_source *source,
                                 struct conv_sink *sink, uint64_t expected,
                                 struct conv_report *report, struct conv_trace *trace,
                                 atomic_int *stop, struct conv_err *err)
{
    bool decodes = device->decode_on != CONV_CODER_CPU;
    // With more streams more members finish out of order, and early ones have to be copied: 16,000
    // photographs from tar to tar take 1.21 s with 6 streams and 1.41 with 12.
    bool grows = !options->streams && !(decodes && !options->no_save && conv_sink_has_order(sink));
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
        .most_streams = grows ? conv_streams_most(decodes) : 0,
        .group_bytes = conv_options_group_bytes(options, decodes),
        .max_pixels = options->max_pixels,
        .codec = options->png,
        .output_format = options->to,
        .alpha = options->alpha,
        .output_type = (enum conv_output_type)options->output_type,
        .blend = options->blend,
        .deep = conv_filter_needs_16_bits(filters, device->filter_count),
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
        .fail_fast = options->fail_fast || options->on_error == CONV_ON_ERROR_STOP,
        .copy_failed = options->on_error == CONV_ON_ERROR_COPY,
        .trace = trace,
        .stop = stop,
        .left_threads = &device->left_threads,
        .leaves_memory = device->is_left,
    };
    config.codec.stop = stop;
    config.blend.gray = options->gray;
    give_memory_back(conv_ledger_set(&config, source,
                                     conv_options_mem_limit(options, device->ops->async),
                                     options->mem_limit > 0));
    return conv_pipeline_run(&config, source, report, err);
}
