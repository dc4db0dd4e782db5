// SPDX-License-Identifier: MIT
#include "io/files/access.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/files/paths.h"

#define LIST "system.posix_acl_access"
#define VERSION 2u // of the attribute: linux/posix_acl_xattr.h

// linux/posix_acl.h
enum { USER_OWNER = 1, USER = 2, GROUP_OWNER = 4, GROUP = 8, MASK = 16, OTHER = 32 };

struct list {
    uint32_t version;
    struct conv_access_entry entries[CONV_ACCESS_MOST];
};

// --- reading -------------------------------------------------------------------------------------

// The path of a file in an open folder. Extended attributes have no function for that.
static const char *path_in(char path[PATH_MAX], int folder, const char *file)
{
    struct stat info;
    if (folder == AT_FDCWD)
        return file;
    int length = snprintf(path, PATH_MAX, "/proc/self/fd/%d/%s", folder, conv_paths_base(file));
    return length < PATH_MAX && lstat(path, &info) == 0 ? path : file;
}

static void set_entry(struct conv_access *access, uint16_t tag, unsigned permissions)
{
    access->entries[access->count++] =
        (struct conv_access_entry){tag, (uint16_t)(permissions & 7), UINT32_MAX};
}

static void take_mode(struct conv_access *access)
{
    access->count = 0;
    set_entry(access, USER_OWNER, access->info.st_mode >> 6);
    set_entry(access, GROUP_OWNER, access->info.st_mode >> 3);
    set_entry(access, OTHER, access->info.st_mode);
}

static void take_list(struct conv_access *access, const struct list *list, ssize_t size)
{
    size_t bytes = (size_t)size - sizeof list->version;
    access->is_unknown = size < (ssize_t)sizeof list->version ||
                         le32toh(list->version) != VERSION || bytes % sizeof *list->entries != 0;
    if (access->is_unknown)
        return;
    access->count = (int)(bytes / sizeof *list->entries);
    for (int i = 0; i < access->count; i++)
        access->entries[i] = (struct conv_access_entry){le16toh(list->entries[i].tag),
                                                        le16toh(list->entries[i].permissions),
                                                        le32toh(list->entries[i].id)};
}

void conv_access_guess(struct conv_access *access, const struct stat *info)
{
    access->info = *info;
    access->is_unknown = true;
    take_mode(access);
}

bool conv_access_read(struct conv_access *access, int folder, const char *path, bool follows)
{
    char in[PATH_MAX];
    struct list list;
    const char *file = path_in(in, folder, path);
    if ((follows ? stat(file, &access->info) : lstat(file, &access->info)) != 0)
        return false;
    ssize_t size = (follows ? getxattr : lgetxattr)(file, LIST, &list, sizeof list);
    access->is_unknown = size < 0 && errno != ENODATA && errno != ENOTSUP;
    take_mode(access);
    if (size >= 0)
        take_list(access, &list, size);
    return true;
}

bool conv_access_of_replaced(struct conv_access *access, int folder, const char *path)
{
    return conv_access_read(access, folder, path, false) && S_ISREG(access->info.st_mode);
}

mode_t conv_access_first(const struct conv_access *access)
{
    return access->info.st_mode ? access->info.st_mode & 0600 : 0666;
}

// --- giving --------------------------------------------------------------------------------------

static unsigned permissions_of(const struct conv_access *access, uint16_t tag, unsigned otherwise)
{
    for (int i = 0; i < access->count; i++)
        if (access->entries[i].tag == tag)
            return access->entries[i].permissions;
    return otherwise;
}

// What all of them may do: entries with one of these tags, as far as the mask lets them.
static unsigned common_permissions(const struct conv_access *access, unsigned tags)
{
    unsigned common = 7, mask = permissions_of(access, MASK, 7);
    for (int i = 0; i < access->count; i++)
        if (access->entries[i].tag & tags)
            common &= access->entries[i].permissions & (access->entries[i].tag == OTHER ? 7 : mask);
    return common;
}

static void limit_entries(struct conv_access *access, unsigned tags, unsigned most)
{
    for (int i = 0; i < access->count; i++)
        if (access->entries[i].tag & tags)
            access->entries[i].permissions &= (uint16_t)most;
}

// The members of another group were others or in a group with an entry, and the old group's are
// others now.
static void change_group(struct conv_access *access)
{
    unsigned least = common_permissions(access, GROUP_OWNER | OTHER);
    limit_entries(access, OTHER, least);
    limit_entries(access, GROUP_OWNER, least & common_permissions(access, GROUP));
}

