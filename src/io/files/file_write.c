// SPDX-License-Identifier: MIT
// How one file gets its content and its name.
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/files/access.h"
#include "io/files/file_sink.h"
#include "io/files/journal.h"

// EINTR from close() is not a write error: Linux closes the descriptor anyway.
static int close_written(int fd)
{
    return close(fd) == 0 || errno == EINTR ? 0 : -1;
}

static int write_parts(int fd, const struct conv_encoded *encoded)
{
    struct iovec parts[CONV_ENCODED_PARTS], *next = parts;
    int count = CONV_ENCODED_PARTS;
    for (int i = 0; i < count; i++) {
        parts[i].iov_base = (void *)(uintptr_t)encoded->part[i].data; // writev only reads
        parts[i].iov_len = encoded->part[i].size;
    }
    ssize_t written = 0;
    while (written >= 0 && conv_temporary_skip(&next, &count, (size_t)written))
        written = TEMP_FAILURE_RETRY(writev(fd, next, count));
    return written < 0 ? -1 : 0;
}

// All parts, also those that are made meanwhile. *size: of what was written.
static enum conv_status write_content(const struct conv_file_write *write, int fd, size_t *size,
                                      struct conv_err *err)
{
    struct conv_encoded file = *write->encoded;
    for (*size = 0;;) {
        if (write_parts(fd, &file) != 0 ||
            (file.head_size > 0 && TEMP_FAILURE_RETRY(pwrite(fd, file.head, file.head_size, 0)) !=
                                       (ssize_t)file.head_size))
            return conv_err_errno(err, errno, "cannot write %s", write->path);
        *size += file.size;
        enum conv_status status = file.next ? file.next(&file, err) : CONV_OK;
        if (status || !file.next || file.size == 0)
            return status;
    }
}

// --- folders -------------------------------------------------------------------------------------

// The name of `path` in its folder.
static const char *name_in(int folder, const char *path)
{
    return folder == AT_FDCWD ? path : conv_paths_base(path);
}

int conv_file_open_folder(const struct conv_file_sink *sink, const char *path, struct conv_err *err)
{
    char folder[PATH_MAX];
    const char *name = conv_paths_folder(folder, path);
    // Only a folder that is to be flushed has to be readable.
    int flags = O_DIRECTORY | (sink->config.fsync ? O_RDONLY : O_PATH);
    int fd = conv_paths_open(name, flags);
    if (fd < 0 && errno == ENOENT) {
        if (conv_paths_make_parent(path, err))
            return -1;
        fd = conv_paths_open(name, flags);
    }
    if (fd < 0)
        conv_err_errno(err, errno, "cannot create %s", path);
    return fd;
}

enum conv_status conv_file_sync_folder(const struct conv_file_write *write, struct conv_err *err)
{
    if (write->folder == AT_FDCWD)
        return conv_paths_sync_parent(write->path, err);
    return conv_paths_sync_folder(write->folder) != 0
               ? conv_err_errno(err, errno, "cannot flush the folder of %s", write->path)
               : CONV_OK;
}

// --- content -------------------------------------------------------------------------------------

// Finds out whose access the file gets, and the mode to create it with: that of the file that it
// replaces; with `preserve`, its input's; otherwise what the system gives a new file.
static mode_t plan_access(struct conv_file_write *write, bool replaces, struct conv_access *access)
{
    const struct conv_sink_config *config = &write->sink->config;
    const struct stat *input = write->input;
    bool preserves = config->preserve && config->kind != CONV_SINK_IN_PLACE;
    write->access = NULL;
    write->keeps_owner = !preserves;
    if (!preserves) {
        if (replaces && conv_access_of_replaced(access, write->folder, write->path))
            write->access = access;
    } else if (S_ISREG(input->st_mode) && write->item->body) {
        return input->st_mode & 0777; // of a member of an archive; the umask applies
    } else if (S_ISREG(input->st_mode)) {
        if (!conv_access_read(access, AT_FDCWD, write->item->name, true) ||
            access->info.st_dev != input->st_dev || access->info.st_ino != input->st_ino)
            conv_access_guess(access, input);
        write->access = access;
    }
    return write->access ? conv_access_first(access) : 0666;
}

static enum conv_status give_access(struct conv_file_write *write, int fd, struct conv_err *err)
{
    if (!write->access)
        return CONV_OK;
    if (write->sink->config.kind == CONV_SINK_IN_PLACE)
        conv_access_copy_attributes(fd, write->folder, write->path);
    if (conv_access_give(fd, write->access, write->keeps_owner, &write->list_lost) != 0)
        return conv_err_errno(err, errno, "cannot set the permissions of %s", write->path);
    return CONV_OK;
}

