// SPDX-License-Identifier: MIT
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USUAL_POLICY 0  // SCHED_OTHER
#define SLICE_NS 100000 // the shortest that the system grants

// struct sched_attr of linux/sched/types.h, which cannot be included together with pthread.h.
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void conv_thread_set_low_latency(void)
{
    struct attributes attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) != 0 ||
        attributes.policy != USUAL_POLICY)
        return; // the user chose another policy
    attributes.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0U);
}

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
