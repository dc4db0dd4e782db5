// SPDX-License-Identifier: MIT
// The devices of an async backend: their streams, and what happens when one is lost.
#pragma once

#include "run/scheduler.h"

// --- stream threads: stream_thread.c -------------------------------------------------------------

// A thread that takes sealed groups, and the stream that it hands them to. Once its device is lost,
// it uses streams of other devices, in turn with their threads.

struct conv_stream_thread {
    struct conv_scheduler *scheduler;
    int device, index;
    bool is_needed; // set before the threads start: there is or will be a stream for it
    bool is_added;  // by conv_devices_grow: it opens its stream itself
    // Guards `stream` and `tracks`, which other devices' threads use, too. Acquired before all
    // other locks.
    struct conv_lock in_turn;
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

// --- devices -------------------------------------------------------------------------------------

//   PENDING ──► OPENING ──► READY ──► LOST
//      └───────────┴──────────────────►┘
enum conv_device_phase {
    CONV_DEVICE_PENDING, // it is being opened in the background
    CONV_DEVICE_OPENING, // it is open; a thread of the run opens its streams
    CONV_DEVICE_READY,   // it has streams
    CONV_DEVICE_LOST,    // given up: it could not be opened in time, or failed
};

struct conv_device_state {
    enum conv_device_phase phase; // changed by devices.c only
    struct conv_backend *backend; // set before OPENING, kept when LOST
    // READY: its open streams, fewer than asked for where memory was short.
    struct conv_growth growth;
    struct conv_err lost;    // LOST: the reason; else CONV_OK
    bool oom_reported;       // that it had no room for a group
    bool coder_oom_reported; // that it had no room for a group's coders
    // It had no room for several groups at once, or for another stream. Nothing else keeps this.
    bool runs_apart;
};

// Called before the threads start: opens streams on all devices that are open. Fewer streams, or
// streams with less device memory than requested, are accepted; with a fallback even none at all.
// CONV_ERR_DEVICE with what is missing.
enum conv_status conv_devices_open(struct conv_scheduler *s, struct conv_err *err)
    CONV_TAKES(s->lock);
// After this call, threads that are still opening a device no longer use the scheduler.
void conv_devices_forget(struct conv_scheduler *s);
void conv_devices_close(struct conv_scheduler *s); // after the threads have ended

// Takes a stream of the device for this thread alone until it is put back: the thread's own if
// possible. NULL, with the reason, if the device is lost, or with status CONV_OK if it is not open
// yet.
struct conv_stream_thread *conv_devices_take_stream(const struct conv_stream_thread *thread,
                                                    int device, struct conv_err *err);
void conv_devices_put_stream(struct conv_stream_thread *owner);

// A stream of the device has taken a group. If groups keep waiting for its streams, a thread is
// started that opens another one.
void conv_devices_grow(struct conv_scheduler *s, int device) CONV_NEEDS(s->lock);

// How many groups a stream of the device may run at once now; *later: and once all streams are
// open.
int conv_devices_together(const struct conv_scheduler *s, int device, int *later)
    CONV_NEEDS(s->lock);
// The device had no room for several: from now on one.
void conv_devices_run_apart(struct conv_scheduler *s, int device) CONV_TAKES(s->lock);

// The first step of such a thread: opens its stream. False if there is no room for it; the thread
// then ends.
bool conv_devices_open_stream(struct conv_stream_thread *thread);

// Waits until a device has streams, if any is being opened; after a stop it does not wait. Devices
// that are not open some seconds after the run's start are given up.
void conv_devices_await(struct conv_scheduler *s) CONV_TAKES(s->lock);

// The device has failed to run a group: it had no room (CONV_ERR_MEMORY) or is lost. Warns once, if
// another device or the fallback takes over.
void conv_devices_give_up(struct conv_scheduler *s, int device, enum conv_status status,
                          const struct conv_err *err) CONV_TAKES(s->lock)
    CONV_TAKES(s->report_lock);

// The device had no room for the coders of a group. Warns once.
void conv_devices_note_coder_oom(struct conv_scheduler *s, int device, const struct conv_err *err)
    CONV_TAKES(s->lock) CONV_TAKES(s->report_lock);

// True, with the reason, once all devices are lost.
bool conv_devices_are_lost(struct conv_scheduler *s, struct conv_err *err) CONV_TAKES(s->lock);

// Bytes of a group's planes in device memory, with which a stream begins, and which make a group
// full.
size_t conv_devices_group_bytes(const struct conv_pipeline_config *config);
