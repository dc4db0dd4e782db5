// SPDX-License-Identifier: MIT
#ifndef CONV_BASE_THREAD_H
#define CONV_BASE_THREAD_H

// The calling thread waits most of the time and is brief when it does not: from Linux 6.12 on, it
// then runs at once when it wakes up, and not after up to 3 ms, when one of as many busy threads as
// there are cores has had its turn. Elsewhere nothing happens.
void conv_thread_be_brief(void);

#endif
