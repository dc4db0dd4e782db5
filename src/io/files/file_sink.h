// SPDX-License-Identifier: MIT
// The sink of files (private to src/io/files/file_*.c): a folder's, a single one, or the inputs'
// places.
//
// A new file is written without a name and gets it when it is complete. Where that is not possible,
// or the file replaces another, it is written under a temporary name in the same folder and
// renamed.
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "io/files/access.h"
#include "io/files/output_names.h"
#include "io/files/temporary.h"
#include "io/sink.h"

// --- the disk's queue ----------------------------------------------------------------------------

// Makes the disk write outputs while other images are filtered. Without it the kernel begins some
// seconds later, and a program that waits for its bytes to be on the disk waits for all of them.

struct conv_write_behind {
    int most; // workers that do this at the same time
    atomic_int busy;
    atomic_uint_least64_t resume; // not before, as conv_clock_ns counts
};

void conv_write_behind_start(struct conv_write_behind *behind, int workers);

// Makes the disk begin to write the bytes of a file. It may do nothing, and never reports an error:
// errors of a disk are found by fsync(), if at all. Any thread.
void conv_write_behind_add(struct conv_write_behind *behind, int fd, size_t size);

// --- the sink ------------------------------------------------------------------------------------

struct conv_file_sink {
    struct conv_sink sink;
    struct conv_sink_config config;
    struct conv_output_names names;
    struct conv_temporary *temporaries; // one per worker; a signal handler reads them
    atomic_bool is_abandoned;
    // The file system or the kernel has no files without a name, or there is no /proc to name them
    // by.
    atomic_bool lacks_nameless;
    // Before Linux 6.10 only a process with CAP_DAC_READ_SEARCH can name a file by its descriptor.
    atomic_bool links_by_path;
    struct conv_write_behind behind;
    atomic_int new_in_a_row; // outputs; stops at CONV_FILE_SINK_EXPECT_NEW
    // Folders that were swept, by a hash of their paths. Of several folders with the same bit only
    // the first is swept.
    atomic_uchar swept[8192];
};

// After this many new outputs in a row the next one is expected to be new, too.
#define CONV_FILE_SINK_EXPECT_NEW 64

// One output on its way to the disk.
struct conv_file_write {
    struct conv_file_sink *sink;
    struct conv_temporary *temporary;
    const struct conv_item *item;
    const struct stat *input;
    const char *path;
    const struct conv_encoded *encoded;
    int folder; // of `path`; AT_FDCWD where descriptors are few, or the file is expected to be new
    const struct conv_access *access; // that the file gets; NULL: as the system gives it
    bool keeps_owner;                 // and its owner and group
    bool list_lost;                   // as from conv_access_give
    enum conv_sink_result result;
};

// As conv_sink_open, which calls it for files.
enum conv_status conv_file_sink_open(struct conv_sink **sink, const struct conv_sink_config *config,
                                     struct conv_err *err);

// Opens the folder of `path`, which is made if it is missing. -1 with *err.
int conv_file_open_folder(const struct conv_file_sink *sink, const char *path,
                          struct conv_err *err);

// Writes a file that does not exist yet. *linked: false if that is not possible here, the file
// exists or its folder does not; nothing is left of it then.
enum conv_status conv_file_write_new(struct conv_file_write *write, bool *linked,
                                     struct conv_err *err);

// Writes the file under a temporary name and renames it. In place, write->result tells if it was
// renamed.
enum conv_status conv_file_write_renamed(struct conv_file_write *write, struct conv_err *err);

// Makes the name of the output permanent.
enum conv_status conv_file_sync_folder(const struct conv_file_write *write, struct conv_err *err);
