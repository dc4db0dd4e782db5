// SPDX-License-Identifier: MIT
// The limits of control groups, v1 and v2, that this process is in.
#include "base/limits_internal.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    bool found = file && fgets(line, sizeof line, file) && conv_limits_parse_number(line, number);
    if (file)
        fclose(file);
    return found;
}

// The sum of the values of memory.stat with these names; `count` of them.
static uint64_t sum_stat(const char *folder, const char *const *names, int count)
{
    char line[256];
    uint64_t sum = 0, number;
    FILE *file = open_file(folder, "memory.stat");
    while (file && fgets(line, sizeof line, file)) {
        for (int i = 0; i < count; i++) {
            size_t length = strlen(names[i]);
            if (strncmp(line, names[i], length) == 0 && line[length] == ' ' &&
                conv_limits_parse_number(line + length + 1, &number))
                sum += number;
        }
    }
    if (file)
        fclose(file);
    return sum;
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
            conv_limits_note_memory(limits, bytes, read_used(folder, "memory.current", caches, 3),
                                    settings[i], folder);
    }
}

static void read_memory_v1(struct conv_limits *limits, const char *folder)
{
    static const char *const caches[] = {"total_inactive_file", "total_active_file"};
    static const char *const hierarchical[] = {"hierarchical_memory_limit"};
    uint64_t used = read_used(folder, "memory.usage_in_bytes", caches, 2), bytes;
    if (read_number(folder, "memory.limit_in_bytes", &bytes))
        conv_limits_note_memory(limits, bytes, used, "memory.limit_in_bytes", folder);
    // The limit of groups above, which a container cannot read; 0 where memory.stat cannot be read.
    conv_limits_note_memory(limits, sum_stat(folder, hierarchical, 1), used,
                            "hierarchical_memory_limit in memory.stat", folder);
}

static void read_cpu_v2(struct conv_limits *limits, const char *folder)
{
    char line[64];
    uint64_t quota, period;
    FILE *file = open_file(folder, "cpu.max");
    if (file && fgets(line, sizeof line, file) && conv_limits_parse_number(line, &quota)) {
        const char *second = strchr(line, ' ');
        if (second && conv_limits_parse_number(second + 1, &period))
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
