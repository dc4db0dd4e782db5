// SPDX-License-Identifier: MIT
// Finds overlapping inputs by sorting their resolved paths.
#include "io/files/in_place.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files/paths.h"

struct operand {
    const char *input; // as the user wrote it
    char *resolved;
    bool folder;
};

// By path, with the slash before all other characters: a folder comes directly before its content.
static int compare_operands(const void *a, const void *b)
{
    const char *x = ((const struct operand *)a)->resolved;
    const char *y = ((const struct operand *)b)->resolved;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    int first = *x == '/' ? 1 : (unsigned char)*x + (*x != '\0');
    int second = *y == '/' ? 1 : (unsigned char)*y + (*y != '\0');
    return (first > second) - (first < second);
}

static bool is_in(const char *inner, const char *outer)
{
    size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || outer[length - 1] == '/');
}

// The operands are sorted: all folders that contain an operand come before it, each inside the one
// before it. `around` has room for `count`.
static enum conv_status compare_neighbours(const struct operand *operands, int count,
                                           const struct operand **around, bool recursive,
                                           struct conv_err *err)
{
    int depth = 0;
    for (int i = 0; i < count; i++) {
        const struct operand *operand = &operands[i], *other = NULL;
        while (depth > 0 && !is_in(operand->resolved, around[depth - 1]->resolved) &&
               strcmp(operand->resolved, around[depth - 1]->resolved) != 0)
            depth--;
        if (depth > 0 && (strcmp(operand->resolved, around[depth - 1]->resolved) == 0 ||
                          recursive || !operand->folder || !around[depth - 1]->folder))
            other = around[depth - 1];
        if (other)
            return conv_err_hint(err, CONV_HINT_REPLACE_TWICE, 0,
                                 conv_err_set(err, CONV_ERR_USAGE, "%s and %s overlap",
                                              other->input, operand->input));
        around[depth++] = operand;
    }
    return CONV_OK;
}

enum conv_status conv_in_place_check(const char *const *inputs, int count, bool recursive,
                                     struct conv_err *err)
{
    if (count < 2)
        return CONV_OK;
    struct operand *operands = calloc((size_t)count, sizeof *operands);
    const struct operand **around = calloc((size_t)count, sizeof *around);
    int used = 0;
    bool enough = operands && around;
    for (int i = 0; i < count && enough; i++) {
        char resolved[PATH_MAX];
        struct stat info;
        if (!conv_paths_resolve(inputs[i], resolved))
            continue; // reported when it is opened
        operands[used].input = inputs[i];
        operands[used].folder = stat(inputs[i], &info) == 0 && S_ISDIR(info.st_mode);
        operands[used].resolved = strdup(resolved);
        enough = operands[used++].resolved != NULL;
    }
    enum conv_status status =
        enough ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d inputs", count);
    if (!status) {
        qsort(operands, (size_t)used, sizeof *operands, compare_operands);
        status = compare_neighbours(operands, used, around, recursive, err);
    }
    for (int i = 0; i < used; i++)
        free(operands[i].resolved);
    free(operands);
    free(around);
    return status;
}
