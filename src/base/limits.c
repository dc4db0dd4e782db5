// SPDX-License-Identifier: MIT
#include "base/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/limits_internal.h"

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

// Divides the limit, and the memory in use, by `processes`; `source` is the text that reports it.
static void share_memory(struct conv_limits *limits, uint64_t processes, const char *source)
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

// --- jobs ----------------------------------------------------------------------------------------

// The share of a machine that one of several processes of a job may use. Slurm without its cgroup
// plugins, and mpirun without binding, state it only in the environment; a memory limit of a job's
// control group applies to all its processes on the machine together.

// A positive number from the environment; 0 if there is none.
static uint64_t read_variable(const char *name)
{
    const char *text = getenv(name);
    uint64_t number;
    return text && conv_limits_parse_number(text, &number) && number <= INT_MAX ? number : 0;
}

// Tasks of a Slurm step on this node: number SLURM_NODEID of a list such as "2(x3),1". 0: unknown.
static uint64_t count_slurm_tasks(void)
{
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!at || !getenv("SLURM_STEP_ID"))
        return 0;
    for (uint64_t node = read_variable("SLURM_NODEID");;) {
        char *end;
        uint64_t tasks = strtoull(at, &end, 10), times = 1;
        if (end == at || tasks > INT_MAX)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtoull(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < times)
            return tasks;
        node -= times;
        if (*end != ',')
            return 0;
        at = end + 1;
    }
}

static void note_cores(struct conv_limits *limits, uint64_t cores, const char *source)
{
    if (cores == 0)
        cores = 1;
    if (cores >= (uint64_t)limits->cores)
        return;
    limits->cores = (int)cores;
    snprintf(limits->cores_source, sizeof limits->cores_source, "%s", source);
}

void conv_limits_read_job(struct conv_limits *limits)
{
    // mpirun in a Slurm job: its processes inherit the variables of the daemon that started them.
    uint64_t local = read_variable("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *counted = "OMPI_COMM_WORLD_LOCAL_SIZE";
    bool of_slurm = local == 0;
    if (of_slurm) {
        local = count_slurm_tasks();
        counted = "SLURM_STEP_TASKS_PER_NODE";
    }
    uint64_t per_task = of_slurm ? read_variable("SLURM_CPUS_PER_TASK") : 0;
    uint64_t on_node = read_variable("SLURM_CPUS_ON_NODE");
    if (local == 0)
        local = 1;
    if (per_task)
        note_cores(limits, per_task, "SLURM_CPUS_PER_TASK");
    else if (on_node)
        note_cores(limits, on_node / local, "SLURM_CPUS_ON_NODE");
    // Bound processes have their own cores already.
    bool is_bound = limits->allowed_cores < limits->machine_cores;
    if (local > 1 && !is_bound && !limits->cores_source[0])
        note_cores(limits, (uint64_t)limits->cores / local, counted);
    uint64_t node_mib = read_variable("SLURM_MEM_PER_NODE");
    uint64_t cpu_mib = read_variable("SLURM_MEM_PER_CPU") * on_node;
    uint64_t mib = node_mib ? node_mib : cpu_mib;
    if (mib)
        conv_limits_note_memory(limits, mib << 20, 0,
                                node_mib ? "SLURM_MEM_PER_NODE" : "SLURM_MEM_PER_CPU", "");
    if (local > 1)
        share_memory(limits, local, counted);
}
