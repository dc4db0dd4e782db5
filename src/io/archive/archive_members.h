// SPDX-License-Identifier: MIT
// Members of archives in memory: those that were read, those that are to be written, and their
// buffers.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "io/archive/archive.h"
#include "io/archive/archive_input.h"

// --- buffers -------------------------------------------------------------------------------------

// Reused buffers for the contents of members. malloc takes large blocks from the system page by
// page and returns them at once; with 16 threads that took longer than copying into them.
//
// Any thread may call any function except open and close.

struct conv_archive_buffer; // the memory after it is the user's

struct conv_archive_buffers {
    struct conv_lock lock;
    struct conv_archive_buffer *unused;
    size_t unused_bytes, most; // kept for later: at most that
};

// The caller sets `most` afterwards; 0 keeps nothing.
void conv_archive_buffers_open(struct conv_archive_buffers *buffers);
void conv_archive_buffers_close(struct conv_archive_buffers *buffers); // all were given back

// At least `size` bytes, aligned for any type. NULL without memory.
void *conv_archive_buffers_take(struct conv_archive_buffers *buffers, size_t size);
// NULL is fine.
void conv_archive_buffers_give(struct conv_archive_buffers *buffers, void *data);

// --- members that were read ----------------------------------------------------------------------

// A member of an archive that is being read, with its content in memory: a part of the mapped
// archive, or bytes that were read from a stream. It is reference-counted: the archive stays open
// as long as one of its members is in use. Any thread may call any function.

// An archive that is being read.
struct conv_archive_unit {
    atomic_int uses;
    struct conv_archive_input input;
    struct conv_archive_reader *reader;  // of the source, alone; or NULL
    atomic_size_t *held;                 // conv_archive_source.held
    struct conv_archive_buffers buffers; // of the contents that are read
    int target;                          // number of the archive that the members are written to
};

struct conv_archive_body {
    atomic_int uses;
    struct conv_archive_unit *unit;
    struct conv_archive_member member; // its strings are in `strings`
    const uint8_t *data;               // member.size bytes; NULL if it is not a file
    uint8_t *own;                      // `data` in unit->buffers; NULL: it is in the map
    char strings[];
};

// A copy of *member without a content, used once. It retains the unit. NULL without memory.
struct conv_archive_body *conv_archive_body_make(struct conv_archive_unit *unit,
                                                 const struct conv_archive_member *member);
void conv_archive_body_release(struct conv_archive_body *body); // NULL is fine

// Sets target (2 * PATH_MAX bytes) to the name, as conv_paths_normal spells it, of the member
// that a link leads to. False if a symbolic link leads out of the archive.
bool conv_archive_body_target(char *target, const struct conv_archive_body *body);

void conv_archive_unit_release(struct conv_archive_unit *unit); // closes it after its last use

// --- their names ---------------------------------------------------------------------------------

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

// --- members to be written -----------------------------------------------------------------------

// A member that is to be written into an archive: the one that a thread hands over, or a copy that
// waits.
//
// An entry belongs to one thread at a time.

struct conv_archive_entry {
    struct conv_open_archive *to; // once it is placed
    int target;
    bool is_dropped, lacks; // the second: the archive is incomplete without it
    struct conv_archive_member member;
    struct conv_encoded content;
    struct conv_archive_body *body;  // retained; or NULL
    uint64_t offset;                 // its place in a file of plain tar
    size_t copied;                   // bytes that count as waiting
    struct conv_archive_entry *next; // in the list of placed ones
    uint8_t *own;                    // the content, unless it has a body; of `buffers`
    // After it: the member's strings.
};

// A copy that can wait: it has its own strings and content, or retains `body`. NULL without memory.
struct conv_archive_entry *conv_archive_entry_copy(struct conv_archive_buffers *buffers,
                                                   const struct conv_archive_entry *from);

// Frees a copy, or an entry from calloc that is dropped. `buffers` are those with which it was
// made. NULL is fine.
void conv_archive_entry_free(struct conv_archive_buffers *buffers,
                             struct conv_archive_entry *entry);
