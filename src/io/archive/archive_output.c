// SPDX-License-Identifier: MIT
#include "io/archive/archive_output.h"

#include <errno.h>
#include <unistd.h>

enum conv_status conv_archive_output_open(struct conv_archive_output *output, const char *path,
                                          int threads, bool force, const atomic_int *stop,
                                          struct conv_err *err)
{
    output->windows.fd = -1;
    output->at = 0;
    enum conv_status status = conv_temporary_open(&output->file, path, force, stop, err);
    if (!status && !output->file.is_stream)
        conv_archive_windows_open(&output->windows, output->file.fd, threads);
    return status;
}

// --- writing -------------------------------------------------------------------------------------

enum conv_status conv_archive_output_write(struct conv_archive_output *output, const void *data,
                                           size_t size, struct conv_err *err)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    enum conv_status status = output->file.is_stream
                                  ? conv_temporary_write(&output->file, data, size, err)
                                  : conv_archive_output_write_at(output, output->at, &part, 1, err);
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
            written = pwrite(output->file.fd, parts->iov_base, most, (off_t)offset);
        else if (written == 0)
            written =
                pwritev(output->file.fd, parts, output->windows.fd < 0 ? count : 1, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return conv_err_errno(err, errno, "cannot write %s", output->file.path);
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
        result = ftruncate(output->file.fd, (off_t)output->at);
    while (result != 0 && errno == EINTR);
    return result ? conv_err_errno(err, errno, "cannot write %s", output->file.path) : CONV_OK;
}

// --- closing -------------------------------------------------------------------------------------

enum conv_status conv_archive_output_close(struct conv_archive_output *output, bool keep,
                                           bool fsync, struct conv_err *err)
{
    conv_archive_windows_close(&output->windows); // still open after a failure only
    return output->file.fd < 0 ? CONV_OK : conv_temporary_close(&output->file, keep, fsync, err);
}
