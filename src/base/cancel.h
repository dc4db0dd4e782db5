// SPDX-License-Identifier: MIT
// How work on one image that takes long is cancelled when a signal ends the run: it reads a flag
// every few milliseconds.
#ifndef CONV_BASE_CANCEL_H
#define CONV_BASE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// True once the flag is the number of a signal. A negative number means that no new image is begun,
// and cancels nothing. False for NULL. Any thread.
static inline bool conv_cancel_is_asked(const atomic_int *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed) > 0;
}

#define CONV_CANCEL_TEXT "cancelled by a signal"

#endif
