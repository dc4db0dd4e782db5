// SPDX-License-Identifier: MIT
#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "io/paths.h"
#include "io/special.h"
#include "io/temporary.h"

// The temporary file that a worker has open, by its folder's descriptor: were the folder moved, its
// path would lead nowhere. By its path, with AT_FDCWD, only where descriptors are few. Global
// because a signal handler must find it.
struct temporary {
    atomic_bool exists;
    int folder;
    char name[PATH_MAX];
};

static struct temporary *temporaries;
static atomic_int temporary_count;
static atomic_bool abandoned; // the program is about to end
// The file system or the kernel has no files without a name, or there is no /proc to name them by.
static atomic_bool nameless_fail;
// Before Linux 6.10 a file is named by its descriptor alone only for who may read everything.
static atomic_bool link_by_path;
static struct conv_output_config config;

// Outputs in a row that were new, and how many make one expect that of the next.
static atomic_int new_in_a_row;
#define EXPECT_NEW 64

// Folders that were swept, by a hash of their paths: of two that share a bit only the first is.
static atomic_uchar swept[8192];

enum conv_status conv_output_open(const struct conv_output_config *wanted, struct conv_err *err)
{
    config = *wanted;
    atomic_store(&nameless_fail, false);
    atomic_store(&link_by_path, false);
    atomic_store(&new_in_a_row, 0);
    for (size_t i = 0; i < sizeof swept; i++)
        atomic_init(&swept[i], 0);
    temporaries = calloc((size_t)config.workers, sizeof *temporaries);
    if (!temporaries)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d workers", config.workers);
    atomic_store(&temporary_count, config.workers);
    return CONV_OK;
}

void conv_output_close(void)
{
    atomic_store(&temporary_count, 0);
    free(temporaries);
    temporaries = NULL;
}

void conv_output_abandon(void)
{
    atomic_store(&abandoned, true);
    // Twice: a worker that was about to make its file when the flag was set has made it then.
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < atomic_load(&temporary_count); i++)
            if (atomic_load(&temporaries[i].exists))
                unlinkat(temporaries[i].folder, temporaries[i].name, 0);
        if (pass == 0)
            poll(NULL, 0, 2);
    }
}

// A signal during close() is no failure to write: the descriptor is closed all the same.
static int close_written(int fd)
{
    return close(fd) == 0 || errno == EINTR ? 0 : -1;
}

static int sync_file(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

static int write_parts(int fd, const struct conv_encoded *bytes)
{
    struct iovec parts[CONV_ENCODED_PARTS];
    for (int i = 0; i < CONV_ENCODED_PARTS; i++) {
        parts[i].iov_base = (void *)(uintptr_t)bytes->part[i].data; // writev only reads
        parts[i].iov_len = bytes->part[i].size;
    }
    int first = 0;
    while (first < CONV_ENCODED_PARTS) {
        if (parts[first].iov_len == 0) {
            first++;
            continue;
        }
        ssize_t written = writev(fd, parts + first, CONV_ENCODED_PARTS - first);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        for (size_t left = (size_t)written; left > 0 && first < CONV_ENCODED_PARTS;) {
            size_t step = left < parts[first].iov_len ? left : parts[first].iov_len;
            parts[first].iov_base = (uint8_t *)parts[first].iov_base + step;
            parts[first].iov_len -= step;
            left -= step;
            if (parts[first].iov_len == 0)
                first++;
        }
    }
    return 0;
}

// What killed runs have left in the folder of `path`, once a folder and run.
static void sweep_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t length = (size_t)(conv_paths_base(path) - path);
    uint32_t hash = 0x811C9DC5; // FNV-1a
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)path[i]) * 0x01000193;
    unsigned char bit = (unsigned char)(1 << hash % 8);
    if (length >= sizeof folder ||
        (atomic_fetch_or(&swept[hash / 8 % sizeof swept], bit) & bit) != 0)
        return;
    memcpy(folder, path, length);
    folder[length] = '\0';
    conv_temporary_sweep(folder);
}

// The folder of `path`, "." if it has none.
static const char *name_folder(char folder[PATH_MAX], const char *path)
{
    snprintf(folder, PATH_MAX, "%.*s", (int)(conv_paths_base(path) - path), path);
    return folder[0] ? folder : ".";
}

// What stands for `path` in its folder.
static const char *name_in(int folder, const char *path)
{
    return folder == AT_FDCWD ? path : conv_paths_base(path);
}

