// SPDX-License-Identifier: MIT
#include "report/timeline.h"

#include <string.h>

#define FIRST_WIDTH ((uint64_t)1 << 14) // 16 us: 512 bins are 8 ms, shorter than any run

void conv_timeline_init(struct conv_timeline *timeline)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->width = FIRST_WIDTH;
}

void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width)
{
    while (timeline->width < width) {
        for (int i = 0; i < CONV_TIMELINE_BINS; i++)
            for (int s = 0; s < CONV_STAGE_COUNT; s++)
                timeline->ns[i][s] = i < CONV_TIMELINE_BINS / 2
                                         ? timeline->ns[2 * i][s] + timeline->ns[2 * i + 1][s]
                                         : 0;
        timeline->width *= 2;
    }
}

void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end)
{
    while (end > CONV_TIMELINE_BINS * timeline->width)
        conv_timeline_widen(timeline, 2 * timeline->width);
    while (start < end) {
        uint64_t bin = start / timeline->width, next = (bin + 1) * timeline->width;
        uint64_t until = end < next ? end : next;
        timeline->ns[bin][stage] += until - start;
        start = until;
    }
}
