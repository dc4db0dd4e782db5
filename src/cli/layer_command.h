// SPDX-License-Identifier: MIT
// What the files of `conv layer` share: layer.c (the command, and a layer as a stage of run.c),
// layer_setup.c (from options to a layer, a device and shapes), layer_tensor.c (one tensor to
// another).
#pragma once

#include <stdatomic.h>

#include "cli/device.h"
#include "cli/options.h"
#include "engine/operation.h"
#include "io/files/tensor_file.h"
#include "run/layer_stage.h"

// --- the layer and the device: layer_setup.c -----------------------------------------------------

struct conv_layer_setup {
    struct conv_tensor weights, bias;
    // Without `input`, which depends on the files. For a bank only border, border_value and output
    // are set.
    struct conv_layer layer;
    struct conv_bank bank; // empty if WEIGHTS is a file
    struct conv_pooling pool;
};

// Strides, padding, dilation and groups of the layers of `conv bench layers`, and what they all
// have in common: the rest is that of each. CONV_ERR_USAGE if --shape has no such layer.
enum conv_status conv_layer_setup_geometry(struct conv_layer *layer,
                                           const struct conv_options *options,
                                           struct conv_err *err);

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

// --- the command: layer.c ------------------------------------------------------------------------

struct conv_places;     // run_inputs.h
struct conv_run_inputs; // run_inputs.h
struct conv_run_report; // run.h

// A layer as a stage of a run over images.
struct conv_layer_images { // {0} is closed
    struct conv_layer_target target;
    struct conv_layer_stage stage;
    struct conv_layer_collect collect;
};

// The bytes of files from which on a device certainly pays off. False if the choice of the device
// does not depend on them.
bool conv_layer_images_choice(const struct conv_options *options,
                              const struct conv_layer_setup *setup,
                              struct conv_workload_choice *choice);

// Opens the layer for images on the device of the options or, with little work, on the CPU. Sets
// what *device says. To be closed also after a failure. Errors as conv_layer_setup_operation.
enum conv_status conv_layer_images_open(struct conv_layer_images *images,
                                        struct conv_device *device,
                                        const struct conv_options *options,
                                        const struct conv_layer_setup *setup,
                                        const struct conv_run_inputs *inputs,
                                        const atomic_int *stop, struct conv_err *err);
void conv_layer_images_close(struct conv_layer_images *images);

// True if all results go into one file that exists, and --skip-existing says so; then reported.
bool conv_layer_images_exist(const struct conv_run_inputs *inputs,
                             const struct conv_options *options, struct conv_report *report);

// After the run, which ended with `status`: completes the file with all results, or removes it.
enum conv_status conv_layer_images_finish(struct conv_layer_images *images, enum conv_status status,
                                          atomic_int *stop, struct conv_err *err);

// Adds the lines about layer and device to the page. `kernel` is a line, too, or NULL.
void conv_layer_describe(struct conv_run_report *report, const struct conv_layer_setup *setup,
                         const struct conv_layer_target *target, const char *kernel);

// --- one tensor to another: layer_tensor.c -------------------------------------------------------

// Prints its messages and returns the exit code.
int conv_layer_tensor_run(const struct conv_options *options, const struct conv_places *places,
                          const struct conv_layer_setup *setup);
