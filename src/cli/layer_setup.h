// SPDX-License-Identifier: MIT
// From the options of `conv layer` to a layer and a device.
#ifndef CONV_CLI_LAYER_SETUP_H
#define CONV_CLI_LAYER_SETUP_H

#include "cli/options.h"
#include "engine/operation.h"
#include "io/files/tensor_file.h"

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

#endif
