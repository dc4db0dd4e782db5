// SPDX-License-Identifier: MIT
// Makes the disk write outputs while other images are filtered. Without it the kernel begins some
// seconds later, and a program that waits for its bytes to be on the disk waits for all of them.
#ifndef CONV_FILES_WRITE_BEHIND_H
#define CONV_FILES_WRITE_BEHIND_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct conv_write_behind {
    int most; // workers that do this at the same time
    atomic_int busy;
    atomic_uint_least64_t resume; // not before, as conv_clock_ns counts
};

void conv_write_behind_start(struct conv_write_behind *behind, int workers);

// Makes the disk begin to write the bytes of a file. It may do nothing, and never reports an error:
// errors of a disk are found by fsync(), if at all. Any thread.
void conv_write_behind_add(struct conv_write_behind *behind, int fd, size_t size);

#endif
