// SPDX-License-Identifier: MIT
// `conv bench`: benchmarks of this machine. The command line fills the options.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cli/device.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "filter/filter.h"
#include "io/walk/walk.h"
#include "kernels/layer/layer.h"
#include "page/page.h"
#include "png/png.h"
#include "report/report.h"

// Divides times and amounts of work that are measured: 1, or 10 with CONV_BENCH_SHORTER in the
// environment, by which tests show that the code is right; the figures mean little then.
#define CONV_BENCH_SHORTER (getenv("CONV_BENCH_SHORTER") ? 10u : 1u)

// SVG: of conv_bench_layers with one layer and batch.
enum conv_bench_format { CONV_BENCH_TEXT, CONV_BENCH_JSON, CONV_BENCH_CSV, CONV_BENCH_SVG };

// Sizes of the images of `conv bench kernels`.
enum conv_bench_sizes {
    CONV_BENCH_SIZES_ONE,      // width x height
    CONV_BENCH_SIZES_MIX,      // 1x1 to 4000x3000, each octave of a side equally likely
    CONV_BENCH_SIZES_UNIFORM,  // the same range, each side equally likely
    CONV_BENCH_SIZES_STANDARD, // four workloads, one after the other
};

// Everything that `conv bench` needs. Pointers belong to the caller and outlive the call.
struct conv_bench_options {
    const struct conv_options *choice; // as they take effect
    // The chain of filters.
    const struct conv_filter *filters;
    int filter_count;

    enum conv_bench_format format; // of stdout
    bool show_progress;            // on stderr
    struct conv_page *page;        // with file NULL: no page
    // For conv_bench_streams: non-zero after a signal, and the waits for readers of its output.
    atomic_int *stop;
    struct conv_stall *stall;

    // conv_bench_kernels and conv_bench_layers
    bool on_cpu, on_cuda;
    int ordinal;                 // of the CUDA device
    struct conv_device_info gpu; // that device

    // conv_bench_kernels
    const struct conv_variant *variant;       // to measure alone, or NULL
    int depth;                                // bits
    const struct conv_bench_compare *compare; // an earlier benchmark, or NULL

    // conv_bench_layers
    struct conv_layer geometry; // strides, padding, dilation and groups of the layers
    const struct conv_layer_variant *layer_variant; // to measure alone, or NULL
    bool layer_chosen;  // measure the variants that conv layer would choose, and competitors
    bool any_precision; // else only variants of --precision

    // conv_bench_streams and conv_bench_codec
    struct conv_walk_config walk;     // one folder
    const struct conv_device *device; // open for the chain of filters
    size_t mem_limit, group_bytes;
    // Threads; of conv_bench_codec 0: each coder alone, on one core. Of a network's layers, too.
    int jobs;

    // conv_bench_streams
    int usual_streams;
    // Runs the pipeline over `source` with these workers and streams; nothing is saved. `trace` may
    // be NULL.
    enum conv_status (*run)(void *context, int jobs, int streams, struct conv_source *source,
                            struct conv_report *report, struct conv_trace *trace,
                            struct conv_err *err);
    void *run_context;
    // See conv_report_config.
    char *(*explain)(char *text, size_t size, const struct conv_err *err);

    // conv_bench_codec
    bool on_device; // the device's coders instead of the CPU's
};

struct conv_bench_compare; // bench_kernels.h

// Every kernel variant on the same images, each compared with the reference first: a wrong one ends
// the benchmark. Prints a table per workload.
enum conv_status conv_bench_kernels(const struct conv_bench_options *options, struct conv_err *err);

// A variant of the table or of its extras by its name; NULL if there is none.
const struct conv_variant *conv_bench_kernels_find(const char *name);

// Every variant of a convolution layer on the same images, on one core, on all cores and on a CUDA
// device, each compared with the reference first: a wrong one ends the benchmark. Prints a table
// per layer and batch.
enum conv_status conv_bench_layers(const struct conv_bench_options *options, struct conv_err *err);

// The exact variants that conv layer would choose for the layers of --network, on a CUDA device
// beside cuDNN and cuBLAS, else on `jobs` threads: prints a line for each layer and batch, and a
// summary.
enum conv_status conv_bench_networks(const struct conv_bench_options *options,
                                     struct conv_err *err);

// A layer variant by its name; NULL if there is none.
const struct conv_layer_variant *conv_bench_layers_find(const char *name);

// The images of a folder through 1, 2, 4, ... streams (on the CPU: workers).
enum conv_status conv_bench_streams(const struct conv_bench_options *options, struct conv_err *err);

// Every PNG decoder and encoder on the images of a folder. CONV_ERR_FORMAT, after the table, if
// pixels were wrong.
enum conv_status conv_bench_codec(const struct conv_bench_options *options, struct conv_err *err);

// --- for all of them -----------------------------------------------------------------------------

// Sets the name of a machine, of CONV_BENCH_MACHINE bytes: "one core of Xeon", "16 cores of Xeon";
// `cores` 0: of the CUDA device.
void conv_bench_describe_machine(const struct conv_bench_options *options, int cores, char *name);

// Says on stderr what is measured; NULL clears the line.
void conv_bench_progress(bool shown, const char *name);

// Random numbers for the data, the same on every machine: Marsaglia's xorshift with 32 bits of
// state, which is not 0. One thread at a time per state.
static inline uint32_t conv_bench_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}
