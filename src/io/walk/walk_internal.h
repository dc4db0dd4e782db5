// SPDX-License-Identifier: MIT
// A walk and what it takes steps from: walk.c counts steps and divides them among shards,
// walk_inputs.c takes them from the operands, each of which is a file, a folder (folder_source.c),
// a list (list_source.c) or an archive (archive_source.c).
#pragma once

#include <dirent.h>
#include <limits.h>

#include "base/digest.h"
#include "io/archive/archive_members.h"
#include "io/walk/walk.h"

typedef enum conv_source_step conv_step_fn(void *from, struct conv_item *item,
                                           struct conv_err *err);

// --- folders -------------------------------------------------------------------------------------

// The images of a folder, in the order in which the system lists them, one by one: a folder of a
// million costs no memory.

// Levels of folders that can be open at a time, one descriptor each. Deeper trees are reported, not
// followed.
#define CONV_FOLDER_LEVELS 256

// True if a file is taken, by its name and the folders it is in, and if a folder is entered;
// `relative`: its path below the outermost folder. Any thread.
bool conv_folder_rules_take(const struct conv_folder_rules *rules, const char *relative);
bool conv_folder_rules_enter(const struct conv_folder_rules *rules, const char *relative);

// Starts as {.rules =}, whose arrays stay the caller's.
struct conv_folder_source {
    struct conv_folder_rules rules;
    struct {
        DIR *dir;
        size_t length; // of its path in `here`
    } levels[CONV_FOLDER_LEVELS];
    int depth;           // open folders; 0: none
    char here[PATH_MAX]; // the innermost of them
    size_t target;       // of its items' names: struct conv_item
    struct conv_walk_passed passed;
};

// Opens a folder, after the end of the one before. `target`: offset in its path at which the names
// below the sink begin. CONV_ERR_IO; CONV_ERR_LIMIT if the path is too long.
enum conv_status conv_folder_source_begin(struct conv_folder_source *folder, const char *path,
                                          size_t target, struct conv_err *err);
conv_step_fn conv_folder_source_next;
void conv_folder_source_close(struct conv_folder_source *folder);

// Counts a member of an archive that is skipped; `relative` NULL: it is no file.
void conv_folder_source_pass_over(struct conv_folder_source *folder, const char *name,
                                  const char *relative);

// --- lists ---------------------------------------------------------------------------------------

// The images that a list of names refers to, from a file or a pipe that may be slow. It keeps 21 to
// 43 bytes per name, to recognise repetitions.

struct conv_list_source {
    const char *path;   // of the list; may be "-"
    const char *folder; // that relative names are below; NULL: the current one
    bool in_place;      // see struct conv_item
    bool beside;        // outputs lie next to the images
    const char *base;   // resolved: outputs are named by the paths below it; NULL: as listed
    bool nul;           // names end in NUL; otherwise in newline, or carriage return and newline
    atomic_int *stop;   // may be NULL
    struct conv_digest_set seen;
    int fd; // -1: not open
    bool ended;
    size_t begin, end; // of the bytes in `buffer` that were not handed out yet
    char buffer[65536];
};

// Opens the list, of which everything before `seen` is set. CONV_ERR_USAGE if it cannot be read.
enum conv_status conv_list_source_open(struct conv_list_source *list, struct conv_err *err);
enum conv_source_step conv_list_source_next(struct conv_list_source *list, struct conv_item *item,
                                            struct conv_err *err);
bool conv_list_source_may_wait(const struct conv_list_source *list);
void conv_list_source_close(struct conv_list_source *list); // {.fd = -1} is fine

// --- archives ------------------------------------------------------------------------------------

// The members of archives, one archive after the other: images to be filtered, and other members,
// to be copied unchanged.
//
// Members of a mapped archive are decoded in place. Those of a stream are read into memory one by
// one; the source is full while many of them are in use, so a stream of any length takes constant
// memory.

struct conv_archive_source {
    // Set by the caller.
    const struct conv_folder_rules *rules; // which names are images
    bool images_only;                      // other members than images are skipped
    struct conv_folder_source *passed;     // counts what is skipped
    size_t usual, most;                    // as of conv_source_limit
    size_t spare;                          // bytes of unused buffers
    uint64_t max_pixels;                   // as of struct conv_archive_settings
    // Outputs are files below links.folder: members need names that stay in it, and links cannot be
    // copied. NULL: outputs are archives, which take every name.
    struct conv_member_links links;

    // The archive that is being read.
    struct conv_archive_unit *unit; // NULL: none is open
    const char *path;               // of it; "-" for standard input
    atomic_bool *is_due;            // as in struct conv_archive_target; may be NULL
    char below[NAME_MAX + 1];       // the folder that its members get below links.folder; or ""
    bool is_broken;                 // a failure of reading was reported
    bool has_begun;                 // it had a header

    atomic_size_t held; // bytes in memory: members of streams, copies of archives
    struct conv_archive_held *held_first, **held_end; // links that come later
    struct conv_archive_unit *closed; // the archive of all of them: their own may be closed
};

// Begins with an archive, after the end of the one before; path, is_due and below are set.
// `target`: number of the archive that its members are written to. Takes *input over, which is {.fd
// = -1} afterwards. CONV_ERR_MEMORY, and as conv_archive_format.read.
enum conv_status conv_archive_source_begin(struct conv_archive_source *source,
                                           const struct conv_archive_format *format, int target,
                                           struct conv_archive_input *input, struct conv_err *err);
