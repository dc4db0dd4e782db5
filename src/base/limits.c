// SPDX-License-Identifier: MIT
#include "base/limits_internal.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

bool conv_limits_parse_number(const char *text, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    *number = strtoull(text, &end, 10); // ULLONG_MAX if it is too large: no limit either
    return *end == '\0' || *end == '\n' || *end == ' ';
}

static size_t left_of(size_t memory, size_t used)
{
    return used < memory ? memory - used : 0;
}

void conv_limits_note_memory(struct conv_limits *limits, uint64_t bytes, uint64_t used,
                             const char *setting, const char *folder)
{
    if (bytes == 0 || bytes >= limits->physical)
        return;
    if (limits->memory_source[0] &&
        left_of((size_t)bytes, (size_t)used) >= left_of(limits->memory, limits->memory_used))
        return;
    limits->memory = (size_t)bytes;
    limits->memory_used = used < bytes ? (size_t)used : (size_t)bytes;
    snprintf(limits->memory_source, sizeof limits->memory_source, "%s%s%s", setting,
             *folder ? " of " : "", folder);
}

void conv_limits_share_memory(struct conv_limits *limits, uint64_t processes, const char *source)
{
    char all[sizeof limits->memory_source];
    snprintf(all, sizeof all, "%s", limits->memory_source);
    limits->memory /= processes;
    limits->memory_used /= processes;
    snprintf(limits->memory_source, sizeof limits->memory_source, "%s%s%.200s", source,
             all[0] ? ", " : "", all);
}

static size_t read_physical(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)1 << 30;
}

// A mask as large as the kernel's: on a machine with more than 1024 cores the usual one fails.
static int count_allowed(int online)
{
    for (int cores = CPU_SETSIZE; cores <= 1 << 20; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC(cores);
        size_t size = CPU_ALLOC_SIZE(cores);
        int count = 0;
        if (set && sched_getaffinity(0, size, set) == 0)
            count = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    return online;
}

// Bytes that the kernel counts against a resource limit: a line of /proc/self/status, in KiB.
static uint64_t read_status(const char *name)
{
    char line[256];
    uint64_t found = 0, number;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/status", "re");
    while (file && !found && fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && line[length] == ':' &&
            conv_limits_parse_number(line + length + 1 + strspn(line + length + 1, " \t"), &number))
            found = number << 10;
    if (file)
        fclose(file);
    return found;
}

static void read_resource(struct conv_limits *limits, int resource, const char *status,
                          const char *name)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    conv_limits_note_memory(limits, limit.rlim_cur, read_status(status), name, "");
    limits->counts_address_space |= strcmp(limits->memory_source, name) == 0;
}

void conv_limits_read(struct conv_limits *limits)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *limits = (struct conv_limits){.physical = read_physical()};
    limits->memory = limits->physical;
    limits->machine_cores = online > 0 && online < INT_MAX ? (int)online : 1;
    limits->allowed_cores = limits->cores = count_allowed(limits->machine_cores);
    conv_limits_read_groups(limits, "");
    conv_limits_read_job(limits);
    struct rlimit files;
    bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY;
    limits->descriptors = known ? files.rlim_max : SIZE_MAX;
    read_resource(limits, RLIMIT_AS, "VmSize", "RLIMIT_AS (ulimit -v)");
    read_resource(limits, RLIMIT_DATA, "VmData", "RLIMIT_DATA (ulimit -d)");
}

size_t conv_limits_memory_left(const struct conv_limits *limits)
{
    size_t left = left_of(limits->memory, limits->memory_used), least = limits->memory / 8;
    return left > least ? left : least;
}

bool conv_limits_memory_is_limited(const struct conv_limits *limits)
{
    return limits->memory_source[0] != '\0';
}
