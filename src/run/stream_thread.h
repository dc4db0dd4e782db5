// SPDX-License-Identifier: MIT
// A thread that takes sealed groups, and the stream that it hands them to. Once its device is lost,
// it uses streams of other devices, in turn with their threads.
#ifndef CONV_RUN_STREAM_THREAD_H
#define CONV_RUN_STREAM_THREAD_H

#include "run/scheduler.h"

struct conv_stream_thread {
    struct conv_scheduler *scheduler;
    int device, index;
    bool is_needed; // set before the threads start: there is or will be a stream for it
    bool is_added;  // by conv_devices_grow: it opens its stream itself
    // Guards `stream` and `tracks`, which other devices' threads use, too. Acquired before all
    // other locks.
    pthread_mutex_t in_turn;
    struct conv_stream *stream; // NULL: the device had no room for one
    struct conv_trace_track *tracks[CONV_ENGINE_COUNT];

    // The thread's own.
    struct conv_stream *fallback; // of the fallback; opened when first needed
    void *scratch;                // of the fallback, scratch_size bytes
    size_t scratch_size;
    struct conv_slot *slot; // whose group it runs
    pthread_t thread;
    bool started; // of an added thread guarded by the scheduler's lock until streams_end
};

// Gives the stream its tracks of the trace, if there is one.
void conv_stream_thread_add_tracks(struct conv_stream_thread *thread);

void *conv_stream_thread_main(void *stream_thread); // struct conv_stream_thread

#endif
