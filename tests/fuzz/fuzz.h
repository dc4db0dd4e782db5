// SPDX-License-Identifier: MIT
// What several fuzz targets share.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/format.h"

#define MOST_PIXELS 65536 // of an image that is decoded

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool condition)
{
    if (!condition)
        abort();
}

static inline void fail(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    abort();
}

static inline void check_message(enum conv_status status, const struct conv_err *err)
{
    if (status != err->status || !err->text[0] || !memchr(err->text, 0, sizeof err->text))
        fail("refused without a reason", err->text);
}

// The encoded image as one file, to be freed.
static inline uint8_t *join(const struct conv_encoded *encoded)
{
    uint8_t *file = malloc(encoded->size);
    size_t at = 0;
    require(file);
    for (int i = 0; i < CONV_ENCODED_PARTS; i++) {
        if (encoded->part[i].size > 0)
            memcpy(file + at, encoded->part[i].data, encoded->part[i].size);
        at += encoded->part[i].size;
    }
    require(at == encoded->size);
    return file;
}

// The output of an image has its format and size; returns the encoder's status.
static inline enum conv_status encode_again(const struct conv_format *format,
                                            struct conv_codec *codec,
                                            const struct conv_image *image,
                                            const struct conv_metadata *metadata)
{
    struct conv_encoded encoded;
    struct conv_image_header header;
    struct conv_err err;
    enum conv_status status =
        format->encode(codec, image, metadata, 0, image->height, &encoded, &err);
    if (status)
        return status;
    uint8_t *file = join(&encoded);
    require(!format->probe(file, encoded.size, &header, &err));
    require(header.shape.width == image->width && header.shape.height == image->height);
    free(file);
    return CONV_OK;
}
