// SPDX-License-Identifier: MIT
// Opens a backend on a separate thread: a GPU takes 0.3 s to start, in which a CPU filters a
// thousand images.
#ifndef CONV_ENGINE_ASYNC_OPEN_H
#define CONV_ENGINE_ASYNC_OPEN_H

#include "engine/engine.h"

struct conv_async_open;

// Copies what it needs of *config. If no thread can be started, opens before it returns.
// CONV_ERR_MEMORY if nothing could be begun.
enum conv_status conv_async_open_start(struct conv_async_open **async,
                                       const struct conv_device_ops *ops,
                                       const struct conv_backend_config *config,
                                       struct conv_err *err);

// Sets a function that is called once when the opening is over: by its thread, or by this call if
// it is over already. NULL removes it; on return no call is in progress. Any thread, one at a time.
void conv_async_open_set_notify(struct conv_async_open *async, void (*notify)(void *context),
                                void *context);

// Any thread; never waits.
bool conv_async_open_is_over(const struct conv_async_open *async);

// Waits until it is over. *backend belongs to `async`; on failure it is NULL. Any thread.
enum conv_status conv_async_open_result(struct conv_async_open *async,
                                        struct conv_backend **backend, struct conv_err *err);

// Closes the backend. False if the opening is not over: it continues on its thread, and the process
// must end by _exit(), since the exit handlers of a driver cannot be relied on while that driver is
// being opened. NULL is fine.
bool conv_async_open_close(struct conv_async_open *async);

#endif
