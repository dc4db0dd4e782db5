// SPDX-License-Identifier: MIT
// Pauses where threads take and release locks.
#include "faults.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../support/random.h"

typedef int lock_function(pthread_mutex_t *);
typedef int signal_function(pthread_cond_t *);
typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);
typedef int timedwait_function(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

// Pauses in half of the calls, mostly for a moment, rarely for long.
void faults_pause(void)
{
    static atomic_uint threads_seen;
    static _Thread_local uint64_t state;
    if (!plan.ready || !plan.delay)
        return;
    if (state == 0)
        state = (uint64_t)plan.seed * 2654435761u + atomic_fetch_add(&threads_seen, 1) + 1;
    uint32_t draw = random_below(&state, 1 << 16);
    if (draw & 1)
        return;
    long most = draw & 0x1e ? plan.delay / 20 : plan.delay;
    struct timespec time = {.tv_nsec = most * 1000 / 2048 * (long)(draw >> 5)};
    if (time.tv_nsec > 0)
        syscall(SYS_nanosleep, &time, NULL);
}

// The functions of conditions also exist in older versions, which use a different layout of
// objects.
static void *next_of_conditions(const char *name)
{
    void *function = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return function ? function : faults_next(name);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static lock_function *real;
    if (!real)
        real = (lock_function *)faults_next("pthread_mutex_lock");
    faults_pause();
    return real(lock);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static lock_function *real;
    if (!real)
        real = (lock_function *)faults_next("pthread_mutex_unlock");
    int result = real(lock);
    faults_pause();
    return result;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    static signal_function *real;
    if (!real)
        real = (signal_function *)next_of_conditions("pthread_cond_signal");
    faults_pause();
    return real(condition);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    static wait_function *real;
    if (!real)
        real = (wait_function *)next_of_conditions("pthread_cond_wait");
    faults_pause();
    int result = real(condition, lock);
    faults_pause();
    return result;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                           const struct timespec *until)
{
    static timedwait_function *real;
    if (!real)
        real = (timedwait_function *)next_of_conditions("pthread_cond_timedwait");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = (until->tv_sec - now.tv_sec) * INT64_C(1000000000) + until->tv_nsec - now.tv_nsec;
    if (plan.delay && ns > 500000000)
        return pthread_cond_wait(condition, lock);
    faults_pause();
    int result = real(condition, lock, until);
    faults_pause();
    return result;
}
