// SPDX-License-Identifier: MIT
// The file of a journal: the digests in its lines, appending, and the lock. journal.c serialises
// the calls.
#ifndef CONV_FILES_JOURNAL_FILE_H
#define CONV_FILES_JOURNAL_FILE_H

#include "base/digest.h"
#include "io/files/journal.h"

// Starts as {.fd = -1}.
struct conv_journal_file {
    const struct conv_journal_config *config;
    int fd;         // -1: there is no file, and nothing is written
    char *buffer;   // for reading
    off_t read_to;  // the beginning of the first line, or part of one, that is not read yet
    bool skipping;  // that is the rest of a line that is too long
    bool torn;      // the file does not end with a line's end
    size_t damaged; // lines that could not be understood
    bool is_loaded; // what was there when the journal was opened
    struct conv_digest_set known;  // all digests of that
    struct conv_digest_set recent; // the first one of each line that was read later
};

// Opens and reads config->path, or nothing if that is NULL. Keeps `config`. Errors as of
// conv_journal_open; conv_journal_file_close is due then, too.
enum conv_status conv_journal_file_open(struct conv_journal_file *file,
                                        const struct conv_journal_config *config,
                                        struct conv_err *err);
void conv_journal_file_close(struct conv_journal_file *file);

// Reads the lines that were not read yet. CONV_ERR_IO, CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_journal_file_read_on(struct conv_journal_file *file, struct conv_err *err);

// Appends a line with 1 to CONV_JOURNAL_FILE_DIGESTS digests; `recent` gets the first when it is
// read. CONV_ERR_IO.
#define CONV_JOURNAL_FILE_DIGESTS 3
enum conv_status conv_journal_file_add(struct conv_journal_file *file,
                                       const struct conv_digest *digests, int count,
                                       const char *input, struct conv_err *err);

// The exclusive lock against other processes. Waits. CONV_ERR_IO, also after a signal.
enum conv_status conv_journal_file_lock(struct conv_journal_file *file, struct conv_err *err);
void conv_journal_file_unlock(struct conv_journal_file *file);

#endif
