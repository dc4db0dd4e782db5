// SPDX-License-Identifier: MIT
#include "base/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// Reads an unsigned decimal number that is the whole word. False for "max", negative numbers and
// anything else.
static bool parse_number(const char *text, uint64_t *number)
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

// Records a limit of `bytes`, of which `used` are in use, if it leaves less room than those before.
// `folder` is that of the group that sets it, or "".
static void note_memory(struct conv_limits *limits, uint64_t bytes, uint64_t used,
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

// The sum of the numbers in the lines of a file that begin with one of `count` names and `mark`.
// Closes the file; NULL is fine.
static uint64_t sum_lines(FILE *file, const char *const *names, int count, char mark)
{
    char line[256];
    uint64_t sum = 0, number;
    while (file && fgets(line, sizeof line, file))
        for (int i = 0; i < count; i++) {
            size_t length = strlen(names[i]);
            if (strncmp(line, names[i], length) == 0 && line[length] == mark &&
                parse_number(line + length + 1 + strspn(line + length + 1, " \t"), &number))
                sum += number;
        }
    if (file)
        fclose(file);
    return sum;
}

// `status`: the line of /proc/self/status that the kernel compares with the limit, in KiB.
static void read_resource(struct conv_limits *limits, int resource, const char *status,
                          const char *name)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    FILE *file = fopen("/proc/self/status", "re");
    note_memory(limits, limit.rlim_cur, sum_lines(file, &status, 1, ':') << 10, name, "");
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

// --- control groups ------------------------------------------------------------------------------

// The limits of control groups, v1 and v2, that this process is in.

#define MOUNT_LINE 8192 // mountinfo holds options of any length; longer lines are skipped

enum controller { V1_MEMORY, V1_CPU, V2, CONTROLLER_COUNT };

// Where the groups of one controller are found.
struct hierarchy {
    bool in_use;
    char group[PATH_MAX]; // of this process: its path in /proc/self/cgroup
    bool found;           // below a mount point
    char point[PATH_MAX]; // the first one that does not have it; "" if there is none
};

// --- small files ---------------------------------------------------------------------------------

static FILE *open_file(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
}

static bool read_number(const char *folder, const char *name, uint64_t *number)
{
    char line[64];
    FILE *file = open_file(folder, name);
    bool found = file && fgets(line, sizeof line, file) && parse_number(line, number);
    if (file)
        fclose(file);
    return found;
}

// Of memory.stat.
static uint64_t sum_stat(const char *folder, const char *const *names, int count)
{
    return sum_lines(open_file(folder, "memory.stat"), names, count, ' ');
}

// --- limits of one group -------------------------------------------------------------------------

static void note_quota(struct conv_limits *limits, uint64_t quota, uint64_t period,
                       const char *setting, const char *folder)
{
    if (quota == 0 || period == 0)
        return;
    uint64_t cores = quota / period + (quota % period > 0);
    if (cores >= (uint64_t)limits->cores)
        return;
    limits->cores = (int)cores;
    snprintf(limits->cores_source, sizeof limits->cores_source, "%s of %s", setting, folder);
}

static uint64_t read_used(const char *folder, const char *usage, const char *const *caches,
                          int count)
{
    uint64_t used = 0;
    if (!read_number(folder, usage, &used))
        return 0;
    uint64_t cached = sum_stat(folder, caches, count);
    return used > cached ? used - cached : 0;
}

static void read_memory_v2(struct conv_limits *limits, const char *folder)
{
    // Beyond memory.high a process is not killed but throttled until it hardly moves.
    static const char *const settings[] = {"memory.max", "memory.high"};
    static const char *const caches[] = {"inactive_file", "active_file", "slab_reclaimable"};
    for (int i = 0; i < 2; i++) {
        uint64_t bytes;
        if (read_number(folder, settings[i], &bytes))
            note_memory(limits, bytes, read_used(folder, "memory.current", caches, 3), settings[i],
                        folder);
    }
}

static void read_memory_v1(struct conv_limits *limits, const char *folder)
{
    static const char *const caches[] = {"total_inactive_file", "total_active_file"};
    static const char *const hierarchical[] = {"hierarchical_memory_limit"};
    uint64_t used = read_used(folder, "memory.usage_in_bytes", caches, 2), bytes;
    if (read_number(folder, "memory.limit_in_bytes", &bytes))
        note_memory(limits, bytes, used, "memory.limit_in_bytes", folder);
    // The limit of groups above, which a container cannot read; 0 where memory.stat cannot be read.
    note_memory(limits, sum_stat(folder, hierarchical, 1), used,
                "hierarchical_memory_limit in memory.stat", folder);
}

static void read_cpu_v2(struct conv_limits *limits, const char *folder)
{
    char line[64];
    uint64_t quota, period;
    FILE *file = open_file(folder, "cpu.max");
    if (file && fgets(line, sizeof line, file) && parse_number(line, &quota)) {
        const char *second = strchr(line, ' ');
        if (second && parse_number(second + 1, &period))
            note_quota(limits, quota, period, "cpu.max", folder);
    }
    if (file)
        fclose(file);
}

static void read_cpu_v1(struct conv_limits *limits, const char *folder)
{
    uint64_t quota, period;
    if (read_number(folder, "cpu.cfs_quota_us", &quota) &&
        read_number(folder, "cpu.cfs_period_us", &period))
        note_quota(limits, quota, period, "cpu.cfs_quota_us", folder);
}

static void read_group(struct conv_limits *limits, enum controller controller, const char *folder)
{
    switch (controller) {
    case V1_MEMORY:
        read_memory_v1(limits, folder);
        break;
    case V1_CPU:
        read_cpu_v1(limits, folder);
        break;
    default:
        read_memory_v2(limits, folder);
        read_cpu_v2(limits, folder);
    }
}

// --- which groups --------------------------------------------------------------------------------

// True if a list with commas has the word.
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, word, length) == 0 && (list[length] == '\0' || list[length] == ','))
            return true;
    return false;
}

