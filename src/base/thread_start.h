// SPDX-License-Identifier: MIT
// Threads of the library in another program.
#ifndef CONV_BASE_THREAD_START_H
#define CONV_BASE_THREAD_START_H

#include <pthread.h>

// pthread_create for a thread without signals, which are handled by the program's own threads: all
// are blocked, except those of faults. A write to a closed pipe, or beyond the limit of a file's
// size, then fails without ending the process.
int conv_thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

#endif
