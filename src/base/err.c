// SPDX-License-Identifier: MIT
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static void set(struct conv_err *err, enum conv_status status,
                                                      const char *fmt, va_list args)
{
    if (!err)
        return;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    err->status = status;
    err->hint = CONV_HINT_NONE;
}

enum conv_status conv_err_set(struct conv_err *err, enum conv_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, status, fmt, args);
    va_end(args);
    return status;
}

enum conv_status conv_err_errno(struct conv_err *err, int errnum, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, CONV_ERR_IO, fmt, args);
    va_end(args);
    size_t used = err ? strlen(err->text) : 0;
    if (err)
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(errnum));
    return CONV_ERR_IO;
}

enum conv_status conv_err_workers(struct conv_err *err, int workers)
{
    conv_err_set(err, CONV_ERR_MEMORY, "no memory for the worker threads (%d)", workers);
    return conv_err_hint(err, CONV_HINT_FEWER_WORKERS, 0, CONV_ERR_MEMORY);
}

// EAGAIN stands for a limit of the number of threads, and hardly says so: "Resource temporarily
// unavailable".
enum conv_status conv_err_thread(struct conv_err *err, int errnum)
{
    if (errnum != EAGAIN)
        return conv_err_errno(err, errnum, "cannot start a thread");
    return conv_err_set(
        err, CONV_ERR_IO,
        "cannot start a thread: a limit of the user (ulimit -u) or of the container is "
        "reached, or memory is short");
}

enum conv_status conv_err_hint(struct conv_err *err, enum conv_hint hint, uint64_t value,
                               enum conv_status status)
{
    if (err) {
        err->hint = hint;
        err->value = value;
    }
    return status;
}
