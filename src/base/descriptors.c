// SPDX-License-Identifier: MIT
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

#include "base/lock.h"

#define ENOUGH 65536
#define MOST_COUNTED 1024 // with more descriptors there is no need to count
#define EACH_WORKER 2     // the folder of an output, and the output
#define FOLDERS 16        // levels of folders that the walk has open
#define LEAST_AHEAD 16    // opening fewer files ahead gains nothing
#define TRY_NS 50000000
#define MOST_TRIES 200

static atomic_bool counting; // set before the workers start and after they have ended

static struct conv_lock lock = CONV_LOCK_INITIALIZER; // guards all below
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static int room = INT_MAX; // descriptors that the functions here may hand out
static int reserve;        // of them for workers and the walk
static int taken, kept;
static int runs; // begun and not ended
static const atomic_int *stopping;

static _Thread_local int own; // taken by this thread

static int soft_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX)
        return INT_MAX;
    return (int)limit.rlim_cur;
}

void conv_descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t wanted = limit.rlim_max < ENOUGH ? limit.rlim_max : ENOUGH;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void conv_descriptors_begin(int workers, const atomic_int *stop)
{
    int limit = soft_limit(), open = 0, most = MOST_COUNTED + EACH_WORKER * workers;
    conv_lock_acquire(&lock);
    stopping = stop;
    if (runs++ > 0) { // the limit that the first run has found holds for all
        reserve += EACH_WORKER * workers;
        conv_lock_release(&lock);
        return;
    }
    for (int fd = 0; fd < limit && limit <= most; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    if (limit <= most) {
        room = limit - open + kept;
        reserve = EACH_WORKER * workers + FOLDERS;
        atomic_store(&counting, true);
    }
    conv_lock_release(&lock);
}

void conv_descriptors_end(int workers, const atomic_int *stop)
{
    conv_lock_acquire(&lock);
    if (stopping == stop)
        stopping = NULL;
    reserve -= EACH_WORKER * workers;
    if (--runs == 0) {
        room = INT_MAX;
        reserve = 0;
        atomic_store(&counting, false);
    }
    pthread_cond_broadcast(&given);
    conv_lock_release(&lock);
}

bool conv_descriptors_are_few(void)
{
    if (!atomic_load(&counting))
        return false;
    conv_lock_acquire(&lock);
    bool few = room < reserve + LEAST_AHEAD;
    conv_lock_release(&lock);
    return few;
}

void conv_descriptors_take(int count)
{
    if (!atomic_load(&counting))
        return;
    conv_lock_acquire(&lock);
    while (taken > own && taken + kept + count > room)
        (void)conv_lock_wait(&lock, &given, UINT64_MAX);
    taken += count;
    conv_lock_release(&lock);
    own += count;
}

void conv_descriptors_give(int count)
{
    if (!atomic_load(&counting))
        return;
    own -= count;
    conv_lock_acquire(&lock);
    taken -= count;
    pthread_cond_broadcast(&given);
    conv_lock_release(&lock);
}

bool conv_descriptors_try_folder(void)
{
    conv_lock_acquire(&lock);
    bool fits = kept < room - 1;
    kept += fits;
    conv_lock_release(&lock);
    return fits;
}

void conv_descriptors_keep(int count)
{
    conv_lock_acquire(&lock);
    kept += count;
    if (count < 0)
        pthread_cond_broadcast(&given);
    conv_lock_release(&lock);
}

bool conv_descriptors_try_ahead(void)
{
    if (!atomic_load(&counting))
        return true;
    conv_lock_acquire(&lock);
    bool fits = room >= reserve + LEAST_AHEAD && kept < room - reserve;
    kept += fits;
    conv_lock_release(&lock);
    return fits;
}

void conv_descriptors_end_ahead(void)
{
    if (atomic_load(&counting))
        conv_descriptors_keep(-1);
}

// With the lock. The process has fewer descriptors than counted: too few for those that this thread
// has taken or is about to keep. Waits until other threads have given theirs back; false if there
// are no other threads.
static bool step_back(void) CONV_NEEDS(lock)
{
    if (taken == own)
        return false;
    int less = taken + kept - (own > 0 ? own : 1);
    room = less < room ? less : room;
    taken -= own;
    while (taken > 0 && taken + kept + own > room)
        (void)conv_lock_wait(&lock, &given, UINT64_MAX);
    taken += own;
    return true;
}

bool conv_descriptors_wait(int errnum, int *tries)
{
    if ((errnum != EMFILE && errnum != ENFILE) || ++*tries > MOST_TRIES)
        return false;
    conv_lock_acquire(&lock);
    bool again = !(stopping && atomic_load(stopping));
    if (errnum == EMFILE && atomic_load(&counting))
        again = step_back();
    else if (again)
        (void)conv_lock_wait(&lock, &given, TRY_NS); // one outside of the run may be closed
    conv_lock_release(&lock);
    errno = errnum;
    return again;
}
