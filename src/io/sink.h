// SPDX-License-Identifier: MIT
// A sink takes the bytes of an image and makes them visible under a name, complete or not at all. A
// folder, a single file, the inputs' own places, standard output and archives are implementations.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "image/format.h"
#include "io/files/paths.h"
#include "io/source.h"

// An input of an archive to be written, as it was before it was read.
struct conv_archive_origin {
    const char *path;
    struct stat info;
};

// One archive to be written.
struct conv_archive_target {
    char *path;
    const struct conv_archive_format *format;
    atomic_bool is_written; // it is complete and has its name
    atomic_bool is_due;     // it appears, even if it has no member
    const char *done;       // why it is not written again; NULL: it is written
    // Its inputs, which the journal records once it is complete; malloc'ed, or NULL:
    // walk/operands.h.
    struct conv_archive_origin *origins;
    int origin_count;
    bool misses;          // an input was missing
    bool is_begun, lacks; // the sink's: it was opened; a member was dropped
};

enum conv_sink_kind {
    CONV_SINK_NONE, // nothing is written
    CONV_SINK_FILE,
    CONV_SINK_FOLDER,
    CONV_SINK_IN_PLACE, // outputs take the place of inputs, with their access: access.h
    CONV_SINK_STANDARD, // standard output
    CONV_SINK_ARCHIVE,  // one or several archives
};

struct conv_sink_config {
    enum conv_sink_kind kind;
    const char *path;   // of a file or folder
    int workers;        // threads that write at a time
    bool preserve;      // outputs get permissions and times of their inputs
    bool force;         // write-protected files are replaced as well
    const char *backup; // a file that is replaced stays, under its name with this suffix; or NULL
    bool fsync;         // data, name and folder are on the disk when `write` returns
    bool unmapped;      // no output is mapped, as conv_archive_settings.unmapped
    // Gets a line per output. Required in place.
    struct conv_journal *journal;
    const struct conv_paths_id *own_files; // that the run itself writes: no output replaces one
    int own_file_count;
    const atomic_int *stop; // ends the wait for the reader of a pipe when it becomes non-zero
    // Of CONV_SINK_ARCHIVE, by conv_item.archive. They appear when the sink is finished, unless
    // *stop is not zero then. `is_endless`: a signal is the usual end, and completes them.
    struct conv_archive_target *targets;
    int target_count;
    bool is_endless;
    bool writes; // false: `write` is never called, and nothing appears

    // How the names of outputs differ from those of their inputs, apart from their folders.
    bool may_coincide; // two outputs may get one name: struct conv_operands_shape
    bool returns;      // an item may come again and replaces its output
    bool copies;       // images that fail are copied under their own names
    bool is_partial;   // not all members of archives come
    const struct conv_format *format;
    bool npy;
};

// Where the output of one image goes.
struct conv_output {
    char path[PATH_MAX]; // "-": standard output; "": nowhere
};

// What already has the output's name.
struct conv_existing {
    bool exists;
    bool is_special;  // a pipe, a device or a descriptor that is written to, not replaced
    struct stat info; // if it exists
};

// Why an output is not written again, in reports.
#define CONV_SINK_EXISTS "the output exists"
#define CONV_SINK_UP_TO_DATE "the output is up to date"
#define CONV_SINK_NOTED "the journal lists it as done"

#define CONV_SINK_NO_WORKER (-1) // a thread that is not one of config.workers

enum conv_sink_result {
    CONV_SINK_WRITTEN = 0,
    CONV_SINK_WITHOUT_LIST, // without the access control list of the replaced file, or of the input
    CONV_SINK_REPLACED, // in place: by an earlier run or under another name; nothing was written
    CONV_SINK_OVER_FILE = 4, // a file that had the output's name; beside one of the others
};

#define CONV_SINK_LIST_LOST "the access control list could not be kept; the group has no access now"

enum conv_sink_claim {
    CONV_SINK_CLAIMED,
    CONV_SINK_CLAIM_REPEATED, // a folder of an archive that has it already: item->reason
    CONV_SINK_CLAIM_LATER,    // a link to a member that may come later: conv_source_hold
};

struct conv_sink;

// Any thread, unless stated otherwise. *input: the identity of the image that was read, st_mode 0
// if it has none. Call them through the functions below.
struct conv_sink_ops {
    bool makes_files; // output->path is a path by which the output can be read

    // Sets output->path. CONV_ERR_LIMIT if it is too long.
    enum conv_status (*place)(const struct conv_sink *sink, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err);

    // Gives the item its name, before `place`: in the order of the items, one thread at a time.
    // NULL if there is one output. CONV_ERR_USAGE if an earlier item has the name, as a file or as
    // a folder; CONV_ERR_LIMIT, CONV_ERR_MEMORY.
    enum conv_status (*claim)(struct conv_sink *sink, struct conv_item *item,
                              enum conv_sink_claim *claim, struct conv_err *err);

    // Writes the file. `worker` is below config.workers and differs between threads; it may be
    // CONV_SINK_NO_WORKER for a sink that writes items in the order of their numbers. CONV_ERR_IO;
    // CONV_ERR_USAGE as `check`; CONV_ERR_CANCELLED. After a failure nothing is left. A link fails
    // with CONV_ERR_UNSUPPORTED if the member that it leads to is not in the output.
    enum conv_status (*write)(struct conv_sink *sink, int worker, const struct conv_item *item,
                              const struct stat *input, const struct conv_output *output,
                              const struct conv_encoded *file, enum conv_sink_result *result,
                              struct conv_err *err);

