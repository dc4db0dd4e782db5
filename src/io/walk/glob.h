// SPDX-License-Identifier: MIT
// Globs that choose names in a folder tree: those of fnmatch(), and `**` and `{a,b}`. Any thread.
#ifndef CONV_WALK_GLOB_H
#define CONV_WALK_GLOB_H

#include <stdbool.h>

#include "base/err.h"

// CONV_ERR_USAGE if the glob is empty, too long or has too many alternatives.
enum conv_status conv_glob_check(const char *glob, struct conv_err *err);

// True if the glob, which passed conv_glob_check, matches `relative`, the path of a file or folder
// below the outermost folder: "sub/a.png".
//
//   *  ?  [a-z]  [!a-z]  characters of one name, never a slash; \ takes the next one as it is
//   {a,b}                either; may be nested, empty and contain slashes
//   NAME                 without a slash: the last name of the path, at any depth
//   a/NAME, /NAME        with a slash: the whole path
//   **                   as a whole component: any number of folders, none included; at the end
//                        everything below
//   NAME/                folders only
bool conv_glob_match(const char *glob, const char *relative, bool is_folder);

#endif
