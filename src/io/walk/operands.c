// SPDX-License-Identifier: MIT
// The checks of inputs and output, in the order in which their messages are most useful.
#include "io/walk/operands.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files/formats.h"
#include "io/files/paths.h"

// --- inputs that are replaced --------------------------------------------------------------------

// Finds overlapping inputs by sorting their resolved paths.

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

// The operands are sorted: all folders that contain an operand come before it, each inside the one
// before it. `around` has room for `count`.
static enum conv_status compare_neighbours(const struct operand *operands, int count,
                                           const struct operand **around, bool recursive,
                                           struct conv_err *err)
{
    int depth = 0;
    for (int i = 0; i < count; i++) {
        const struct operand *operand = &operands[i], *other = NULL;
        while (depth > 0 && !conv_paths_is_inside(operand->resolved, around[depth - 1]->resolved) &&
               strcmp(operand->resolved, around[depth - 1]->resolved) != 0)
            depth--;
        if (depth > 0 && (strcmp(operand->resolved, around[depth - 1]->resolved) == 0 ||
                          recursive || !operand->folder || !around[depth - 1]->folder))
            other = around[depth - 1];
        if (other)
            return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_REPLACE_TWICE,
                                   "%s and %s overlap", other->input, operand->input);
        around[depth++] = operand;
    }
    return CONV_OK;
}

// CONV_ERR_USAGE if two of the inputs are the same file or folder, links resolved, or if one is
// inside the other so that its images would be filtered twice. An input that does not exist passes:
// opening it gives the reason. Takes O(n log n) for n inputs.
static enum conv_status check_in_place(const char *const *inputs, int count, bool recursive,
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
        enough ? CONV_OK : conv_err_memory(err, "no memory for %d inputs", count);
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

// --- operands ------------------------------------------------------------------------------------

// A folder with outputs below the only input is skipped.
static bool find_below(char below[PATH_MAX], const char *input, const char *output)
{
    char outer[PATH_MAX], inner[PATH_MAX];
    if (!conv_paths_resolve(input, outer) || !conv_paths_resolve(output, inner) ||
        !conv_paths_is_inside(inner, outer))
        return false;
    const char *rest = inner + strlen(outer);
    strcpy(below, rest + strspn(rest, "/"));
    return true;
}

static enum conv_status check_pair(const char *input, const struct conv_operands *operands,
                                   struct conv_operands_shape *shape, struct conv_err *err)
{
    const char *output = operands->output;
    switch (conv_paths_relation(input, output)) {
    case CONV_PATHS_SAME:
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_OTHER_FOLDER,
                               "input and output are the same folder: %s", input);
    case CONV_PATHS_NESTED:
        if (operands->recursive &&
            (operands->input_count > 1 || !find_below(shape->below, input, output)))
            return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_SUBFOLDERS,
                                   "neither of %s and %s may lie inside the other", input, output);
        break;
    case CONV_PATHS_APART:
        break;
    }
    return CONV_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(conv_paths_base(*(const char *const *)a),
                  conv_paths_base(*(const char *const *)b));
}

// "..", "a/../", "." and "/" name no folder below the output; the first would leave it.
static bool lacks_name(const char *path)
{
    const char *base = conv_paths_base(path);
    size_t length = strcspn(base, "/");
    return length == 0 || (length <= 2 && strncmp(base, "..", length) == 0);
}

// Several inputs go into one folder under their own names, which must differ.
static enum conv_status check_names(const struct conv_operands *operands, struct conv_err *err)
{
    size_t count = (size_t)operands->input_count;
    const char **sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return conv_err_memory(err, "no memory for %zu names", count);
    memcpy(sorted, operands->inputs, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < count && !status; i++)
        if (lacks_name(sorted[i]))
            status = conv_err_usage(err,
                                    "with several inputs each output is named after its input, and "
                                    "'%s' has no name; write the folder's own name",
                                    sorted[i]);
    for (size_t i = 1; i < count && !status; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            status = conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_KEEP_FOLDERS,
                                     "%s and %s would become the same output file", sorted[i - 1],
                                     sorted[i]);
    free(sorted);
    return status;
}

static enum conv_status check_input(const struct conv_operands *operands, const char *input,
                                    bool is_folder, struct conv_operands_shape *shape,
                                    struct conv_err *err)
{
    if (!input[0])
        return conv_err_usage(err, "the name of an input is empty");
    if (operands->files_from && !is_folder)
        return conv_err_advise(
            err, CONV_ERR_USAGE, CONV_HINT_LIST_INPUTS,
            "the input must be the folder that the names are in; %s is not a folder", input);
    if (operands->in_place && conv_paths_is_standard(input))
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_REPLACE,
                               "standard input cannot be replaced");
    if (operands->beside && conv_paths_is_standard(input))
        return conv_err_usage(err, "standard input has no folder to write the result to");
    if (!operands->in_place && is_folder && operands->output)
        return check_pair(input, operands, shape, err);
    return CONV_OK;
}

