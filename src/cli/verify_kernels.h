// SPDX-License-Identifier: MIT
// The kernels that `conv verify` compares, each as a filter of the library. One thread at a time.
#ifndef CONV_CLI_VERIFY_KERNELS_H
#define CONV_CLI_VERIFY_KERNELS_H

#include "cli/options.h"
#include "conv.h"

struct conv_verify_kernel {
    const char *name;
    conv_context *context;
    conv_filter *filter;
};

struct conv_verify_skipped {
    const char *name;
    char reason[160];
};

struct conv_verify_kernels {
    conv_context *cpu, *gpu;            // `gpu` is NULL if no GPU takes part
    struct conv_verify_kernel *kernels; // the first one is the definition
    int count;
    struct conv_verify_skipped *skipped; // the other kernels
    int skipped_count;
    char no_gpu[CONV_MESSAGE_SIZE]; // why a GPU's kernels do not take part
};

// Opens every kernel that can run the filter of the first operand, on the devices of the options.
// Reports a missing GPU once. Returns the statuses of conv_context_create and conv_filter_create.
// *kernels must be {0} before, and closed afterwards, also after a failure.
enum conv_status conv_verify_kernels_open(struct conv_verify_kernels *kernels,
                                          const struct conv_options *options, struct conv_err *err);
void conv_verify_kernels_close(struct conv_verify_kernels *kernels);

// Prints which kernels were skipped, one line per reason. A missing GPU has already been reported.
void conv_verify_kernels_say_skipped(const struct conv_verify_kernels *kernels);

#endif
