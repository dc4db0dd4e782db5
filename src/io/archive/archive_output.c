// SPDX-License-Identifier: MIT
#include "io/archive/archive_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"
#include "io/files/special.h"
#include "io/files/temporary.h"

#define MOST_ATTEMPTS 100 // at an unused temporary name

// --- opening -------------------------------------------------------------------------------------

static enum conv_status open_temporary(struct conv_archive_output *output, int threads, bool force,
                                       struct conv_err *err)
{
    size_t folder = (size_t)(conv_paths_base(output->path) - output->path);
    if (folder + CONV_TEMPORARY_NAME_SIZE > sizeof output->temporary)
        return conv_err_set(err, CONV_ERR_LIMIT, "%s: path too long", output->path);
    enum conv_status status = conv_paths_make_parent(output->path, err);
    if (!status)
        status = conv_access_plan(&output->access, output->path, force, err);
    if (status)
        return status;
    memcpy(output->temporary, output->path, folder);
    output->temporary[folder] = '\0';
    conv_temporary_sweep(output->temporary);
    for (unsigned attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        conv_temporary_name(output->temporary + folder, attempt);
        atomic_store(&output->has_temporary, true);
        output->fd = conv_paths_create(output->temporary, O_RDWR | O_CREAT | O_EXCL,
                                       conv_access_first(&output->access));
        output->owns_fd = output->fd >= 0;
        if (output->fd >= 0) {
            conv_archive_windows_open(&output->windows, output->fd, threads);
            return CONV_OK;
        }
        atomic_store(&output->has_temporary, false);
        if (errno != EEXIST)
            break;
    }
    return conv_err_errno(err, errno, "cannot create %s", output->path);
}

