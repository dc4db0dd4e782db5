// SPDX-License-Identifier: MIT
// The source of everything that a command line names: files, folders, a list of names, standard
// input, one after the other.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/source.h"
#include "io/walk/operands.h"
#include "io/walk/shard.h"

// Which files of folders, and members of archives, are taken.
struct conv_folder_rules {
    const char *const *include; // globs, see below; no glob: conv_formats_of_name
    int include_count;
    const char *const *exclude; // an excluded folder is not entered
    int exclude_count;
    bool no_ignore; // take ._*, .thumb* and @eaDir, which are files of other programs
    bool others;    // hand out the other files as well, to be copied
    // Set by the walk:
    bool recursive;
    bool in_place;       // see struct conv_item
    const char *omitted; // a folder that is not entered, below the outermost one; "": none
};

struct conv_walk_config {
    struct conv_operands operands;
    struct conv_folder_rules rules;
    bool watch; // after the images that are there, those that arrive in the folders, until
                // *stop
    struct conv_archive_settings archives;
    bool nul; // the names of operands.files_from end in NUL, not in newline
    const struct conv_shard_plan
        *plan;        // only images of its shard are handed out; NULL: all. Not with watch
    bool whole;       // with a plan: an archive as a whole is in a shard, by its own name
    uint64_t limit;   // images after which the walk ends; other steps do not count; 0: none
    atomic_int *stop; // ends the wait for a slow list when it becomes non-zero; may be NULL
};

struct conv_walk;

// With a plan, an input that cannot be listed (CONV_SOURCE_BAD) is handed out in every shard, since
// it may be a whole folder; a member of an archive that cannot be read only in the shard of its
// name.
//
// Checks what can be checked before the first image: conv_operands_check, that the list can be
// opened (CONV_ERR_USAGE), and that folders can be watched (CONV_ERR_LIMIT, CONV_ERR_IO). Looks for
// archives (conv_archive_operands_open). Changes
// nothing on disk. Keeps the strings and arrays of *config.
enum conv_status conv_walk_open(struct conv_walk **walk, const struct conv_walk_config *config,
                                struct conv_err *err);
void conv_walk_close(struct conv_walk *walk); // NULL is fine

// Belongs to the walk. Its items stay valid without it.
struct conv_source *conv_walk_source(struct conv_walk *walk);

struct conv_walk_order {
    bool keeps_order;       // as the steps come
    uint64_t sample;        // images to choose at random; 0: all of them
    uint64_t seed;          // of the sample
    const atomic_int *stop; // reading ends early once it is non-zero; may be NULL
};

// Before the first step: takes all of them now, some hundred bytes each, for an order that does not
// depend on the file system, or a random sample that does not. Images that the command line names
// keep their places; images of folders between them are sorted by their paths, byte by byte. A
// sample depends on the seed and on the images' names below the sink only; steps that are neither
// an image nor a failure are dropped from it. Not with archives as inputs. CONV_ERR_MEMORY.
enum conv_status conv_walk_sort(struct conv_walk *walk, const struct conv_walk_order *order,
                                struct conv_err *err);

// Once sorted: how many steps there are up to the image number `images`; 0: in total.
uint64_t conv_walk_known(const struct conv_walk *walk, uint64_t images);

// What the operands are together.
const struct conv_operands_shape *conv_walk_shape(const struct conv_walk *walk);

// The archives that outputs are written to, with shape->sink == CONV_SINK_ARCHIVE; the walk's.
struct conv_archive_target *conv_walk_targets(struct conv_walk *walk, int *count);

// Sets what *config says of the kind of the outputs and of their names; the rest is the caller's.
void conv_walk_describe_outputs(struct conv_walk *walk, struct conv_sink_config *config);

// Before the first step: outputs that are archives, all or nothing, are skipped if they are done
// already (operands.h); their inputs become CONV_SOURCE_DONE.
enum conv_status conv_walk_skip(struct conv_walk *walk, enum conv_archive_done which,
                                struct conv_journal *journal, struct conv_err *err);

// True if an input is an archive.
bool conv_walk_reads_archives(const struct conv_walk *walk);

// False if a second walk would consume input of this one, because standard input or a pipe has an
// archive. *images: it has an image, and a walk without archives is possible.
bool conv_walk_allows_another(const struct conv_walk *walk, bool *images);

// True if the same operands can be walked a second time: a list that comes through a pipe cannot.
bool conv_walk_is_repeatable(const struct conv_walk_config *config);

// True if the next step of the source, which is taken now and handed out later, is an image. May
// wait for the first name of a list. CONV_ERR_MEMORY.
enum conv_status conv_walk_peek(struct conv_walk *walk, bool *is_image, struct conv_err *err);

#define CONV_WALK_FORMATS 16

// What a walk passes over.
struct conv_walk_passed {
    uint64_t others;  // files in folders whose names do not match, and members of archives
    char other[256];  // the name of the first of them
    uint64_t ignored; // files and folders of other programs: struct conv_folder_rules
    // Without `include`: files whose names are those of other image formats, and the formats, each
    // once and sorted; folders that are not entered.
    uint64_t images, folders;
    const char *formats[CONV_WALK_FORMATS];
    int format_count;
};

struct conv_walk_count {
    uint64_t items;    // handed out, CONV_SOURCE_BAD included, copies not
    uint64_t listed;   // images found, in whatever shard
    bool are_archives; // `listed` counts archives, which are divided as a whole
    // Of the names of all images found, in any order; without a plan 0.
    struct conv_digest names;
    bool is_complete;                      // nothing is left to be found
    const struct conv_walk_passed *passed; // belongs to the walk
};

// Not while another thread takes a step.
struct conv_walk_count conv_walk_count(const struct conv_walk *walk);

// --- plans ---------------------------------------------------------------------------------------

// Lists what a walk would find, for a plan that divides it into shards.

// True if an input is a pipe on standard input, which cannot be listed before it is read.
bool conv_walk_plan_has_pipe(const struct conv_walk_config *config);

// Adds all images of *config to the plan and balances it. With config->whole archives are listed as
// files; without it their members are. Ends early once *stop, which may be NULL, is non-zero.
// CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_walk_plan_fill(struct conv_shard_plan *plan,
                                     const struct conv_walk_config *config, const atomic_int *stop,
                                     struct conv_err *err);

// --- globs ---------------------------------------------------------------------------------------

// They choose names in a folder tree: those of fnmatch(), and `**` and `{a,b}`. Any thread.

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
