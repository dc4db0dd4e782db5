// SPDX-License-Identifier: MIT
// Who may use a file that takes another one's place, or its permissions: no user may read or write
// it who could not read or write that one, at any moment. A new file is therefore made with
// conv_access_first() and gets the rest, with conv_access_give(), once its owner is known.
//
// Set-user-ID, set-group-ID and sticky bits are never given: they were meant for another content.
// Any thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

#define CONV_ACCESS_MOST 512 // entries; ext4 has room for about as many

// An entry of a POSIX access control list (acl(5)), as the kernel passes it.
struct conv_access_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

struct conv_access {
    struct stat info;
    bool is_unknown; // there may be a list that cannot be read
    int count;       // 3: there is no list, or none that says more than the mode
    struct conv_access_entry entries[CONV_ACCESS_MOST];
};

// Reads the access of the file `path`, whose folder is `folder` unless that is AT_FDCWD. `follows`:
// through a link. False with errno.
bool conv_access_read(struct conv_access *access, int folder, const char *path, bool follows);

// The access that only the mode of the file at `path` shows: for files that are not there any more.
void conv_access_guess(struct conv_access *access, const struct stat *info);

// As conv_access_read for the file that an output is about to replace. False if there is none, or
// something that is not a regular file.
bool conv_access_of_replaced(struct conv_access *access, int folder, const char *path);

// The mode with which to create a file that will get this access; the umask applies if st_mode is
// 0.
mode_t conv_access_first(const struct conv_access *access);

// Gives the open file this access, the owner and the group as well if `owner`, where the system
// allows it. A group or owner that cannot be kept is given nothing: permissions of others are
// reduced accordingly. *list_lost: an access control list could not be kept; the group then has no
// access. -1 with errno.
int conv_access_give(int fd, const struct conv_access *access, bool owner, bool *list_lost);

// Copies the extended attributes user.* and security.* of the file `path`, named as for
// conv_access_read, to the open file, as far as the system allows. Capabilities and checksums are
// for another content.
void conv_access_copy_attributes(int fd, int folder, const char *path);

// CONV_ERR_IO with a hint if the file, about which *info is known, must not be replaced: the user
// may not write to it, its mode allows that to no one, or it is immutable or can only be appended
// to. `is_input`: it is the input. `forced`: only the latter counts.
enum conv_status conv_access_check(const char *path, const struct stat *info, bool is_input,
                                   bool forced, struct conv_err *err);
