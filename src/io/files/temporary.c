// SPDX-License-Identifier: MIT
// Identifies processes through /proc.
#include "io/files/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/standard.h"
#include "io/files/paths.h"

// Longer than writing any image takes, and than the clocks of machines that share a folder differ.
#define STRANGER_SECONDS (24 * 60 * 60)

struct owner {
    uint64_t where;
    long pid;
    uint64_t start; // clock ticks since boot, 0 where /proc does not say
};

static struct owner self;
static pthread_once_t self_once = PTHREAD_ONCE_INIT;

// The beginning of a small file, as a string. False if it cannot be read.
static bool read_text(char *text, size_t size, const char *path)
{
    int fd = conv_paths_open(path, O_RDONLY);
    if (fd < 0)
        return false;
    ssize_t got = TEMP_FAILURE_RETRY(read(fd, text, size - 1));
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

// When a process started: field 22 of /proc/PID/stat, counted after the name in brackets, which may
// hold anything. 0 if unknown. *dead: it has ended and only waits for its parent.
static uint64_t process_start(long pid, bool *dead)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    *dead = false;
    if (!read_text(text, sizeof text, path))
        return 0;
    const char *field = strrchr(text, ')');
    *dead = field && (strncmp(field, ") Z", 3) == 0 || strncmp(field, ") X", 3) == 0);
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    uint64_t start = 0;
    return field && sscanf(field, " %" SCNu64, &start) == 1 ? start : 0;
}

static void find_self(void)
{
    struct conv_digest digest = {0};
    char text[256];
    if (read_text(text, sizeof text, "/proc/sys/kernel/random/boot_id") ||
        gethostname(text, sizeof text - 1) == 0)
        conv_hash_add(&digest, text, strnlen(text, sizeof text));
    struct stat names;
    if (stat("/proc/self/ns/pid", &names) == 0)
        conv_hash_add(&digest, &names.st_ino, sizeof names.st_ino);
    self.where = digest.word[0] & UINT32_MAX;
    self.pid = (long)getpid();
    bool dead;
    self.start = process_start(self.pid, &dead);
}

void conv_temporary_name(char name[CONV_TEMPORARY_NAME_SIZE], unsigned number)
{
    pthread_once(&self_once, find_self);
    snprintf(name, CONV_TEMPORARY_NAME_SIZE, ".conv-%08" PRIx64 "-%ld-%" PRIx64 "-%u.tmp",
             self.where, self.pid, self.start, number);
}

#define MOST_ATTEMPTS 100 // at a name that is not in use

