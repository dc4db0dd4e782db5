// SPDX-License-Identifier: MIT
#include "run/streams.h"

// Copies of 16 MiB reach nine tenths of the speed of large ones. The time to decode a group on the
// GPU hardly depends on the number of its images, so larger groups are better there (10,000
// photographs on an H200: 0.84 s with 32 MiB, 1.07 s with 16).
#define GROUP ((size_t)16 << 20)
#define CODED_GROUP ((size_t)32 << 20)
#define STREAMS 4
#define CODED_STREAMS 6

// Photographs coded on an H100, GB/s of samples in the steady state: 43.6 with 12 streams that run
// one group each, 49.0 with 8 that run up to 3, 49.1 with 12. More channels of the driver than the
// default of 8 (CUDA_DEVICE_MAX_CONNECTIONS) are slower.
#define MOST_STREAMS 8
#define MOST_CODED_STREAMS 12
#define MOST_STREAMS_TOGETHER 8

int conv_streams_first(bool decodes)
{
    return decodes ? CODED_STREAMS : STREAMS;
}

int conv_streams_most(bool decodes)
{
    return decodes ? MOST_CODED_STREAMS : MOST_STREAMS;
}

int conv_streams_most_together(int most, int streams)
{
    int fewer = most < MOST_STREAMS_TOGETHER ? most : MOST_STREAMS_TOGETHER;
    return fewer > streams ? fewer : streams;
}

size_t conv_streams_group_bytes(bool decodes)
{
    return decodes ? CODED_GROUP : GROUP;
}

// Photographs decode to twice the bytes of their files, so they fill the staging memory first.
size_t conv_streams_device_bytes(const struct conv_pipeline_config *config)
{
    bool coded = config->decode_on != CONV_CODER_CPU && config->encode_on != CONV_CODER_CPU;
    return coded ? config->group_bytes / 2 * 5 : config->group_bytes;
}

// --- growth --------------------------------------------------------------------------------------

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
