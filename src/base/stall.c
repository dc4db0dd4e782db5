// SPDX-License-Identifier: MIT
#include "base/stall.h"

#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"

// A signal handler has no other way to see them.
static atomic_int calls;
static _Atomic uint64_t changed_at;

bool conv_stall_may(FILE *stream)
{
    struct stat info;
    return fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode);
}

void conv_stall_begin(bool may)
{
    if (!may)
        return;
    atomic_store(&changed_at, conv_clock_ns());
    atomic_fetch_add(&calls, 1);
}

void conv_stall_end(bool may)
{
    if (!may)
        return;
    atomic_store(&changed_at, conv_clock_ns());
    atomic_fetch_sub(&calls, 1);
}

bool conv_stall_lasts(uint64_t ns)
{
    return atomic_load(&calls) > 0 && conv_clock_ns() - atomic_load(&changed_at) >= ns;
}
