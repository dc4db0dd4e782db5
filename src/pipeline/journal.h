// SPDX-License-Identifier: MIT
// The journal of --resume: which pictures are done, under which settings, from which input.
//
// A text file that only ever grows: the line `conv-journal 1`, then a line for each picture:
//   DIGEST INPUT
// DIGEST (32 hexadecimal digits) stands for everything that the output depends on and for the
// output: the settings (filters by their numbers, border, alpha, encoder, ...), names, size and
// time of change of input and output. INPUT is there for human eyes, control characters escaped.
// So an entry needs no care when something changes: its digest then fits nothing any more and the
// picture is done again. The same goes for lines that are damaged or cut short.
//
// The line is written before the output gets its name, so that there is no moment at which a
// picture is done and not in the journal; a line whose output did not come to be is stale. Several
// runs may use one journal: lines are appended whole.
//
// In memory an entry takes 32 to 64 bytes.
#ifndef CONV_PIPELINE_JOURNAL_H
#define CONV_PIPELINE_JOURNAL_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/hash.h"

struct conv_journal;

struct conv_journal_config {
    const char *path;
    struct conv_digest settings; // of what changes outputs
    bool read_only;              // a missing journal is an empty one, nothing is written
    bool fsync;                  // a line is on the disk when conv_journal_add returns
};

// One picture. In place (`input` and `output` are the same name) only the output counts: the input
// is gone.
struct conv_journal_fact {
    const char *input, *output;
    const struct stat *in, *out;
};

// CONV_ERR_USAGE if the file is something else, which is left alone, or cannot be opened.
enum conv_status conv_journal_open(struct conv_journal **journal,
                                   const struct conv_journal_config *config, struct conv_err *err);
void conv_journal_close(struct conv_journal *journal); // NULL is fine

// Lines that say nothing.
size_t conv_journal_damaged(const struct conv_journal *journal);

// True if the journal had the fact when it was opened. Any thread.
bool conv_journal_knows(const struct conv_journal *journal, const struct conv_journal_fact *fact);

// Any thread. CONV_ERR_IO if the line could not be written whole.
enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err);

#endif