enum conv_source_step conv_archive_source_next(struct conv_archive_source *source,
                                               struct conv_item *item, struct conv_err *err);
bool conv_archive_source_may_wait(const struct conv_archive_source *source);
void conv_archive_source_leave(struct conv_archive_source *source); // the one that is being read
void conv_archive_source_close(struct conv_archive_source *source);

// Keeps a link for later; the next of them, first come, first served, else CONV_SOURCE_END.
enum conv_status conv_archive_source_hold(struct conv_archive_source *source,
                                          struct conv_item *item, struct conv_err *err);
enum conv_source_step conv_archive_source_next_held(struct conv_archive_source *source,
                                                    struct conv_item *item, struct conv_err *err);

// --- orders --------------------------------------------------------------------------------------

// All steps of another source, which takes some hundred bytes for each.
struct conv_sorted;

// Calls next(from) to the end. Images that the command line names keep their places; images of
// folders between them are sorted by their paths, byte by byte. CONV_ERR_MEMORY.
enum conv_status conv_sorted_open(struct conv_sorted **sorted, conv_step_fn *next, void *from,
                                  const struct conv_walk_order *order, struct conv_err *err);
enum conv_source_step conv_sorted_next(struct conv_sorted *sorted, struct conv_item *item,
                                       struct conv_err *err);
uint64_t conv_sorted_count(const struct conv_sorted *sorted, uint64_t images); // conv_walk_known
void conv_sorted_close(struct conv_sorted *sorted);                            // NULL is fine

// --- watches -------------------------------------------------------------------------------------

// Watches folders (inotify, Linux) and hands out images as they arrive, in whichever way: files
// that are closed after writing, renamed, exchanged or linked into place, in folders that arrive.
// The walk hands out the images that exist at the beginning. While an image is processed no other
// version of it is handed out, so that the last version is the last that is written.
//
// Nothing is missed: a folder is watched before it is listed, and if the system drops events
// because too many are waiting, the folders are listed again for files that changed since. An image
// may be handed out twice then. Memory: some hundred bytes per folder and per image that waits.
struct conv_watch;

// Keeps *rules and `stop`, which ends waiting once it is non-zero. CONV_ERR_LIMIT, CONV_ERR_IO or
// CONV_ERR_MEMORY.
enum conv_status conv_watch_open(struct conv_watch **watch, const struct conv_folder_rules *rules,
                                 const atomic_int *stop, struct conv_err *err);
void conv_watch_close(struct conv_watch *watch); // NULL is fine

// The functions below: one thread at a time.

// Begins to watch a folder, and with rules->recursive those below it. `target` as of
// conv_folder_source_begin. Keeps `path`. CONV_ERR_LIMIT, CONV_ERR_IO or CONV_ERR_MEMORY.
enum conv_status conv_watch_add(struct conv_watch *watch, const char *path, size_t target,
                                struct conv_err *err);

// For an image that the walk found in a watched folder. False if it is still being written: it is
// handed out when it is complete.
bool conv_watch_take_found(struct conv_watch *watch, struct conv_item *item);

// Waits for the next image. CONV_SOURCE_BAD: a new folder cannot be watched, or a folder of the
// operands is gone. CONV_SOURCE_END: stopped, or all folders of the operands are gone.
enum conv_source_step conv_watch_next(struct conv_watch *watch, struct conv_item *item,
                                      struct conv_err *err);

// True if conv_watch_next would wait now.
bool conv_watch_may_wait(struct conv_watch *watch);

// --- walks ---------------------------------------------------------------------------------------

// Where archives become files beside those of other inputs, the folder that each gets for its
// members: "a.tar.gz" gets "a", and if another input would get that, too, "a.tar.gz". An input is
// an archive, or a file or folder, which keeps its name. CONV_ERR_MEMORY.
enum conv_status conv_walk_add_folder(struct conv_walk *walk, const char *input, bool is_archive,
                                      struct conv_err *err);

// A step that was taken ahead.
struct peeked {
    enum conv_source_step step;
    struct conv_item item;
    struct conv_err err;
};

struct conv_walk {
    struct conv_walk_config config;
    struct conv_operands_shape shape;
    uint64_t left; // images, of config.limit
    int next_input;
    struct conv_folder_source folder; // the input that is being walked, if it is a folder
    struct conv_sorted *sorted;       // the same, sorted by name; or NULL
    struct conv_sorted *all;          // of conv_walk_sort; or NULL
    struct conv_archive_operands archives;
    struct conv_archive_source archive;  // the input, if it is an archive
    struct conv_digest_set used, shared; // short names of archives that become files
    struct conv_list_source list;
    char base[PATH_MAX];      // of the list
    struct conv_watch *watch; // NULL: folders are not watched
    bool found_all;           // with a watch: what was there at first has been handed out
    uint64_t items, listed;
    struct conv_digest names; // sum of the digests of listed names
    bool is_over;
    bool has_ended;        // only links that were held come
    struct peeked *peeked; // NULL: nothing
};

// The next step of the operands, without a watch; CONV_SOURCE_END after the last of them. Errors as
// of conv_source_next.
enum conv_source_step conv_walk_next_input(struct conv_walk *walk, struct conv_item *item,
                                           struct conv_err *err);

// The offset in an input folder's path at which the names below the sink begin.
size_t conv_walk_folder_target(const struct conv_walk *walk, const char *folder);

// Counts an image, or an archive that is divided as a whole. False if it is in another shard.
bool conv_walk_count_name(struct conv_walk *walk, const char *name, bool listed);
