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
//   read=ACTION    grow, shrink, vanish: what happens to the file at its first read
//   delay=US       threads pause at random for up to this time when they take and release locks
//                  and before they rename, so that they interleave differently; and waits of more
//                  than half a second do not time out, which would hide a lost wake-up
//   seed=N         of the pauses
//   linger=MS      closing what the system watches folders with takes that long
// CONV_FAULTS_SEEN names a file that gets a byte when the library is loaded and one per fault.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../support/random.h"

enum action { NOTHING, GROW, SHRINK, VANISH };

static struct {
    bool ready, short_io, interrupt, no_file, all_threads, no_nameless, no_link, link_by_path;
    long alloc, thread, delay, seed, linger;
    int write_errno, fsync_errno, flock_errno;
    enum action action;
    const char *touch;
    int seen; // file descriptor
} plan = {.seen = -1};

static atomic_long allocations, threads;
static atomic_bool acted;

static void tell(void)
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
    tell();
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
    if ((word = strstr(text, "touch=")))
        plan.touch = word + 6;
    plan.action = strstr(text, "read=grow")     ? GROW
                  : strstr(text, "read=shrink") ? SHRINK
                  : strstr(text, "read=vanish") ? VANISH
                                                : NOTHING;
    plan.no_nameless = strstr(text, "nameless=open");
    plan.no_link = strstr(text, "nameless=link");
    plan.link_by_path = strstr(text, "nameless=path");
    plan.short_io = strstr(text, "short");
    plan.interrupt = strstr(text, "eintr");
    plan.no_file = strstr(text, "enfile");
    plan.ready = true;
}

static void *next(const char *name)
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
                                   void (*)(void), void *))next("__libc_start_main");
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
    tell();
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
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = (int (*)(
        pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))next("pthread_create");
    long number = atomic_fetch_add(&threads, 1) + 1;
    if (plan.thread && (number == plan.thread || (plan.all_threads && number > plan.thread))) {
        tell();
        return EAGAIN;
    }
    return real(thread, attributes, start, argument);
}

// --- locks ---------------------------------------------------------------------------------------

typedef int lock_function(pthread_mutex_t *);
typedef int signal_function(pthread_cond_t *);
typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);
typedef int timedwait_function(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

// Pauses in half of the calls, mostly for a moment, rarely for long.
static void pause_at_random(void)
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
    return function ? function : next(name);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static lock_function *real;
    if (!real)
        real = (lock_function *)next("pthread_mutex_lock");
    pause_at_random();
    return real(lock);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static lock_function *real;
    if (!real)
        real = (lock_function *)next("pthread_mutex_unlock");
    int result = real(lock);
    pause_at_random();
    return result;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    static signal_function *real;
    if (!real)
        real = (signal_function *)next_of_conditions("pthread_cond_signal");
    pause_at_random();
    return real(condition);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    static wait_function *real;
    if (!real)
        real = (wait_function *)next_of_conditions("pthread_cond_wait");
    pause_at_random();
    int result = real(condition, lock);
    pause_at_random();
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
    pause_at_random();
    int result = real(condition, lock, until);
    pause_at_random();
    return result;
}

// --- files ---------------------------------------------------------------------------------------

// Half of the calls, at random: a program that retries makes progress.
static bool interrupt(void)
{
    static _Thread_local uint64_t state = 1;
    if (!plan.interrupt)
        return false;
    if (random_below(&state, 2))
        return false;
    tell();
    errno = EINTR;
    return true;
}

static size_t shorten(size_t size)
{
    if (!plan.short_io || size < 2)
        return size;
    tell();
    return size < 600 ? 1 : size / 3; // few enough calls for a test, and never the whole size
}

static bool is_regular(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

static void act_on(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4 || memcmp(path + length - 4, ".png", 4) != 0 || atomic_exchange(&acted, true))
        return;
    path[length] = '\0';
    tell();
    struct stat info;
    if (plan.action == VANISH) {
        unlink(path);
    } else if (fstat(fd, &info) == 0) {
        off_t size = plan.action == GROW ? info.st_size + 100 : info.st_size / 2;
        if (truncate(path, size) != 0)
            abort();
    }
}

ssize_t read(int fd, void *data, size_t size)
{
    if (interrupt())
        return -1;
    if (plan.action != NOTHING && is_regular(fd))
        act_on(fd);
    return syscall(SYS_read, fd, data, shorten(size));
}

static void touch_other(int fd)
{
    if (!plan.touch || !is_regular(fd) || atomic_exchange(&acted, true))
        return;
    int other = (int)syscall(SYS_openat, AT_FDCWD, plan.touch, O_WRONLY | O_APPEND);
    if (other < 0 || syscall(SYS_write, other, "x", 1) != 1 || syscall(SYS_close, other) != 0)
        abort();
    tell();
}

static bool deny_write(int fd)
{
    touch_other(fd);
    if (!plan.write_errno || !is_regular(fd))
        return false;
    tell();
    errno = plan.write_errno;
    return true;
}

ssize_t write(int fd, const void *data, size_t size)
{
    return interrupt() || deny_write(fd) ? -1 : syscall(SYS_write, fd, data, shorten(size));
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (interrupt() || deny_write(fd))
        return -1;
    if (!plan.short_io || count < 1)
        return syscall(SYS_writev, fd, parts, count);
    return syscall(SYS_write, fd, parts[0].iov_base, shorten(parts[0].iov_len));
}

static bool deny_file(void)
{
    static atomic_uint calls;
    if (!plan.no_file || atomic_fetch_add(&calls, 1) % 2 == 1)
        return false;
    tell();
    errno = ENFILE;
    return true;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (interrupt() || deny_file())
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT || nameless ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (nameless && plan.no_nameless) {
        tell();
        errno = EOPNOTSUPP;
        return -1;
    }
    if (interrupt() || deny_file())
        return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));

int linkat(int from, const char *old, int to, const char *name, int flags)
{
    if (plan.no_link || (plan.link_by_path && flags & AT_EMPTY_PATH)) {
        tell();
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_linkat, from, old, to, name, flags);
}

// Of files, which several processes take.
int flock(int fd, int operation)
{
    if (interrupt())
        return -1;
    if (plan.flock_errno) {
        tell();
        errno = plan.flock_errno;
        return -1;
    }
    pause_at_random();
    int result = (int)syscall(SYS_flock, fd, operation);
    pause_at_random();
    return result;
}

int renameat(int from, const char *old, int to, const char *name)
{
    pause_at_random();
    return (int)syscall(SYS_renameat2, from, old, to, name, 0);
}

// A descriptor of inotify is of no type.
static void linger_at(int fd)
{
    struct stat info;
    struct timespec left = {plan.linger / 1000, plan.linger % 1000 * 1000000};
    if (!plan.linger || fstat(fd, &info) != 0 || (info.st_mode & S_IFMT) != 0)
        return;
    tell();
    while (syscall(SYS_nanosleep, &left, &left) != 0)
        continue;
}

int close(int fd)
{
    linger_at(fd);
    int result = (int)syscall(SYS_close, fd); // Linux closes the descriptor in any case
    return interrupt() ? -1 : result;
}

int fsync(int fd)
{
    if (interrupt())
        return -1;
    if (!plan.fsync_errno)
        return (int)syscall(SYS_fsync, fd);
    tell();
    errno = plan.fsync_errno;
    return -1;
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
    return interrupt() ? -1 : (int)syscall(SYS_poll, files, count, timeout);
}
