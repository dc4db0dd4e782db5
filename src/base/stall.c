// SPDX-License-Identifier: MIT
#include "base/stall.h"

#include <sys/stat.h>

#include "base/clock.h"

struct conv_stall *conv_stall_of(struct conv_stall *stall, FILE *stream)
{
    struct stat info;
    return fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode) ? stall : NULL;
}

void conv_stall_begin(struct conv_stall *stall)
{
    if (!stall)
        return;
    atomic_store(&stall->changed_at, conv_clock_ns());
    atomic_fetch_add(&stall->calls, 1);
}

void conv_stall_end(struct conv_stall *stall)
{
    if (!stall)
        return;
    atomic_store(&stall->changed_at, conv_clock_ns());
    atomic_fetch_sub(&stall->calls, 1);
}

bool conv_stall_lasts(const struct conv_stall *stall, uint64_t ns)
{
    return atomic_load(&stall->calls) > 0 &&
           conv_clock_ns() - atomic_load(&stall->changed_at) >= ns;
}
