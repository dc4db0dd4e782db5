// SPDX-License-Identifier: MIT
#include "base/thread_start.h"

#include <signal.h>
#include <stddef.h>

int conv_thread_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); // of this thread, which the new one inherits
    int errnum = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errnum;
}
