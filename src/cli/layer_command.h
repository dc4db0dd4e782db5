// SPDX-License-Identifier: MIT
// What the files of `conv layer` share: layer.c (the command), layer_setup.c (from options to a
// layer, a device and shapes), layer_tensor.c (one tensor to another), layer_images.c (images as
// input), layer_report.c (messages, reports and the page).
#ifndef CONV_CLI_LAYER_COMMAND_H
#define CONV_CLI_LAYER_COMMAND_H

#include <stdatomic.h>

#include "cli/options.h"
#include "cli/places.h"
#include "engine/operation.h"
#include "io/files/tensor_file.h"
#include "page/page.h"
#include "report/report.h"

// --- the layer and the device: layer_setup.c -----------------------------------------------------

struct conv_layer_setup {
    struct conv_tensor weights, bias;
    // Without `input`, which depends on the files. For a bank only border, border_value and output
    // are set.
    struct conv_layer layer;
    struct conv_bank bank; // empty if WEIGHTS is a file
    struct conv_pooling pool;
};

// Reads WEIGHTS, --bias, --padding and --border. CONV_ERR_USAGE with the reason, also for files
// that cannot be read; CONV_ERR_MEMORY. To be closed also after a failure.
enum conv_status conv_layer_setup_open(struct conv_layer_setup *setup,
                                       const struct conv_options *options, struct conv_err *err);
void conv_layer_setup_close(struct conv_layer_setup *setup); // {0} is fine

// The number by which --range divides integer samples of `element`; `is_image`: its default is that
// of images.
float conv_layer_setup_divisor(const struct conv_options *options, enum conv_element element,
                               bool is_image);

// Where --device and --variant let the layer run. `flops`: multiplications and additions, as far as
// they are known.
struct conv_layer_target {
    enum conv_place place;
    int device;
    bool may_fall_back; // to the CPU, if the device cannot be used
};

// The number of flops from which on `auto` takes a GPU.
double conv_layer_setup_much(const struct conv_machine_options *machine);

// CONV_ERR_USAGE for values that make no sense; opens no device.
enum conv_status conv_layer_setup_choose(struct conv_layer_target *target,
                                         const struct conv_machine_options *machine, double flops,
                                         struct conv_err *err);

// Opens the layer or the bank for that input on the target, or, if allowed, on the CPU with a
// message; *target is then the CPU. CONV_ERR_DEVICE, CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status
conv_layer_setup_operation(struct conv_operation *operation, struct conv_layer_target *target,
                           const struct conv_options *options, const struct conv_layer_setup *setup,
                           enum conv_element input, float divisor, struct conv_err *err);

// --- the shapes of a tensor: layer_setup.c -------------------------------------------------------

struct conv_layer_shapes {
    int64_t images; // of a bank: planes
    int height, width;
    struct conv_tensor_shape out;
    double flops; // multiplications and additions
};

// For a layer (images, channels, height, width) or (channels, height, width); for a bank also
// (height, width): it filters every plane. CONV_ERR_USAGE with `name` and both shapes if they do
// not fit; CONV_ERR_LIMIT if the result is beyond any memory.
enum conv_status conv_layer_shapes_fit(struct conv_layer_shapes *shapes,
                                       const struct conv_layer_setup *setup, const char *name,
                                       const struct conv_tensor_shape *in, struct conv_err *err);

// --- reports: layer_report.c ---------------------------------------------------------------------

struct conv_layer_report { // {0} is closed
    const struct conv_options *options;
    const struct conv_layer_setup *setup;
    bool draws_progress;                   // the caller does, so that the report does not
    const struct conv_report_total *total; // of images, or NULL; set by the caller
    char device[32];
    struct conv_report_config config;
    struct conv_report *report;
    struct conv_trace *trace; // NULL: none is kept
    struct conv_page page;
    struct conv_samples samples;
    struct conv_totals totals; // after conv_layer_report_finish
};

// Opens the files of --html and --trace, before any work is done. To be closed also after a
// failure. CONV_ERR_USAGE, CONV_ERR_IO.
enum conv_status conv_layer_report_prepare(struct conv_layer_report *report,
                                           const struct conv_options *options,
                                           const struct conv_layer_setup *setup,
                                           struct conv_err *err);

// Opens report->report, which prints the begin record. `operation` NULL or not open: none was
// needed. `single`: as in struct conv_report_config. `start_ns`: when the run began.
enum conv_status conv_layer_report_open(struct conv_layer_report *report,
                                        const struct conv_operation *operation, bool single,
                                        uint64_t start_ns, struct conv_err *err);

// Closes report, trace and page, each even if another fails; returns the first failure. `stop`: a
// signal that ended the run, or 0. `kernel` is a line of the page, or NULL.
enum conv_status conv_layer_report_finish(struct conv_layer_report *report,
                                          const struct conv_layer_target *target,
                                          const char *kernel, int stop, int code,
                                          struct conv_err *err);

// Closes the files and frees everything, also if no run took place. {0} is fine.
void conv_layer_report_close(struct conv_layer_report *report);

// --- the two kinds of input ----------------------------------------------------------------------

// Each prints its messages except that of the returned error, and sets *code, the exit code without
// an error.
enum conv_status conv_layer_run_tensor(const struct conv_options *options,
                                       const struct conv_places *places,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err);
enum conv_status conv_layer_run_images(const struct conv_options *options,
                                       const struct conv_places *places,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err);

#endif