// Adds the journal's line about the file `name` in `folder`; "": `folder` is the file.
static enum conv_status note(const struct conv_file_write *write, int folder, const char *name,
                             struct conv_err *err)
{
    struct stat out;
    const struct conv_journal_fact fact = {
        .input = write->item->name,
        .output = write->path,
        .in = write->input,
        .out = &out,
        .archive = conv_item_archive(write->item),
        .member = conv_item_streamed(write->item),
        .folder = folder,
        .name = name,
        .encoded = write->encoded,
        .is_copy = write->item->is_copy,
    };
    if ((name[0] ? fstatat(folder, name, &out, AT_SYMLINK_NOFOLLOW) : fstat(folder, &out)) != 0)
        return conv_err_errno(err, errno, "cannot stat the output %s", write->path);
    return conv_journal_add(write->sink->config.journal, &fact, err);
}

// Everything but the name: content, access, times, and unless in place the journal's line.
static enum conv_status fill_file(struct conv_file_write *write, int fd, struct conv_err *err)
{
    const struct conv_sink_config *config = &write->sink->config;
    const struct stat *input = write->input;
    const struct timespec times[2] = {input->st_atim, input->st_mtim};
    bool in_place = config->kind == CONV_SINK_IN_PLACE, is_file = S_ISREG(input->st_mode);
    size_t size;
    enum conv_status status = write_content(write, fd, &size, err);
    if (!status)
        status = give_access(write, fd, err);
    if (status)
        return status;
    if (config->preserve && is_file && futimens(fd, times) != 0)
        return conv_err_errno(err, errno, "cannot set the time of %s", write->path);
    if (config->fsync && conv_paths_sync(fd) != 0)
        return conv_err_errno(err, errno, "cannot write %s", write->path);
    if (!config->fsync)
        conv_write_behind_add(&write->sink->behind, fd, size);
    return config->journal && !in_place && is_file ? note(write, fd, "", err) : CONV_OK;
}

// --- a new file ----------------------------------------------------------------------------------

// After a failure: the folder, which is given by its path, was moved or is not made yet.
static bool is_folder_lost(const struct conv_file_write *write)
{
    char folder[PATH_MAX];
    return errno == ENOENT && write->folder == AT_FDCWD &&
           access(conv_paths_folder(folder, write->path), F_OK) != 0;
}

// Gives the file, which has no name yet, its name. False if that fails.
static bool link_file(const struct conv_file_write *write, int fd)
{
    struct conv_file_sink *sink = write->sink;
    char link[32];
    const char *name = name_in(write->folder, write->path);
    if (atomic_load(&sink->is_abandoned))
        return false;
    if (!atomic_load(&sink->links_by_path)) {
        if (linkat(fd, "", write->folder, name, AT_EMPTY_PATH) == 0)
            return true;
        if (errno == EEXIST || is_folder_lost(write))
            return false;
        atomic_store(&sink->links_by_path, true);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, write->folder, name, AT_SYMLINK_FOLLOW) == 0)
        return true;
    if (errno != EEXIST && !is_folder_lost(write))
        atomic_store(&sink->lacks_nameless, true);
    return false;
}

// Without a temporary name the folder is changed once instead of twice, for which writers of small
// files wait for each other, and a killed run leaves nothing.
enum conv_status conv_file_write_new(struct conv_file_write *write, bool *linked,
                                     struct conv_err *err)
{
    char name[PATH_MAX];
    struct conv_access access;
    mode_t mode = plan_access(write, false, &access);
    const char *folder = write->folder == AT_FDCWD ? conv_paths_folder(name, write->path) : ".";
    int fd = conv_paths_open_at(write->folder, folder, O_TMPFILE | O_WRONLY, mode, NULL);
    *linked = false;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return conv_err_errno(err, errno, "cannot create %s", write->path);
    if (fd < 0) {
        if (!is_folder_lost(write))
            atomic_store(&write->sink->lacks_nameless, true);
        return CONV_OK;
    }
    enum conv_status status = fill_file(write, fd, err);
    *linked = !status && link_file(write, fd);
    if (close_written(fd) != 0 && *linked) {
        status = conv_err_errno(err, errno, "cannot write %s", write->path);
        unlinkat(write->folder, name_in(write->folder, write->path), 0);
    }
    return status;
}

// --- a replacement -------------------------------------------------------------------------------

// Gives the file that is about to be replaced a second name, which keeps it, unless an earlier
// backup has that name. The file systems without hard links take its first name away.
static enum conv_status keep_backup(const struct conv_file_write *write, struct conv_err *err)
{
    const char *suffix = write->sink->config.backup, *name = name_in(write->folder, write->path);
    char backup[PATH_MAX];
    struct stat info;
    if (!suffix)
        return CONV_OK;
    if (snprintf(backup, sizeof backup, "%s%s", name, suffix) >= (int)sizeof backup)
        errno = ENAMETOOLONG;
    else if (linkat(write->folder, name, write->folder, backup, 0) == 0 || errno == ENOENT)
        return CONV_OK;
    else if (errno == EEXIST)
        return fstatat(write->folder, backup, &info, 0) == 0 && S_ISREG(info.st_mode)
                   ? CONV_OK
                   : conv_err_set(err, CONV_ERR_IO, "cannot keep a backup: %s is in the way",
                                  backup);
    else if (renameat(write->folder, name, write->folder, backup) == 0)
        return CONV_OK;
    return conv_err_errno(err, errno, "cannot keep a backup of %s", write->path);
}

