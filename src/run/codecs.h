// SPDX-License-Identifier: MIT
// The codecs of one worker, one for each image format.
#ifndef CONV_RUN_CODECS_H
#define CONV_RUN_CODECS_H

#include "io/files/formats.h"

struct conv_codecs;

// CONV_ERR_MEMORY, and as conv_format.open; *codecs is then NULL. Keeps *config.
enum conv_status conv_codecs_open(struct conv_codecs **codecs,
                                  const struct conv_codec_config *config, struct conv_err *err);
void conv_codecs_close(struct conv_codecs *codecs); // NULL is fine

// The codec of a format in conv_formats.
struct conv_codec *conv_codecs_of(const struct conv_codecs *codecs,
                                  const struct conv_format *format);

// Calls conv_format.trim of each format.
void conv_codecs_trim(struct conv_codecs *codecs);

#endif
