// SPDX-License-Identifier: MIT
// How every function of this program fails: a status to decide by, a text for the user.
#ifndef CONV_BASE_ERR_H
#define CONV_BASE_ERR_H

enum conv_status {
    CONV_OK = 0,
    CONV_ERR_USAGE,       // the user asked for something that makes no sense
    CONV_ERR_IO,          // the system refused to read or write
    CONV_ERR_FORMAT,      // the bytes are no valid PNG (or filter file)
    CONV_ERR_UNSUPPORTED, // valid, but this program or this option cannot do it
    CONV_ERR_LIMIT,       // beyond --max-pixels or --mem-limit
    CONV_ERR_MEMORY,      // the system has no memory left
    CONV_ERR_DEVICE,      // the GPU or its driver failed
    CONV_ERR_CANCELLED,   // a signal or --fail-fast stopped the run
};

// The reason in the user's words, without the file's name: the reporter puts that in front.
// The caller supplies it; a function that returns CONV_OK leaves it untouched.
// There is room for a path of any length and the cause behind it.
struct conv_err {
    enum conv_status status;
    char text[4096 + 384];
};

// Fills *err (which may be NULL) and returns `status`, so that `return conv_err_set(...)` works.
enum conv_status conv_err_set(struct conv_err *err, enum conv_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// As conv_err_set with CONV_ERR_IO, the text followed by ": " and strerror(errnum).
enum conv_status conv_err_errno(struct conv_err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
