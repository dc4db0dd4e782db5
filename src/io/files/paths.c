// SPDX-License-Identifier: MIT
// Most functions work on strings and ask the system about links only where they must.
#include "io/files/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"

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

bool conv_paths_is_npy(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcasecmp(path + length - 4, ".npy") == 0;
}

const char *conv_paths_base(const char *path)
{
    const char *base = path;
    for (const char *s = path; *s; s++)
        if (*s == '/' && s[1] != '/' && s[1] != '\0')
            base = s + 1;
    return base;
}

const char *conv_paths_folder(char *folder, const char *path)
{
    int length = (int)(conv_paths_base(path) - path);
    snprintf(folder, PATH_MAX, "%.*s", length ? length : 1, length ? path : ".");
    return folder;
}

bool conv_paths_is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

bool conv_paths_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool conv_paths_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Replaces the path of a link by that of its target. False if it is not a link.
static bool follow_link(char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    path[target[0] == '/' ? 0 : conv_paths_base(path) - path] = '\0';
    return conv_paths_join(path, path, target);
}

bool conv_paths_identify(struct conv_paths_identity *identity, const char *path)
{
    char at[PATH_MAX];
    if (!path[0] || !conv_paths_join(at, "", path))
        return false;
    for (int links = 0; links < 40; links++) { // as many as Linux follows
        identity->exists = stat(at, &identity->info) == 0;
        if (identity->exists)
            return true;
        if (errno != ENOENT)
            return false;
        if (!follow_link(at))
            break;
    }
    size_t folder = (size_t)(conv_paths_base(at) - at), length = strcspn(at + folder, "/");
    if (length == 0 || length > NAME_MAX)
        return false;
    memcpy(identity->name, at + folder, length);
    identity->name[length] = '\0';
    at[folder] = '\0';
    return stat(folder ? at : ".", &identity->info) == 0;
}

bool conv_paths_is_same(const struct conv_paths_identity *a, const struct conv_paths_identity *b)
{
    return a->exists == b->exists && a->info.st_dev == b->info.st_dev &&
           a->info.st_ino == b->info.st_ino && (a->exists || strcmp(a->name, b->name) == 0);
}

bool conv_paths_is_unchanged(const struct stat *before, const struct stat *after)
{
    return before->st_dev == after->st_dev && before->st_ino == after->st_ino &&
           before->st_size == after->st_size && before->st_mtim.tv_sec == after->st_mtim.tv_sec &&
           before->st_mtim.tv_nsec == after->st_mtim.tv_nsec;
}

bool conv_paths_is_older(const struct stat *first, const struct stat *second)
{
    const struct timespec *a = &first->st_mtim, *b = &second->st_mtim;
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

bool conv_paths_climbs(const char *path, const char *separators)
{
    for (size_t n; path += strspn(path, separators), (n = strcspn(path, separators)) > 0; path += n)
        if (n == 2 && memcmp(path, "..", 2) == 0)
            return true;
    return false;
}

bool conv_paths_normal(char *dst, const char *name)
{
    size_t size = 0, out = 0; // `out`: bytes of ".." at the beginning
    for (size_t n; name += strspn(name, "/"), (n = strcspn(name, "/")) > 0; name += n) {
        bool up = n == 2 && memcmp(name, "..", 2) == 0;
        if (n == 1 && name[0] == '.')
            continue;
        if (up && size > out) {
            while (size > out && dst[--size] != '/')
                ;
            continue;
        }
        if (size > 0)
            dst[size++] = '/';
        memcpy(dst + size, name, n);
        size += n;
        out = up ? size : out;
    }
    dst[size] = '\0';
    return out == 0;
}

// Appends one component to a resolved path. A component that does not exist yet will be a folder,
// never a link, so ".." leads back out of it.
static bool append_component(char *resolved, const char *name)
{
    if (strcmp(name, ".") == 0)
        return true;
    if (strcmp(name, "..") != 0)
        return conv_paths_join(resolved, resolved, name);
    char *slash = strrchr(resolved, '/');
    slash[slash == resolved] = '\0';
    return true;
}

// realpath of a path whose last components may not exist yet.
bool conv_paths_resolve(const char *path, char *resolved)
{
    if (realpath(path, resolved))
        return true;
    char head[PATH_MAX];
    // The current folder itself may have been removed.
    if (errno != ENOENT || strcmp(path, ".") == 0 || !conv_paths_join(head, "", path))
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
    return conv_paths_resolve(parent, resolved) && append_component(resolved, tail);
}

bool conv_paths_is_inside(const char *inner, const char *outer)
{
    size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || outer[length - 1] == '/');
}

