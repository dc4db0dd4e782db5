// SPDX-License-Identifier: MIT
// From --device and --variant to an open backend.
#ifndef CONV_CLI_DEVICE_H
#define CONV_CLI_DEVICE_H

#include "backend/backend.h"
#include "cli/options.h"

struct conv_device {
    const struct conv_backend_ops *ops;
    struct conv_backend *backend;
    const struct conv_backend_ops *spare_ops; // of `auto` on a GPU: the CPU, should that fail
    struct conv_backend *spare;
    char name[32]; // "cuda:0"
};

enum conv_device_choice { CONV_DEVICE_AUTO, CONV_DEVICE_CPU, CONV_DEVICE_CUDA };

// What --device says; *ordinal is CUDA's, 0 if none is given.
enum conv_status conv_device_parse(const struct conv_options *options,
                                   enum conv_device_choice *choice, int *ordinal,
                                   struct conv_err *err);

// `auto` takes the first GPU and otherwise says in one line on stderr why it runs on the CPU.
// CONV_ERR_DEVICE if the device asked for cannot be used.
enum conv_status conv_device_open(struct conv_device *device, const struct conv_options *options,
                                  const struct conv_filter *filters, int filter_count,
                                  struct conv_err *err);
void conv_device_close(struct conv_device *device); // never opened is fine

#endif