static enum conv_status check_inputs(const struct conv_operands *operands,
                                     struct conv_operands_shape *shape, struct conv_err *err)
{
    bool any_archive = operands->archives && operands->archives->count > 0;
    shape->any_folder = operands->files_from || any_archive;
    shape->several = operands->input_count > 1;
    shape->may_coincide = shape->any_folder || shape->several || operands->npy ||
                          operands->format || operands->suffix;
    for (int i = 0; i < operands->input_count; i++) {
        bool is_folder = conv_paths_is_folder(operands->inputs[i]);
        shape->any_folder |= is_folder;
        enum conv_status status = check_input(operands, operands->inputs[i], is_folder, shape, err);
        if (status)
            return status;
    }
    if (operands->in_place && any_archive)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_REPLACE,
                               "archives cannot be replaced");
    if (operands->files_from && shape->several)
        return conv_err_advise(
            err, CONV_ERR_USAGE, CONV_HINT_LIST_INPUTS,
            "only one input is possible, the folder that the names are in; %d given",
            operands->input_count);
    if (!operands->in_place && !operands->beside)
        return CONV_OK;
    enum conv_status status =
        check_in_place(operands->inputs, operands->input_count, operands->recursive, err);
    return status && operands->beside ? conv_err_hint(err, CONV_HINT_NONE, 0, status) : status;
}

// Checks the format that the name of an output file stands for. `format` is its name, NULL if the
// file's name stands for none.
static enum conv_status check_output_name(const struct conv_operands *operands, const char *output,
                                          const char *format, struct conv_err *err)
{
    const struct conv_format *written = conv_formats_of_name(output);
    int stem = format ? (int)(strrchr(output, '.') - output) : 0;
    if (operands->npy && format)
        return conv_err_usage(
            err, "float32 results are written as .npy; the name %s means %s: use %.*s.npy", output,
            format, stem, output);
    if (!operands->npy && conv_paths_is_npy(output))
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_FLOATS,
                               "the output %s: .npy files are for float32 results", output);
    if (format && !written)
        return conv_err_usage(err, "conv writes %s only; the name %s means %s: use %.*s.png",
                              conv_formats_written, output, format, stem, output);
    if (written && operands->format && written != operands->format)
        return conv_err_usage(err, "outputs are to be %s; the name %s means %s: use %.*s%s",
                              operands->format->name, output, format, stem, output,
                              operands->format->extension);
    return CONV_OK;
}

// No file that is an operand is the output made from it, where outputs keep the names of inputs.
static enum conv_status check_files(const struct conv_operands *operands, bool is_folder,
                                    struct conv_err *err)
{
    char path[PATH_MAX];
    struct stat in, out;
    for (int i = 0; i < operands->input_count; i++) {
        const char *input = operands->inputs[i];
        if ((operands->archives && operands->archives->inputs[i]) || stat(input, &in) ||
            !S_ISREG(in.st_mode) || operands->suffix || operands->format || operands->npy)
            continue;
        if (conv_paths_join(path, is_folder ? operands->output : "",
                            is_folder ? conv_paths_base(input) : operands->output) &&
            stat(path, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_REPLACE_INSTEAD,
                                   "%s: the output would overwrite the input", input);
    }
    return CONV_OK;
}

static enum conv_status check_output(const struct conv_operands *operands,
                                     struct conv_operands_shape *shape, struct conv_err *err)
{
    const char *output = operands->output;
    if (!output[0])
        return conv_err_usage(err, "the name of the output is empty");
    struct stat info;
    if (!conv_paths_is_standard(output) && stat(output, &info) && errno == ENOTDIR)
        return conv_err_usage(err, "the output %s: its path leads through a file", output);
    if (operands->archives) {
        enum conv_status status =
            conv_archive_operands_target(operands->archives, operands, shape, err);
        if (!status && operands->archives->target_count > 1)
            status = check_names(operands, err);
        if (status || shape->sink == CONV_SINK_ARCHIVE)
            return status;
    }
    if (conv_paths_is_standard(output)) {
        shape->sink = CONV_SINK_STANDARD;
        if (shape->any_folder || shape->several)
            return conv_err_usage(err, "standard output takes only one image");
        return CONV_OK;
    }
    // A closed descriptor's number may become that of a file which the run itself opens.
    if (conv_paths_descriptor(output) >= 0 && !conv_paths_exists(output))
        return conv_err_usage(err, "the output %s: the descriptor is not open", output);
    bool slash = output[strlen(output) - 1] == '/';
    const char *format = conv_format_of_name(output);
    bool is_folder = shape->any_folder || shape->several || slash || conv_paths_is_folder(output) ||
                     (operands->to_folder && !format && !conv_paths_is_npy(output));
    shape->sink = is_folder ? CONV_SINK_FOLDER : CONV_SINK_FILE;
    enum conv_status status = check_files(operands, is_folder, err);
    if (status || !is_folder)
        return status ? status : check_output_name(operands, output, format, err);
    if (format && !slash && !conv_paths_exists(output)) {
        for (int i = 0; i < operands->input_count; i++)
            if (!conv_paths_is_standard(operands->inputs[i]) &&
                !conv_paths_exists(operands->inputs[i]))
                return conv_err_usage(err, "%s: no such file", operands->inputs[i]);
        return conv_err_usage(err, "the output %s is not a folder (%s/ would make one)", output,
                              output);
    }
    if (shape->several)
        status = check_names(operands, err);
    if (!status && conv_paths_exists(output) && !conv_paths_is_folder(output))
        return conv_err_usage(err, "the output %s is a file, not a folder", output);
    return status;
}

enum conv_status conv_operands_check(const struct conv_operands *operands,
                                     struct conv_operands_shape *shape, struct conv_err *err)
{
    *shape = (struct conv_operands_shape){0};
    enum conv_status status = check_inputs(operands, shape, err);
    if (status)
        return status;
    if (operands->in_place)
        shape->sink = CONV_SINK_IN_PLACE;
    if (operands->beside)
        shape->sink = CONV_SINK_FOLDER; // with whole paths as names
    return operands->output ? check_output(operands, shape, err) : CONV_OK;
}
