// SPDX-License-Identifier: MIT
// The first Ctrl-C, SIGTERM, SIGHUP or SIGQUIT: a command that polls the flag begins no new image
// and cancels images in flight unless they are finished within a moment (run/pipeline.c). The
// program ends at once, without leaving a temporary file: after the first signal in a command that
// does not poll, in work that cannot be cancelled, or if the reader of messages, report, trace or
// page has stalled; otherwise after a second signal, unless it follows so soon that it is the same
// one.
#pragma once

#include <stdatomic.h>

#include "base/standard.h"

// Installs the handlers: a signal ends the program at once.
void conv_signals_begin(void);

// From now on the command polls the flag: 0, the signal that came, or -1 set by the pipeline.
atomic_int *conv_signals_install(void);

// Around work that does not poll the flag, and may be cut off at any time: 100 ms after a signal
// the program ends. Any thread; calls may be nested.
void conv_signals_begin_work(void);
void conv_signals_end_work(void);

// Counts waits for the readers of the program's output; the handlers end the program if such a wait
// lasts.
struct conv_stall *conv_signals_stall(void);

// To be called when everything is written: from now on, if the handlers end the program at once, it
// has this exit code. On a busy machine the rest of the program may take so long that it seems to
// have stalled.
void conv_signals_set_final(int code);

struct conv_sink;

// Sets the sink whose temporary files are removed if the program ends at once; NULL before the sink
// is finished. One thread at a time.
void conv_signals_watch(struct conv_sink *sink);

// A mapped input that another program makes shorter ends the process, with a message and exit code
// 1, and leaves nothing unfinished. To be called where inputs are mapped.
void conv_signals_expect_truncation(void);