// A line is HIERARCHY:CONTROLLERS:GROUP; v2 has hierarchy 0 and no controllers.
static void read_own_groups(struct hierarchy *found, const char *root)
{
    char line[PATH_MAX + 256];
    FILE *file = open_file(root, "proc/self/cgroup");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/' || strlen(group) > PATH_MAX)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        for (int c = 0; c < CONTROLLER_COUNT; c++) {
            bool own = c == V2 ? strcmp(line, "0") == 0 && !*controllers
                               : has_word(controllers, c == V1_CPU ? "cpu" : "memory");
            if (own && !found[c].in_use) {
                found[c].in_use = true;
                strcpy(found[c].group, group);
            }
        }
    }
    if (file)
        fclose(file);
}

// Blanks, tabs, line ends and backslashes are octal in mountinfo.
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
            at[3] >= '0' && at[3] <= '7') {
            *to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = '\0';
}

// The part of the path `inner` below `outer`, which begins with a slash or is empty; NULL if it
// does not lie there.
static const char *below(const char *inner, const char *outer)
{
    size_t length = strcmp(outer, "/") == 0 ? 0 : strlen(outer);
    if (strncmp(inner, outer, length) != 0 || (inner[length] != '/' && inner[length] != '\0'))
        return NULL;
    return inner + length;
}

// Reads the group at `path` below the mount point and all above it, up to the one that is mounted.
static void read_hierarchy(struct conv_limits *limits, enum controller controller, const char *path,
                           const char *prefix, const char *point)
{
    char folder[3 * PATH_MAX];
    int top = snprintf(folder, sizeof folder, "%s%s", prefix, point);
    if (top < 0 || (size_t)top + strlen(path) >= sizeof folder)
        return;
    strcpy(folder + top, path);
    for (;;) {
        size_t length = strlen(folder);
        while (length > (size_t)top && folder[length - 1] == '/')
            folder[--length] = '\0';
        read_group(limits, controller, folder);
        if (length <= (size_t)top)
            return;
        *strrchr(folder, '/') = '\0';
    }
}

// All mounts that contain the group show the same one. In a container there may be none: its
// namespace hides the path or makes it begin with "/..", and the group that is mounted is the
// process's own.
static void note_mount(struct conv_limits *limits, enum controller controller,
                       struct hierarchy *hierarchy, const char *mounted, const char *point,
                       const char *root)
{
    const char *path = below(hierarchy->group, mounted);
    bool hidden = strncmp(hierarchy->group, "/..", 3) == 0;
    if (path && !hidden) {
        hierarchy->found = true;
        read_hierarchy(limits, controller, path, root, point);
    } else if (!hierarchy->point[0]) {
        strcpy(hierarchy->point, point);
    }
}

// A line is ID PARENT DEVICE ROOT POINT OPTIONS [MORE]... - TYPE SOURCE SUPER_OPTIONS.
static void read_mounts(struct conv_limits *limits, struct hierarchy *found, const char *root)
{
    static const char *const words[] = {[V1_MEMORY] = "memory", [V1_CPU] = "cpu"};
    char line[MOUNT_LINE], *field[5], type[16], super[1024];
    FILE *file = open_file(root, "proc/self/mountinfo");
    while (file && fgets(line, sizeof line, file)) {
        char *rest = strstr(line, " - "), *at = line;
        if (!rest || sscanf(rest, " - %15s %*s %1023s", type, super) != 2)
            continue;
        *rest = '\0';
        int count = 0;
        while (count < 5 && (field[count] = strsep(&at, " ")))
            count++;
        if (count < 5 || strlen(field[3]) >= PATH_MAX || strlen(field[4]) >= PATH_MAX)
            continue;
        unescape(field[3]);
        unescape(field[4]);
        for (int c = 0; c < CONTROLLER_COUNT; c++) {
            bool its = c == V2 ? strcmp(type, "cgroup2") == 0
                               : strcmp(type, "cgroup") == 0 && has_word(super, words[c]);
            if (found[c].in_use && its)
                note_mount(limits, (enum controller)c, &found[c], field[3], field[4], root);
        }
    }
    if (file)
        fclose(file);
}

void conv_limits_read_groups(struct conv_limits *limits, const char *root)
{
    struct hierarchy *found = calloc(CONTROLLER_COUNT, sizeof *found);
    if (!found)
        return;
    read_own_groups(found, root);
    read_mounts(limits, found, root);
    for (int c = 0; c < CONTROLLER_COUNT; c++)
        if (!found[c].found && found[c].point[0])
            read_hierarchy(limits, (enum controller)c, "", root, found[c].point);
    free(found);
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
    return text && parse_number(text, &number) && number <= INT_MAX ? number : 0;
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
        note_memory(limits, mib << 20, 0, node_mib ? "SLURM_MEM_PER_NODE" : "SLURM_MEM_PER_CPU",
                    "");
    if (local > 1)
        share_memory(limits, local, counted);
}
