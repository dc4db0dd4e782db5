// SPDX-License-Identifier: MIT
#include "base/thread.h"

#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURN_NS 100000 // the shortest that the system lets a thread ask for

void conv_thread_be_brief(void)
{
    struct sched_attr attributes = {
        .size = sizeof attributes,
        .sched_nice = getpriority(PRIO_PROCESS, 0), // this thread's, to be kept
        .sched_runtime = TURN_NS,
    };
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0U);
}
