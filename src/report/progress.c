// SPDX-License-Identifier: MIT
#include "report/progress.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/clock.h"

#define REDRAW_NS 100000000u

void conv_progress_init(struct conv_progress *progress, enum conv_when when, bool quiet)
{
    progress->active =
        when == CONV_ALWAYS || (when == CONV_AUTO && !quiet && isatty(STDERR_FILENO));
    progress->drawn = false;
    progress->start_ns = conv_clock_ns();
    progress->last_ns = 0;
}

void conv_progress_update(struct conv_progress *progress, const struct conv_totals *totals)
{
    if (!progress->active)
        return;
    uint64_t now = conv_clock_ns();
    if (now - progress->last_ns < REDRAW_NS)
        return;
    progress->last_ns = now;
    double seconds = (double)(now - progress->start_ns) / 1e9;
    fprintf(stderr, "\r%" PRIu64 " done", totals->done);
    if (totals->failed)
        fprintf(stderr, ", %" PRIu64 " failed", totals->failed);
    if (totals->skipped)
        fprintf(stderr, ", %" PRIu64 " skipped", totals->skipped);
    fprintf(stderr, ", %.0f img/s, %.0f Mpix/s\033[K", (double)totals->done / seconds,
            (double)totals->pixels / seconds / 1e6);
    fflush(stderr);
    progress->drawn = true;
}

void conv_progress_clear(struct conv_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}