// Opens the folder of `path`, which is made if it is missing. -1 with *err.
static int open_folder(const char *path, struct conv_err *err)
{
    char folder[PATH_MAX];
    const char *name = name_folder(folder, path);
    // Only what is to be flushed need be readable.
    int flags = O_DIRECTORY | (config.fsync ? O_RDONLY : O_PATH);
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

static int open_temporary(struct temporary *temporary, int folder, const char *path)
{
    static atomic_uint number;
    size_t length = folder == AT_FDCWD ? (size_t)(conv_paths_base(path) - path) : 0;
    if (length + CONV_TEMPORARY_NAME_SIZE > sizeof temporary->name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(temporary->name, path, length);
    temporary->folder = folder;
    for (int attempt = 0, tries = 0;; attempt++) {
        int fd = -1;
        conv_temporary_name(temporary->name + length, atomic_fetch_add(&number, 1));
        atomic_store(&temporary->exists, true);
        do
            fd = atomic_load(&abandoned) ? -1
                                         : openat(folder, temporary->name,
                                                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        while (fd < 0 && (errno == EINTR || conv_descriptors_wait(errno, &tries)) &&
               !atomic_load(&abandoned));
        if (fd >= 0)
            return fd;
        atomic_store(&temporary->exists, false);
        if (errno != EEXIST || attempt == 99)
            return -1;
    }
}

// An output in its input's place is that file to everybody else.
static int take_over(int fd, const struct stat *input)
{
    mode_t mode = input->st_mode & 07777;
    if (fchown(fd, input->st_uid, input->st_gid) != 0)
        mode &= 0777; // set-user-ID would be another user's now
    return fchmod(fd, mode);
}

static enum conv_status note_output(int fd, const struct conv_job *job, struct conv_err *err)
{
    struct stat out;
    struct conv_journal_fact fact = {job->path.input, job->path.output, &job->info, &out, {0}};
    if (fstat(fd, &out) != 0)
        return conv_err_errno(err, errno, "cannot stat the output %s", job->path.output);
    return conv_journal_add(config.journal, &fact, err);
}

static enum conv_status finish_file(int fd, const struct conv_job *job, struct conv_err *err)
{
    const char *path = job->path.output;
    const struct timespec times[2] = {job->info.st_atim, job->info.st_mtim};
    if (config.in_place && take_over(fd, &job->info) != 0)
        return conv_err_errno(err, errno, "cannot set the mode of %s", path);
    if (config.preserve && S_ISREG(job->info.st_mode) &&
        (fchmod(fd, job->info.st_mode & 07777) != 0 || futimens(fd, times) != 0))
        return conv_err_errno(err, errno, "cannot set mode and time of %s", path);
    if (config.fsync && sync_file(fd) != 0)
        return conv_err_errno(err, errno, "cannot write %s", path);
    bool notes = config.journal && !config.in_place && S_ISREG(job->info.st_mode);
    return notes ? note_output(fd, job, err) : CONV_OK;
}

// Makes a name last. File systems that cannot do this to a folder have nothing to flush.
static enum conv_status sync_folder(int folder, const char *path, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int fd = folder == AT_FDCWD ? open_folder(path, err) : folder;
    if (fd < 0)
        return err->status;
    if (sync_file(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = conv_err_errno(err, errno, "cannot flush the folder of %s", path);
    if (fd != folder)
        close(fd);
    return status;
}

// Writes the file and what goes with it.
static enum conv_status fill_file(int fd, const struct conv_job *job,
                                  const struct conv_encoded *bytes, struct conv_err *err)
{
    if (write_parts(fd, bytes) != 0)
        return conv_err_errno(err, errno, "cannot write %s", job->path.output);
    return finish_file(fd, job, err);
}

static enum conv_status rename_file(const struct temporary *temporary, int folder,
                                    const struct conv_job *job, struct conv_err *err)
{
    const char *path = job->path.output;
    if (renameat(folder, temporary->name, folder, name_in(folder, path)) != 0)
        return conv_err_errno(err, errno, "cannot write %s", path);
    return CONV_OK;
}

// Sets job->outcome to SKIPPED if the file in the output's place is the result of this very run
// (the image was reached twice) or of another with the same journal. Any other change since the
// image was read is somebody else's work, which stays.
static enum conv_status check_input(int folder, struct conv_job *job, struct conv_err *err)
{
    struct stat now;
    const char *name = name_in(folder, job->path.output);
    if (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) != 0)
        return conv_err_errno(err, errno, "cannot replace the input");
    struct conv_journal_fact fact = {
        .out = &now,
        .birth = conv_journal_birth(config.journal, folder, name),
    };
    if (conv_journal_knows(config.journal, &fact)) {
        job->outcome = CONV_OUTCOME_SKIPPED;
        job->reason = CONV_OUTPUT_REPLACED;
        return CONV_OK;
    }
    if (!conv_paths_is_unchanged(&job->info, &now))
        return conv_err_set(err, CONV_ERR_IO, "changed while it was filtered; left as it is");
    return CONV_OK;
}

static enum conv_status note_replacement(const struct temporary *temporary, int folder,
                                         const struct conv_job *job, struct conv_err *err)
{
    struct stat out;
    if (fstatat(folder, temporary->name, &out, AT_SYMLINK_NOFOLLOW) != 0)
        return conv_err_errno(err, errno, "cannot stat the output %s", job->path.output);
    struct conv_journal_fact fact = {
        .input = job->path.input,
        .out = &out,
        .birth = conv_journal_birth(config.journal, folder, temporary->name),
    };
    return conv_journal_add(config.journal, &fact, err);
}

// The last look at the input, the journal's line and the new name are one step for every thread and
// run that shares the journal: see journal.h.
static enum conv_status replace_input(const struct temporary *temporary, int folder,
                                      struct conv_job *job, struct conv_err *err)
{
    enum conv_status status = conv_journal_lock(config.journal, err);
    if (status)
        return status;
    status = check_input(folder, job, err);
    bool replaces = !status && job->outcome == CONV_OUTCOME_DONE;
    if (replaces)
        status = note_replacement(temporary, folder, job, err);
    if (replaces && !status)
        status = rename_file(temporary, folder, job, err);
    conv_journal_unlock(config.journal);
    return status;
}

static enum conv_status write_renamed(struct temporary *temporary, int folder, struct conv_job *job,
                                      const struct conv_encoded *bytes, struct conv_err *err)
{
    const char *path = job->path.output;
    int fd = open_temporary(temporary, folder, path);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot create %s", path);

    enum conv_status status = fill_file(fd, job, bytes, err);
    if (close_written(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (!status)
        status = config.in_place ? replace_input(temporary, folder, job, err)
                                 : rename_file(temporary, folder, job, err);
    if (status || job->outcome != CONV_OUTCOME_DONE)
        unlinkat(folder, temporary->name, 0);
    atomic_store(&temporary->exists, false);
    return status;
}

// Gives the file that has no name yet its own. False if that cannot be.
static bool link_file(int fd, int folder, const char *path)
{
    char link[32];
    const char *name = name_in(folder, path);
    if (atomic_load(&abandoned))
        return false;
    if (!atomic_load(&link_by_path)) {
        if (linkat(fd, "", folder, name, AT_EMPTY_PATH) == 0)
            return true;
        if (errno == EEXIST)
            return false;
        atomic_store(&link_by_path, true);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, folder, name, AT_SYMLINK_FOLLOW) == 0)
        return true;
    if (errno != EEXIST)
        atomic_store(&nameless_fail, true);
    return false;
}

// An output that is not there yet needs no temporary name: it gets its own when it is whole. The
// folder is changed once instead of twice, which is what writers of small files wait for each other
// for, and what is killed leaves nothing. *linked is false if that is not possible here.
static enum conv_status write_nameless(int folder, const struct conv_job *job,
                                       const struct conv_encoded *bytes, bool *linked,
                                       struct conv_err *err)
{
    const char *path = job->path.output;
    char name[PATH_MAX];
    const char *where = folder == AT_FDCWD ? name_folder(name, path) : ".";
    int fd, tries = 0;
    *linked = false;
    do
        fd = openat(folder, where, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    while (fd < 0 && (errno == EINTR || conv_descriptors_wait(errno, &tries)));
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return conv_err_errno(err, errno, "cannot create %s", path);
    if (fd < 0) {
        atomic_store(&nameless_fail, true);
        return CONV_OK;
    }
    enum conv_status status = fill_file(fd, job, bytes, err);
    *linked = !status && link_file(fd, folder, path);
    if (close_written(fd) != 0 && *linked) {
        status = conv_err_errno(err, errno, "cannot write %s", path);
        unlinkat(folder, name_in(folder, path), 0);
    }
    return status;
}

bool conv_output_may_exist(void)
{
    return atomic_load(&new_in_a_row) < EXPECT_NEW || atomic_load(&nameless_fail);
}

bool conv_output_is_special(const struct conv_job *job, const struct stat *out)
{
    return job->path.output_named && !S_ISDIR(out->st_mode) &&
           (!S_ISREG(out->st_mode) || conv_paths_descriptor(job->path.output) >= 0);
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

enum conv_status conv_output_check(const struct conv_job *job, const struct stat *out,
                                   struct conv_err *err)
{
    const char *path = job->path.output;
    bool same = out->st_dev == job->info.st_dev && out->st_ino == job->info.st_ino;
    if (same && S_ISREG(out->st_mode) && !config.in_place && strcmp(job->path.input, "-") != 0)
        return conv_err_hint(
            err, CONV_HINT_REPLACE_INSTEAD, 0,
            conv_err_set(err, CONV_ERR_USAGE, "the output would overwrite the input"));
    for (int i = 0; i < config.own_file_count; i++)
        if (out->st_dev == config.own_files[i].device && out->st_ino == config.own_files[i].inode)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "the output would overwrite the run's own journal or report");
    if (S_ISDIR(out->st_mode))
        return conv_err_set(err, CONV_ERR_IO, "the output %s is a folder", path);
    if (!S_ISREG(out->st_mode) && !conv_output_is_special(job, out) && !is_link(path))
        return conv_err_set(err, CONV_ERR_IO,
                            "the output %s is a pipe, socket or device; only one that is named on "
                            "the command line is written to",
                            path);
    return CONV_OK;
}

// What is there where the output is to be.
enum place { PLACE_FREE, PLACE_FILE, PLACE_SPECIAL };

static enum conv_status look_at(enum place *place, const struct conv_job *job, struct conv_err *err)
{
    struct stat info;
    *place = PLACE_FREE;
    if (stat(job->path.output, &info) != 0)
        return CONV_OK;
    *place = conv_output_is_special(job, &info) ? PLACE_SPECIAL : PLACE_FILE;
    return conv_output_check(job, &info, err);
}

// Where the place is free, or expected to be.
static enum conv_status write_new(int folder, const struct conv_job *job,
                                  const struct conv_encoded *bytes, bool *linked,
                                  struct conv_err *err)
{
    enum conv_status status = write_nameless(folder, job, bytes, linked, err);
    if (*linked)
        atomic_fetch_add(&new_in_a_row, atomic_load(&new_in_a_row) < EXPECT_NEW);
    return status;
}

// `looked`: it is known what is there.
static enum conv_status write_file(struct temporary *temporary, int folder, bool looked,
                                   enum place place, struct conv_job *job,
                                   const struct conv_encoded *bytes, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    bool linked = false;
    if (place == PLACE_FREE && !config.in_place && !atomic_load(&nameless_fail))
        status = write_new(folder, job, bytes, &linked, err);
    if (!linked)
        atomic_store(&new_in_a_row, 0);
    if (!status && !linked && !looked)
        status = look_at(&place, job, err);
    if (!status && place == PLACE_SPECIAL)
        return conv_special_write(job->path.output, bytes, config.stop, err);
    if (!status && !linked)
        status = write_renamed(temporary, folder, job, bytes, err);
    return !status && config.fsync ? sync_folder(folder, job->path.output, err) : status;
}

// The folder, and the file in it. Where they are few one does, but for looking at what killed runs
// have left.
#define DESCRIPTORS 2

enum conv_status conv_output_write(int worker, struct conv_job *job,
                                   const struct conv_encoded *bytes, struct conv_err *err)
{
    const char *path = job->path.output;
    enum conv_status status = CONV_OK;
    enum place place = PLACE_FREE;
    bool looks = conv_output_may_exist(), few = conv_descriptors_are_few();
    if (strcmp(path, "-") == 0)
        return conv_special_write(path, bytes, config.stop, err);
    if (looks)
        status = look_at(&place, job, err);
    if (status)
        return status;
    if (place == PLACE_SPECIAL)
        return conv_special_write(path, bytes, config.stop, err);
    conv_descriptors_take(DESCRIPTORS);
    sweep_folder(path);
    int folder = open_folder(path, err);
    if (folder < 0)
        status = err->status;
    if (folder >= 0 && few) {
        close(folder);
        folder = AT_FDCWD;
    }
    if (!status)
        status = write_file(&temporaries[worker], folder, looks, place, job, bytes, err);
    if (folder >= 0)
        close(folder);
    conv_descriptors_give(DESCRIPTORS);
    return status;
}
