// SPDX-License-Identifier: MIT
// Records what each thread and each engine of a device did at what time: for --trace in a file in
// Chrome's trace format (for Perfetto), for --html as a timeline. Each track formats its slices
// into a buffer of its own and writes it when it is full, so that recording takes no lock and no
// growing memory. The file is valid JSON at every moment, however the run ends.
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "report/record.h"

struct conv_trace;

// `path` may be NULL: no file. `timeline`: keep one for conv_trace_timeline. `stall`
// counts waits for the reader of a pipe; may be NULL. CONV_ERR_IO.
enum conv_status conv_trace_open(struct conv_trace **trace, const char *path, bool timeline,
                                 struct conv_stall *stall, struct conv_err *err);
// Writes what is buffered and closes the file. CONV_ERR_IO if anything was lost since it was
// opened. Afterwards no track may be used; the timeline may. NULL is fine.
enum conv_status conv_trace_finish(struct conv_trace *trace, struct conv_err *err);
void conv_trace_free(struct conv_trace *trace); // NULL is fine

// Time starts now, for tracks that have no slice yet.
void conv_trace_restart(struct conv_trace *trace); // NULL is fine

// A track called "NAME NUMBER PART" ("worker 3", "stream 0 kernel"; PART may be ""), used by one
// thread at a time and owned by the trace. NULL if trace is NULL or, as conv_trace_finish will
// report, out of memory; every function here accepts NULL and does nothing. Any thread.
struct conv_trace_track *conv_trace_add_track(struct conv_trace *trace, const char *name,
                                              int number, const char *part);

// What a slice shows: an image, or a group of images (name NULL).
struct conv_trace_item {
    const char *name;
    int width, height;  // 0: unknown
    int images;         // of a group
    size_t bytes;       // of a group
    const char *device; // that filtered a group instead of the stream's own; NULL: its own
};

// conv_clock_ns(); under a profiler also the start of a range.
uint64_t conv_trace_begin(enum conv_stage stage);
// Ends what conv_trace_begin began on this thread and returns the nanoseconds between.
uint64_t conv_trace_end(struct conv_trace_track *track, enum conv_stage stage, uint64_t start,
                        const struct conv_trace_item *item);
// A slice from `start` to `end`, on conv_clock_ns's clock.
void conv_trace_slice(struct conv_trace_track *track, enum conv_stage stage, uint64_t start,
                      uint64_t end, const struct conv_trace_item *item);
// The images in flight now, and how many of them are waiting for encoding. A track records this at
// most every half millisecond.
void conv_trace_queues(struct conv_trace_track *track, int in_flight, int to_encode);

// --- timelines -----------------------------------------------------------------------------------
// A track in constant memory: bins of time with the share of each stage, and the slices themselves
// while they are few enough for a page to draw each of them. One thread at a time.

#define CONV_TIMELINE_BINS 512

struct conv_timeline {
    uint64_t width; // of a bin, ns
    uint64_t ns[CONV_TIMELINE_BINS][CONV_STAGE_COUNT];
};

// No time in any bin.
void conv_timeline_init(struct conv_timeline *timeline);
// `start` and `end` are ns since the start of the timeline; end >= start.
void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end);
// Doubles the width of the bins until it is at least `width`, so that tracks can be compared.
void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width);

#define CONV_SLICES_MOST 6144
#define CONV_SLICES_MOST_TEXT ((size_t)128 << 10)
#define CONV_SLICES_NAME 48 // bytes of a name that are kept: its end

struct conv_slice {
    uint64_t start, end; // ns since the start of the timeline
    uint32_t text;       // offset of its name
    uint8_t stage;
};

struct conv_slices { // {0} is empty
    struct conv_slice *list;
    int count;
    struct conv_buffer text; // names, each with its 0
    bool overflowed;         // there were more than the most, or no memory: the list is empty
};

// The name of a slice by its offset.
static inline const char *conv_slices_name(const struct conv_slices *slices, uint32_t text)
{
    return (const char *)slices->text.data + text;
}

// Adds a slice; `name` is copied, its end only if it is long. Beyond the most the list is emptied.
void conv_slices_add(struct conv_slices *slices, int stage, uint64_t start, uint64_t end,
                     const char *name);
void conv_slices_free(struct conv_slices *slices);

// After conv_trace_finish: the i-th track in order of creation; false if there is none.
bool conv_trace_timeline(const struct conv_trace *trace, int i, const char **name,
                         struct conv_timeline **timeline, const struct conv_slices **slices);

// --- ranges --------------------------------------------------------------------------------------

// NVTX ranges for Nsight Systems. They cost nothing in a build without CUDA and next to nothing
// without a profiler.

#if CONV_HAVE_CUDA

void conv_ranges_push(const char *name); // on the calling thread, until the matching pop
void conv_ranges_pop(void);

#else

static inline void conv_ranges_push(const char *name)
{
    (void)name;
}

static inline void conv_ranges_pop(void)
{
}

#endif
