// SPDX-License-Identifier: MIT
// The files that a run reads and writes besides images: none is an image of the run or another one.
#include "cli/run_inputs.h"

#include <fnmatch.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/files/formats.h"
#include "io/files/paths.h"
#include "io/walk/walk.h"

#define MOST CONV_OWN_FILES_MOST

struct own_file {
    const char *option, *path;
    bool known; // the identity is valid
    struct conv_paths_identity identity;
};

struct check {
    const struct conv_options *options;
    const struct conv_own_files_use *use;
    struct own_file own[MOST];
    int count;
    struct conv_err *err;
};

static int list_files(struct own_file own[MOST], const struct conv_options *options)
{
    const struct own_file all[MOST] = {{.option = "resume", .path = options->outputs.resume_path},
                                       {.option = "report", .path = options->report.path},
                                       {.option = "trace", .path = options->report.trace_path},
                                       {.option = "html", .path = options->report.html_path}};
    int count = 0;
    for (int i = 0; i < MOST; i++)
        if (all[i].path)
            own[count++] = all[i];
    return count;
}

static bool is_folder(const char *path)
{
    return !conv_paths_is_standard(path) && conv_paths_is_folder(path);
}

// A terminal can be read and written at the same time; /dev/null takes everything.
static bool is_harmless(const struct conv_paths_identity *identity, bool both_written)
{
    const struct stat *info = &identity->info;
    return identity->exists && S_ISCHR(info->st_mode) &&
           (!both_written || info->st_rdev == makedev(1, 3));
}

// Compares all own files with `path`, or with descriptor `fd` if it is NULL. `what`, such as "the
// input", says what that file is.
static enum conv_status compare(struct check *check, const char *path, int fd, bool written,
                                const char *what)
{
    struct conv_paths_identity other = {.exists = true};
    if (path ? !conv_paths_identify(&other, path) : fstat(fd, &other.info) != 0)
        return CONV_OK;
    for (int i = 0; i < check->count; i++) {
        const struct own_file *own = &check->own[i];
        if (own->known && conv_paths_is_same(&own->identity, &other) &&
            !is_harmless(&other, written))
            return conv_err_usage(check->err, "--%s %s is %s%s%s; name another file", own->option,
                                  own->path, what, path ? " " : "", path ? path : "");
    }
    return CONV_OK;
}

static enum conv_status compare_each_other(struct check *check)
{
    for (int i = 1; i < check->count; i++)
        for (int j = 0; j < i; j++) {
            const struct own_file *a = &check->own[j], *b = &check->own[i];
            if (a->known && b->known && conv_paths_is_same(&a->identity, &b->identity) &&
                !is_harmless(&a->identity, true))
                return conv_err_usage(check->err, "--%s %s and --%s %s are the same file",
                                      a->option, a->path, b->option, b->path);
        }
    return CONV_OK;
}

// The matrix files in a chain such as "emboss,./own.mat,custom".
static enum conv_status compare_filters(struct check *check)
{
    const char *kernel = check->options->filter.settings.kernel;
    enum conv_status status = CONV_OK;
    if (kernel && kernel[0] == '@')
        status = compare(check, kernel + 1, -1, false, "the file of --kernel");
    for (const char *at = check->use->filters; at && !status; at = strchr(at, ',')) {
        char path[PATH_MAX];
        at += strspn(at, ", ");
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ","), at);
        if (strchr(path, '/') || fnmatch("*.mat", path, 0) == 0)
            status = compare(check, path, -1, false, "the filter");
    }
    return status;
}

// FILE, or FILE.safetensors:NAME.
static enum conv_status compare_tensor(struct check *check, const char *name, const char *what)
{
    static const char mark[] = ".safetensors:";
    char path[PATH_MAX];
    const char *end = name ? strstr(name, mark) : NULL;
    size_t length = end ? (size_t)(end - name) + sizeof mark - 2 : name ? strlen(name) : 0;
    if (!name)
        return CONV_OK;
    snprintf(path, sizeof path, "%.*s", (int)length, name);
    return compare(check, path, -1, false, what);
}

static enum conv_status compare_weights(struct check *check)
{
    enum conv_status status = compare_tensor(check, check->use->filters, "the weights");
    return status
               ? status
               : compare_tensor(check, check->options->filter.settings.bias, "the file of --bias");
}

