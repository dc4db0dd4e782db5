// SPDX-License-Identifier: MIT
// File functions that fail, do less than requested or are interrupted.
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../support/random.h"

static atomic_bool acted;

// Half of the calls, at random: a program that retries makes progress.
static bool interrupt(void)
{
    static _Thread_local uint64_t state = 1;
    if (!plan.interrupt)
        return false;
    if (random_below(&state, 2))
        return false;
    faults_tell();
    errno = EINTR;
    return true;
}

static size_t shorten(size_t size)
{
    if (!plan.short_io || size < 2)
        return size;
    faults_tell();
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
    faults_tell();
    struct stat info;
    if (plan.action == VANISH) {
        unlink(path);
    } else if (plan.action == STICK) {
        for (;;)
            syscall(SYS_nanosleep, &(struct timespec){.tv_sec = 60}, NULL);
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
    if (plan.action != NOTHING && !plan.at_pread && is_regular(fd))
        act_on(fd);
    return syscall(SYS_read, fd, data, shorten(size));
}

// The first thread waits for the second one.
static void meet(void)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    static atomic_bool met;
    static _Thread_local bool waited;
    if (!atomic_flag_test_and_set(&begun)) {
        waited = true;
        for (int i = 0; i < 6000 && !atomic_load(&met); i++)
            syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 10000000}, NULL);
    } else if (!waited && !atomic_exchange(&met, true)) {
        faults_tell();
    }
}

// Only several threads that read one file call this: they are not at its place.
ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    if (interrupt())
        return -1;
    if (plan.two_readers)
        meet();
    if (plan.pread_errno) {
        faults_tell();
        errno = plan.pread_errno;
        return -1;
    }
    if (plan.action != NOTHING && plan.at_pread)
        act_on(fd);
    return syscall(SYS_pread64, fd, data, shorten(size), offset);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset) __attribute__((alias("pread")));

static void touch_other(int fd)
{
    if (!plan.touch || !is_regular(fd) || atomic_exchange(&acted, true))
        return;
    int other = (int)syscall(SYS_openat, AT_FDCWD, plan.touch, O_WRONLY | O_APPEND);
    if (other < 0 || syscall(SYS_write, other, "x", 1) != 1 || syscall(SYS_close, other) != 0)
        abort();
    faults_tell();
}

static bool deny_write(int fd)
{
    touch_other(fd);
    if (!plan.write_errno || !is_regular(fd))
        return false;
    faults_tell();
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
    faults_tell();
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
        faults_tell();
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
        faults_tell();
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
        faults_tell();
        errno = plan.flock_errno;
        return -1;
    }
    faults_pause();
    int result = (int)syscall(SYS_flock, fd, operation);
    faults_pause();
    return result;
}

int renameat(int from, const char *old, int to, const char *name)
{
    faults_pause();
    return (int)syscall(SYS_renameat2, from, old, to, name, 0);
}

// A descriptor of inotify is of no type.
static void linger_at(int fd)
{
    struct stat info;
    struct timespec left = {plan.linger / 1000, plan.linger % 1000 * 1000000};
    if (!plan.linger || fstat(fd, &info) != 0 || (info.st_mode & S_IFMT) != 0)
        return;
    faults_tell();
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
    faults_tell();
    errno = plan.fsync_errno;
    return -1;
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
    return interrupt() ? -1 : (int)syscall(SYS_poll, files, count, timeout);
}

// --- identities ----------------------------------------------------------------------------------

static int change_identity(int result, struct stat *info)
{
    if (result != 0 || !S_ISREG(info->st_mode))
        return result;
    info->st_ino ^= (ino_t)plan.inode * 0x9E3779B9;
    if (plan.coarse)
        info->st_mtim = (struct timespec){info->st_mtim.tv_sec / plan.coarse * plan.coarse, 0};
    if (plan.inode)
        faults_tell();
    return result;
}

int fstatat(int folder, const char *restrict path, struct stat *restrict info, int flags)
{
    return change_identity((int)syscall(SYS_newfstatat, folder, path, info, flags), info);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    return fstatat(AT_FDCWD, path, info, 0);
}

int lstat(const char *restrict path, struct stat *restrict info)
{
    return fstatat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *info)
{
    return fstatat(fd, "", info, AT_EMPTY_PATH);
}

// The time of birth would identify files.
int statx(int folder, const char *restrict path, int flags, unsigned mask,
          struct statx *restrict info)
{
    int result = (int)syscall(SYS_statx, folder, path, flags, mask, info);
    if (result == 0 && plan.inode)
        info->stx_mask &= ~(unsigned)STATX_BTIME;
    return result;
}

#ifdef __GLIBC__
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout");
int fstatat64(int folder, const char *restrict path, struct stat64 *restrict info, int flags)
    __attribute__((alias("fstatat")));
int stat64(const char *restrict path, struct stat64 *restrict info) __attribute__((alias("stat")));
int lstat64(const char *restrict path, struct stat64 *restrict info)
    __attribute__((alias("lstat")));
int fstat64(int fd, struct stat64 *info) __attribute__((alias("fstat")));
#endif
