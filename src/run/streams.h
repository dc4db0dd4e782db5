// SPDX-License-Identifier: MIT
// How many streams a device has, at first and later, and how large their groups are, where the user
// does not say.
#ifndef CONV_RUN_STREAMS_H
#define CONV_RUN_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "run/config.h"

// Streams of a device at the beginning of a run and at most, and the staging bytes of a group, for
// devices that decode or do not.
int conv_streams_first(bool decodes);
int conv_streams_most(bool decodes);
size_t conv_streams_group_bytes(bool decodes);
// The most streams if each runs several groups at once: at most `most`, at least `streams`.
int conv_streams_most_together(int most, int streams);

// Bytes of a group's planes in device memory, with which a stream begins, and which make a group
// full.
size_t conv_streams_device_bytes(const struct conv_pipeline_config *config);

// --- growth --------------------------------------------------------------------------------------

// Decides when a device gets another stream during a run.
//
// A device that decodes works on many images at once, each slowly: with 12 streams an H200 is 1.4
// times as fast as with 6. But opening a stream takes device memory and some milliseconds, without
// a gain in a short run. So a run begins with few streams, and opens another one whenever groups
// keep waiting while all streams are busy.
//
// The scheduler's lock guards it.

struct conv_growth {
    int streams;  // of the device that are open
    int most;     // that it may get; 0 until it has streams, and where there was no room for one
    bool opening; // another one is being opened
    int late;     // groups in a row that were taken while others waited
};

// The most streams that each device may get: `wanted`, or fewer where staging memory of `limit`
// bytes is short, but not fewer than `streams`. `stream_bytes`: the bytes of the groups for one
// stream of each device.
int conv_growth_most(int streams, int wanted, size_t stream_bytes, size_t limit);

// A stream of the device has taken a group; `waiting` others are ready, and `idle` stream threads
// have none. True if another stream is to be opened: `opening` is set then.
bool conv_growth_is_due(struct conv_growth *growth, int waiting, int idle);

// The stream is open, or (opened false) there is no room for it or any more.
void conv_growth_end(struct conv_growth *growth, bool opened);

#endif
