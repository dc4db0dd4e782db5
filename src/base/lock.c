// SPDX-License-Identifier: MIT
#include "base/lock.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h> // syscall, which signal.h brings from glibc 2.34 on

#if !__GLIBC_PREREQ(2, 30) // which waits by the time of day: a change of that changes a wait
#undef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC CLOCK_REALTIME
#define pthread_cond_clockwait(c, mutex, clock, until) pthread_cond_timedwait(c, mutex, until)
#endif

// The analysis relies on the declarations; it cannot check these functions themselves.

void conv_lock_init(struct conv_lock *lock)
{
    *lock = (struct conv_lock)CONV_LOCK_INITIALIZER;
}

void conv_lock_destroy(struct conv_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

CONV_UNCHECKED void conv_lock_acquire(struct conv_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
}

CONV_UNCHECKED bool conv_lock_try(struct conv_lock *lock)
{
    return pthread_mutex_trylock(&lock->mutex) == 0;
}

CONV_UNCHECKED void conv_lock_release(struct conv_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

void conv_lock_init_condition(pthread_cond_t *condition)
{
    *condition = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

CONV_UNCHECKED bool conv_lock_wait(struct conv_lock *lock, pthread_cond_t *condition, uint64_t ns)
{
    struct timespec until;
    if (ns == UINT64_MAX)
        return pthread_cond_wait(condition, &lock->mutex) == 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t end = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(end / 1000000000);
    until.tv_nsec = (long)(end % 1000000000);
    return pthread_cond_clockwait(condition, &lock->mutex, CLOCK_MONOTONIC, &until) == 0;
}

// --- threads -------------------------------------------------------------------------------------

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
