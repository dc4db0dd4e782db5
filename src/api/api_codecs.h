// SPDX-License-Identifier: MIT
// PNG coders of the context's threads, with their scratch memory.
#ifndef CONV_API_API_CODECS_H
#define CONV_API_API_CODECS_H

#include "base/err.h"
#include "png/png.h"

struct conv_api_codecs;

// For workers 0 to threads - 1. CONV_ERR_MEMORY.
enum conv_status conv_api_codecs_open(struct conv_api_codecs **codecs, int threads,
                                      struct conv_err *err);
void conv_api_codecs_close(struct conv_api_codecs *codecs); // NULL is fine

// The codec of a worker for an encoder's level; -1 for decoding, and for the default level. Opened
// at the first call. CONV_ERR_USAGE: no such level; CONV_ERR_MEMORY.
enum conv_status conv_api_codecs_get(struct conv_api_codecs *codecs, int worker, int level,
                                     struct conv_codec **codec, struct conv_err *err);

#endif
