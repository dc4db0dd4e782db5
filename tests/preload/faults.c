// SPDX-License-Identifier: MIT
// LD_PRELOAD library for tests/cli/test_injected.py: system calls fail or do less than requested.
// CONV_FAULTS has words separated by blanks:
//   alloc=N        the Nth allocation (malloc and its kin, anonymous mmap) finds no memory
//   thread=N       the Nth pthread_create finds no resources; thread=N+ all from there on
//   short          every read and write moves a few bytes only
//   eintr          half of the calls that may wait are interrupted before they do anything
//   enfile         every other file that is opened finds the system's table of files full
//   write=ERRNO    every write to a regular file fails with this number
//   fsync=ERRNO    every fsync fails with this number
//   flock=ERRNO    every flock fails with this number
//   nameless=open  no file can be made without a name; nameless=link: none is given one;
//                  nameless=path: only linkat() with the path of the descriptor works
//   touch=PATH     that file gets a byte more at the first write to a regular file
//   read=ACTION    grow, shrink, vanish: what happens to the file at its first read; stick: it
//   never
//                  returns, as on a server that does not answer
//   pread=ACTION   the same, at the first read by several threads; pread=ERRNO: all of those fail
//   pread=two      the first of those waits until a second thread reads: without one, for a minute,
//                  and there is no fault
//   delay=US       threads pause at random for up to this time when they take and release locks
//                  and before they rename, so that they interleave differently; and waits of more
//                  than half a second do not time out, which would hide a lost wake-up
//   seed=N         of the pauses
//   inode=N        files have other inode numbers than with another N, as after another mount of a
//                  file system that does not store them
//   coarse=S       times of modification are multiples of S seconds, as on FAT
//   linger=MS      closing what the system watches folders with takes that long
// CONV_FAULTS_SEEN names a file that gets a byte when the library is loaded and one per fault.
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fault_plan plan = {.seen = -1};

static atomic_long allocations, threads;

void faults_tell(void)
{
    if (plan.seen >= 0)
        (void)!syscall(SYS_write, plan.seen, "x", 1);
}

static void read_plan(void)
{
    const char *seen = getenv("CONV_FAULTS_SEEN"), *word;
    const char *text = getenv("CONV_FAULTS");
    if (!text)
        return;
    if (seen)
        plan.seen = (int)syscall(SYS_openat, AT_FDCWD, seen, O_WRONLY | O_APPEND | O_CLOEXEC);
    faults_tell();
    if ((word = strstr(text, "alloc=")))
        plan.alloc = strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "thread="))) {
        char *end;
        plan.thread = strtol(word + 7, &end, 10);
        plan.all_threads = *end == '+';
    }
    if ((word = strstr(text, "write=")))
        plan.write_errno = (int)strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "fsync=")))
        plan.fsync_errno = (int)strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "flock=")))
        plan.flock_errno = (int)strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "delay=")))
        plan.delay = strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "seed=")))
        plan.seed = strtol(word + 5, NULL, 10);
    if ((word = strstr(text, "linger=")))
        plan.linger = strtol(word + 7, NULL, 10);
    if ((word = strstr(text, "inode=")))
        plan.inode = strtol(word + 6, NULL, 10);
    if ((word = strstr(text, "coarse=")))
        plan.coarse = strtol(word + 7, NULL, 10);
    if ((word = strstr(text, "touch=")))
        plan.touch = word + 6;
    if ((word = strstr(text, "pread="))) {
        plan.at_pread = true;
        plan.pread_errno = (int)strtol(word + 6, NULL, 10);
        plan.two_readers = strstr(word, "pread=two");
    }
    plan.action = strstr(text, "read=grow")     ? GROW
                  : strstr(text, "read=shrink") ? SHRINK
                  : strstr(text, "read=vanish") ? VANISH
                  : strstr(text, "read=stick")  ? STICK
                                                : NOTHING;
    plan.no_nameless = strstr(text, "nameless=open");
    plan.no_link = strstr(text, "nameless=link");
    plan.link_by_path = strstr(text, "nameless=path");
    plan.short_io = strstr(text, "short");
    plan.interrupt = strstr(text, "eintr");
    plan.no_file = strstr(text, "enfile");
    plan.ready = true;
}

void *faults_next(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

// Faults begin with main(): the loader and constructors (those of the CUDA runtime allocate memory)
// are not under test.
typedef int main_function(int, char **, char **);

static main_function *program;

static int main_with_faults(int count, char **words, char **environment)
{
    read_plan();
    return program(count, words, environment);
}

int __libc_start_main(main_function *main, int count, char **words, void (*start)(void),
                      void (*end)(void), void (*loader_end)(void), void *stack)
{
    int (*real)(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                void *) = (int (*)(main_function *, int, char **, void (*)(void), void (*)(void),
                                   void (*)(void), void *))faults_next("__libc_start_main");
    program = main;
    return real(main_with_faults, count, words, start, end, loader_end, stack);
}

// --- memory --------------------------------------------------------------------------------------

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static bool deny_memory(void)
{
    if (!plan.ready || !plan.alloc || atomic_fetch_add(&allocations, 1) + 1 != plan.alloc)
        return false;
    faults_tell();
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return deny_memory() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return deny_memory() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return deny_memory() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return deny_memory() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = deny_memory() ? NULL : __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) && deny_memory())
        return MAP_FAILED;
    // The kernel's own return value, turned into what mmap() returns, by syscall().
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

// --- threads -------------------------------------------------------------------------------------

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))faults_next(
            "pthread_create");
    long number = atomic_fetch_add(&threads, 1) + 1;
    if (plan.thread && (number == plan.thread || (plan.all_threads && number > plan.thread))) {
        faults_tell();
        return EAGAIN;
    }
    return real(thread, attributes, start, argument);
}
