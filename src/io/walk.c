// SPDX-License-Identifier: MIT
#include "io/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/descriptors.h"
#include "base/digest_set.h"
#include "image/format.h"
#include "io/in_place.h"
#include "io/name_list.h"
#include "io/paths.h"
#include "io/temporary.h"

// Folders open at once on the way down. Deeper trees are reported, not followed: each level holds a
// file descriptor.
#define MAX_LEVELS 256

struct level {
    DIR *dir;
    size_t input_length, output_length; // of the folder's paths in walk->here
};

struct conv_walk {
    struct conv_walk_config config;
    int next_input;
    bool any_folder; // among the inputs, or a list
    bool output_is_folder;
    bool many; // several inputs: a folder gets a folder of its own name below the output
    struct level levels[MAX_LEVELS];
    int depth;
    struct conv_walk_entry here; // the folder being read: input and output path
    struct conv_name_list list;  // of --files-from
    struct conv_digest_set seen; // what it has named
    uint64_t expected;           // images
    struct conv_walk_count count;
    struct peeked *peeked; // the first step, if it was taken before it was asked for
};

struct peeked {
    enum conv_walk_step step;
    struct conv_walk_entry entry;
    struct conv_err err;
};

// --- what the user typed -------------------------------------------------------------------------

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_dash(const char *path)
{
    return strcmp(path, "-") == 0;
}

