// SPDX-License-Identifier: MIT
// One image through a chain of filters on one device, from planes in memory to planes in memory.
// Workers of the pipeline that filter single images use it with staging memory of their own.
#ifndef CONV_ENGINE_FILTER_IMAGE_H
#define CONV_ENGINE_FILTER_IMAGE_H

#include "engine/engine.h"
#include "image/image.h"

// A chain of filters on an open device, with staging memory that grows to the largest image and
// stays. It belongs to one thread at a time; contexts are independent of each other.
struct conv_filter_context;

// Opens a device of `ops` for config->filters and config->alpha. Fails as ops->open does, and with
// CONV_ERR_MEMORY; *context is set on success only.
enum conv_status conv_filter_context_open(struct conv_filter_context **context,
                                          const struct conv_device_ops *ops,
                                          const struct conv_backend_config *config,
                                          struct conv_err *err);
void conv_filter_context_close(struct conv_filter_context *context); // NULL is fine

// Filters `src` into `dst`: images of one shape in host memory, whose planes may have any strides.
// `dst` may be `src` itself, else they do not overlap. CONV_ERR_MEMORY or CONV_ERR_DEVICE, and the
// samples of `dst` are then undefined. After CONV_ERR_DEVICE the context can only be closed.
enum conv_status conv_filter_image(struct conv_filter_context *context,
                                   const struct conv_image *dst, const struct conv_image *src,
                                   struct conv_err *err);

// The name of the kernel that runs filter `index` of the chain on samples of `depth` bits.
const char *conv_filter_context_variant(const struct conv_filter_context *context, int index,
                                        int depth);

// --- the same without copies, and for several images at once -------------------------------------

// Places `count` images of the given shapes in staging memory; their samples are then written to
// the planes of images[0] to images[count - 1]. Replaces what was placed before. CONV_ERR_MEMORY.
enum conv_status conv_filter_context_place(struct conv_filter_context *context,
                                           const struct conv_image *shapes, int count,
                                           struct conv_image *images, struct conv_err *err);

// Filters what was placed, as one group. The placed samples are undefined afterwards, so each run
// needs a new call of conv_filter_context_place. Errors as conv_filter_image.
enum conv_status conv_filter_context_run(struct conv_filter_context *context, struct conv_err *err);

// Image `index` of those that were placed, after the run: a view of staging memory that is valid
// until the next place.
void conv_filter_context_result(const struct conv_filter_context *context, int index,
                                struct conv_image *image);

// --- the same on a device and in memory of the caller --------------------------------------------

// As conv_filter_context_open, on a backend that was opened with `filter_count` filters and `alpha`
// and stays open for longer than the context. Several contexts may share it.
enum conv_status conv_filter_context_open_on(struct conv_filter_context **context,
                                             const struct conv_device_ops *ops,
                                             struct conv_backend *backend, int filter_count,
                                             enum conv_alpha_mode alpha, struct conv_err *err);

// From now on these threads may help with large images, if the backend runs on the CPU. NULL: none.
// They are kept.
void conv_filter_context_share(struct conv_filter_context *context, struct conv_parallel *parallel);

// As conv_filter_context_place for one image in an empty group of the caller, which has room for it
// (conv_group_need). The group and *placed stay unchanged by others until the last
// conv_filter_context_result or the next place; conv_group_result gives the same.
void conv_filter_context_place_in(struct conv_filter_context *context, struct conv_group *group,
                                  const struct conv_image *shape, struct conv_placed *placed);

#endif
