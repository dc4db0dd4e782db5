// SPDX-License-Identifier: MIT
#include "pipeline/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool conv_paths_join(char *dst, const char *folder, const char *name)
{
    size_t length = strlen(folder), name_length = strlen(name);
    bool slash = length > 0 && folder[length - 1] != '/';
    if (length + slash + name_length >= PATH_MAX)
        return false;
    memmove(dst, folder, length);
    if (slash)
        dst[length++] = '/';
    memcpy(dst + length, name, name_length + 1);
    return true;
}

const char *conv_paths_base(const char *path)
{
    const char *base = path;
    for (const char *s = path; *s; s++)
        if (*s == '/' && s[1] != '/' && s[1] != '\0')
            base = s + 1;
    return base;
}

bool conv_paths_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool conv_paths_is_unchanged(const struct stat *before, const struct stat *after)
{
    return before->st_dev == after->st_dev && before->st_ino == after->st_ino &&
           before->st_size == after->st_size && before->st_mtim.tv_sec == after->st_mtim.tv_sec &&
           before->st_mtim.tv_nsec == after->st_mtim.tv_nsec;
}

bool conv_paths_climbs(const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.')
            return true;
        path += length;
        path += strspn(path, "/");
    }
    return false;
}

// realpath of a path whose last components may not exist yet.
static bool resolve(const char *path, char *resolved)
{
    if (realpath(path, resolved))
        return true;
    char head[PATH_MAX];
    if (errno != ENOENT || !conv_paths_join(head, "", path))
        return false;
    size_t length = strlen(head);
    while (length > 1 && head[length - 1] == '/')
        head[--length] = '\0';
    char *slash = strrchr(head, '/');
    const char *tail = slash ? slash + 1 : head;
    char parent[PATH_MAX];
    if (!slash)
        strcpy(parent, ".");
    else
        snprintf(parent, sizeof parent, "%.*s", slash == head ? 1 : (int)(slash - head), head);
    return resolve(parent, resolved) && conv_paths_join(resolved, resolved, tail);
}

static bool is_inside(const char *inner, const char *outer)
{
    size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || outer[length - 1] == '/');
}

enum conv_paths_relation conv_paths_relation(const char *existing, const char *other)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!resolve(existing, a) || !resolve(other, b))
        return CONV_PATHS_APART;
    if (strcmp(a, b) == 0)
        return CONV_PATHS_SAME;
    return is_inside(a, b) || is_inside(b, a) ? CONV_PATHS_NESTED : CONV_PATHS_APART;
}

// Makes path[0..length) and the folders above it.
static int make_folders(char *path, size_t length)
{
    while (length > 1 && path[length - 1] == '/')
        length--;
    char end = path[length];
    path[length] = '\0';
    struct stat info;
    int result = mkdir(path, 0777);
    if (result != 0 && errno == ENOENT) {
        size_t up = length;
        while (up > 0 && path[up - 1] != '/')
            up--;
        if (up > 0 && make_folders(path, up) == 0)
            result = mkdir(path, 0777);
    }
    if (result != 0 && errno == EEXIST) {
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            result = 0;
        else
            errno = ENOTDIR;
    }
    path[length] = end;
    return result;
}

enum conv_status conv_paths_make_folder(const char *path, struct conv_err *err)
{
    char copy[PATH_MAX];
    if (!conv_paths_join(copy, "", path))
        return conv_err_set(err, CONV_ERR_LIMIT, "path too long: %s", path);
    if (make_folders(copy, strlen(copy)) != 0)
        return conv_err_errno(err, errno, "cannot make the folder %s", path);
    return CONV_OK;
}

enum conv_status conv_paths_make_parent(const char *path, struct conv_err *err)
{
    char copy[PATH_MAX];
    const char *base = conv_paths_base(path);
    if (base == path || !conv_paths_join(copy, "", path))
        return CONV_OK;
    copy[base - path] = '\0';
    return conv_paths_make_folder(copy, err);
}

int conv_paths_open(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

bool conv_paths_wait_readable(int fd, atomic_int *stop)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (stop && atomic_load(stop))
            return false;
        int ready = poll(&wait, 1, 100);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true; // an error is for read() to name
    }
}
