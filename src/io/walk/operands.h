// SPDX-License-Identifier: MIT
// Checks inputs and output of a command line against each other, before anything is opened.
#ifndef CONV_WALK_OPERANDS_H
#define CONV_WALK_OPERANDS_H

#include <stdbool.h>

#include "base/err.h"
#include "io/sink.h"

struct conv_archive_operands; // archive_operands.h

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
    struct conv_archive_operands *archives; // NULL: archives are files like any other
};

struct conv_operands_shape {
    bool any_folder;   // among the inputs, or a list or archive: there may be any number of images
    bool several;      // inputs: a folder gets a folder of its own name below the output
    bool may_coincide; // the inputs may have different names and their outputs the same
    enum conv_sink_kind sink;
};

// CONV_ERR_USAGE with the reason; CONV_ERR_MEMORY. Changes nothing on disk.
enum conv_status conv_operands_check(const struct conv_operands *operands,
                                     struct conv_operands_shape *shape, struct conv_err *err);

#endif
