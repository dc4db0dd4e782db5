// SPDX-License-Identifier: MIT
// The images of a folder, in the order in which the system lists them, one by one: a folder of a
// million costs no memory.
#ifndef CONV_WALK_FOLDER_SOURCE_H
#define CONV_WALK_FOLDER_SOURCE_H

#include <dirent.h>

#include "io/source.h"

// Levels of folders that can be open at a time, one descriptor each. Deeper trees are reported, not
// followed.
#define CONV_FOLDER_LEVELS 256

// Globs: glob.h.
struct conv_folder_rules {
    bool recursive;
    bool in_place;              // see struct conv_item
    const char *const *include; // no glob: conv_formats_match_name
    int include_count;
    const char *const *exclude; // an excluded folder is not entered
    int exclude_count;
    bool no_ignore; // take ._*, .thumb* and @eaDir, which are files of other programs
};

// True if a file is taken, by its name and the folders it is in, and if a folder is entered;
// `relative`: its path below the outermost folder. Any thread.
bool conv_folder_rules_take(const struct conv_folder_rules *rules, const char *relative);
bool conv_folder_rules_enter(const struct conv_folder_rules *rules, const char *relative);

#define CONV_FOLDER_FORMATS 16

struct conv_folder_source {
    struct conv_source source;
    struct conv_folder_rules rules;
    struct {
        DIR *dir;
        size_t length; // of its path in `here`
    } levels[CONV_FOLDER_LEVELS];
    int depth;           // open folders; 0: none
    char here[PATH_MAX]; // the innermost of them
    size_t target;       // of its items' names: struct conv_item
    uint64_t others;     // files skipped because their names do not match
    char other[256];     // the first of them
    uint64_t ignored;    // files and folders skipped because of their names: no_ignore
    // Without `include`: files whose names are those of other image formats, and the formats, each
    // once and sorted; folders that are not entered.
    uint64_t images, folders;
    const char *formats[CONV_FOLDER_FORMATS];
    int format_count;
};

// Keeps the arrays of *rules. To be closed, even if it was never begun.
void conv_folder_source_init(struct conv_folder_source *folder,
                             const struct conv_folder_rules *rules);

// Counts a file that is skipped, elsewhere than in a folder, in folder->images or folder->ignored.
void conv_folder_source_pass_over(struct conv_folder_source *folder, const char *relative);

// Opens a folder, after the end of the one before. `target`: offset in its path at which the names
// below the sink begin. CONV_ERR_IO; CONV_ERR_LIMIT if the path is too long.
enum conv_status conv_folder_source_begin(struct conv_folder_source *folder, const char *path,
                                          size_t target, struct conv_err *err);

// Closes all open folders.
void conv_folder_source_close(struct conv_folder_source *folder);

#endif
