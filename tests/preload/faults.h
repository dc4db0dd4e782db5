// SPDX-License-Identifier: MIT
// What the files of the preloaded library share: faults.c (the plan, memory, threads),
// fault_locks.c (pauses) and fault_files.c. The program under test cannot link to these names.
#pragma once

#include <stdbool.h>

#pragma GCC visibility push(hidden)

enum fault_action { NOTHING, GROW, SHRINK, VANISH, STICK };

struct fault_plan {
    bool ready, short_io, interrupt, no_file, all_threads, no_nameless, no_link, link_by_path,
        at_pread, two_readers;
    long alloc, thread, delay, seed, linger, inode, coarse;
    int write_errno, fsync_errno, flock_errno, pread_errno;
    enum fault_action action;
    const char *touch;
    int seen; // file descriptor
};

extern struct fault_plan plan;

// Notes that a fault has happened.
void faults_tell(void);

// The function that the program would call without this library.
void *faults_next(const char *name);

// Pauses at random, if the plan has pauses.
void faults_pause(void);

#pragma GCC visibility pop
