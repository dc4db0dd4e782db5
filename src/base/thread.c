// SPDX-License-Identifier: MIT
#include "base/thread.h"

#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USUAL_POLICY 0  // SCHED_OTHER; its header has another struct sched_attr from glibc 2.41 on
#define SLICE_NS 100000 // the shortest that the system grants

void conv_thread_set_low_latency(void)
{
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) != 0 ||
        attributes.sched_policy != USUAL_POLICY)
        return; // the user chose another policy
    attributes.sched_runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0U);
}
