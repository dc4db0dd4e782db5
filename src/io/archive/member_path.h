// SPDX-License-Identifier: MIT
// Where a member of an archive goes below a folder. Names in archives may be hostile: none of them
// may lead out of the folder.
//
// The rules, for a name of any bytes:
//   - refused: empty names; names with a component ".." (also where it would
//     not lead out); names of folders, which end in "/" or "/."; components longer than NAME_MAX
//     and paths of PATH_MAX bytes or more;
//   - refused, because they would lead out on a file system shared with Windows: names that begin
//     with a drive ("C:\a", "C:/a"), and names that would be refused or absolute if every backslash
//     was a slash ("..\a", "\\server\a"). Other backslashes are characters like any other;
//   - leading slashes are removed, as tar and unzip do;
//   - components "." and repeated slashes are removed: "./a//b" is "a/b";
//   - all other bytes stay as they are, in whatever encoding.
// Different names can have the same path ("a" and "./a"): compare paths, not names.
#ifndef CONV_ARCHIVE_MEMBER_PATH_H
#define CONV_ARCHIVE_MEMBER_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Sets dst (PATH_MAX bytes) to the relative path of a member.
// CONV_ERR_LIMIT for a name that is too long, CONV_ERR_FORMAT for the other refusals; dst then
// holds anything. *err does not repeat the name. Any thread.
enum conv_status conv_member_path_make(char *dst, const char *name, struct conv_err *err);

// Remembers the folder of the last member, since members of one folder follow one another. Start
// with {.folder =}. One thread at a time.
struct conv_member_links {
    const char *folder;     // of the outputs; need not exist yet
    char checked[PATH_MAX]; // folder of the last member that passed, relative to `folder`
};

// CONV_ERR_IO if a folder on the way to a path made by conv_member_path_make is a symbolic link
// that leads out of links->folder, or nowhere. Links that stay inside are followed. The file itself
// is not checked: a sink replaces a link of that name and never writes through it. conv creates no
// links, so such a link existed before the run.
enum conv_status conv_member_path_check_links(struct conv_member_links *links, const char *path,
                                              struct conv_err *err);

#endif