// The old owner may be anyone now.
static void change_owner(struct conv_access *access)
{
    limit_entries(access, USER | GROUP_OWNER | GROUP | OTHER,
                  permissions_of(access, USER_OWNER, 0));
}

// Without its list, those whom an entry excluded are others.
static void drop_list(struct conv_access *access)
{
    mode_t mode = (mode_t)(permissions_of(access, USER_OWNER, 0) << 6);
    if (!access->is_unknown)
        mode |= common_permissions(access, USER | GROUP_OWNER | GROUP | OTHER);
    access->info.st_mode = mode;
    take_mode(access);
}

static int set_list(int fd, const struct conv_access *access)
{
    struct list list = {.version = htole32(VERSION)};
    for (int i = 0; i < access->count; i++)
        list.entries[i] = (struct conv_access_entry){htole16(access->entries[i].tag),
                                                     htole16(access->entries[i].permissions),
                                                     htole32(access->entries[i].id)};
    size_t size = sizeof list.version + (size_t)access->count * sizeof *list.entries;
    return fsetxattr(fd, LIST, &list, size, 0);
}

static mode_t mode_of(const struct conv_access *access)
{
    unsigned group = permissions_of(access, GROUP_OWNER, 0);
    return (mode_t)(permissions_of(access, USER_OWNER, 0) << 6 |
                    permissions_of(access, MASK, group) << 3 | permissions_of(access, OTHER, 0));
}

int conv_access_give(int fd, const struct conv_access *from, bool owner, bool *list_lost)
{
    struct stat now;
    struct conv_access access = *from;
    if (owner && fchown(fd, from->info.st_uid, from->info.st_gid) != 0)
        (void)!fchown(fd, (uid_t)-1, from->info.st_gid);
    if (fstat(fd, &now) != 0)
        return -1;
    if (now.st_gid != from->info.st_gid)
        change_group(&access);
    if (now.st_uid != from->info.st_uid)
        change_owner(&access);
    *list_lost = from->is_unknown || (access.count > 3 && set_list(fd, &access) != 0);
    if (*list_lost)
        drop_list(&access);
    // The folder may have given it a list of its own.
    if (access.count == 3 && fremovexattr(fd, LIST) != 0 && errno != ENODATA && errno != ENOTSUP)
        return -1;
    mode_t mode = mode_of(&access);
    return (now.st_mode & 07777) == mode && access.count == 3 ? 0 : fchmod(fd, mode);
}

// --- extended attributes -------------------------------------------------------------------------

// Others belong to file systems: trusted.gfid of GlusterFS identifies a file.
static bool is_copied(const char *name)
{
    static const char *const others[] = {"security.capability", "security.ima", "security.evm"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return strncmp(name, "user.", 5) == 0 || strncmp(name, "security.", 9) == 0;
}

static void copy_attribute(int fd, const char *path, const char *name)
{
    ssize_t size = lgetxattr(path, name, NULL, 0);
    char *value = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (value && (size = lgetxattr(path, name, value, (size_t)size)) >= 0)
        (void)fsetxattr(fd, name, value, (size_t)size, 0);
    free(value);
}

void conv_access_copy_attributes(int fd, int folder, const char *path)
{
    char in[PATH_MAX];
    const char *file = path_in(in, folder, path);
    ssize_t size = llistxattr(file, NULL, 0);
    char *names = size > 0 ? malloc((size_t)size) : NULL;
    if (names)
        size = llistxattr(file, names, (size_t)size);
    for (ssize_t at = 0; names && at < size; at += (ssize_t)strlen(names + at) + 1)
        if (is_copied(names + at))
            copy_attribute(fd, file, names + at);
    free(names);
}

// --- write protection ----------------------------------------------------------------------------

static enum conv_status refuse(const char *path, bool is_input, const char *what,
                               struct conv_err *err)
{
    return is_input ? conv_err_set(err, CONV_ERR_IO, "is %s", what)
                    : conv_err_set(err, CONV_ERR_IO, "the output %s is %s", path, what);
}

enum conv_status conv_access_check(const char *path, const struct stat *info, bool is_input,
                                   bool forced, struct conv_err *err)
{
    struct statx more = {0};
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 0, &more) != 0)
        more.stx_attributes = 0;
    if (more.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND))
        return refuse(path, is_input,
                      more.stx_attributes & STATX_ATTR_IMMUTABLE ? "immutable" : "append-only",
                      err);
    bool may_write = (info->st_mode & 0222) != 0 &&
                     (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 || errno != EACCES);
    if (forced || may_write)
        return CONV_OK;
    return conv_err_hint(err, CONV_HINT_FORCE, 0, refuse(path, is_input, "write-protected", err));
}