int conv_temporary_create(struct conv_temporary *temporary, int folder, const char *path, int flags,
                          mode_t mode, const atomic_bool *ends)
{
    static atomic_uint next_number;
    size_t length = folder == AT_FDCWD ? (size_t)(conv_paths_base(path) - path) : 0;
    if (length + CONV_TEMPORARY_NAME_SIZE > sizeof temporary->name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(temporary->name, path, length);
    temporary->folder = folder;
    for (int attempt = 1;; attempt++) {
        conv_temporary_name(temporary->name + length, atomic_fetch_add(&next_number, 1));
        atomic_store(&temporary->exists, true);
        int fd = conv_paths_open_at(folder, temporary->name, flags | O_CREAT | O_EXCL, mode, ends);
        if (fd >= 0)
            return fd;
        atomic_store(&temporary->exists, false);
        if (errno != EEXIST || attempt == MOST_ATTEMPTS)
            return -1;
    }
}

void conv_temporary_remove(const struct conv_temporary *temporary)
{
    if (atomic_load(&temporary->exists))
        unlinkat(temporary->folder, temporary->name, 0);
}

static bool parse_name(const char *name, struct owner *owner)
{
    unsigned number;
    int used = 0;
    return sscanf(name, ".conv-%8" SCNx64 "-%10ld-%16" SCNx64 "-%10u.tmp%n", &owner->where,
                  &owner->pid, &owner->start, &number, &used) == 4 &&
           used > 0 && name[used] == '\0';
}

bool conv_temporary_is(const char *name)
{
    struct owner owner;
    return parse_name(name, &owner);
}

static bool is_gone(const struct owner *owner, const struct stat *info)
{
    if (owner->where != self.where || owner->pid <= 0)
        return time(NULL) - info->st_mtim.tv_sec > STRANGER_SECONDS;
    if (kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH)
        return true;
    bool dead;
    uint64_t start = process_start(owner->pid, &dead);
    bool another = start != 0 && owner->start != 0 && start != owner->start; // of the same number
    return dead || another;
}

void conv_temporary_sweep(const char *folder)
{
    pthread_once(&self_once, find_self);
    DIR *dir = opendir(folder[0] ? folder : ".");
    if (!dir)
        return;
    const struct dirent *item;
    while ((item = readdir(dir))) {
        struct owner owner;
        struct stat info;
        if (item->d_name[0] != '.' || !parse_name(item->d_name, &owner))
            continue;
        if (fstatat(dirfd(dir), item->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode) && (info.st_uid == geteuid() || geteuid() == 0) &&
            is_gone(&owner, &info))
            unlinkat(dirfd(dir), item->d_name, 0);
    }
    closedir(dir);
}

// --- streams -------------------------------------------------------------------------------------

// Written without ever waiting out of reach of a signal.

#define POLL_MS 50
#define PIPE_BYTES (1 << 20) // what a user may set
#define LAST_POLLS                                                                                 \
    10 // after a stop, a reader that takes nothing for half a second is not waited for

// False if the run is to stop and nothing can be written.
static bool wait_writable(int fd, const atomic_int *stop)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    for (int polls = 0;;) {
        int ready = poll(&wait, 1, POLL_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true; // write() gives the reason of an error
        polls += ready == 0;
        if (polls >= LAST_POLLS && atomic_load(stop))
            return false;
    }
}

// Opening a pipe for writing would wait for its reader, out of reach of a signal. -1 with errno:
// EINTR if *stop became non-zero meanwhile.
static int open_other(const char *path, const atomic_int *stop)
{
    for (;;) {
        struct stat info;
        int fd = conv_paths_open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        if (stat(path, &info) != 0 || !S_ISFIFO(info.st_mode)) {
            errno = ENXIO; // a socket, or a device without a driver
            return -1;
        }
        if (atomic_load(stop)) {
            errno = EINTR;
            return -1;
        }
        poll(NULL, 0, POLL_MS);
    }
}

// Opens it for writing, waiting for the reader of a pipe. -1 with *err, as of conv_special_write.
// *owns: it is to be closed.
static int open_special(const char *path, const atomic_int *stop, bool *owns, struct conv_err *err)
{
    int own = conv_paths_is_standard(path) ? STDOUT_FILENO : conv_paths_descriptor(path);
    if (own == STDOUT_FILENO && conv_standard_is_closed(STDOUT_FILENO)) {
        conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
        return -1;
    }
    int fd = own >= 0 ? own : open_other(path, stop);
    *owns = own < 0 && fd >= 0;
    if (fd < 0 && errno == EINTR)
        conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for the reader of %s", path);
    else if (fd < 0)
        conv_err_errno(err, errno, "cannot open %s", path);
    return fd;
}

// A pipe that is writable takes PIPE_BUF bytes without making a write wait; more could wait for a
// reader, with or without O_NONBLOCK, which other processes share. Files and disks take any amount.
static size_t most_at_once(int fd)
{
    struct stat info;
    bool may_wait = fstat(fd, &info) != 0 || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
                    S_ISCHR(info.st_mode);
    return may_wait ? PIPE_BUF : SSIZE_MAX;
}

static enum conv_status write_all(int fd, const uint8_t *data, size_t size, size_t most,
                                  const atomic_int *stop, const char *name, struct conv_err *err)
{
    while (size > 0) {
        if (!wait_writable(fd, stop))
            return conv_err_set(err, CONV_ERR_CANCELLED,
                                "stopped while waiting for the reader of %s", name);
        ssize_t written = write(fd, data, size < most ? size : most);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (written < 0)
            return conv_err_errno(err, errno, "cannot write to %s", name);
        data += written;
        size -= (size_t)written;
    }
    return CONV_OK;
}

// Opens the same pipe with O_NONBLOCK for this process alone, for a large write: it then takes all
// that has room at once, not PIPE_BUF bytes (a stream of PPM takes 40 % less processor time). -1 if
// it is no pipe or cannot be opened again.
static int open_again(int fd, size_t size)
{
    struct stat info;
    char path[32];
    if (size < PIPE_BYTES || fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode))
        return -1;
#ifdef F_SETPIPE_SZ
    (void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES); // fewer switches between its two ends
#endif
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return conv_paths_open(path, O_WRONLY | O_NONBLOCK);
}

static enum conv_status write_to(int fd, const char *path, const struct conv_encoded *file,
                                 const atomic_int *stop, struct conv_err *err)
{
    const char *name = conv_paths_is_standard(path) ? "standard output" : path;
    int again = open_again(fd, file->size), to = again >= 0 ? again : fd;
    size_t most = again >= 0 ? SSIZE_MAX : most_at_once(fd);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < CONV_ENCODED_PARTS && !status; i++)
        status = write_all(to, file->part[i].data, file->part[i].size, most, stop, name, err);
    if (again >= 0)
        close(again);
    return status;
}

enum conv_status conv_special_write(const char *path, const struct conv_encoded *file,
                                    const atomic_int *stop, struct conv_err *err)
{
    bool owns;
    int fd = open_special(path, stop, &owns, err);
    if (fd < 0)
        return err->status;
    enum conv_status status = write_to(fd, path, file, stop, err);
    if (owns && close(fd) != 0 && errno != EINTR && !status)
        status = conv_err_errno(err, errno, "cannot write to %s", path);
    return status;
}

