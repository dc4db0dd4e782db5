// SPDX-License-Identifier: MIT
// How the system schedules a thread.
#ifndef CONV_BASE_THREAD_H
#define CONV_BASE_THREAD_H

// Requests a short scheduling slice for the calling thread, which waits most of the time: when it
// wakes up it then runs at once instead of up to 3 ms later, when as many threads as there are
// cores are busy. From Linux 6.12 on; elsewhere, or if the user has chosen a scheduling policy,
// nothing happens.
void conv_thread_set_low_latency(void);

#endif
