// SPDX-License-Identifier: MIT
#include "api/api_codecs.h"

#include <stdlib.h>

// A worker keeps buffers of at most this size each between calls, so that one large image does not
// occupy memory for the rest of the context's life.
#define KEEP ((size_t)64 << 20)

struct worker {
    struct conv_codec *codec;
    int level;
};

struct conv_api_codecs {
    int threads;
    struct worker workers[];
};

enum conv_status conv_api_codecs_open(struct conv_api_codecs **out, int threads,
                                      struct conv_err *err)
{
    struct conv_api_codecs *codecs =
        calloc(1, sizeof *codecs + (size_t)threads * sizeof codecs->workers[0]);
    if (!codecs)
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    codecs->threads = threads;
    *out = codecs;
    return CONV_OK;
}

void conv_api_codecs_close(struct conv_api_codecs *codecs)
{
    for (int i = 0; codecs && i < codecs->threads; i++)
        conv_png_format.close(codecs->workers[i].codec);
    free(codecs);
}

enum conv_status conv_api_codecs_get(struct conv_api_codecs *codecs, int worker, int level,
                                     struct conv_codec **codec, struct conv_err *err)
{
    struct worker *own = &codecs->workers[worker];
    if (own->codec && own->level != level) {
        conv_png_format.close(own->codec);
        own->codec = NULL;
    }
    if (!own->codec) {
        struct conv_codec_config config = {.level = level, .keep = KEEP};
        enum conv_status status = conv_png_format.open(&own->codec, &config, err);
        if (status)
            return status;
        own->level = level;
    }
    *codec = own->codec;
    return CONV_OK;
}
