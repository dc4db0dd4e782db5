// SPDX-License-Identifier: MIT
// File descriptors as a limited resource (RLIMIT_NOFILE): a thread takes one before it opens a file
// and waits while others have all of them, so that a run with few descriptors is slower, but
// complete. The table of descriptors belongs to the process, and so does the count of them: it is
// shared by all runs in it. Any thread may call any function.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

// Raises the soft limit to what the hard limit allows, up to some ten thousand. The soft limit is
// low for the sake of programs that call select(), which this one does not.
void conv_descriptors_raise(void);

// A run with this many workers begins or ends. Descriptors are counted while there are runs, if the
// first finds no more than some hundred; else there is no limit. `stop` ends waits for the system
// once it is not 0. Both calls get the same arguments.
void conv_descriptors_begin(int workers, const atomic_int *stop);
void conv_descriptors_end(int workers, const atomic_int *stop);

// True if descriptors are so scarce that each file should take as few as possible.
bool conv_descriptors_are_few(void);

// Takes `count` descriptors for a short time, in which the thread waits for no other thread. Waits
// until others have given theirs back; a thread that is alone gets them in any case.
void conv_descriptors_take(int count);
void conv_descriptors_give(int count);

// For descriptors that are kept for longer: counts them without waiting. `count` is negative when
// they are closed.
void conv_descriptors_keep(int count);

// The same for a folder that is about to be opened: true if one is left for the files in it.
bool conv_descriptors_try_folder(void);

// The same for an input that is opened ahead of its reader: true if enough remains for all workers.
bool conv_descriptors_try_ahead(void);
void conv_descriptors_end_ahead(void);

// After a call has failed with `errnum`: true if it is worth another try, since the process
// (EMFILE) or the system (ENFILE) had no descriptor and others may have closed one meanwhile. Waits
// for that: for other threads while there are any, else up to 10 s over all `tries`, which begin at
// 0. Leaves errno as it is.
bool conv_descriptors_wait(int errnum, int *tries);
