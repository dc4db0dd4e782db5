// SPDX-License-Identifier: MIT
// How threads are started, and how the system schedules them.
#ifndef CONV_BASE_THREAD_H
#define CONV_BASE_THREAD_H

#include <pthread.h>

// Requests a short scheduling slice for the calling thread, which waits most of the time: when it
// wakes up it then runs at once instead of up to 3 ms later, when as many threads as there are
// cores are busy. From Linux 6.12 on; elsewhere, or if the user has chosen a scheduling policy,
// nothing happens.
void conv_thread_set_low_latency(void);

// pthread_create for a thread without signals, which are handled by the program's own threads: all
// are blocked, except those of faults. A write to a closed pipe, or beyond the limit of a file's
// size, then fails without ending the process.
int conv_thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

#endif
