// SPDX-License-Identifier: MIT
// How long work on one image learns that a signal has ended the run: a flag that is looked at now
// and then.
#ifndef CONV_BASE_CANCEL_H
#define CONV_BASE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// The number of the signal once there was one. A negative number (--fail-fast) means that no new
// image is begun, and cancels nothing. NULL is fine.
static inline bool conv_cancel_is_asked(const atomic_int *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed) > 0;
}

#define CONV_CANCEL_TEXT "cancelled by a signal"

#endif
