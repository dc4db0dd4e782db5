// SPDX-License-Identifier: MIT
#include "pipeline/output.h"

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

#include "pipeline/paths.h"
#include "pipeline/temporary.h"

// The temporary file that a worker has open, by its folder's descriptor: were the folder moved, its
// path would lead nowhere. Global because a signal handler must find it.
struct temporary {
    atomic_bool exists;
    int folder;
    char name[CONV_TEMPORARY_NAME_SIZE];
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
#define OVERWRITES_INPUT "the output would overwrite the input (--in-place does that)"

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

static int write_parts(int fd, const struct conv_png_bytes *bytes)
{
    struct iovec parts[CONV_PNG_PARTS];
    for (int i = 0; i < CONV_PNG_PARTS; i++) {
        parts[i].iov_base = (void *)(uintptr_t)bytes->part[i].data; // writev only reads
        parts[i].iov_len = bytes->part[i].size;
    }
    int first = 0;
    while (first < CONV_PNG_PARTS) {
        if (parts[first].iov_len == 0) {
            first++;
            continue;
        }
        ssize_t written = writev(fd, parts + first, CONV_PNG_PARTS - first);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        for (size_t left = (size_t)written; left > 0 && first < CONV_PNG_PARTS;) {
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

// What is there already and is no regular file (a terminal, /dev/null, a pipe) is written as it is.
static enum conv_status write_special(const char *path, const struct conv_png_bytes *bytes,
                                      struct conv_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDOUT_FILENO : conv_paths_open(path, O_WRONLY);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot open %s", path);
    enum conv_status status = CONV_OK;
    if (write_parts(fd, bytes) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", standard ? "standard output" : path);
    if (!standard && close_written(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    return status;
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

// Opens the folder of `path`, which is made if it is missing. -1 with *err.
static int open_folder(const char *path, struct conv_err *err)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(conv_paths_base(path) - path), path);
    const char *name = folder[0] ? folder : ".";
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

static int open_temporary(struct temporary *temporary, int folder)
{
    static atomic_uint number;
    temporary->folder = folder;
    for (int attempt = 0;; attempt++) {
        int fd = -1;
        conv_temporary_name(temporary->name, atomic_fetch_add(&number, 1));
        atomic_store(&temporary->exists, true);
        do
            fd = atomic_load(&abandoned) ? -1
                                         : openat(folder, temporary->name,
                                                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        while (fd < 0 && errno == EINTR && !atomic_load(&abandoned));
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

// A change between our reading and now is somebody else's work.
static enum conv_status check_input(const struct conv_job *job, struct conv_err *err)
{
    struct stat now;
    if (lstat(job->path.output, &now) != 0)
        return conv_err_errno(err, errno, "cannot replace the input");
    if (!conv_paths_is_unchanged(&job->info, &now))
        return conv_err_set(err, CONV_ERR_IO, "changed while it was filtered; left as it is");
    return CONV_OK;
}

static enum conv_status note_output(int fd, const struct conv_job *job, struct conv_err *err)
{
    struct stat out;
    struct conv_journal_fact fact = {job->path.input, job->path.output, &job->info, &out};
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
    return config.journal && S_ISREG(job->info.st_mode) ? note_output(fd, job, err) : CONV_OK;
}

// Makes a name last. File systems that cannot do this to a folder have nothing to flush.
static enum conv_status sync_folder(int folder, const char *path, struct conv_err *err)
{
    if (sync_file(folder) != 0 && errno != EINVAL && errno != ENOTSUP)
        return conv_err_errno(err, errno, "cannot flush the folder of %s", path);
    return CONV_OK;
}

// Writes the file and what goes with it.
static enum conv_status fill_file(int fd, const struct conv_job *job,
                                  const struct conv_png_bytes *bytes, struct conv_err *err)
{
    if (write_parts(fd, bytes) != 0)
        return conv_err_errno(err, errno, "cannot write %s", job->path.output);
    return finish_file(fd, job, err);
}

static enum conv_status write_renamed(struct temporary *temporary, int folder,
                                      const struct conv_job *job,
                                      const struct conv_png_bytes *bytes, struct conv_err *err)
{
    const char *path = job->path.output;
    int fd = open_temporary(temporary, folder);
    if (fd < 0)
        return conv_err_errno(err, errno, "cannot create %s", path);

    enum conv_status status = fill_file(fd, job, bytes, err);
    if (close_written(fd) != 0 && !status)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (!status && config.in_place)
        status = check_input(job, err);
    if (!status && renameat(folder, temporary->name, folder, conv_paths_base(path)) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", path);
    if (status)
        unlinkat(folder, temporary->name, 0);
    atomic_store(&temporary->exists, false);
    return status;
}

// Gives the file that has no name yet its own. False if that cannot be.
static bool link_file(int fd, int folder, const char *path)
{
    char link[32];
    const char *name = conv_paths_base(path);
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
                                       const struct conv_png_bytes *bytes, bool *linked,
                                       struct conv_err *err)
{
    const char *path = job->path.output;
    int fd;
    *linked = false;
    do
        fd = openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        atomic_store(&nameless_fail, true);
        return CONV_OK;
    }
    enum conv_status status = fill_file(fd, job, bytes, err);
    *linked = !status && link_file(fd, folder, path);
    if (close_written(fd) != 0 && *linked) {
        status = conv_err_errno(err, errno, "cannot write %s", path);
        unlinkat(folder, conv_paths_base(path), 0);
    }
    return status;
}

bool conv_output_may_exist(void)
{
    return atomic_load(&new_in_a_row) < EXPECT_NEW || atomic_load(&nameless_fail);
}

enum conv_status conv_output_check(const struct conv_job *job, const struct stat *out,
                                   struct conv_err *err)
{
    bool same = out->st_dev == job->info.st_dev && out->st_ino == job->info.st_ino;
    if (same && S_ISREG(out->st_mode) && !config.in_place && strcmp(job->path.input, "-") != 0)
        return conv_err_set(err, CONV_ERR_USAGE, OVERWRITES_INPUT);
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
    *place = S_ISREG(info.st_mode) ? PLACE_FILE : PLACE_SPECIAL;
    if (S_ISDIR(info.st_mode))
        return conv_err_set(err, CONV_ERR_IO, "the output %s is a folder", job->path.output);
    return conv_output_check(job, &info, err);
}

// Where the place is free, or expected to be.
static enum conv_status write_new(int folder, const struct conv_job *job,
                                  const struct conv_png_bytes *bytes, bool *linked,
                                  struct conv_err *err)
{
    enum conv_status status = write_nameless(folder, job, bytes, linked, err);
    if (*linked)
        atomic_fetch_add(&new_in_a_row, atomic_load(&new_in_a_row) < EXPECT_NEW);
    return status;
}

// `looked`: it is known what is there.
static enum conv_status write_file(struct temporary *temporary, int folder, bool looked,
                                   enum place place, const struct conv_job *job,
                                   const struct conv_png_bytes *bytes, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    bool linked = false;
    if (place == PLACE_FREE && !atomic_load(&nameless_fail))
        status = write_new(folder, job, bytes, &linked, err);
    if (!linked)
        atomic_store(&new_in_a_row, 0);
    if (!status && !linked && !looked)
        status = look_at(&place, job, err);
    if (!status && place == PLACE_SPECIAL)
        return write_special(job->path.output, bytes, err);
    if (!status && !linked)
        status = write_renamed(temporary, folder, job, bytes, err);
    return !status && config.fsync ? sync_folder(folder, job->path.output, err) : status;
}

enum conv_status conv_output_write(int worker, const struct conv_job *job,
                                   const struct conv_png_bytes *bytes, struct conv_err *err)
{
    const char *path = job->path.output;
    enum conv_status status = CONV_OK;
    enum place place = PLACE_FREE;
    bool looks = conv_output_may_exist();
    if (strcmp(path, "-") == 0)
        return write_special(path, bytes, err);
    if (looks)
        status = look_at(&place, job, err);
    if (status)
        return status;
    if (place == PLACE_SPECIAL)
        return write_special(path, bytes, err);
    sweep_folder(path);
    int folder = open_folder(path, err);
    if (folder < 0)
        return err->status;
    status = write_file(&temporaries[worker], folder, looks, place, job, bytes, err);
    close(folder);
    return status;
}
