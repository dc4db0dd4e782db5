// SPDX-License-Identifier: MIT
// The image data of PNG files, good or bad, for checking the decoder.
#include <stdlib.h>
#include <string.h>

#include "check_decode.h"
#include "png/png.h"
#include "support/png_make.h"

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool check_read_stream(struct check_stream *stream, const char *path)
{
    static const int channels[] = {1, 0, 3, 0, 2, 0, 4};
    struct png_file file = {0}, joined = {0};
    struct conv_image_header header;
    struct conv_err err;
    bool takes = png_make_read(&file, path) &&
                 conv_png_format.probe(file.data, file.size, &header, &err) == CONV_OK &&
                 header.png.bit_depth >= 8 && header.png.color_type != 3 &&
                 !header.png.interlaced && !header.png.transparency;
    if (takes) {
        for (int n = 0;; n++) {
            size_t at = png_make_find(&file, "IDAT", n);
            if (at == file.size)
                break;
            png_make_bytes(&joined, file.data + at + 8, read_u32(file.data + at));
        }
        *stream = (struct check_stream){header.shape.width,
                                        header.shape.height,
                                        channels[header.png.color_type],
                                        header.png.bit_depth,
                                        joined.data,
                                        joined.size,
                                        path,
                                        CHECK_ANY_RESULT};
    }
    png_make_free(&file);
    return takes;
}
