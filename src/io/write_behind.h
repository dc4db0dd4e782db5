// SPDX-License-Identifier: MIT
// Has the disk write outputs while other images are filtered. Without it the kernel begins some
// seconds later, and a program that waits for its bytes to be on the disk waits for all of them.
#ifndef CONV_IO_WRITE_BEHIND_H
#define CONV_IO_WRITE_BEHIND_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct conv_write_behind {
    int most; // workers that do this at the same time
    atomic_int busy;
    atomic_uint_least64_t resume; // not before, as conv_clock_ns counts
};

void conv_write_behind_start(struct conv_write_behind *behind, int workers);

// Has the disk begin with the bytes of a file. It may do nothing, and never reports an error: those
// of a disk are found by fsync(), if by anything. Any thread.
void conv_write_behind_add(struct conv_write_behind *behind, int fd, size_t size);

#endif
