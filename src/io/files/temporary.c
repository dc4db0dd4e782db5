// SPDX-License-Identifier: MIT
// Identifies processes through /proc.
#include "io/files/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    ssize_t got;
    do
        got = read(fd, text, size - 1);
    while (got < 0 && errno == EINTR);
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

// FNV-1a.
static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    for (const unsigned char *s = data, *end = s + size; s < end; s++)
        hash = (hash ^ *s) * 0x100000001B3;
    return hash;
}

static void find_self(void)
{
    uint64_t hash = 0xCBF29CE484222325;
    char text[256];
    if (read_text(text, sizeof text, "/proc/sys/kernel/random/boot_id") ||
        gethostname(text, sizeof text - 1) == 0)
        hash = mix(hash, text, strnlen(text, sizeof text));
    struct stat names;
    if (stat("/proc/self/ns/pid", &names) == 0)
        hash = mix(hash, &names.st_ino, sizeof names.st_ino);
    self.where = hash >> 32 ^ (hash & UINT32_MAX);
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
