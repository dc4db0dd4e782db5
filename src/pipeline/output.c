// SPDX-License-Identifier: MIT
#include "pipeline/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pipeline/paths.h"

// The temporary file that a worker has open. Global because a signal handler must find it.
struct temporary {
    atomic_bool exists;
    char path[PATH_MAX];
};

static struct temporary *temporaries;
static int temporary_count;

enum conv_status conv_output_open(int workers, struct conv_err *err)
{
    temporaries = calloc((size_t)workers, sizeof *temporaries);
    if (!temporaries)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d workers", workers);
    temporary_count = workers;
    return CONV_OK;
}

void conv_output_close(void)
{
    temporary_count = 0;
    free(temporaries);
    temporaries = NULL;
}

void conv_output_abandon(void)
{
    for (int i = 0; i < temporary_count; i++)
        if (atomic_load(&temporaries[i].exists))
            unlink(temporaries[i].path);
}

static int write_parts(int fd, const struct conv_png_bytes *bytes)
{
    struct iovec parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i].iov_base = (void *)(uintptr_t)bytes->part[i].data; // writev only reads
        parts[i].iov_len = bytes->part[i].size;
    }
    int first = 0;
    while (first < 3) {
        if (parts[first].iov_len == 0) {
            first++;
            continue;
        }
        ssize_t written = writev(fd, parts + first, 3 - first);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        for (size_t left = (size_t)written; left > 0 && first < 3;) {
            size_t step = left < parts[first].iov_len ? left : parts[first].iov_len;
            parts[first].iov_base = (uint8_t *)parts[first].iov_base + step;
            parts[first].iov_len -= step;
            left -= step;
            if (parts[first].iov_len == 0)
                first++;
        }
    }
    return 0;
}

// What is there already and is no regular file (a terminal, /dev/null, a pipe) is written as it is.
static enum conv_status write_special(const char *path, const struct conv_png_bytes *bytes,
                                      struct conv_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot open %s", path);
    enum conv_status status = CONV_OK;
    if (write_parts(fd, bytes) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", standard ? "standard output" : path);
    if (!standard && close(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    return status;
}

// Opens a temporary file beside `path`. The name is short, since `path` may have the longest name
// the file system takes, and recognisable.
static int open_temporary(struct temporary *temporary, int worker, const char *path)
{
    size_t folder = (size_t)(conv_paths_base(path) - path);
    if (folder >= PATH_MAX - 64) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (unsigned attempt = 0;; attempt++) {
        snprintf(temporary->path, sizeof temporary->path, "%.*s.conv-%ld-%d-%u.tmp", (int)folder,
                 path, (long)getpid(), worker, attempt);
        atomic_store(&temporary->exists, true);
        int fd = open(temporary->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        atomic_store(&temporary->exists, false);
        if (errno != EEXIST || attempt == 99)
            return -1;
    }
}

static enum conv_status write_renamed(int worker, const char *path,
                                      const struct conv_png_bytes *bytes,
                                      const struct stat *preserve, struct conv_err *err)
{
    struct temporary *temporary = &temporaries[worker];
    enum conv_status status = CONV_OK;
    int fd = open_temporary(temporary, worker, path);
    if (fd < 0 && errno == ENOENT) {
        status = conv_paths_make_parent(path, err);
        if (status)
            return status;
        fd = open_temporary(temporary, worker, path);
    }
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot create %s", path);

    if (write_parts(fd, bytes) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (!status && preserve) {
        struct timespec times[2] = {preserve->st_atim, preserve->st_mtim};
        if (fchmod(fd, preserve->st_mode & 07777) != 0 || futimens(fd, times) != 0)
            status = conv_err_errno(err, errno, "cannot set mode and time of %s", path);
    }
    if (close(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (!status && rename(temporary->path, path) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (status)
        unlink(temporary->path);
    atomic_store(&temporary->exists, false);
    return status;
}

enum conv_status conv_output_write(int worker, const char *path, const struct conv_png_bytes *bytes,
                                   const struct stat *preserve, struct conv_err *err)
{
    struct stat info;
    if (strcmp(path, "-") == 0)
        return write_special(path, bytes, err);
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return conv_err_set(err, CONV_ERR_IO, "the output %s is a folder", path);
        if (!S_ISREG(info.st_mode))
            return write_special(path, bytes, err);
    }
    return write_renamed(worker, path, bytes, preserve, err);
}
