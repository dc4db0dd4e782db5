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

static enum conv_status refuse_for_windows(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "the member's name could leave the output folder on Windows");
}

enum conv_status conv_member_path_make(char *dst, const char *name, struct conv_err *err)
{
    size_t size = 0;
    bool is_folder = true; // what the name ends in
    if (!*name)
        return conv_err_set(err, CONV_ERR_FORMAT, "the member has no name");
    if (conv_paths_climbs(name, "/"))
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "the member's name contains \"..\": it could leave the output folder");
    if (conv_paths_climbs(name, "/\\"))
        return refuse_for_windows(err);
    for (size_t n; name += strspn(name, "/"), (n = strcspn(name, "/")) > 0; name += n) {
        bool is_dot = n == 1 && name[0] == '.';
        is_folder = is_dot || name[n] == '/';
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
        memcpy(dst + size, name, n);
        size += n;
    }
    if (size == 0 || is_folder)
        return conv_err_set(err, CONV_ERR_FORMAT, "the member's name is that of a folder");
    dst[size] = '\0';
    return dst[0] == '\\' || is_drive(dst) ? refuse_for_windows(err) : CONV_OK;
}

// True if the link leads to something below or at `folder`, which exists.
static bool leads_inside(const char *link, const char *folder)
{
    char target[PATH_MAX], root[PATH_MAX];
    if (!realpath(link, target) || !realpath(folder[0] ? folder : ".", root))
        return false;
    return conv_paths_is_inside(target, root) || strcmp(target, root) == 0;
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
