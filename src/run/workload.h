// SPDX-License-Identifier: MIT
// An estimate, before a run begins, of how much it has to do.
#pragma once

#include <stdbool.h>

#include "image/format.h"
#include "io/source.h"

enum conv_workload_kind { CONV_WORKLOAD_UNKNOWN, CONV_WORKLOAD_SMALL, CONV_WORKLOAD_LARGE };

struct conv_workload {
    enum conv_workload_kind kind;
    uint64_t images; // lower bound
    uint64_t bytes;  // of their files, estimated
    double saved;    // nanoseconds of the run, estimated
};

// Nanoseconds that a device saves a run for each image, byte of decoded samples and byte of files,
// and for the square of an image's samples.
struct conv_workload_gain {
    double image, sample, byte, square;
};

// Decides from which workload on a device saves more than it costs.
struct conv_workload_choice {
    // Images that a device could decode, by their first bytes and the coder of their format. If
    // that saves nothing, the CPU decodes them, and the device saves nothing.
    struct conv_workload_gain plain[CONV_DEVICE_CODERS];
    struct conv_workload_gain others[CONV_DEVICE_CODERS]; // those that it could not
    double cost;                                          // of using a device at all
    double name; // of counting an image: not done if an image saves less than a multiple of it
};

// Takes steps of the source until the amount of work is known to be large, or known not to be.
// Looks up the size of the first few files and opens some of them; all others count as their
// average. The same source gives the same answer each time.
void conv_workload_measure(struct conv_workload *workload, struct conv_source *source,
                           const struct conv_workload_choice *choice);

// The time that a device saves on a machine with `cores` cores if it decodes and encodes as stated,
// and if results are saved. A device that does neither saves nothing: the copies cost more than
// small filters cost the CPU.
struct conv_workload_choice conv_workload_choice_for(int cores, bool decodes, bool encodes,
                                                     bool saves);
