// SPDX-License-Identifier: MIT
// Ctrl-C, SIGTERM, SIGHUP or SIGQUIT once: no new image is begun, what is in flight becomes
// whole. Twice, or where nobody reads the messages, the report, the trace or the page any more: out
// at once, without leaving a temporary file.
#ifndef CONV_CLI_SIGNALS_H
#define CONV_CLI_SIGNALS_H

#include <stdatomic.h>

// Installs the handlers and returns the flag: 0, the signal that came, or -1 set by the pipeline.
atomic_int *conv_signals_install(void);

#endif
