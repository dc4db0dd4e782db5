// SPDX-License-Identifier: MIT
// Reused buffers for members that wait. malloc takes large blocks from the system page by page and
// returns them at once; with 16 threads that took longer than copying into them.
//
// Any thread may call any function except open and close.
#ifndef CONV_ARCHIVE_ARCHIVE_BUFFERS_H
#define CONV_ARCHIVE_ARCHIVE_BUFFERS_H

#include <pthread.h>
#include <stddef.h>

struct conv_archive_buffer; // the memory after it is the user's

struct conv_archive_buffers {
    pthread_mutex_t lock;
    struct conv_archive_buffer *unused;
    size_t unused_bytes, most; // kept for later: at most that
};

// The caller sets `most` afterwards; 0 keeps nothing.
void conv_archive_buffers_open(struct conv_archive_buffers *buffers);
void conv_archive_buffers_close(struct conv_archive_buffers *buffers); // all were given back

// At least `size` bytes, aligned for any type. NULL without memory.
void *conv_archive_buffers_take(struct conv_archive_buffers *buffers, size_t size);
// NULL is fine.
void conv_archive_buffers_give(struct conv_archive_buffers *buffers, void *data);

#endif
