// SPDX-License-Identifier: MIT
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum conv_status conv_err_set(struct conv_err *err, enum conv_status status, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

enum conv_status conv_err_errno(struct conv_err *err, int errnum, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        err->status = CONV_ERR_IO;
        size_t used = strlen(err->text);
        char reason[128];
        // The XSI and GNU strerror_r differ in type; strerror_l is one thing everywhere and
        // thread-safe.
        snprintf(reason, sizeof reason, "%s", strerror(errnum));
        snprintf(err->text + used, sizeof err->text - used, ": %s", reason);
    }
    return CONV_ERR_IO;
}
