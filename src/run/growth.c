// SPDX-License-Identifier: MIT
#include "run/growth.h"

// One group may wait because its stream's thread has not woken up yet.
#define LEAST_WAITING 2

// A stream is added after this part of a round of groups that were all late: from 6 streams to 12
// in 20 groups, some 30 ms on an H200.
#define ROUND_PART 4

int conv_growth_most(int streams, int wanted, size_t stream_bytes, size_t limit)
{
    size_t room = stream_bytes ? limit / stream_bytes : 0;
    int most = (size_t)wanted < room ? wanted : (int)room;
    return most > streams ? most : streams;
}

bool conv_growth_is_due(struct conv_growth *growth, int waiting, int idle)
{
    growth->late = waiting >= LEAST_WAITING && idle == 0 ? growth->late + 1 : 0;
    if (growth->opening || growth->streams >= growth->most ||
        growth->late <= growth->streams / ROUND_PART)
        return false;
    growth->late = 0;
    growth->opening = true;
    return true;
}

void conv_growth_end(struct conv_growth *growth, bool opened)
{
    growth->opening = false;
    growth->streams += opened;
    if (!opened)
        growth->most = 0;
}
