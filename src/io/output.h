// SPDX-License-Identifier: MIT
// Output files appear whole or not at all: a new one is written without a name and gets it then;
// one that replaces another, or where that cannot be, is written under a temporary name in the same
// folder and renamed.
#ifndef CONV_IO_OUTPUT_H
#define CONV_IO_OUTPUT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "io/journal.h"
#include "io/paths.h"
#include "pipeline/job.h"

#define CONV_OUTPUT_REPLACED "filtered in place already"

struct conv_output_config {
    int workers;   // threads that write, one file each at a time
    bool preserve; // mode and times of the input
    bool in_place; // outputs take the place of inputs, with their mode and, where allowed, owner
    struct conv_journal *journal; // takes a note of every output; NULL only if not in place
    const struct conv_paths_id *own_files; // that the run itself writes: no output replaces one
    int own_file_count;
    atomic_int *stop; // ends the wait for the reader of a pipe when it becomes non-zero
    bool fsync;       // data, name and folder are on the disk when conv_output_write returns
};

enum conv_status conv_output_open(const struct conv_output_config *config, struct conv_err *err);
void conv_output_close(void);

// False once so many outputs in a row were new that the next one is taken to be, too: looking for a
// file that is not there keeps others from adding theirs to the folder. Should it be there, that is
// found out when the output is whole.
bool conv_output_may_exist(void);

// True if the output is written to where it is: it was named on the command line, and what is
// there, as `out` says, is a pipe or a device, or it stands for a descriptor. Any other is
// replaced.
bool conv_output_is_special(const struct conv_job *job, const struct stat *out);

// CONV_ERR_USAGE if the output exists, as `out` says, and is the input itself or one of own_files;
// CONV_ERR_IO if it cannot be replaced: a folder, or in a folder a pipe, socket or device. A link
// to one is replaced, unless it leads to a folder.
enum conv_status conv_output_check(const struct conv_job *job, const struct stat *out,
                                   struct conv_err *err);

// Writes all parts to job->path.output ("-": standard output). Missing folders on the way are made;
// the first time that a folder is written to, what killed runs have left there is removed.
// CONV_ERR_IO, or CONV_ERR_USAGE as conv_output_check; then nothing is left behind. In place
// job->outcome becomes SKIPPED, with a reason, if the image has been replaced already.
enum conv_status conv_output_write(int worker, struct conv_job *job,
                                   const struct conv_encoded *bytes, struct conv_err *err);

// Removes the temporary files of all workers, and lets none come into being. Async-signal-safe: for
// the handler that ends the program at once.
void conv_output_abandon(void);

#endif
