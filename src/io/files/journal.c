// SPDX-License-Identifier: MIT
// The order of checking and adding entries; journal_keys.c makes their digests, journal_file.c
// reads and writes the file.
#include "io/files/journal.h"

#include <pthread.h>
#include <stdlib.h>

#include "io/files/journal_file.h"
#include "io/files/journal_keys.h"

struct conv_journal {
    struct conv_journal_config config;
    pthread_mutex_t turn; // in place: held while an image is replaced, taken before `lock`
    pthread_mutex_t lock; // guards the file's members, and its end
    struct conv_journal_file file;
};

enum conv_status conv_journal_open(struct conv_journal **out,
                                   const struct conv_journal_config *config, struct conv_err *err)
{
    struct conv_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the journal");
    journal->config = *config;
    journal->file.fd = -1;
    pthread_mutex_init(&journal->turn, NULL); // never fails with default attributes
    pthread_mutex_init(&journal->lock, NULL);
    enum conv_status status = conv_journal_file_open(&journal->file, &journal->config, err);
    if (status)
        conv_journal_close(journal);
    else
        *out = journal;
    return status;
}

void conv_journal_close(struct conv_journal *journal)
{
    if (!journal)
        return;
    conv_journal_file_close(&journal->file);
    pthread_mutex_destroy(&journal->lock);
    pthread_mutex_destroy(&journal->turn);
    free(journal);
}

size_t conv_journal_damaged(const struct conv_journal *journal)
{
    return journal->file.damaged;
}

enum conv_status conv_journal_lock(struct conv_journal *journal, struct conv_err *err)
{
    pthread_mutex_lock(&journal->turn);
    if (journal->file.fd < 0)
        return CONV_OK;
    enum conv_status status = conv_journal_file_lock(&journal->file, err);
    if (!status) {
        pthread_mutex_lock(&journal->lock);
        status = conv_journal_file_read_on(&journal->file, err);
        pthread_mutex_unlock(&journal->lock);
    }
    if (status)
        conv_journal_unlock(journal);
    return status;
}

void conv_journal_unlock(struct conv_journal *journal)
{
    if (journal->file.fd >= 0)
        conv_journal_file_unlock(&journal->file);
    pthread_mutex_unlock(&journal->turn);
}

bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct conv_journal_file *file = &journal->file;
    struct conv_journal_keys keys;
    conv_journal_keys_make(&keys, &journal->config, fact);
    pthread_mutex_lock(&journal->lock);
    // Inode numbers last as long as the run.
    bool known =
        conv_digest_set_has(&file->recent, &keys.key[CONV_JOURNAL_IDENTITY]) ||
        (keys.is_sure && conv_digest_set_has(&file->known, &keys.key[CONV_JOURNAL_IDENTITY]));
    bool may_be = !known && keys.count > 1 && fact->name &&
                  (keys.count < CONV_JOURNAL_KEYS ||
                   conv_digest_set_has(&file->known, &keys.key[CONV_JOURNAL_SIZE]));
    pthread_mutex_unlock(&journal->lock);
    // No thread changes `known` any more.
    return known || (may_be && conv_journal_keys_read(&keys, &journal->config, fact) &&
                     conv_digest_set_has(&file->known, &keys.key[CONV_JOURNAL_CONTENT]));
}

// Adds the line and reads it again: if this run finds it, every other run finds it, too. The line
// can get lost if it follows half a line of a killed run that was not in place and so took no lock.
static enum conv_status add_surely(struct conv_journal *journal,
                                   const struct conv_journal_keys *keys, const char *input,
                                   struct conv_err *err)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        enum conv_status status =
            conv_journal_file_add(&journal->file, keys->key, keys->count, input, err);
        if (!status)
            status = conv_journal_file_read_on(&journal->file, err);
        if (status || conv_digest_set_has(&journal->file.recent, &keys->key[0]))
            return status;
        journal->file.torn = true;
    }
    return conv_err_set(err, CONV_ERR_IO, "another program has changed the journal %s",
                        journal->config.path);
}

enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err)
{
    struct conv_journal_keys keys;
    enum conv_status status;
    conv_journal_keys_make(&keys, &journal->config, fact);
    conv_journal_keys_take(&keys, fact);
    pthread_mutex_lock(&journal->lock);
    if (!journal->config.path)
        status = conv_digest_set_add(&journal->file.recent, &keys.key[0], NULL, err);
    else if (journal->config.in_place)
        status = add_surely(journal, &keys, fact->input, err);
    else
        status = conv_journal_file_add(&journal->file, keys.key, keys.count, fact->input, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}