enum conv_paths_relation conv_paths_relation(const char *existing, const char *other)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!conv_paths_resolve(existing, a) || !conv_paths_resolve(other, b))
        return CONV_PATHS_APART;
    if (strcmp(a, b) == 0)
        return CONV_PATHS_SAME;
    return conv_paths_is_inside(a, b) || conv_paths_is_inside(b, a) ? CONV_PATHS_NESTED
                                                                    : CONV_PATHS_APART;
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
        return conv_err_limit(err, "path too long: %s", path);
    if (make_folders(copy, strlen(copy)) != 0)
        return conv_err_errno(err, errno, "cannot make the folder %s", path);
    return CONV_OK;
}

enum conv_status conv_paths_make_parent(const char *path, struct conv_err *err)
{
    char folder[PATH_MAX];
    bool has_folder = conv_paths_base(path) != path && strlen(path) < sizeof folder;
    return has_folder ? conv_paths_make_folder(conv_paths_folder(folder, path), err) : CONV_OK;
}

int conv_paths_open(const char *path, int flags)
{
    return conv_paths_open_at(AT_FDCWD, path, flags, 0666, NULL);
}

int conv_paths_open_at(int folder, const char *path, int flags, mode_t mode,
                       const atomic_bool *ends)
{
    int fd, tries = 0;
    do
        fd = ends && atomic_load(ends) ? -1 : openat(folder, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && !(ends && atomic_load(ends)) &&
           (errno == EINTR || conv_descriptors_wait(errno, &tries)));
    return fd;
}

int conv_paths_sync(int fd)
{
    return (int)TEMP_FAILURE_RETRY(fsync(fd));
}

int conv_paths_sync_folder(int fd)
{
    return conv_paths_sync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

enum conv_status conv_paths_sync_parent(const char *path, struct conv_err *err)
{
    char folder[PATH_MAX];
    int fd = conv_paths_open(conv_paths_folder(folder, path), O_RDONLY | O_DIRECTORY);
    enum conv_status status = CONV_OK;
    if (fd < 0 || conv_paths_sync_folder(fd) != 0)
        status = conv_err_errno(err, errno, "cannot flush the folder of %s", path);
    if (fd >= 0)
        close(fd);
    return status;
}

static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

#define MOST_LINKS 8 // /dev/stdout is one, to /proc/self/fd/1; /dev/fd is another

int conv_paths_descriptor(const char *path)
{
    char here[PATH_MAX], folder[PATH_MAX], target[PATH_MAX];
    if (!conv_paths_join(here, "", path))
        return -1;
    for (int links = 0; links < MOST_LINKS; links++) {
        const char *base = conv_paths_base(here);
        conv_paths_folder(folder, here);
        char *end;
        long number = strtol(base, &end, 10);
        if (base[0] >= '0' && base[0] <= '9' && *end == '\0' && number <= INT_MAX &&
            (is_same(folder, "/proc/self/fd") || is_same(folder, "/proc/thread-self/fd")))
            return (int)number;
        ssize_t length = readlink(here, target, sizeof target - 1);
        if (length <= 0)
            return -1;
        target[length] = '\0';
        if (!conv_paths_join(here, target[0] == '/' ? "" : folder, target))
            return -1;
    }
    return -1;
}

bool conv_paths_wait_readable(int fd, atomic_int *stop)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (stop && atomic_load(stop))
            return false;
        int ready = poll(&wait, 1, 100);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true; // read() gives the reason of an error
    }
}

bool conv_paths_is_readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 0) != 0; // read() gives the reason of an error
}

size_t conv_paths_head(const char *path, void *head, size_t size)
{
    struct stat info;
    bool regular = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    FILE *file = regular ? fopen(path, "re") : NULL;
    size_t got = file ? fread(head, 1, size, file) : 0;
    if (file)
        fclose(file);
    return got;
}
