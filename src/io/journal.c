// SPDX-License-Identifier: MIT
// Digests of images and settings, and the order of checking and adding them; journal_file.c reads
// and writes the file.
#include "io/journal_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

struct timespec conv_journal_birth(const struct conv_journal *journal, int folder, const char *name)
{
    struct statx info;
    if (!journal->config.preserve ||
        statx(folder, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &info) != 0 ||
        !(info.stx_mask & STATX_BTIME))
        return (struct timespec){0};
    return (struct timespec){.tv_sec = (time_t)info.stx_btime.tv_sec,
                             .tv_nsec = (long)info.stx_btime.tv_nsec};
}

// The numbers alone identify the file: its name may have other spellings. The number of the file
// system is omitted where it would have to outlive the run, since mounting changes it.
static struct conv_digest digest_in_place(const struct conv_journal *journal,
                                          const struct conv_journal_fact *fact,
                                          struct timespec birth)
{
    struct conv_digest digest = journal->config.settings;
    const struct stat *out = fact->out;
    int64_t numbers[] = {(int64_t)out->st_ino,
                         out->st_size,
                         out->st_mtim.tv_sec,
                         out->st_mtim.tv_nsec,
                         birth.tv_sec,
                         birth.tv_nsec,
                         journal->config.path ? 0 : (int64_t)out->st_dev};
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

static struct conv_digest digest_fact(const struct conv_journal *journal,
                                      const struct conv_journal_fact *fact)
{
    struct conv_digest digest = journal->config.settings;
    if (journal->config.in_place)
        return digest_in_place(journal, fact, fact->birth);
    const struct stat *in = fact->in, *out = fact->out;
    int64_t numbers[] = {in->st_size,
                         in->st_mtim.tv_sec,
                         in->st_mtim.tv_nsec,
                         out->st_size,
                         out->st_mtim.tv_sec,
                         out->st_mtim.tv_nsec,
                         0};
    conv_hash_add(&digest, fact->input, strlen(fact->input));
    conv_hash_add(&digest, fact->output, strlen(fact->output));
    conv_hash_add(&digest, numbers, sizeof numbers);
    return digest;
}

bool conv_journal_knows(struct conv_journal *journal, const struct conv_journal_fact *fact)
{
    struct conv_digest digest = digest_fact(journal, fact);
    pthread_mutex_lock(&journal->lock);
    bool known = conv_digest_set_has(&journal->file.known, &digest);
    if (!known && journal->config.in_place && fact->birth.tv_sec != 0) {
        // The line may be from a kernel that did not report the time of birth.
        digest = digest_in_place(journal, fact, (struct timespec){0});
        known = conv_digest_set_has(&journal->file.known, &digest);
    }
    pthread_mutex_unlock(&journal->lock);
    return known;
}

// Adds the line and reads it again: if this run finds it, every other run finds it, too. The line
// can get lost if it follows half a line of a killed run that was not in place and so took no lock.
static enum conv_status add_surely(struct conv_journal *journal, const struct conv_digest *digest,
                                   const char *input, struct conv_err *err)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        enum conv_status status = conv_journal_file_add(&journal->file, digest, input, err);
        if (!status)
            status = conv_journal_file_read_on(&journal->file, err);
        if (status || conv_digest_set_has(&journal->file.known, digest))
            return status;
        journal->file.torn = true;
    }
    return conv_err_set(err, CONV_ERR_IO, "another program has changed the journal %s",
                        journal->config.path);
}

enum conv_status conv_journal_add(struct conv_journal *journal,
                                  const struct conv_journal_fact *fact, struct conv_err *err)
{
    struct conv_digest digest = digest_fact(journal, fact);
    enum conv_status status;
    pthread_mutex_lock(&journal->lock);
    if (!journal->config.path)
        status = conv_digest_set_add(&journal->file.known, &digest, NULL, err);
    else if (journal->config.in_place)
        status = add_surely(journal, &digest, fact->input, err);
    else
        status = conv_journal_file_add(&journal->file, &digest, fact->input, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}
