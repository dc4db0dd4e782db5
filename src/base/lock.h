// SPDX-License-Identifier: MIT
// How threads are started, and a mutex whose rules the compiler checks. A function states in its
// declaration which lock its caller has to hold (CONV_NEEDS) or must not hold (CONV_TAKES); clang's
// -Wthread-safety refuses callers that do otherwise, and functions that return with other locks
// than they state. GCC, which has no such analysis, sees a plain mutex.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __clang__
#define CONV_LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define CONV_LOCK_ATTRIBUTE(x)
#endif

// The caller holds the lock, before and after. The function may release it meanwhile.
#define CONV_NEEDS(lock) CONV_LOCK_ATTRIBUTE(requires_capability(lock))
// The caller does not hold the lock: the function acquires and releases it.
#define CONV_TAKES(lock) CONV_LOCK_ATTRIBUTE(locks_excluded(lock))
// The function returns with the lock, or without it.
#define CONV_ACQUIRES(lock) CONV_LOCK_ATTRIBUTE(acquire_capability(lock))
#define CONV_RELEASES(lock) CONV_LOCK_ATTRIBUTE(release_capability(lock))
// The function is not analysed: it acquires a lock, or does not, as its result says.
#define CONV_UNCHECKED CONV_LOCK_ATTRIBUTE(no_thread_safety_analysis)

struct CONV_LOCK_ATTRIBUTE(capability("mutex")) conv_lock {
    pthread_mutex_t mutex;
};

#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
#define CONV_LOCK_INITIALIZER                                                                      \
    {                                                                                              \
        PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP                                                      \
    }
#else
#define CONV_LOCK_INITIALIZER                                                                      \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }
#endif

// A lock for short sections: a thread that finds it taken spins a little before it sleeps.
void conv_lock_init(struct conv_lock *lock);
void conv_lock_destroy(struct conv_lock *lock);

// Any thread. The lock is not recursive.
void conv_lock_acquire(struct conv_lock *lock) CONV_ACQUIRES(*lock);
void conv_lock_release(struct conv_lock *lock) CONV_RELEASES(*lock);
// Does not wait. False if another thread has the lock.
bool conv_lock_try(struct conv_lock *lock) CONV_LOCK_ATTRIBUTE(try_acquire_capability(true, *lock));

// A condition; PTHREAD_COND_INITIALIZER makes one, too.
void conv_lock_init_condition(pthread_cond_t *condition);

// Releases the lock, waits for the condition for at most `ns`, UINT64_MAX: without a limit, and
// acquires the lock again. False if the time was up. As with all conditions, a wait may end without
// a cause.
bool conv_lock_wait(struct conv_lock *lock, pthread_cond_t *condition, uint64_t ns)
    CONV_NEEDS(*lock);

// --- threads -------------------------------------------------------------------------------------

// Requests a short scheduling slice for the calling thread, which waits most of the time: when it
// wakes up it then runs at once instead of up to 3 ms later, when as many threads as there are
// cores are busy. From Linux 6.12 on; elsewhere, or if the user has chosen a scheduling policy,
// nothing happens.
void conv_thread_set_low_latency(void);

// pthread_create for a thread without signals, which are handled by the program's own threads: all
// are blocked, except those of faults. A write to a closed pipe, or beyond the limit of a file's
// size, then fails without ending the process.
int conv_thread_start(pthread_t *thread, void *(*main)(void *), void *argument);
