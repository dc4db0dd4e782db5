// SPDX-License-Identifier: MIT
#include "base/lock.h"

#include <time.h>

// The analysis relies on the declarations; it cannot check these functions themselves.

int conv_lock_init(struct conv_lock *lock)
{
    pthread_mutexattr_t attributes;
    int errnum = pthread_mutexattr_init(&attributes);
    if (errnum)
        return errnum;
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    errnum = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    if (!errnum)
        errnum = pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return errnum;
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

int conv_lock_init_condition(pthread_cond_t *condition)
{
    return pthread_cond_init(condition, NULL);
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
