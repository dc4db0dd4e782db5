// SPDX-License-Identifier: MIT
// What a container, a job or a shell allows this process: memory, cores and descriptors. Read from
// control groups (cgroup v1, v2 and both mounted side by side, with all groups above the process's
// own), resource limits, the affinity mask and the environment of a job.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CONV_LIMITS_SOURCE_SIZE 320

struct conv_limits {
    size_t physical; // bytes of the machine's memory
    // The limit that leaves the least room: bytes, and bytes in use when it was read, page cache
    // that the kernel gives back on demand not counted. Without a limit: physical and 0.
    size_t memory, memory_used;
    char memory_source[CONV_LIMITS_SOURCE_SIZE]; // setting and file; "" without a limit
    bool counts_address_space; // memory counts when it is mapped, whether it is touched or not
    size_t descriptors;        // may be open, once the soft limit is raised; SIZE_MAX: any number
    int machine_cores;         // that are online
    int allowed_cores;         // of them, by the affinity mask
    int cores;                 // the same, or the CPU quota rounded up if less; at least 1
    char cores_source[CONV_LIMITS_SOURCE_SIZE]; // of the quota or the job; "" if `cores` ==
                                                // `allowed_cores`
};

// Reads the control groups of the process as ROOT/proc/self/cgroup, ROOT/proc/self/mountinfo and
// the files below the mount points describe them; ROOT is "" except in tests. `limits` holds the
// values so far (physical, memory, allowed_cores, cores, ...); a tighter limit replaces them. A
// file that is missing, unreadable or malformed sets no limit.
void conv_limits_read_groups(struct conv_limits *limits, const char *root);

// Reads what Slurm and mpirun state in the environment: cores and memory of a task, and how many
// processes of the job share this machine. To be called after control groups and the affinity mask
// have been read.
void conv_limits_read_job(struct conv_limits *limits);

// Reads everything anew.
void conv_limits_read(struct conv_limits *limits);

// Bytes that this process may still allocate: the limit minus what was in use, and at least an
// eighth of the limit, since other processes may have freed memory by the time it is needed.
size_t conv_limits_memory_left(const struct conv_limits *limits);

// True if something other than the machine itself limits memory: a process that exceeds it is often
// killed, even while memory of the machine is free.
bool conv_limits_memory_is_limited(const struct conv_limits *limits);
