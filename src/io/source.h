// SPDX-License-Identifier: MIT
// A source names images and hands out their bytes, whether they are files, members of archives or
// come from standard input: for each of these there is a table of functions.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/parallel.h"

// How the input's descriptor counts against the limit: see base/descriptors.h.
enum conv_input_count {
    CONV_INPUT_UNCOUNTED, // standard input
    CONV_INPUT_TAKEN,     // for the time of reading
    CONV_INPUT_AHEAD,     // opened before its reader comes
    CONV_INPUT_KEPT,      // for as long as a pipe or other images take
};

// An item that is being read. {0} before conv_input_announce or conv_input_open.
struct conv_input {
    int fd;
    bool is_announced; // it is open already
    enum conv_input_count counted;
    struct stat info;                  // identity: inode, size, times. st_mode is 0 while unknown
    struct conv_archive_input *stream; // that is read instead of `fd`; or NULL
};

struct conv_archive_body; // a member of an archive: archive_members.h
struct conv_format;

// One image of a source. It can be copied.
struct conv_item {
    const struct conv_item_ops *ops;
    char name[PATH_MAX]; // for messages and reports; of a file, its path
    // Offset in `name` of the output's name below the sink ("sub/a.png"), which is a suffix of the
    // item's name or follows its NUL; it may be empty for CONV_SOURCE_BAD.
    size_t target;
    bool is_named; // on the command line, so it may be a pipe or a device
    bool in_place; // its output replaces it: a regular file, not a link

    uint64_t number;  // of items from the same source, from 0 on: set by the pipeline
    bool is_copy;     // not an image: it is copied unchanged
    bool is_link;     // a copy that is written once all items before it are written or dropped
    bool keeps_name;  // an image that may be copied instead, under its own name
    bool is_repeated; // a folder of an archive whose output has it already
    bool is_refused;  // an earlier item has the name
    bool is_result;   // its output has the extension of another format
    bool is_numbered; // an earlier item of another name has its output's, so that has a number
    int holds;        // how often it was given to conv_source_hold
    int archive;      // number of the archive that its output belongs to, if outputs are archives
    bool is_again;    // see is_replaced
    struct conv_watched *watched;      // of an item in a watched folder, until it is released
    const char *reason;                // of CONV_SOURCE_DONE: why, a constant
    struct conv_archive_body *body;    // of a member of an archive; conv_item_release gives it back
    struct conv_archive_input *stream; // of standard input whose first bytes were examined; or NULL
};

#define CONV_INPUT_LATER (-2) // nothing to read yet

// How the bytes of an item are read. Any thread, one at a time per item.
struct conv_item_ops {
    const char *title; // what messages call the item; NULL: item->name
    bool is_file;      // item->name is a path by which the item can be read again

    // Size, times and inode without reading; of an item in place those of a link itself. False with
    // errno if there is no such item; NULL: unknown before it is read.
    bool (*identify)(const struct conv_item *item, struct stat *info);

    // Optional (may be NULL): opens the item if a descriptor is available, starts fetching it from
    // the disk, and sets input->info if it can. Failures are left for `open` to report.
    void (*announce)(const struct conv_item *item, struct conv_input *input);

    // Opens the item, or takes over what `announce` has opened, and sets input->info. CONV_ERR_IO,
    // CONV_ERR_FORMAT if it is not a file that may be read, CONV_ERR_USAGE for a link in place.
    // Nothing is open after a failure.
    enum conv_status (*open)(const struct conv_item *item, struct conv_input *input,
                             struct conv_err *err);

    // For an item whose bytes are in memory; the functions around this one are then NULL. Returns
    // its bytes, which are valid until the item is released, and sets input->info. CONV_ERR_IO. Any
    // thread.
    enum conv_status (*view)(const struct conv_item *item, struct conv_input *input,
                             const uint8_t **data, size_t *size, struct conv_err *err);

    // At most `size` bytes; 0 at the end, CONV_INPUT_LATER, or -1 with *err.
    ssize_t (*read)(struct conv_input *input, void *data, size_t size, struct conv_err *err);

    // Optional: reads exactly `size` bytes, those after the ones that were read, by several
    // threads. False: nothing counts as read, and `read` will say why. *stop, which may be NULL,
    // ends it.
    bool (*read_shared)(struct conv_input *input, void *data, size_t size,
                        struct conv_parallel *parallel, atomic_int *stop);

    // CONV_ERR_IO if the item has changed since it was opened: what was read may be half old, half
    // new.
    enum conv_status (*unchanged)(const struct conv_input *input, struct conv_err *err);

    // Optional: true if the item is gone, is being written, or has been replaced since `input` was
    // set. Failing to read it is then not an error; unless *gone, its source hands it out again if
    // item->is_again is set before it is released.
    bool (*is_replaced)(const struct conv_item *item, const struct conv_input *input, bool *gone);

    // Also for an input that was only announced. Does nothing if it is not open.
    void (*close)(struct conv_input *input);
    // Optional: true if bytes can be read although nothing new can be read from input->fd.
    bool (*has_bytes)(const struct conv_input *input);
};

// What is known of an item of a watched folder that was handed out (walk/watch.c); any
// thread, unless stated otherwise.