// --- files that appear whole ---------------------------------------------------------------------

bool conv_temporary_skip(struct iovec **parts, int *count, size_t bytes)
{
    for (; *count > 0 && bytes >= (*parts)->iov_len; ++*parts, --*count)
        bytes -= (*parts)->iov_len;
    if (*count == 0)
        return false;
    (*parts)->iov_base = (uint8_t *)(*parts)->iov_base + bytes;
    (*parts)->iov_len -= bytes;
    return true;
}

// The access of the file that it will replace, if there is one; st_mode is 0 otherwise.
static enum conv_status plan_access(struct conv_access *access, const char *path, bool forced,
                                    struct conv_err *err)
{
    if (conv_access_of_replaced(access, AT_FDCWD, path))
        return conv_access_check(path, &access->info, false, forced, err);
    access->info.st_mode = 0;
    return CONV_OK;
}

static enum conv_status give_access(int fd, const struct conv_access *access, const char *path,
                                    struct conv_err *err)
{
    bool list_lost = false;
    if (access->info.st_mode && conv_access_give(fd, access, true, &list_lost) != 0)
        return conv_err_errno(err, errno, "cannot set the permissions of %s", path);
    return list_lost
               ? conv_err_set(err, CONV_ERR_IO, "cannot keep the access control list of %s", path)
               : CONV_OK;
}

static enum conv_status open_unnamed(struct conv_temporary_file *file, bool force,
                                     struct conv_err *err)
{
    char folder[PATH_MAX];
    size_t length = (size_t)(conv_paths_base(file->path) - file->path);
    if (length + CONV_TEMPORARY_NAME_SIZE > sizeof folder)
        return conv_err_limit(err, "%s: path too long", file->path);
    enum conv_status status = conv_paths_make_parent(file->path, err);
    if (!status)
        status = plan_access(&file->access, file->path, force, err);
    if (status)
        return status;
    conv_temporary_sweep(conv_paths_folder(folder, file->path));
    file->fd = conv_temporary_create(&file->temporary, AT_FDCWD, file->path, O_RDWR,
                                     conv_access_first(&file->access), NULL);
    file->owns_fd = file->fd >= 0;
    return file->owns_fd ? CONV_OK : conv_err_errno(err, errno, "cannot create %s", file->path);
}

// It is written to, not replaced.
static enum conv_status open_stream(struct conv_temporary_file *file, struct conv_err *err)
{
    file->fd = open_special(file->path, file->stop, &file->owns_fd, err);
    if (file->fd < 0)
        return err->status;
#ifdef F_SETPIPE_SZ
    (void)fcntl(file->fd, F_SETPIPE_SZ, 1 << 20); // fewer switches between its two ends
#endif
    return CONV_OK;
}

bool conv_temporary_is_stream(const char *path)
{
    struct stat info;
    return conv_paths_is_standard(path) || conv_paths_descriptor(path) >= 0 ||
           (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

enum conv_status conv_temporary_open(struct conv_temporary_file *file, const char *path, bool force,
                                     const atomic_int *stop, struct conv_err *err)
{
    file->path = path;
    file->fd = -1;
    file->owns_fd = false;
    file->stop = stop;
    file->is_stream = conv_temporary_is_stream(path);
    atomic_store(&file->temporary.exists, false);
    if (!file->is_stream && conv_paths_is_folder(path))
        return conv_err_usage(err, "the output %s is a folder", path);
    return file->is_stream ? open_stream(file, err) : open_unnamed(file, force, err);
}

enum conv_status conv_temporary_write(const struct conv_temporary_file *file, const void *data,
                                      size_t size, struct conv_err *err)
{
    const struct conv_encoded bytes = {.part = {{data, size}}, .size = size};
    return write_to(file->fd, file->path, &bytes, file->stop, err);
}

enum conv_status conv_temporary_close(struct conv_temporary_file *file, bool keep, bool fsync,
                                      struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    bool is_new = atomic_load(&file->temporary.exists);
    bool syncs = keep && fsync && !file->is_stream;
    if (is_new && keep)
        status = give_access(file->fd, &file->access, file->path, err);
    if (!status && syncs && conv_paths_sync(file->fd) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", file->path);
    if (file->owns_fd && close(file->fd) != 0 && errno != EINTR && keep && !status)
        status = conv_err_errno(err, errno, "cannot write %s", file->path);
    if (is_new && keep && !status && rename(file->temporary.name, file->path) != 0)
        status = conv_err_errno(err, errno, "cannot write %s", file->path);
    if (!keep || status)
        conv_temporary_remove(&file->temporary);
    atomic_store(&file->temporary.exists, false);
    file->fd = -1;
    file->owns_fd = false;
    return !status && syncs ? conv_paths_sync_parent(file->path, err) : status;
}
