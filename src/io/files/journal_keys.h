// SPDX-License-Identifier: MIT
// The digests by which a journal recognises an image. Private to src/io/journal*.c.
#ifndef CONV_FILES_JOURNAL_KEYS_H
#define CONV_FILES_JOURNAL_KEYS_H

#include "io/files/journal.h"

enum conv_journal_key {
    CONV_JOURNAL_IDENTITY, // what the system tells about the output without reading it
    CONV_JOURNAL_CONTENT,  // the bytes of the output
    CONV_JOURNAL_SIZE,     // in place: their number, which tells if it is worth while to read them
    CONV_JOURNAL_KEYS,
};

struct conv_journal_keys {
    struct conv_digest key[CONV_JOURNAL_KEYS]; // the content's by the functions below
    int count;                                 // 1, 2 (with the content), or all
    // The identity can belong to no other output, also of another run: its time is finer than that
    // of a file system that counts in seconds, and not one that was copied.
    bool is_sure;
};

void conv_journal_keys_make(struct conv_journal_keys *keys,
                            const struct conv_journal_config *config,
                            const struct conv_journal_fact *fact);

// Sets the content's key from the bytes that are being written, fact->encoded, if keys->count > 1.
void conv_journal_keys_take(struct conv_journal_keys *keys, const struct conv_journal_fact *fact);

// Sets it from the file fact->name in fact->folder. False if that cannot be read, or is not the
// file of fact->out any more.
bool conv_journal_keys_read(struct conv_journal_keys *keys,
                            const struct conv_journal_config *config,
                            const struct conv_journal_fact *fact);

#endif
