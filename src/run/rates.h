// SPDX-License-Identifier: MIT
// Measured times of images on cores and on a device, for the choice between them. Any thread.
#ifndef CONV_RUN_RATES_H
#define CONV_RUN_RATES_H

#include <stdbool.h>

#include "run/workload.h"

// The time that a device saves on a machine with `cores` cores if it decodes and encodes as stated,
// and if results are saved. A device that does neither saves nothing: the copies cost more than
// small filters cost the CPU.
struct conv_workload_choice conv_rates_choice(int cores, bool decodes, bool encodes, bool saves);

#endif
