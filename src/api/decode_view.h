// SPDX-License-Identifier: MIT
// One PNG file to a view in host memory.
#ifndef CONV_API_DECODE_VIEW_H
#define CONV_API_DECODE_VIEW_H

#include "api/api_context.h"
#include "png/png.h"

// Decodes a file whose header was read to a view of its size, whose channels can be made from the
// file's (conv_view_converts), with the codec of that worker of the context. Each worker by one
// thread at a time. Errors of conv_format.decode; then the samples are undefined.
enum conv_status conv_api_decode_view(conv_context *context, int worker, const conv_bytes *file,
                                      const struct conv_image_header *header,
                                      const conv_image *view, struct conv_err *err);

#endif