static enum conv_status rename_file(const struct conv_file_write *write, struct conv_err *err)
{
    enum conv_status status = keep_backup(write, err);
    if (!status && renameat(write->folder, write->temporary->name, write->folder,
                            name_in(write->folder, write->path)) != 0)
        return conv_err_errno(err, errno, "cannot write %s", write->path);
    return status;
}

// Sets write->result to CONV_SINK_REPLACED if the file in the output's place is the result of this
// run, which reached the image twice, or of another one with the same journal. A file that was
// changed otherwise since the image was read is not replaced.
static enum conv_status check_input(struct conv_file_write *write, struct conv_err *err)
{
    struct stat now;
    struct conv_journal *journal = write->sink->config.journal;
    const struct stat *then = write->access ? &write->access->info : NULL;
    const char *name = name_in(write->folder, write->path);
    if (fstatat(write->folder, name, &now, AT_SYMLINK_NOFOLLOW) != 0)
        return conv_err_errno(err, errno, "cannot replace the input");
    const struct conv_journal_fact fact = {
        .output = write->path,
        .out = &now,
        .folder = write->folder,
        .name = name,
    };
    if (conv_journal_knows(journal, &fact))
        write->result = CONV_SINK_REPLACED;
    else if (!conv_paths_is_unchanged(write->input, &now) || !then ||
             now.st_mode != then->st_mode || now.st_uid != then->st_uid ||
             now.st_gid != then->st_gid)
        return conv_err_set(err, CONV_ERR_IO, "changed while it was filtered; left as it is");
    return CONV_OK;
}

// The last look at the input, the journal's line and the new name are one step for every thread and
// run that shares the journal: see journal.h.
static enum conv_status replace_input(struct conv_file_write *write, struct conv_err *err)
{
    struct conv_journal *journal = write->sink->config.journal;
    enum conv_status status = conv_journal_lock(journal, err);
    if (status)
        return status;
    status = check_input(write, err);
    bool replaces = !status && write->result == CONV_SINK_WRITTEN;
    if (replaces)
        status = note(write, write->folder, write->temporary->name, err);
    if (replaces && !status)
        status = rename_file(write, err);
    conv_journal_unlock(journal);
    return status;
}

enum conv_status conv_file_write_renamed(struct conv_file_write *write, struct conv_err *err)
{
    struct conv_access access;
    mode_t mode = plan_access(write, true, &access);
    int fd = conv_temporary_create(write->temporary, write->folder, write->path, O_WRONLY, mode,
                                   &write->sink->is_abandoned);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot create %s", write->path);
    enum conv_status status = fill_file(write, fd, err);
    if (close_written(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", write->path);
    if (!status)
        status = write->sink->config.kind == CONV_SINK_IN_PLACE ? replace_input(write, err)
                                                                : rename_file(write, err);
    if (status || write->result != CONV_SINK_WRITTEN)
        conv_temporary_remove(write->temporary);
    atomic_store(&write->temporary->exists, false);
    return status;
}

// --- the disk's queue ----------------------------------------------------------------------------

// The call returns at once while the disk's queue has room; otherwise it waits for the disk. With a
// slow disk that would be most of the time, although there is memory for all the bytes. So few
// workers call at the same time, and after a wait none does for a while.

enum {
    WORKERS_EACH = 4,       // per call at a time: it takes 0.2 ms of a photograph's 5
    LEAST_BYTES = 64 << 10, // of a file that is worth a call
    MOST_BYTES = 8 << 20,   // of a call
    WAIT_NS = 10 * 1000000, // of a call that had to wait; without that 8 MB take 2 ms
    PAUSE = 4,              // times as long as the call: a slow disk costs 1/5 of 1/4 of the time
};

void conv_write_behind_start(struct conv_write_behind *behind, int workers)
{
    behind->most = workers < WORKERS_EACH ? 1 : workers / WORKERS_EACH;
    atomic_init(&behind->busy, 0);
    atomic_init(&behind->resume, 0);
}

// False if the disk cannot take more now.
static bool write_part(struct conv_write_behind *behind, int fd, size_t at)
{
    uint64_t start = conv_clock_ns();
    if (sync_file_range(fd, (off_t)at, MOST_BYTES, SYNC_FILE_RANGE_WRITE) != 0)
        return false;
    uint64_t end = conv_clock_ns();
    if (end - start > WAIT_NS)
        atomic_store(&behind->resume, end + PAUSE * (end - start));
    return end - start <= WAIT_NS;
}

void conv_write_behind_add(struct conv_write_behind *behind, int fd, size_t size)
{
    if (size < LEAST_BYTES || conv_clock_ns() < atomic_load(&behind->resume))
        return;
    if (atomic_fetch_add(&behind->busy, 1) < behind->most)
        for (size_t at = 0; at < size && write_part(behind, fd, at); at += MOST_BYTES)
            ;
    atomic_fetch_sub(&behind->busy, 1);
}