static enum conv_status compare_output(struct check *check)
{
    const struct conv_own_files_use *use = check->use;
    char path[PATH_MAX];
    if (!use->output || conv_paths_is_standard(use->output))
        return use->output ? compare(check, NULL, STDOUT_FILENO, true, "the output") : CONV_OK;
    enum conv_status status = compare(check, use->output, -1, true, "the output");
    // In an output folder: the output of each input that is a file.
    for (int i = 0; i < use->input_count && !status; i++)
        if (!is_folder(use->inputs[i]) &&
            conv_paths_join(path, use->output, conv_paths_base(use->inputs[i])))
            status = compare(check, path, -1, true, "the output");
    return status;
}

// True if a walk would take a file of this name as an image.
static bool looks_like_image(const struct conv_input_options *inputs, const char *path)
{
    const char *base = conv_paths_base(path);
    const struct conv_string_list *include = &inputs->include;
    for (int i = 0; i < include->count; i++)
        if (conv_glob_match(include->items[i], base, false) ||
            conv_glob_match(conv_paths_base(include->items[i]), base, false))
            return true;
    return include->count == 0 && conv_formats_of_name(base);
}

// Refuses files in `folder` that a run would take as an image or replace by one.
static enum conv_status check_place(struct check *check, const char *folder, const char *what)
{
    if (!is_folder(folder))
        return CONV_OK;
    for (int i = 0; i < check->count; i++) {
        const struct own_file *own = &check->own[i];
        if (own->known && looks_like_image(&check->options->inputs, own->path) &&
            conv_paths_relation(folder, own->path) == CONV_PATHS_NESTED)
            return conv_err_usage(
                check->err, "--%s %s is named like an image in the %s folder; name another file",
                own->option, own->path, what);
    }
    return CONV_OK;
}

// A file that the program writes about a run must not be an image given by mistake, nor "-".
static enum conv_status check_path(const char *option, const char *path, struct conv_err *err)
{
    uint8_t head[CONV_FORMATS_HEAD];
    const struct conv_format *format;
    struct conv_err other;
    if (conv_paths_head(path, head, sizeof head) == sizeof head &&
        !conv_formats_check(&format, head, sizeof head, true, &other))
        return conv_err_usage(err, "--%s would overwrite the image %s", option, path);
    if (strcmp(path, "-") == 0)
        return conv_err_usage(err, "--%s takes a file; only --json is for standard output", option);
    return CONV_OK;
}

enum conv_status conv_own_files_check(const struct conv_options *options,
                                      const struct conv_own_files_use *use, struct conv_err *err)
{
    struct check check = {.options = options, .use = use, .err = err};
    check.count = list_files(check.own, options);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < check.count && !status; i++) {
        struct own_file *own = &check.own[i];
        // A closed descriptor's number may become that of a file which the run itself opens.
        if (conv_paths_descriptor(own->path) >= 0 && !conv_paths_exists(own->path))
            return conv_err_usage(err, "--%s %s: the descriptor is not open", own->option,
                                  own->path);
        own->known = conv_paths_identify(&own->identity, own->path);
        if (own->path != options->outputs.resume_path) // conv_journal_open checks the journal
            status = check_path(own->option, own->path, err);
    }
    if (check.count == 0 || status)
        return status;
    status = compare_each_other(&check);
    if (!status && options->report.json)
        status = compare(&check, NULL, STDOUT_FILENO, true, "standard output, where --json writes");
    const char *list = options->inputs.files_from;
    if (!status && list)
        status = compare(&check, conv_paths_is_standard(list) ? NULL : list, STDIN_FILENO, false,
                         "the list of --files-from");
    if (!status)
        status = options->command == CONV_COMMAND_LAYER ? compare_weights(&check)
                                                        : compare_filters(&check);
    for (int i = 0; i < use->input_count && !status; i++) {
        const char *input = conv_paths_is_standard(use->inputs[i]) ? NULL : use->inputs[i];
        status = compare(&check, input, STDIN_FILENO, false, "the input");
        if (!status)
            status = check_place(&check, use->inputs[i], "input");
    }
    if (!status)
        status = compare_output(&check);
    if (!status && use->output)
        status = check_place(&check, use->output, "output");
    return status;
}

int conv_own_files_find(struct conv_paths_id ids[MOST], const struct conv_options *options)
{
    struct own_file own[MOST];
    int count = 0;
    for (int i = list_files(own, options) - 1; i >= 0; i--) {
        struct stat info;
        if (stat(own[i].path, &info) == 0 && S_ISREG(info.st_mode))
            ids[count++] = (struct conv_paths_id){info.st_dev, info.st_ino};
    }
    return count;
}
