// SPDX-License-Identifier: MIT
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
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

enum conv_status conv_err_advise(struct conv_err *err, enum conv_status status, enum conv_hint hint,
                                 const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, status, fmt, args);
    va_end(args);
    return conv_err_hint(err, hint, 0, status);
}

enum conv_status conv_err_errno(struct conv_err *err, int errnum, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, CONV_ERR_IO, fmt, args);
    va_end(args);
    if (err)
        conv_text_add(err->text, sizeof err->text, ": ", "%s", strerror(errnum));
    return CONV_ERR_IO;
}

enum conv_status conv_err_workers(struct conv_err *err, int workers)
{
    return conv_err_advise(err, CONV_ERR_MEMORY, CONV_HINT_FEWER_WORKERS,
                           "no memory for the worker threads (%d)", workers);
}

// EAGAIN stands for a limit of the number of threads, and hardly says so: "Resource temporarily
// unavailable".
enum conv_status conv_err_thread(struct conv_err *err, int errnum)
{
    if (errnum != EAGAIN)
        return conv_err_errno(err, errnum, "cannot start a thread");
    return conv_err_set(err, CONV_ERR_IO,
                        "cannot start a thread: a limit of the user (ulimit -u) or of the "
                        "container is reached, or memory is short");
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

size_t conv_text_utf8(const void *text, size_t left)
{
    const unsigned char *s = text;
    size_t size = s[0] < 0x80 ? 1 : s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if ((s[0] >= 0x80 && s[0] < 0xC2) || s[0] > 0xF4 || size > left)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    bool wrong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
                 (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F);
    return wrong ? 0 : size; // longer than needed, a surrogate, or beyond U+10FFFF
}

void conv_text_add(char *text, size_t size, const char *separator, const char *fmt, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    if (used > 0)
        used += strlen(strncat(text + used, separator, size - 1 - used));
    vsnprintf(text + used, size - used, fmt, args);
    va_end(args);
}

// --- did you mean --------------------------------------------------------------------------------

#define MAX_WORD 63 // longer words cannot be misspelt names

static char fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

// Optimal string alignment: Damerau-Levenshtein without editing a swapped pair again. Only the
// last three rows of the table are kept.
static int distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int rows[3][MAX_WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_size; j++) {
        before[j] = 0;
        last[j] = (int)j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= b_size; j++) {
            char p = fold(a[i - 1]), q = fold(b[j - 1]);
            now[j] = least(last[j - 1] + (p != q), least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && p == fold(b[j - 2]) && q == fold(a[i - 2]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_size];
}

static int is_start(const char *word, size_t size, const char *name)
{
    for (size_t i = 0; i < size; i++) {
        if (fold(word[i]) != fold(name[i]))
            return 0;
    }
    return 1;
}

// The distance between word and name, or -1 if it is too large for a typing mistake: more than a
// third of the letters, and more than one. An unfinished name ("gauss") counts as one wrong letter.
static int mistakes(const char *word, size_t word_size, const char *name, size_t name_size)
{
    if (word_size >= 3 && word_size < name_size && is_start(word, word_size, name))
        return 1;
    size_t longer = word_size > name_size ? word_size : name_size;
    int limit = longer < 6 ? 1 : (int)(longer / 3);
    int count = distance(word, word_size, name, name_size);
    return count <= limit && (size_t)count < longer ? count : -1;
}

size_t conv_suggest_all(const char **names, size_t room, const char *word, const void *first,
                        size_t step, size_t count)
{
    size_t found = 0, word_size = strlen(word);
    int fewest = MAX_WORD;
    if (word_size == 0 || word_size > MAX_WORD)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)((const char *)first + i * step);
        size_t name_size = strlen(name);
        if (name_size > MAX_WORD)
            continue;
        int n = mistakes(word, word_size, name, name_size);
        if (n < 0 || n > fewest)
            continue;
        found = n < fewest ? 0 : found; // the names before were further away
        fewest = n;
        size_t k = 0;
        while (k < found && !is_start(names[k], strlen(names[k]), name))
            k++;
        if (k == found && found < room) // "emboss" stands for "emboss5" too
            names[found++] = name;
    }
    return found;
}

const char *conv_suggest_nearest(const char *word, const void *first, size_t step, size_t count)
{
    const char *nearest;
    return conv_suggest_all(&nearest, 1, word, first, step, count) ? nearest : NULL;
}

int conv_suggest_choice(const char *what, const char *word, const void *first, size_t step,
                        size_t count, struct conv_err *err)
{
    char all[1024] = "";
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)((const char *)first + i * step);
        if (strcmp(name, word) == 0)
            return (int)i;
        conv_text_add(all, sizeof all, ", ", "%s", name);
    }
    const char *near = conv_suggest_nearest(word, first, step, count);
    conv_err_set(err, CONV_ERR_USAGE, "unknown %s '%.64s'%s%s%s (there are %s)", what, word,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", all);
    return -1;
}
