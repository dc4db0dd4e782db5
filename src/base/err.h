// SPDX-License-Identifier: MIT
// How every function of this program fails: a status to decide by, a text for the user, and a hint
// that a front end can put into its own words; and the candidates for "did you mean ...?".
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "conv_status.h"

// Which setting a failure is about, or which setting would help. Texts do not name options of the
// command line; cli/errors.c adds them, and a library can name its own settings.
enum conv_hint {
    CONV_HINT_NONE = 0,
    // The setting that the text is about.
    CONV_HINT_BIAS,
    CONV_HINT_BORDER_CONSTANT, // the constant of a border
    CONV_HINT_DIVISOR,
    CONV_HINT_DIVISOR_SUM,    // the divisor is to be the sum of the coefficients
    CONV_HINT_JOURNAL,        // the text begins with its path
    CONV_HINT_KERNEL,         // the kernel that was given as a text
    CONV_HINT_KERNEL_AT,      // the text begins with "character N: "
    CONV_HINT_LIST,           // the list of inputs; the text begins with its path
    CONV_HINT_LIST_INPUTS,    // the inputs given together with such a list
    CONV_HINT_PADDING,        // of a layer
    CONV_HINT_REPLACE,        // images are to be replaced by their results
    CONV_HINT_REPLACE_TWICE,  // the same, and the inputs overlap
    CONV_HINT_REPORT,         // the file with the report; the text begins with its path
    CONV_HINT_SIZE,           // the size of a built-in filter, `value`
    CONV_HINT_SIZE_OF_CUSTOM, // the same, and the filter is not built in
    CONV_HINT_SUBFOLDERS,     // folders below the inputs are included
    CONV_HINT_TRACE,          // the file with the trace; the text begins with its path
    CONV_HINT_VARIANT,        // the kernel variant; the text begins with its name
    // The setting that would help.
    CONV_HINT_BASE, // the folder that names are relative to
    CONV_HINT_DEFINE_KERNEL,
    CONV_HINT_EXISTING,      // outputs are skipped because they exist
    CONV_HINT_FEWER_WORKERS, // threads, since each takes memory
    CONV_HINT_FLOATS,        // float32 results
    CONV_HINT_FLOAT_FORMAT,  // of the output, with float32 samples
    CONV_HINT_FORCE,         // write-protected files are replaced
    CONV_HINT_GRAY,          // luminance as the only channel
    CONV_HINT_KEEP_ALPHA,    // colours are not multiplied by it
    CONV_HINT_KEEP_FOLDERS,  // outputs in folders like their inputs
    CONV_HINT_MAX_PIXELS,
    CONV_HINT_MEM_LIMIT,       // `value` bytes would do
    CONV_HINT_MEM_LIMIT_FILE,  // a file larger than the limit
    CONV_HINT_MEM_LIMIT_TRY,   // a limit chosen by the user replaces the estimate
    CONV_HINT_OTHER_ENCODER,   // libpng's
    CONV_HINT_OTHER_FORMAT,    // of the output, with alpha
    CONV_HINT_OTHER_FOLDER,    // for the outputs, or images replaced by their results
    CONV_HINT_REPLACE_INSTEAD, // images replaced by their results
    CONV_HINT_TAKE_FIRST,      // the first image of an animation
    CONV_HINT_TAKE_FIRST_COPY, // the same, but not where it replaces the animation
    CONV_HINT_NO_LINKS,        // only files are replaced, no links
    CONV_HINT_COUNT,
};

// The reason in the user's words, without the file's name, which the report puts in front.
// The caller supplies it; a function that returns CONV_OK leaves it untouched.
// There is room for a path of any length and the cause after it.
struct conv_err {
    enum conv_status status;
    enum conv_hint hint;
    uint64_t value; // of the hint
    char text[4096 + 384];
};

// Fills *err (which may be NULL), without a hint, and returns `status`, so that
// `return conv_err_set(...)` works.
enum conv_status conv_err_set(struct conv_err *err, enum conv_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The same with a status of their own.
#define CONV_CANCEL_TEXT "cancelled by a signal"
#define conv_err_cancelled(err) conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT)
#define conv_err_format(err, ...) conv_err_set(err, CONV_ERR_FORMAT, __VA_ARGS__)
#define conv_err_limit(err, ...) conv_err_set(err, CONV_ERR_LIMIT, __VA_ARGS__)
#define conv_err_memory(err, ...) conv_err_set(err, CONV_ERR_MEMORY, __VA_ARGS__)
#define conv_err_unsupported(err, ...) conv_err_set(err, CONV_ERR_UNSUPPORTED, __VA_ARGS__)
#define conv_err_usage(err, ...) conv_err_set(err, CONV_ERR_USAGE, __VA_ARGS__)

// The same with a hint.
enum conv_status conv_err_advise(struct conv_err *err, enum conv_status status, enum conv_hint hint,
                                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

// As conv_err_set with CONV_ERR_IO, the text followed by ": " and strerror(errnum).
enum conv_status conv_err_errno(struct conv_err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// As conv_err_set with CONV_ERR_MEMORY: there is no memory for that many workers. Has a hint.
enum conv_status conv_err_workers(struct conv_err *err, int workers);

// As conv_err_errno, for the error number of pthread_create.
enum conv_status conv_err_thread(struct conv_err *err, int errnum);

// Adds a hint to *err (which may be NULL) and returns `status`, to be wrapped around a call of the
// functions above.
enum conv_status conv_err_hint(struct conv_err *err, enum conv_hint hint, uint64_t value,
                               enum conv_status status);

// --- texts ---------------------------------------------------------------------------------------

// Bytes of the UTF-8 character (RFC 3629) that a text of `left` bytes, at least 1, begins with; 0
// if it is none. Of a terminated text `left` may be any number.
size_t conv_text_utf8(const void *text, size_t left);

// Appends to a text of at most size - 1 bytes; `separator` comes first unless the text is empty.
void conv_text_add(char *text, size_t size, const char *separator, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// --- did you mean --------------------------------------------------------------------------------

// The one of `count` candidates that `word` most likely meant (optimal string alignment distance:
// insert, delete, replace, swap neighbours), or NULL if none is near. The i-th candidate's name is
// the `const char *` at `first + i * step` bytes, so that a table of structs can be searched.
const char *conv_suggest_nearest(const char *word, const void *first, size_t step, size_t count);

// All candidates that are as near as the nearest, at most `room` of them, in their order, without
// names that begin with an earlier candidate's name. Returns how many were written to `names`.
size_t conv_suggest_all(const char **names, size_t room, const char *word, const void *first,
                        size_t step, size_t count);

// The index of the candidate that `word` is. -1: none, with CONV_ERR_USAGE: "unknown WHAT 'WORD';
// did you mean 'NEAR'? (there are A, B, C)".
int conv_suggest_choice(const char *what, const char *word, const void *first, size_t step,
                        size_t count, struct conv_err *err);