// True if the file is gone, is open for writing, or is not the one that was read.
bool conv_watched_is_changing(const struct conv_item *item, const struct stat *before, bool *gone);
// True if another image, of the same stem, exists and may have the same output; `is_taken`: one had
// `name`, its output's, earlier. By the thread that takes items from the source.
bool conv_watched_has_rival(const struct conv_watched *watched, const char *name, bool is_taken);
// `again`: it has changed while it was read, and is to be handed out once more. NULL is fine.
void conv_watched_end(struct conv_watched *watched, bool again);

// An item that is a link cannot be replaced.
static inline enum conv_status conv_source_refuse_link(struct conv_err *err)
{
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_NO_LINKS, "is a symbolic link");
}

// True if the item can be read again with the same result, judging by its kind: a pipe cannot.
// After announce or open.
static inline bool conv_input_is_file(const struct conv_input *input)
{
    return S_ISREG(input->info.st_mode);
}

// Gives back what the item holds of an archive. Once per item; copies share it.
void conv_item_release(struct conv_item *item);

// The identity of the archive that the item is a member of: newer than its members, it may have
// other ones of the same time and size. NULL for other items.
const struct stat *conv_item_archive(const struct conv_item *item);

// The bytes of a member whose archive comes through a pipe, which has no identity; else NULL.
const uint8_t *conv_item_streamed(const struct conv_item *item);

// The bytes of a file, without reading it; 0: it is none, or they are unknown.
static inline uint64_t conv_item_bytes(const struct conv_item *item)
{
    struct stat info;
    bool is_file = item->ops->identify && item->ops->identify(item, &info) && S_ISREG(info.st_mode);
    return is_file ? (uint64_t)info.st_size : 0;
}

// The output's name below the sink: "sub/a.png".
const char *conv_item_target(const struct conv_item *item);

// The offset at which the extension of a path begins: its end if it has none.
size_t conv_item_extension_at(const char *path);

// Inserts `suffix` into it: "sub/a_sharp.png" for "_sharp"; NULL leaves it. `beside`: the name
// becomes that of a file next to the item, with the path of the item. CONV_ERR_LIMIT.
enum conv_status conv_item_set_target(struct conv_item *item, const char *suffix, bool beside,
                                      struct conv_err *err);

// Gives it the extension of the outputs' format, NULL: that of the input; or of .npy files: a.png
// becomes a.npy. CONV_ERR_LIMIT.
enum conv_status conv_item_set_format(struct conv_item *item, const struct conv_format *format,
                                      bool npy, struct conv_err *err);

// Gives the output of a member of an archive, for an archive, the member's own name again.
void conv_item_keep_name(struct conv_item *item);

// True if the item's name without its extension ends in `suffix`.
bool conv_item_has_suffix(const struct conv_item *item, const char *suffix);

// Item tables for files and standard input (files/file_item.c).
extern const struct conv_item_ops conv_item_file, conv_item_standard;

// Of standard input whose first bytes were taken already, for input->stream has them
// (archive/archive_input.c): as conv_item_ops.read and .has_bytes.
ssize_t conv_input_take_peeked(struct conv_input *input, void *data, size_t size,
                               struct conv_err *err);
bool conv_input_has_peeked(const struct conv_input *input);

// To be called for an input that stays open for longer than reading takes: from now on other
// threads do not wait for its descriptor.
void conv_input_keep(struct conv_input *input);

enum conv_source_step {
    CONV_SOURCE_ITEM,
    CONV_SOURCE_BAD,      // item->name cannot be read; *err has the reason
    CONV_SOURCE_REPEATED, // the list had it before, perhaps spelled differently
    CONV_SOURCE_RESULT,   // by its name a result of an earlier run, not to be processed again
    CONV_SOURCE_DONE,     // an input whose output is done: item->reason
    CONV_SOURCE_END,
};

// Why an item is skipped that is no image to process, in reports; NULL for all other steps.
static inline const char *conv_source_skip_reason(enum conv_source_step step,
                                                  const struct conv_item *item)
{
    return step == CONV_SOURCE_REPEATED ? "listed again; only the first counts"
           : step == CONV_SOURCE_RESULT ? "named like a result"
           : step == CONV_SOURCE_DONE   ? item->reason
                                        : NULL;
}

// The images of a walk (walk/walk.h).
struct conv_source;

// The next image. One caller at a time.
enum conv_source_step conv_source_next(struct conv_source *source, struct conv_item *item,
                                       struct conv_err *err);

// True if `conv_source_next` may take long: the names come through a pipe that is empty.
bool conv_source_may_wait(const struct conv_source *source);

// True while the items that were handed out and not released hold too much memory to take more. Any
// thread.
bool conv_source_is_full(const struct conv_source *source);

// Sets how many bytes make the source full, and how many a single item may hold. False if items
// hold none. Before the first item.
bool conv_source_limit(struct conv_source *source, size_t usual, size_t most);

// For items that are links: takes the link back and hands it out again after all other items of its
// output. CONV_ERR_MEMORY. As conv_source_next.
enum conv_status conv_source_hold(struct conv_source *source, struct conv_item *item,
                                  struct conv_err *err);
