// SPDX-License-Identifier: MIT
// Opens a backend on a thread of its own: a GPU takes 0.3 s to wake up, in which a machine filters
// a thousand images.
#ifndef CONV_BACKEND_ASYNC_OPEN_H
#define CONV_BACKEND_ASYNC_OPEN_H

#include "backend/backend.h"

struct conv_async_open;

// Copies what it needs of *config. Where no thread can be had it opens here and now.
// CONV_ERR_MEMORY if it cannot even begin.
enum conv_status conv_async_open_start(struct conv_async_open **opening,
                                       const struct conv_backend_ops *ops,
                                       const struct conv_backend_config *config,
                                       struct conv_err *err);

// Has `notify` called once when the opening is over: by its thread, or here and now if it is over
// already. NULL: not any more; on return no call is in progress. Any thread, one at a time.
void conv_async_open_set_notify(struct conv_async_open *opening, void (*notify)(void *context),
                                void *context);

// Any thread; never waits.
bool conv_async_open_is_over(const struct conv_async_open *opening);

// Waits until it is over. *backend belongs to the opening; on failure it is NULL. Any thread.
enum conv_status conv_async_open_result(struct conv_async_open *opening,
                                        struct conv_backend **backend, struct conv_err *err);

// Closes the backend. False if the opening is not over: it is left to its thread, and the process
// must end by _exit(), since the exit handlers of a driver cannot be relied on while that driver is
// being opened. NULL is fine.
bool conv_async_open_close(struct conv_async_open *opening);

#endif
