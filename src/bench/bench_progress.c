// SPDX-License-Identifier: MIT
#include "bench/bench_progress.h"

#include <stdio.h>

void conv_bench_progress(bool shown, const char *name)
{
    if (!shown)
        return;
    fputs("\r\033[K", stderr);
    if (name)
        fprintf(stderr, "measuring %s", name);
    fflush(stderr);
}
