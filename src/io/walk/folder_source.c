// SPDX-License-Identifier: MIT
// Goes down a folder tree, one open folder per level, and sorts its entries into images and others.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/descriptors.h"
#include "io/files/formats.h"
#include "io/files/paths.h"
#include "io/files/temporary.h"
#include "io/walk/walk.h"
#include "io/walk/walk_internal.h"

static bool matches(const char *const *globs, int count, const char *relative, bool is_folder)
{
    for (int i = 0; i < count; i++)
        if (conv_glob_match(globs[i], relative, is_folder))
            return true;
    return false;
}

static bool is_included(const struct conv_folder_rules *rules, const char *relative)
{
    if (conv_temporary_is(conv_paths_base(relative)))
        return false;
    if (rules->include_count)
        return matches(rules->include, rules->include_count, relative, false);
    return conv_formats_of_name(conv_paths_base(relative));
}

// Files that other programs keep beside images: attributes of macOS, previews of file managers and
// cameras, the index of Synology.
static bool is_ignored(const struct conv_folder_rules *rules, const char *name)
{
    return !rules->no_ignore && (strncmp(name, "._", 2) == 0 || strncmp(name, ".thumb", 6) == 0 ||
                                 strcmp(name, "@eaDir") == 0);
}

// True if a folder that the file is in is not to be entered.
static bool is_shut(const struct conv_folder_rules *rules, const char *relative)
{
    char folder[PATH_MAX];
    for (const char *end = relative; (end = strchr(end, '/')) != NULL; end++) {
        snprintf(folder, sizeof folder, "%.*s", (int)(end - relative), relative);
        if (is_ignored(rules, conv_paths_base(folder)) ||
            matches(rules->exclude, rules->exclude_count, folder, true))
            return true;
    }
    return false;
}

bool conv_folder_rules_take(const struct conv_folder_rules *rules, const char *relative)
{
    return is_included(rules, relative) && !is_ignored(rules, conv_paths_base(relative)) &&
           !matches(rules->exclude, rules->exclude_count, relative, false) &&
           !is_shut(rules, relative);
}

bool conv_folder_rules_enter(const struct conv_folder_rules *rules, const char *relative)
{
    return rules->recursive && strcmp(relative, rules->omitted) != 0 &&
           !is_ignored(rules, conv_paths_base(relative)) &&
           !matches(rules->exclude, rules->exclude_count, relative, true);
}

// NULL with errno.
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

// Opens the folder at folder->here.
static enum conv_status push(struct conv_folder_source *folder, struct conv_err *err)
{
    if (folder->depth == CONV_FOLDER_LEVELS)
        return conv_err_limit(err, "more than %d folders deep", CONV_FOLDER_LEVELS);
    DIR *dir = open_folder(folder->here);
    if (!dir)
        return conv_err_errno(err, errno, "cannot open the folder");
    folder->levels[folder->depth].dir = dir;
    folder->levels[folder->depth++].length = strlen(folder->here);
    return CONV_OK;
}

static void close_innermost(struct conv_folder_source *folder)
{
    closedir(folder->levels[--folder->depth].dir);
    conv_descriptors_keep(-1);
}

static void pop(struct conv_folder_source *folder)
{
    close_innermost(folder);
    if (folder->depth > 0)
        folder->here[folder->levels[folder->depth - 1].length] = '\0';
}

// KIND_SPECIAL is a pipe, a socket or a device: merely to open one can wait or have effects.
enum kind { KIND_FILE, KIND_FOLDER, KIND_FOLDER_LINK, KIND_SPECIAL };

static enum kind kind_of_mode(mode_t mode, bool link)
{
    if (S_ISDIR(mode))
        return link ? KIND_FOLDER_LINK : KIND_FOLDER;
    return S_ISREG(mode) ? KIND_FILE : KIND_SPECIAL;
}