// A pipe, a device or an open descriptor: it is written to, not replaced.
static enum conv_status open_special(struct conv_archive_output *output, struct conv_err *err)
{
    bool standard = conv_paths_is_standard(output->path);
    int own = standard ? STDOUT_FILENO : conv_paths_descriptor(output->path);
    output->is_stream = true;
    if (own == STDOUT_FILENO && conv_standard_is_closed(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
    output->fd = own >= 0 ? own : conv_special_open(output->path, output->stop);
    output->owns_fd = own < 0 && output->fd >= 0;
    if (output->fd < 0 && errno == EINTR)
        return conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for the reader of %s",
                            output->path);
#ifdef F_SETPIPE_SZ
    if (output->fd >= 0) // fewer switches between its two ends
        (void)fcntl(output->fd, F_SETPIPE_SZ, 1 << 20);
#endif
    return output->fd < 0 ? conv_err_errno(err, errno, "cannot open %s", output->path) : CONV_OK;
}

enum conv_status conv_archive_output_open(struct conv_archive_output *output, const char *path,
                                          int threads, bool force, const atomic_int *stop,
                                          struct conv_err *err)
{
    struct stat info;
    bool standard = conv_paths_is_standard(path);
    bool exists = !standard && stat(path, &info) == 0;
    output->fd = output->windows.fd = -1;
    output->owns_fd = output->is_stream = false;
    output->at = 0;
    output->stop = stop;
    if (strlen(path) >= sizeof output->path)
        return conv_err_set(err, CONV_ERR_LIMIT, "path too long");
    snprintf(output->path, sizeof output->path, "%s", path);
    if (exists && S_ISDIR(info.st_mode))
        return conv_err_set(err, CONV_ERR_USAGE, "the output %s is a folder", path);
    bool special =
        standard || conv_paths_descriptor(path) >= 0 || (exists && !S_ISREG(info.st_mode));
    return special ? open_special(output, err) : open_temporary(output, threads, force, err);
}

// --- writing -------------------------------------------------------------------------------------

enum conv_status conv_archive_output_write(struct conv_archive_output *output, const void *data,
                                           size_t size, struct conv_err *err)
{
    const char *name = conv_paths_is_standard(output->path) ? "standard output" : output->path;
    enum conv_status status;
    if (output->is_stream) {
        const struct conv_encoded bytes = {.part = {{data, size}}, .size = size};
        status = conv_special_write_to(output->fd, name, &bytes, output->stop, err);
    } else {
        struct iovec part = {(void *)(uintptr_t)data, size};
        status = conv_archive_output_write_at(output, output->at, &part, 1, err);
    }
    output->at += size;
    return status;
}

enum conv_status conv_archive_output_write_at(struct conv_archive_output *output, uint64_t offset,
                                              struct iovec *parts, int count, struct conv_err *err)
{
    while (count > 0) {
        if (parts->iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        size_t most;
        ssize_t written = (ssize_t)conv_archive_windows_write(
            &output->windows, offset, parts->iov_base, parts->iov_len, &most);
        if (written == 0 && most < parts->iov_len) // the rest may go to a window
            written = pwrite(output->fd, parts->iov_base, most, (off_t)offset);
        else if (written == 0)
            written = pwritev(output->fd, parts, output->windows.fd < 0 ? count : 1, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return conv_err_errno(err, errno, "cannot write %s", output->path);
        offset += (uint64_t)written;
        for (size_t left = (size_t)written; left > 0;) {
            size_t step = left < parts->iov_len ? left : parts->iov_len;
            parts->iov_base = (uint8_t *)parts->iov_base + step;
            parts->iov_len -= step;
            left -= step;
            if (parts->iov_len == 0 && left > 0) {
                parts++;
                count--;
            }
        }
    }
    return CONV_OK;
}

enum conv_status conv_archive_output_settle(struct conv_archive_output *output,
                                            struct conv_err *err)
{
    if (output->windows.fd < 0)
        return CONV_OK;
    conv_archive_windows_close(&output->windows);
    int result;
    do
        result = ftruncate(output->fd, (off_t)output->at);
    while (result != 0 && errno == EINTR);
    return result ? conv_err_errno(err, errno, "cannot write %s", output->path) : CONV_OK;
}

// --- closing -------------------------------------------------------------------------------------

static int sync_file(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

// Makes the name permanent. File systems that cannot do this to a folder have nothing to flush.
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(conv_paths_base(path) - path), path);
    int fd = conv_paths_open(folder[0] ? folder : ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    int result = sync_file(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
    close(fd);
    return result;
}

enum conv_status conv_archive_output_close(struct conv_archive_output *output, bool keep,
                                           bool fsync, struct conv_err *err)
{
    bool has_temporary = atomic_load(&output->has_temporary), failed = false;
    if (output->fd < 0 && !has_temporary)
        return CONV_OK;
    conv_archive_windows_close(&output->windows); // still open after a failure only
    enum conv_status status =
        has_temporary && keep ? conv_access_finish(output->fd, &output->access, output->path, err)
                              : CONV_OK;
    keep = keep && !status;
    if (keep && fsync && !output->is_stream)
        failed = sync_file(output->fd) != 0;
    int errnum = errno;
    if (output->owns_fd && close(output->fd) != 0 && errno != EINTR && !failed) {
        failed = true;
        errnum = errno;
    }
    if (has_temporary && keep && !failed && rename(output->temporary, output->path) != 0) {
        failed = true;
        errnum = errno;
    }
    if (has_temporary && (!keep || failed))
        unlink(output->temporary);
    atomic_store(&output->has_temporary, false);
    output->fd = -1;
    output->owns_fd = false;
    if (keep && !failed && fsync && !output->is_stream && sync_folder(output->path) != 0)
        return conv_err_errno(err, errno, "cannot flush the folder of %s", output->path);
    return keep && failed ? conv_err_errno(err, errnum, "cannot write %s", output->path) : status;
}

void conv_archive_output_remove(struct conv_archive_output *output)
{
    if (atomic_load(&output->has_temporary))
        unlink(output->temporary);
}
