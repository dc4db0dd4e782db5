// SPDX-License-Identifier: MIT
#include "base/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

bool conv_standard_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) != -1)
            continue;
        // An epoll descriptor needs no file and no permission, and the system refuses to open it by
        // a name such as /dev/stdout. /dev/null would swallow what is written under that name; a
        // folder would be taken for a folder of images.
        int got = epoll_create1(0);
        if (got != fd) { // the system takes the lowest free number: this is an error
            if (got >= 0)
                close(got);
            return false;
        }
    }
    return true;
}

bool conv_standard_is_closed(int fd)
{
    // epoll_wait succeeds only on the epoll descriptor that stands in for a closed one.
    struct epoll_event event;
    int errnum = errno;
    bool is_epoll = epoll_wait(fd, &event, 1, 0) >= 0;
    errno = errnum;
    return is_epoll;
}

bool conv_standard_is_shared(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino &&
           (S_ISREG(out.st_mode) || S_ISFIFO(out.st_mode) || S_ISSOCK(out.st_mode));
}

// `end`: fflush or fclose.
static enum conv_status end_writing(FILE *file, int (*end)(FILE *file), const char *what,
                                    const char *path, struct conv_err *err)
{
    bool bad = ferror(file) != 0; // of an earlier write, whose errno may be gone
    errno = 0;
    bad |= end(file) != 0;
    if (bad && errno)
        return conv_err_errno(err, errno, "cannot write %sto %s", what, path);
    return bad ? conv_err_set(err, CONV_ERR_IO, "cannot write %sto %s", what, path) : CONV_OK;
}

enum conv_status conv_standard_flush(struct conv_err *err)
{
    enum conv_status status = end_writing(stdout, fflush, "", "standard output", err);
    return status && conv_standard_is_closed(STDOUT_FILENO)
               ? conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed")
               : status;
}

enum conv_status conv_standard_close(FILE *file, const char *what, const char *path,
                                     struct conv_err *err)
{
    return end_writing(file, fclose, what, path, err);
}

FILE *conv_standard_create(const char *path, enum conv_hint hint, struct conv_err *err)
{
    FILE *file = fopen(path, "we");
    if (!file) {
        conv_err_errno(err, errno, "%s", path);
        conv_err_hint(err, hint, 0, err->status = CONV_ERR_USAGE);
    }
    return file;
}

// --- blocked writes ------------------------------------------------------------------------------

struct conv_stall *conv_stall_of(struct conv_stall *stall, FILE *stream)
{
    struct stat info;
    return fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode) ? stall : NULL;
}

void conv_stall_begin(struct conv_stall *stall)
{
    if (!stall)
        return;
    atomic_store(&stall->changed_at, conv_clock_ns());
    atomic_fetch_add(&stall->calls, 1);
}

void conv_stall_end(struct conv_stall *stall)
{
    if (!stall)
        return;
    atomic_store(&stall->changed_at, conv_clock_ns());
    atomic_fetch_sub(&stall->calls, 1);
}

bool conv_stall_lasts(const struct conv_stall *stall, uint64_t ns)
{
    return atomic_load(&stall->calls) > 0 &&
           conv_clock_ns() - atomic_load(&stall->changed_at) >= ns;
}