static enum conv_status check_pair(const char *input, const char *output, bool recursive,
                                   struct conv_err *err)
{
    switch (conv_paths_relation(input, output)) {
    case CONV_PATHS_SAME:
        return conv_err_hint(
            err, CONV_HINT_OTHER_FOLDER, 0,
            conv_err_set(err, CONV_ERR_USAGE, "input and output are the same folder: %s", input));
    case CONV_PATHS_NESTED:
        if (recursive)
            return conv_err_hint(err, CONV_HINT_SUBFOLDERS, 0,
                                 conv_err_set(err, CONV_ERR_USAGE,
                                              "neither of %s and %s may lie inside the other",
                                              input, output));
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
static enum conv_status check_names(const struct conv_walk_config *config, struct conv_err *err)
{
    size_t count = (size_t)config->input_count;
    const char **sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu names", count);
    memcpy(sorted, config->inputs, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < count && !status; i++)
        if (lacks_name(sorted[i]))
            status = conv_err_set(err, CONV_ERR_USAGE,
                                  "beside other inputs '%s' gives no name below the output; write "
                                  "the folder's own",
                                  sorted[i]);
    for (size_t i = 1; i < count && !status; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            status =
                conv_err_set(err, CONV_ERR_USAGE, "%s and %s would become the same output file",
                             sorted[i - 1], sorted[i]);
    free(sorted);
    return status;
}

static enum conv_status check_operands(struct conv_walk *walk, bool *any_folder,
                                       struct conv_err *err)
{
    const struct conv_walk_config *config = &walk->config;
    *any_folder = config->files_from != NULL;
    for (int i = 0; i < config->input_count; i++) {
        bool folder = is_folder(config->inputs[i]);
        *any_folder |= folder;
        if (!config->inputs[i][0])
            return conv_err_set(err, CONV_ERR_USAGE, "the name of an input is empty");
        if (config->files_from && !folder)
            return conv_err_hint(err, CONV_HINT_LIST_INPUTS, 0,
                                 conv_err_set(err, CONV_ERR_USAGE,
                                              "the input is the folder of the names; %s is "
                                              "not a folder",
                                              config->inputs[i]));
        if (config->in_place && is_dash(config->inputs[i]))
            return conv_err_hint(
                err, CONV_HINT_REPLACE, 0,
                conv_err_set(err, CONV_ERR_USAGE, "standard input cannot be replaced"));
        enum conv_status status = CONV_OK;
        if (!config->in_place && folder && config->output)
            status = check_pair(config->inputs[i], config->output, config->recursive, err);
        if (status)
            return status;
    }
    if (config->files_from && config->input_count > 1)
        return conv_err_hint(err, CONV_HINT_LIST_INPUTS, 0,
                             conv_err_set(err, CONV_ERR_USAGE,
                                          "one input, the folder of the names, is possible; %d "
                                          "given",
                                          config->input_count));
    return config->in_place
               ? conv_in_place_check(config->inputs, config->input_count, config->recursive, err)
               : CONV_OK;
}

static enum conv_status check_output(struct conv_walk *walk, bool any_folder, struct conv_err *err)
{
    const struct conv_walk_config *config = &walk->config;
    const char *output = config->output;
    walk->many = config->input_count > 1;
    walk->any_folder = any_folder;
    if (!output) {
        walk->config.output = "";
        return CONV_OK;
    }
    if (!output[0])
        return conv_err_set(err, CONV_ERR_USAGE, "the name of the output is empty");
    if (is_dash(output)) {
        if (any_folder || walk->many)
            return conv_err_set(err, CONV_ERR_USAGE, "standard output takes only one image");
        return CONV_OK;
    }
    // A closed descriptor's number may become that of a file which the run itself opens.
    if (conv_paths_descriptor(output) >= 0 && !conv_paths_exists(output))
        return conv_err_set(err, CONV_ERR_USAGE, "the output %s: the descriptor is not open",
                            output);
    bool slash = output[0] && output[strlen(output) - 1] == '/';
    walk->output_is_folder = any_folder || walk->many || slash || is_folder(output);
    const char *format = conv_format_of_name(output);
    if (!walk->output_is_folder && format && strcmp(format, "PNG") != 0)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "conv writes PNG only, and %s says %s: use %.*s.png", output, format,
                            (int)(strrchr(output, '.') - output), output);
    if (!walk->output_is_folder)
        return CONV_OK;
    if (format && !slash && !conv_paths_exists(output))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the output %s is not a folder (%s/ would make one)", output, output);
    if (walk->many) {
        enum conv_status status = check_names(config, err);
        if (status)
            return status;
    }
    if (conv_paths_exists(output) && !is_folder(output))
        return conv_err_set(err, CONV_ERR_USAGE, "the output %s is a file, not a folder", output);
    return CONV_OK;
}

enum conv_status conv_walk_make_output(struct conv_walk *walk, struct conv_err *err)
{
    if (!walk->output_is_folder || is_folder(walk->config.output))
        return CONV_OK;
    struct peeked *peeked = calloc(1, sizeof *peeked);
    if (!peeked)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the walk");
    peeked->step = conv_walk_next(walk, &peeked->entry, &peeked->err);
    walk->peeked = peeked;
    return peeked->step == CONV_WALK_ENTRY ? conv_paths_make_folder(walk->config.output, err)
                                           : CONV_OK;
}

bool conv_walk_has_folder(const struct conv_walk *walk)
{
    return walk->any_folder;
}

const struct conv_walk_count *conv_walk_counted(const struct conv_walk *walk)
{
    return &walk->count;
}

enum conv_status conv_walk_open(struct conv_walk **out, const struct conv_walk_config *config,
                                struct conv_err *err)
{
    struct conv_walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the walk");
    walk->config = *config;
    walk->list.fd = -1;
    bool any_folder;
    enum conv_status status = check_operands(walk, &any_folder, err);
    if (!status)
        status = check_output(walk, any_folder, err);
    if (!status && config->files_from)
        status =
            conv_name_list_open(&walk->list, config->files_from, config->nul, config->stop, err);
    if (status) {
        conv_walk_close(walk);
        return status;
    }
    *out = walk;
    return CONV_OK;
}

static void close_folder(struct conv_walk *walk)
{
    closedir(walk->levels[--walk->depth].dir);
    conv_descriptors_keep(-1);
}

void conv_walk_close(struct conv_walk *walk)
{
    if (!walk)
        return;
    while (walk->depth > 0)
        close_folder(walk);
    conv_name_list_close(&walk->list);
    conv_digest_set_free(&walk->seen);
    free(walk->peeked);
    free(walk);
}

// --- folders -------------------------------------------------------------------------------------

static bool matches(const char *const *globs, int count, const char *relative)
{
    for (int i = 0; i < count; i++) {
        // As in rsync: a glob with a slash is held against the path, one without against the name.
        const char *subject = strchr(globs[i], '/') ? relative : conv_paths_base(relative);
        if (fnmatch(globs[i], subject, 0) == 0)
            return true;
    }
    return false;
}

static bool is_included(const struct conv_walk *walk, const char *relative)
{
    const struct conv_walk_config *config = &walk->config;
    if (conv_temporary_is(conv_paths_base(relative)))
        return false;
    if (config->include_count)
        return matches(config->include, config->include_count, relative);
    return fnmatch("*.png", conv_paths_base(relative), FNM_CASEFOLD) == 0;
}

// NULL with errno set.
static DIR *open_folder(const char *path)
{
    DIR *dir;
    int tries = 0;
    if (!conv_descriptors_try_folder()) {
        errno = EMFILE;
        return NULL;
    }
    do
        dir = opendir(path);
    while (!dir && conv_descriptors_wait(errno, &tries));
    if (!dir) {
        int errnum = errno;
        conv_descriptors_keep(-1);
        errno = errnum;
    }
    return dir;
}

static void count_other(struct conv_walk *walk, const char *name)
{
    struct conv_walk_count *count = &walk->count;
    if (count->others++ == 0)
        snprintf(count->other, sizeof count->other, "%s", name);
}

// Opens the folder at walk->here. NULL with *err if that cannot be.
static bool push_folder(struct conv_walk *walk, struct conv_err *err)
{
    if (walk->depth == MAX_LEVELS) {
        conv_err_set(err, CONV_ERR_LIMIT, "more than %d folders deep", MAX_LEVELS);
        return false;
    }
    DIR *dir = open_folder(walk->here.input);
    if (!dir) {
        conv_err_errno(err, errno, "cannot open the folder");
        return false;
    }
    walk->levels[walk->depth++] = (struct level){
        .dir = dir,
        .input_length = strlen(walk->here.input),
        .output_length = strlen(walk->here.output),
    };
    return true;
}

static void pop_folder(struct conv_walk *walk)
{
    close_folder(walk);
    if (walk->depth > 0) {
        walk->here.input[walk->levels[walk->depth - 1].input_length] = '\0';
        walk->here.output[walk->levels[walk->depth - 1].output_length] = '\0';
    }
}

// KIND_SPECIAL is a pipe, a socket or a device: merely to open one can wait or have effects.
enum kind { KIND_FILE, KIND_FOLDER, KIND_FOLDER_LINK, KIND_SPECIAL };
#define NO_IMAGE "is a %s, not an image"

static enum kind mode_kind(mode_t mode, bool link)
{
    if (S_ISDIR(mode))
        return link ? KIND_FOLDER_LINK : KIND_FOLDER;
    return S_ISREG(mode) ? KIND_FILE : KIND_SPECIAL;
}

// What an entry of a folder is; the common file systems say so without a stat.
static enum kind entry_kind(const struct dirent *item, const char *path)
{
    struct stat info;
    if (item->d_type != DT_LNK && item->d_type != DT_UNKNOWN)
        return mode_kind(DTTOIF(item->d_type), false);
    bool link = item->d_type == DT_LNK || (lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    // What cannot be looked at counts as a file: reading it will say why.
    return stat(path, &info) == 0 ? mode_kind(info.st_mode, link) : KIND_FILE;
}

// The next entry of the innermost open folder that concerns us, or CONV_WALK_END when none is left
// in any.
static enum conv_walk_step next_in_folders(struct conv_walk *walk, struct conv_walk_entry *entry,
                                           struct conv_err *err)
{
    while (walk->depth > 0) {
        struct level *level = &walk->levels[walk->depth - 1];
        errno = 0;
        const struct dirent *item = readdir(level->dir);
        if (!item) {
            int errnum = errno;
            memcpy(entry, &walk->here, sizeof *entry);
            pop_folder(walk);
            if (errnum == 0)
                continue;
            conv_err_errno(err, errnum, "cannot read the folder");
            return CONV_WALK_BAD;
        }
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        if (!conv_paths_join(entry->input, walk->here.input, item->d_name) ||
            !conv_paths_join(entry->output, walk->here.output, item->d_name)) {
            conv_err_set(err, CONV_ERR_LIMIT, "path too long");
            return CONV_WALK_BAD;
        }
        enum kind kind = entry_kind(item, entry->input);
        const char *relative = entry->input + walk->levels[0].input_length;
        while (*relative == '/')
            relative++;
        if (matches(walk->config.exclude, walk->config.exclude_count, relative))
            continue; // a folder with all that is in it
        if (kind == KIND_FOLDER && walk->config.recursive) {
            memcpy(&walk->here, entry, sizeof *entry);
            if (push_folder(walk, err))
                continue;
            walk->here.input[level->input_length] = '\0';
            walk->here.output[level->output_length] = '\0';
            return CONV_WALK_BAD;
        }
        bool included = is_included(walk, relative);
        if (!included && kind == KIND_FILE && !conv_temporary_is(item->d_name))
            count_other(walk, item->d_name);
        // A link to a folder could lead in circles; with -r it is passed over, as by find and
        // rsync.
        if (!included || (kind == KIND_FOLDER_LINK && walk->config.recursive))
            continue;
        if (kind != KIND_FILE) {
            conv_err_set(err, CONV_ERR_FORMAT, NO_IMAGE,
                         kind == KIND_SPECIAL ? "pipe, socket or device" : "folder");
            return CONV_WALK_BAD;
        }
        return CONV_WALK_ENTRY;
    }
    return CONV_WALK_END;
}

// --- lists of names ------------------------------------------------------------------------------

// The same for all spellings of a path without "..": "a//b", "./a/b".
static struct conv_digest digest_path(const char *path)
{
    struct conv_digest digest = {0};
    for (size_t length; *path; path += length) {
        path += strspn(path, "/");
        length = strcspn(path, "/");
        if (length > 0 && !(length == 1 && path[0] == '.'))
            conv_hash_add(&digest, path, length);
    }
    return digest;
}

// A name in a folder, whichever way leads to the folder: links, or another place where it is
// mounted.
static struct conv_digest digest_file(const char *path)
{
    struct stat info;
    char folder[PATH_MAX];
    const char *base = conv_paths_base(path);
    snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);
    if (stat(folder[0] ? folder : ".", &info) != 0)
        return digest_path(path); // nothing to be found there
    struct conv_digest digest = {0};
    const uint64_t numbers[] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    conv_hash_add(&digest, numbers, sizeof numbers);
    conv_hash_add(&digest, base, strcspn(base, "/"));
    return digest;
}

// In place two names are one image if they are one file; else if they have one output. Of those of
// one output, "a.png" in the list's folder and "/a.png" are two images.
static enum conv_walk_step check_seen(struct conv_walk *walk, const char *name,
                                      const struct conv_walk_entry *entry, struct conv_err *err)
{
    bool in_place = walk->config.in_place, added;
    struct conv_digest digest = in_place ? digest_file(entry->input) : digest_path(name);
    struct conv_digest other = digest;
    uint64_t absolute = !in_place && name[0] == '/';
    digest.word[1] = (digest.word[1] & ~(uint64_t)1) | absolute;
    other.word[1] = digest.word[1] ^ 1;
    if (!in_place && conv_digest_set_has(&walk->seen, &other)) {
        conv_err_set(err, CONV_ERR_USAGE, "another name in the list has the same output");
        return CONV_WALK_BAD;
    }
    if (conv_digest_set_add(&walk->seen, &digest, &added, err))
        return CONV_WALK_BAD;
    return added ? CONV_WALK_ENTRY : CONV_WALK_REPEATED;
}

static enum conv_walk_step next_in_list(struct conv_walk *walk, struct conv_walk_entry *entry,
                                        struct conv_err *err)
{
    const struct conv_walk_config *config = &walk->config;
    err->status = CONV_OK;
    const char *name = conv_name_list_next(&walk->list, err);
    if (!name) {
        snprintf(entry->input, sizeof entry->input, "%.*s", (int)sizeof entry->input - 1,
                 config->files_from);
        return err->status ? CONV_WALK_BAD : CONV_WALK_END;
    }
    // "-" is a file's name here, not standard input.
    const char *folder = name[0] == '/'        ? ""
                         : config->input_count ? config->inputs[0]
                         : is_dash(name)       ? "."
                                               : "";
    const char *relative = name; // an absolute name keeps its shape below the output
    while (*relative == '/')
        relative++;
    if (!conv_paths_join(entry->input, folder, name) ||
        !(config->in_place ? conv_paths_join(entry->output, folder, name)
                           : conv_paths_join(entry->output, config->output, relative))) {
        snprintf(entry->input, sizeof entry->input, "%.*s", (int)sizeof entry->input - 1, name);
        conv_err_set(err, CONV_ERR_LIMIT, "path too long");
        return CONV_WALK_BAD;
    }
    if (conv_paths_climbs(relative)) {
        conv_err_set(err, CONV_ERR_USAGE, "a name in the list may not contain '..'");
        return CONV_WALK_BAD;
    }
    struct stat info;
    if (stat(entry->input, &info) == 0 && mode_kind(info.st_mode, false) == KIND_SPECIAL) {
        conv_err_set(err, CONV_ERR_FORMAT, NO_IMAGE, "pipe, socket or device");
        return CONV_WALK_BAD;
    }
    return check_seen(walk, name, entry, err);
}

// --- one after the other -------------------------------------------------------------------------

static enum conv_walk_step next_input(struct conv_walk *walk, struct conv_walk_entry *entry,
                                      struct conv_err *err)
{
    const struct conv_walk_config *config = &walk->config;
    const char *input = config->inputs[walk->next_input++];
    snprintf(entry->input, sizeof entry->input, "%.*s", (int)sizeof entry->input - 1, input);
    bool fits = strlen(input) < sizeof entry->input;
    bool folder = fits && !is_dash(input) && is_folder(input);
    if (config->in_place)
        fits = fits && conv_paths_join(entry->output, "", input);
    else if (folder && !walk->many)
        fits = conv_paths_join(entry->output, "", config->output);
    else if (walk->output_is_folder)
        fits = fits && conv_paths_join(entry->output, config->output,
                                       is_dash(input) ? "stdin.png" : conv_paths_base(input));
    else
        fits = fits && conv_paths_join(entry->output, "", config->output);
    if (!fits) {
        conv_err_set(err, CONV_ERR_LIMIT, "path too long");
        return CONV_WALK_BAD;
    }
    entry->named = !folder;
    entry->output_named = !config->in_place && !walk->output_is_folder;
    if (!folder)
        return CONV_WALK_ENTRY;
    memcpy(&walk->here, entry, sizeof *entry);
    return push_folder(walk, err) ? CONV_WALK_END : CONV_WALK_BAD;
}

void conv_walk_expect(struct conv_walk *walk, uint64_t images)
{
    walk->expected = images;
}

uint64_t conv_walk_expected(const struct conv_walk *walk)
{
    return walk->expected;
}

bool conv_walk_may_wait(const struct conv_walk *walk)
{
    return !walk->peeked && walk->list.fd >= 0 && conv_name_list_may_wait(&walk->list);
}

static enum conv_walk_step next_step(struct conv_walk *walk, struct conv_walk_entry *entry,
                                     struct conv_err *err)
{
    entry->output[0] = '\0';
    entry->named = entry->output_named = false;
    if (walk->list.fd >= 0)
        return next_in_list(walk, entry, err);
    for (;;) {
        enum conv_walk_step step = next_in_folders(walk, entry, err);
        if (step != CONV_WALK_END || walk->next_input == walk->config.input_count)
            return step;
        step = next_input(walk, entry, err);
        if (step != CONV_WALK_END)
            return step;
    }
}

enum conv_walk_step conv_walk_next(struct conv_walk *walk, struct conv_walk_entry *entry,
                                   struct conv_err *err)
{
    struct peeked *peeked = walk->peeked;
    if (peeked) {
        enum conv_walk_step first = peeked->step;
        memcpy(entry, &peeked->entry, sizeof *entry);
        if (first == CONV_WALK_BAD)
            *err = peeked->err;
        free(peeked);
        walk->peeked = NULL;
        return first;
    }
    enum conv_walk_step step = next_step(walk, entry, err);
    walk->count.entries += step != CONV_WALK_END;
    return step;
}