// The kind of an entry; common file systems report it without a call of stat().
static enum kind kind_of_entry(const struct dirent *entry, const char *path)
{
    struct stat info;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return kind_of_mode(DTTOIF(entry->d_type), false);
    bool link = entry->d_type == DT_LNK || (lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    // An entry that cannot be examined counts as a file: reading it gives the reason.
    return stat(path, &info) == 0 ? kind_of_mode(info.st_mode, link) : KIND_FILE;
}

static void set_item(const struct conv_folder_source *folder, struct conv_item *item)
{
    size_t length = strlen(item->name);
    item->ops = &conv_item_file;
    item->target = folder->target < length ? folder->target : length;
    item->in_place = folder->rules.in_place;
}

// The path relative to the outermost folder.
static const char *relative_name(const struct conv_folder_source *folder, const char *path)
{
    const char *relative = path + folder->levels[0].length;
    return relative + strspn(relative, "/");
}

// Counts what the user may take for a part of the job.
static void pass_over(struct conv_folder_source *folder, const char *name, bool is_folder)
{
    struct conv_walk_passed *passed = &folder->passed;
    const char *format = conv_format_of_name(name);
    int at = 0;
    if (folder->rules.include_count || conv_temporary_is(name) || is_ignored(&folder->rules, name))
        return;
    passed->folders += is_folder;
    if (is_folder || !format)
        return;
    passed->images++;
    while (at < passed->format_count && strcmp(passed->formats[at], format) < 0)
        at++;
    if (passed->format_count == CONV_WALK_FORMATS ||
        (at < passed->format_count && strcmp(passed->formats[at], format) == 0))
        return;
    memmove(passed->formats + at + 1, passed->formats + at,
            (size_t)(passed->format_count++ - at) * sizeof *passed->formats);
    passed->formats[at] = format;
}

static void count_other(struct conv_walk_passed *passed, const char *name)
{
    if (passed->others++ == 0)
        snprintf(passed->other, sizeof passed->other, "%s", name);
}

void conv_folder_source_pass_over(struct conv_folder_source *folder, const char *name,
                                  const char *relative)
{
    const struct conv_folder_rules *rules = &folder->rules;
    count_other(&folder->passed, name);
    if (!relative || matches(rules->exclude, rules->exclude_count, relative, false) ||
        is_shut(rules, relative))
        return;
    if (!is_included(rules, relative))
        pass_over(folder, conv_paths_base(relative), false);
    else
        folder->passed.ignored += is_ignored(rules, conv_paths_base(relative));
}

// One entry of the innermost folder: CONV_SOURCE_END if it is not an image.
static enum conv_source_step take_entry(struct conv_folder_source *folder,
                                        const struct dirent *entry, struct conv_item *item,
                                        struct conv_err *err)
{
    const struct conv_folder_rules *rules = &folder->rules;
    size_t length = folder->levels[folder->depth - 1].length;
    if (!conv_paths_join(item->name, folder->here, entry->d_name)) {
        snprintf(item->name, sizeof item->name, "%s", folder->here);
        conv_err_limit(err, "path too long");
        return CONV_SOURCE_BAD;
    }
    enum kind kind = kind_of_entry(entry, item->name);
    const char *relative = relative_name(folder, item->name);
    bool enters = kind == KIND_FOLDER && rules->recursive;
    if (matches(rules->exclude, rules->exclude_count, relative, kind == KIND_FOLDER) ||
        (enters && strcmp(relative, rules->omitted) == 0))
        return CONV_SOURCE_END;
    if (is_ignored(rules, entry->d_name) && (enters || is_included(rules, relative))) {
        folder->passed.ignored++;
        return CONV_SOURCE_END;
    }
    if (enters) {
        strcpy(folder->here, item->name); // of the same size
        if (!push(folder, err))
            return CONV_SOURCE_END;
        folder->here[length] = '\0';
        return CONV_SOURCE_BAD;
    }
    bool included = is_included(rules, relative);
    item->is_copy = !included && rules->others && kind == KIND_FILE &&
                    !conv_formats_of_name(entry->d_name) && !conv_temporary_is(entry->d_name) &&
                    !is_ignored(rules, entry->d_name);
    if (item->is_copy)
        return CONV_SOURCE_ITEM;
    if (!included && kind == KIND_FILE && !conv_temporary_is(entry->d_name))
        count_other(&folder->passed, entry->d_name);
    if (!included && (kind == KIND_FILE || kind == KIND_FOLDER))
        pass_over(folder, entry->d_name, kind == KIND_FOLDER);
    // A link to a folder could lead in circles: with `recursive` it is skipped, as by find and
    // rsync.
    if (!included || (kind == KIND_FOLDER_LINK && rules->recursive))
        return CONV_SOURCE_END;
    if (kind == KIND_FILE)
        return CONV_SOURCE_ITEM;
    conv_err_format(err, "is a %s, not an image",
                    kind == KIND_SPECIAL ? "pipe, socket or device" : "folder");
    return CONV_SOURCE_BAD;
}

enum conv_source_step conv_folder_source_next(void *from, struct conv_item *item,
                                              struct conv_err *err)
{
    struct conv_folder_source *folder = from;
    enum conv_source_step step = CONV_SOURCE_END;
    while (folder->depth > 0 && step == CONV_SOURCE_END) {
        errno = 0;
        const struct dirent *entry = readdir(folder->levels[folder->depth - 1].dir);
        if (!entry) {
            int errnum = errno;
            if (errnum) {
                strcpy(item->name, folder->here); // of the same size
                conv_err_errno(err, errnum, "cannot read the folder");
                step = CONV_SOURCE_BAD;
            }
            pop(folder);
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            step = take_entry(folder, entry, item, err);
        }
    }
    if (step != CONV_SOURCE_END)
        set_item(folder, item);
    return step;
}

enum conv_status conv_folder_source_begin(struct conv_folder_source *folder, const char *path,
                                          size_t target, struct conv_err *err)
{
    if (!conv_paths_join(folder->here, "", path))
        return conv_err_limit(err, "path too long");
    folder->target = target;
    return push(folder, err);
}

void conv_folder_source_close(struct conv_folder_source *folder)
{
    while (folder->depth > 0)
        close_innermost(folder);
}
