// SPDX-License-Identifier: MIT
// The journal of --resume: which images are done, with which settings, from which input.
//
// A text file that only ever grows: the line `conv-journal 3`, then a line per image:
//   DIGEST[+DIGEST...] INPUT
// The first digest (32 hexadecimal digits) stands for everything that the output depends on and for
// the output: the settings (cli/settings.c), names, size and modification time of input and
// output, and for a member of an archive those of the archive, or the member's bytes if the archive
// is a pipe. INPUT is there for human readers, control characters escaped. An entry never has to be
// removed: after a change its digests match nothing, and the image is done again. The same holds
// for lines that are damaged or cut short.
//
// A second digest has the output's bytes instead of its time where that does not identify it: with
// --preserve it is that of the input, and some file systems count in seconds.
//
// The line is written before the output gets its name, so that there is no moment at which an image
// is done and not in the journal; the line of an output that failed matches nothing. Several runs
// may use one journal: lines are appended whole.
//
// In place the first digest stands for the settings and for the output file itself, by inode
// number, size and modification time: the input is gone, and its name may be spelled in many ways.
// But inode numbers end with the mount on FAT, exFAT, sshfs and other file systems in user space,
// files are copied and restored, and times change. So an image counts as done as well if it has the
// bytes that an earlier run has written with these settings. It is read for this only if a result
// has its size, which is the third digest.
//
// A run replaces an image only under an exclusive lock of the journal (flock), after it has read
// what other runs have appended:
//   lock; read new lines; is the image still what was read, and in no line? append; rename; unlock
// A run that has read the output of another one finds its line, because the line precedes the name,
// the name precedes the end of the lock, and the system releases the lock of a killed run. So no
// image is filtered twice, whenever runs begin, overlap and end. This requires working locks;
// between the hosts of a network file system it is as reliable as these are there.
//
// Without a file, the same entries keep a run from filtering an image twice, which it may reach by
// two names, or because the folder changes while it is read.
//
// A digest takes 21 to 43 bytes of memory; an image has one, of earlier runs with --preserve two,
// in place three. Journals of version 2 had other digests: their lines match nothing, and in place,
// where all images would be filtered again, such a journal is refused.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/err.h"
#include "image/format.h"

struct conv_journal;

struct conv_journal_config {
    const char *path;            // NULL, only in place: no file, entries of this run alone
    struct conv_digest settings; // of everything that changes outputs, except the input
    bool in_place;
    bool preserve;    // outputs get the modification time of their input
    bool read_only;   // a missing journal is an empty one, nothing is written
    bool fsync;       // a line is on the disk when conv_journal_add returns
    atomic_int *stop; // ends the wait for another run's lock when it becomes non-zero; may be NULL
};

// One image. In place `in` is not used, and `input` only for human readers.
struct conv_journal_fact {
    const char *input, *output;
    const struct stat *in, *out;
    const struct stat *archive; // that the input is a member of; or NULL
    const uint8_t *member;      // in->st_size bytes of the input, if its archive is a pipe; or NULL
    // By which the output can be opened: a name in a folder, or "" and its descriptor. NULL: it is
    // recognised by size and time alone.
    int folder;
    const char *name;
    const struct conv_encoded *encoded; // the output's bytes, to add a line
    bool is_copy;                       // they are the input's
};

// CONV_ERR_USAGE if the file is something else, which is left alone, or cannot be opened or, in
// place, locked or is of an earlier version; CONV_ERR_IO; CONV_ERR_MEMORY. Keeps the strings of
// *config.
enum conv_status conv_journal_open(struct conv_journal **journal,
                                   const struct conv_journal_config *config, struct conv_err *err);
void conv_journal_close(struct conv_journal *journal); // NULL is fine

// Number of lines that could not be understood.
size_t conv_journal_damaged(const struct conv_journal *journal);

// True if the journal had the fact when it was opened or, in place, when it was last locked or
// added to. May read the output. Any thread.
bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact);

// Any thread, in place between conv_journal_lock and conv_journal_unlock. CONV_ERR_IO if the line
// could not be written whole.
enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err);

// In place, any thread: keeps other threads and other runs with the same journal from replacing
// images, and reads what they have added. Waits for them; each holds the lock for a moment only.
// CONV_ERR_IO, also if the run was stopped while waiting; then nothing is locked.
enum conv_status conv_journal_lock(struct conv_journal *journal, struct conv_err *err);
void conv_journal_unlock(struct conv_journal *journal);
