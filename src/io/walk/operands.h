// SPDX-License-Identifier: MIT
// Checks inputs and output of a command line against each other, before anything is opened.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/archive/archive.h"
#include "io/archive/archive_input.h"
#include "io/sink.h"

struct conv_operands {
    const char *const *inputs; // files, folders, "-" for standard input
    int input_count;
    const char *output; // file, folder, "-" for standard output; NULL: there are no outputs
    bool npy;           // outputs are .npy files instead of images
    bool to_folder;     // `output` is a folder unless its name has a format's extension
    const struct conv_format *format; // of the outputs, if it is given; else NULL
    bool in_place;                    // each input is its own output; `output` is NULL
    bool beside;                      // outputs lie next to their inputs; `output` is NULL
    const char *suffix;               // of outputs' names, before the extension; NULL: none
    bool recursive;                   // with the folders in them
    const char *files_from;           // the inputs are names in this list, below inputs[0]; or NULL
    const char *base;                 // folder that the outputs' names are below; NULL: as listed
    struct conv_archive_operands *archives; // NULL: archives are files like any other
};

struct conv_operands_shape {
    bool any_folder;   // among the inputs, or a list or archive: there may be any number of images
    bool several;      // inputs: a folder gets a folder of its own name below the output
    bool may_coincide; // the inputs may have different names and their outputs the same
    enum conv_sink_kind sink;
    char below[PATH_MAX]; // the output's path below the only input, whose walk omits it; or ""
};

// CONV_ERR_USAGE with the reason; CONV_ERR_MEMORY. Changes nothing on disk.
enum conv_status conv_operands_check(const struct conv_operands *operands,
                                     struct conv_operands_shape *shape, struct conv_err *err);

// --- archives (archive_operands.c) ---------------------------------------------------------------

// Which inputs of a command line are archives, and which archives are to be written.

// The user's settings for archives. Plain data.
struct conv_archive_settings {
    bool enabled; // archives are read and written; else they are files like any other
    // The format of streams, which have no name. If the output is a folder, each input archive
    // becomes an archive of the same name in it. NULL: by the first bytes.
    const struct conv_archive_format *format;
    bool as_files;    // the members of several archives become files
    bool several;     // the inputs are several archives, even if there is only one
    bool images_only; // other members than images are not copied
    bool first_frame; // of several images on standard input, one after the other, the first is read
    size_t most_ahead; // bytes of a first image that are read to see whether others follow; 0: a
                       // default
    // Archives are never mapped: a mapped file that becomes shorter ends the process, unless that
    // handles SIGBUS. Those that are read in any order are copied, up to `most_copied` bytes each.
    bool unmapped;
    size_t most_copied;
    uint64_t max_pixels; // images of more are not read further than that shows; 0: they are
};

struct conv_archive_operands {
    struct conv_archive_settings settings;
    const struct conv_archive_format **inputs; // by input; NULL: no archive
    int count;                                 // of inputs that are archives
    bool has_stream;                           // one of them can be read only once
    // Standard input that was looked into and cannot be read again. fd -1: there is none.
    struct conv_archive_input standard;
    struct conv_archive_target *targets; // to be written
    int target_count;
    bool each; // one per input
};

// Examines the inputs of *operands, whose member `archives` will point to this. Reads the first
// bytes of files that are not named like images, and of standard input, where it may wait until
// `stop` is set. CONV_ERR_MEMORY, CONV_ERR_IO, CONV_ERR_CANCELLED. Has to be closed even after a
// failure.
enum conv_status conv_archive_operands_open(struct conv_archive_operands *archives,
                                            const struct conv_archive_settings *settings,
                                            const struct conv_operands *operands, atomic_int *stop,
                                            struct conv_err *err);
void conv_archive_operands_close(struct conv_archive_operands *archives); // {0} is fine

// Decides whether the output is one or several archives: then shape->sink is CONV_SINK_ARCHIVE and
// archives->targets says which. CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_archive_operands_target(struct conv_archive_operands *archives,
                                              const struct conv_operands *operands,
                                              struct conv_operands_shape *shape,
                                              struct conv_err *err);

// --- outputs that are done -----------------------------------------------------------------------

// Which output archives need not be written again. An archive appears whole or not at all, so it is
// skipped, or written again, as a whole.

// The rule: outputs that exist, that are as new as all of their inputs, or that the journal lists.
enum conv_archive_done { CONV_ARCHIVE_EXISTS, CONV_ARCHIVE_IS_NEWER, CONV_ARCHIVE_IS_NOTED };

// Sets `done` of each such target, and for CONV_ARCHIVE_IS_NOTED `origins` of all. CONV_ERR_USAGE
// if an input, being a folder, a list or a pipe, has no time to compare (all but
// CONV_ARCHIVE_EXISTS). CONV_ERR_MEMORY. If an input does not exist, its target is not done.
enum conv_status conv_archive_done_find(struct conv_archive_operands *archives,
                                        const struct conv_operands *operands,
                                        enum conv_archive_done which, struct conv_journal *journal,
                                        struct conv_err *err);
