// SPDX-License-Identifier: MIT
#include "io/archive/member_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files/paths.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_drive(const char *path)
{
    return is_letter(path[0]) && path[1] == ':' &&
           (path[2] == '\0' || path[2] == '/' || path[2] == '\\');
}

// Finds the next component from *at on, which moves past it. False at the end. `other` is another
// separator besides the slash; '/' for none.
static bool next_component(const char *name, size_t length, char other, size_t *at,
                           const char **component, size_t *component_length)
{
    while (*at < length && (name[*at] == '/' || name[*at] == other))
        (*at)++;
    size_t start = *at;
    while (*at < length && name[*at] != '/' && name[*at] != other)
        (*at)++;
    *component = name + start;
    *component_length = *at - start;
    return *component_length > 0;
}

static bool climbs(const char *name, size_t length, char other)
{
    const char *component;
    size_t at = 0, n;
    while (next_component(name, length, other, &at, &component, &n))
        if (n == 2 && component[0] == '.' && component[1] == '.')
            return true;
    return false;
}

static enum conv_status refuse_for_windows(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "the member's name could leave the output folder on Windows");
}

// Refuses names that are forbidden whatever path they would become.
static enum conv_status check_name(const char *name, size_t length, struct conv_err *err)
{
    if (length == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "the member has no name");
    if (memchr(name, '\0', length))
        return conv_err_set(err, CONV_ERR_FORMAT, "the member's name contains a NUL byte");
    if (climbs(name, length, '/'))
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "the member's name contains \"..\": it could leave the output folder");
    if (climbs(name, length, '\\'))
        return refuse_for_windows(err);
    return CONV_OK;
}

enum conv_status conv_member_path_make(char *dst, const char *name, size_t length,
                                       struct conv_err *err)
{
    enum conv_status status = check_name(name, length, err);
    if (status)
        return status;
    const char *component = name;
    size_t at = 0, size = 0, n;
    bool is_folder = true; // what the name ends in
    while (next_component(name, length, '/', &at, &component, &n)) {
        bool is_dot = n == 1 && component[0] == '.';
        is_folder = is_dot || at < length; // a slash follows
        if (is_dot)
            continue;
        if (n > NAME_MAX)
            return conv_err_set(err, CONV_ERR_LIMIT,
                                "the member's name has a component of more than %d bytes",
                                NAME_MAX);
        if (size + (size > 0) + n >= PATH_MAX)
            return conv_err_set(err, CONV_ERR_LIMIT, "the member's name is too long");
        if (size > 0)
            dst[size++] = '/';
        memcpy(dst + size, component, n);
        size += n;
    }
    if (size == 0 || is_folder)
        return conv_err_set(err, CONV_ERR_FORMAT, "the member's name is that of a folder");
    dst[size] = '\0';
    if (dst[0] == '\\' || is_drive(dst))
        return refuse_for_windows(err);
    return CONV_OK;
}

// True if the link leads to something below or at `folder`, which exists.
static bool leads_inside(const char *link, const char *folder)
{
    char target[PATH_MAX], root[PATH_MAX];
    if (!realpath(link, target) || !realpath(folder[0] ? folder : ".", root))
        return false;
    size_t length = strlen(root);
    return strncmp(target, root, length) == 0 &&
           (target[length] == '/' || target[length] == '\0' || root[length - 1] == '/');
}

// The folder relative to links->folder: its `length` first bytes.
static enum conv_status check_folder(const struct conv_member_links *links, const char *path,
                                     size_t length, bool *exists, struct conv_err *err)
{
    char relative[PATH_MAX], joined[PATH_MAX];
    struct stat info;
    memcpy(relative, path, length);
    relative[length] = '\0';
    if (!conv_paths_join(joined, links->folder, relative))
        return conv_err_set(err, CONV_ERR_LIMIT, "path too long");
    *exists = lstat(joined, &info) == 0;
    if (*exists && S_ISLNK(info.st_mode) && !leads_inside(joined, links->folder))
        return conv_err_set(err, CONV_ERR_IO,
                            "the link %s leads out of the output folder; members of archives are "
                            "not written through it",
                            joined);
    return CONV_OK;
}

enum conv_status conv_member_path_check_links(struct conv_member_links *links, const char *path,
                                              struct conv_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length == 0 || length >= PATH_MAX ||
        (strncmp(links->checked, path, length) == 0 && links->checked[length] == '\0'))
        return CONV_OK;
    bool exists = true;
    for (size_t i = 1; i <= length && exists; i++) {
        enum conv_status status =
            path[i] == '/' ? check_folder(links, path, i, &exists, err) : CONV_OK;
        if (status)
            return status;
    }
    memcpy(links->checked, path, length);
    links->checked[length] = '\0';
    return CONV_OK;
}
