// SPDX-License-Identifier: MIT
// Whether a worker is inside a computation on one image: decoding, filtering, encoding. With
// conv_pipeline_config.left_threads, a run that a signal ends does not wait for that: the worker is
// left behind, and the process ends without it.
#ifndef CONV_RUN_PHASE_H
#define CONV_RUN_PHASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { CONV_PHASE_OTHER, CONV_PHASE_COMPUTES, CONV_PHASE_LEFT };

// To be called before and after a computation that touches nothing but the job, its slot, its
// stream and its codec, all of which stay if the worker is left behind. NULL outside of a run, as
// in `conv verify`.
static inline void conv_phase_begin(atomic_int *phase)
{
    if (phase)
        atomic_store(phase, CONV_PHASE_COMPUTES);
}

// Does not return if the worker has been left behind: the rest of the run may be gone.
static inline void conv_phase_end(atomic_int *phase)
{
    int expected = CONV_PHASE_COMPUTES;
    if (!phase || atomic_compare_exchange_strong(phase, &expected, CONV_PHASE_OTHER))
        return;
    for (;;)
        pause();
}

// True if the worker was computing; from then on it is left behind.
static inline bool conv_phase_leave(atomic_int *phase)
{
    int expected = CONV_PHASE_COMPUTES;
    return atomic_compare_exchange_strong(phase, &expected, CONV_PHASE_LEFT);
}

#endif
