// SPDX-License-Identifier: MIT
// What each thread and each engine of a device did when: for --trace a file in Chrome's trace
// format (Perfetto opens it), for --html a timeline. A row's slices are formatted into a buffer of
// its own, which is written out when it is full: no lock and no memory that grows on an image's
// way. The file is valid JSON at every moment, so that whatever ends the run leaves one.
#ifndef CONV_REPORT_TRACE_H
#define CONV_REPORT_TRACE_H

#include <stdbool.h>

#include "report/report.h"
#include "report/timeline.h"

struct conv_trace;
struct conv_trace_row;

// `path` may be NULL: then only the timeline is kept. CONV_ERR_IO.
enum conv_status conv_trace_open(struct conv_trace **trace, const char *path, bool timeline,
                                 struct conv_err *err);
// Writes what is left and closes the file. CONV_ERR_IO if anything could not be written since it
// was opened. No row may be used after it, the timeline may. NULL is fine.
enum conv_status conv_trace_finish(struct conv_trace *trace, struct conv_err *err);
void conv_trace_free(struct conv_trace *trace); // NULL is fine

// A row called "NAME NUMBER PART" ("worker 3"; "stream 0 kernel"; PART may be ""), to be used by
// one thread at a time. It belongs to the trace. NULL, which every function here takes and then
// does nothing, if trace is NULL or, which conv_trace_finish will tell, memory is short. Any
// thread.
struct conv_trace_row *conv_trace_add_row(struct conv_trace *trace, const char *name, int number,
                                          const char *part);

// What a slice was about: an image, or a group of them (name NULL).
struct conv_trace_item {
    const char *name;
    int width, height;  // 0: not known
    int images;         // of a group
    size_t bytes;       // of a group
    const char *device; // that did a group's work instead of the run's own; NULL: that one
};

// conv_clock_ns(), and under a profiler of NVIDIA's the begin of a range.
uint64_t conv_trace_begin(enum conv_stage stage);
// Ends what conv_trace_begin began on this thread and returns the nanoseconds between. `row` may
// be NULL.
uint64_t conv_trace_end(struct conv_trace_row *row, enum conv_stage stage, uint64_t start,
                        const struct conv_trace_item *item);
// A slice with known ends, as conv_clock_ns counts.
void conv_trace_slice(struct conv_trace_row *row, enum conv_stage stage, uint64_t start,
                      uint64_t end, const struct conv_trace_item *item);
// How many images are in flight at this moment, and how many of them wait to be encoded;
// a row tells it every half millisecond at most.
void conv_trace_queues(struct conv_trace_row *row, int in_flight, int to_encode);

// Once finished: the i-th row in order of addition, or false.
bool conv_trace_timeline(const struct conv_trace *trace, int i, const char **name,
                         struct conv_timeline **timeline);

#endif
