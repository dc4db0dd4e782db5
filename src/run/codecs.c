// SPDX-License-Identifier: MIT
// An array parallel to conv_formats.
#include "run/codecs.h"

#include <stdlib.h>

struct conv_codecs {
    int count; // conv_format_count
    struct conv_codec *codec[];
};

enum conv_status conv_codecs_open(struct conv_codecs **out, const struct conv_codec_config *config,
                                  struct conv_err *err)
{
    size_t size = (size_t)conv_format_count * sizeof(struct conv_codec *);
    struct conv_codecs *codecs = calloc(1, sizeof *codecs + size);
    enum conv_status status = CONV_OK;
    *out = NULL;
    if (!codecs)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the codecs");
    codecs->count = conv_format_count;
    for (int i = 0; i < codecs->count && !status; i++)
        status = conv_formats[i]->open(&codecs->codec[i], config, err);
    if (status)
        conv_codecs_close(codecs);
    else
        *out = codecs;
    return status;
}

void conv_codecs_close(struct conv_codecs *codecs)
{
    for (int i = 0; codecs && i < codecs->count; i++)
        conv_formats[i]->close(codecs->codec[i]);
    free(codecs);
}

struct conv_codec *conv_codecs_of(const struct conv_codecs *codecs,
                                  const struct conv_format *format)
{
    int i = 0;
    while (conv_formats[i] != format)
        i++;
    return codecs->codec[i];
}

void conv_codecs_trim(struct conv_codecs *codecs)
{
    for (int i = 0; i < codecs->count; i++)
        conv_formats[i]->trim(codecs->codec[i]);
}
