// SPDX-License-Identifier: MIT
// What decode.c gives format.c: functions of struct conv_format, and the codec.
#ifndef CONV_PNM_PNM_INTERNAL_H
#define CONV_PNM_PNM_INTERNAL_H

#include "base/buffer.h"
#include "png/cpu/filter_rows.h"
#include "png/cpu/unfilter.h"
#include "pnm/pnm.h"

#define CONV_PNM_HEAD 3 // bytes that show the kind
#define CONV_PNM_MOST_VALUE 65535
#define CONV_PNM_MOST_SIDE (1 << 28) // pixels: the bytes of all samples fit into 64 bits

struct conv_codec {
    const struct conv_format *format;
    struct conv_codec_config config;
    const struct conv_unfilter *splits;
    const struct conv_filter_rows *joins;
    struct conv_buffer row;   // of samples, as in a file
    struct conv_buffer plane; // one row of planes
    struct conv_buffer file;
};

// True after row y, of that many bytes, once in a while if the work is to stop.
static inline bool conv_pnm_is_to_stop(const struct conv_codec *codec, int y, size_t row)
{
    const size_t between = (size_t)1 << 20; // bytes
    return (size_t)y % (between / (row < between ? row : between)) == 0 &&
           conv_cancel_is_asked(codec->config.stop);
}

enum conv_status conv_pnm_check_head(const uint8_t *data, size_t size, struct conv_err *err);
enum conv_status conv_pnm_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                struct conv_err *err);
enum conv_status conv_pnm_check_size(const uint8_t *data, size_t size,
                                     const struct conv_image_header *header, struct conv_err *err);
size_t conv_pnm_end(const uint8_t *data, size_t size);
size_t conv_pnm_decode_bytes(const struct conv_image_header *header, size_t size);
enum conv_status conv_pnm_decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                                 const struct conv_image_header *header,
                                 const struct conv_image *dst, struct conv_err *err);
enum conv_status conv_pnm_decode_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                                      const struct conv_image_header *header,
                                      const struct conv_rows *rows, struct conv_err *err);

#endif