    // Ends the sink and frees it; no thread may use it any more. CONV_ERR_IO if something could not
    // be completed.
    enum conv_status (*finish)(struct conv_sink *sink, struct conv_err *err);

    // Removes the temporary files of unfinished outputs and prevents new ones. Async-signal-safe,
    // for a handler that ends the program at once. NULL: there is nothing to remove.
    void (*remove_temporaries)(struct conv_sink *sink);

    // For sinks that write items in the order of their numbers: each has to be written or dropped.
    // All NULL otherwise.

    // True if all items before this one were written or dropped.
    bool (*is_due)(const struct conv_sink *sink, const struct conv_item *item);

    // There will be no output of this item. True if the output has a link to it.
    bool (*drop)(struct conv_sink *sink, const struct conv_item *item);

    // False while too many bytes wait for any item to be begun except the one whose turn it is.
    bool (*may_begin)(const struct conv_sink *sink, const struct conv_item *item);

    // True once no output can be written any more; `finish` has the reason.
    bool (*has_failed)(const struct conv_sink *sink);

    // True once that archive is complete and has its name. Also NULL if outputs are files.
    bool (*is_written)(const struct conv_sink *sink, int archive);

    // Sets how many bytes of outputs may wait for their turn. Called before the first item.
    void (*limit)(struct conv_sink *sink, size_t bytes);

    // The rest is for sinks whose outputs may already exist; all NULL otherwise.

    // False once many outputs in a row were new. The next one is then expected to be new as well,
    // since looking for it would delay other threads that add files to the folder. `write` still
    // notices an existing file.
    bool (*should_look)(const struct conv_sink *sink);

    void (*look)(const struct conv_sink *sink, const struct conv_output *output,
                 struct conv_existing *existing);

    // CONV_ERR_USAGE if what exists is the input itself or one of the run's own files; CONV_ERR_IO
    // if it cannot be replaced: a folder, a write-protected file, or in a folder a pipe, socket or
    // device. A link to one is replaced, unless it leads to a folder.
    enum conv_status (*check)(const struct conv_sink *sink, const struct conv_item *item,
                              const struct stat *input, const struct conv_output *output,
                              const struct conv_existing *existing, struct conv_err *err);

    // True if the journal has a line for this output of this input, as both are now.
    bool (*is_noted)(const struct conv_sink *sink, const struct conv_item *item,
                     const struct stat *input, const struct conv_output *output,
                     const struct conv_existing *existing);
};

// The first member of every sink.
struct conv_sink {
    const struct conv_sink_ops *ops;
};

// Keeps the pointers in *config. CONV_ERR_MEMORY. *sink is NULL for CONV_SINK_NONE.
enum conv_status conv_sink_open(struct conv_sink **sink, const struct conv_sink_config *config,
                                struct conv_err *err);

static inline bool conv_sink_should_look(const struct conv_sink *sink)
{
    return sink->ops->should_look && sink->ops->should_look(sink);
}

static inline void conv_sink_look(const struct conv_sink *sink, const struct conv_output *output,
                                  struct conv_existing *existing)
{
    existing->exists = existing->is_special = false;
    if (sink->ops->look)
        sink->ops->look(sink, output, existing);
}

static inline enum conv_status
conv_sink_check(const struct conv_sink *sink, const struct conv_item *item,
                const struct stat *input, const struct conv_output *output,
                const struct conv_existing *existing, struct conv_err *err)
{
    return existing->exists ? sink->ops->check(sink, item, input, output, existing, err) : CONV_OK;
}

static inline bool conv_sink_is_noted(const struct conv_sink *sink, const struct conv_item *item,
                                      const struct stat *input, const struct conv_output *output,
                                      const struct conv_existing *existing)
{
    return existing->exists && sink->ops->is_noted(sink, item, input, output, existing);
}

// The following do nothing for sinks without an order, and for NULL.

static inline bool conv_sink_has_order(const struct conv_sink *sink)
{
    return sink && sink->ops->drop;
}

static inline bool conv_sink_drop(struct conv_sink *sink, const struct conv_item *item)
{
    return sink && sink->ops->drop && sink->ops->drop(sink, item);
}

static inline bool conv_sink_may_begin(const struct conv_sink *sink, const struct conv_item *item)
{
    return !sink || !sink->ops->may_begin || sink->ops->may_begin(sink, item);
}

static inline bool conv_sink_is_due(const struct conv_sink *sink, const struct conv_item *item)
{
    return !sink || !sink->ops->is_due || sink->ops->is_due(sink, item);
}

static inline enum conv_status conv_sink_claim(struct conv_sink *sink, struct conv_item *item,
                                               enum conv_sink_claim *claim, struct conv_err *err)
{
    *claim = CONV_SINK_CLAIMED;
    return sink && sink->ops->claim ? sink->ops->claim(sink, item, claim, err) : CONV_OK;
}

static inline bool conv_sink_has_failed(const struct conv_sink *sink)
{
    return sink && sink->ops->has_failed && sink->ops->has_failed(sink);
}

static inline void conv_sink_limit(struct conv_sink *sink, size_t bytes)
{
    if (sink && sink->ops->limit)
        sink->ops->limit(sink, bytes);
}

// Ends the sink; NULL is fine.
static inline enum conv_status conv_sink_finish(struct conv_sink *sink, struct conv_err *err)
{
    return sink ? sink->ops->finish(sink, err) : CONV_OK;
}
