// SPDX-License-Identifier: MIT
// The CPU's decoders as the oracle for streams: those that the fast decoder decodes are valid, with
// these planes. It leaves some valid streams to libpng, because they are costly.
#include <stdlib.h>
#include <zlib.h>

#include "check_decode.h"
#include "png/chunk.h"
#include "png/cpu/cpu_png.h"
#include "png/png.h"
#include "support/png_make.h"
#include "support/test_image.h"

// True if the stream has exactly the bytes of the rows and ends with their Adler-32.
static bool is_whole(const struct check_stream *stream)
{
    size_t row = (size_t)stream->width * (size_t)stream->channels * (size_t)stream->depth / 8;
    size_t bytes = (1 + row) * (size_t)stream->height;
    uint8_t *rows = malloc(bytes);
    if (!rows)
        abort();
    uLongf made = bytes;
    uLong used = stream->size;
    bool whole = uncompress2(rows, &made, stream->bytes, &used) == Z_OK && made == bytes &&
                 used == stream->size;
    free(rows);
    return whole;
}

enum check_verdict check_oracle(struct conv_image *planes, const struct check_stream *stream)
{
    static const int color_types[] = {0, 0, 4, 2, 6};
    static struct conv_decoder decoder;
    struct png_file file = {0};
    png_make_head(&file, stream->width, stream->height, stream->depth,
                  color_types[stream->channels]);
    png_make_chunk(&file, "IDAT", stream->bytes, stream->size);
    png_make_chunk(&file, "IEND", NULL, 0);
    struct conv_image_header header;
    struct conv_err err;
    *planes = (struct conv_image){
        .width = stream->width,
        .height = stream->height,
        .channels = stream->channels,
        .depth = stream->depth,
        .alpha = stream->channels % 2 == 0,
    };
    image_alloc(planes, 0);
    enum check_verdict verdict = CHECK_MUST_REFUSE;
    struct conv_buffer rows = {0};
    if (conv_png_format.probe(file.data, file.size, &header, &err) != CONV_OK)
        verdict = CHECK_MUST_REFUSE;
    else if (conv_decode_fast(&decoder, file.data, file.size, &header, planes))
        verdict = CHECK_MUST_DECODE;
    else if (is_whole(stream) && conv_libpng_decode(&rows, file.data, file.size, &header, planes,
                                                    NULL, NULL, &err) == CONV_OK)
        verdict = CHECK_MAY_DECODE;
    conv_buffer_free(&rows);
    png_make_free(&file);
    return verdict;
}

// --- files --------------------------------------------------------------------------------------

bool check_read_stream(struct check_stream *stream, const char *path)
{
    struct png_file file = {0}, joined = {0};
    struct conv_image_header header;
    struct conv_err err;
    bool takes = png_make_read(&file, path) &&
                 conv_png_format.probe(file.data, file.size, &header, &err) == CONV_OK &&
                 header.device_stream;
    if (takes) {
        for (int n = 0;; n++) {
            size_t at = png_make_find(&file, "IDAT", n);
            if (at == file.size)
                break;
            png_make_bytes(&joined, file.data + at + 8, conv_chunk_read_u32(file.data + at));
        }
        *stream = (struct check_stream){header.shape.width,
                                        header.shape.height,
                                        header.shape.channels,
                                        header.shape.depth,
                                        joined.data,
                                        joined.size,
                                        path,
                                        CHECK_ANY_RESULT};
    }
    png_make_free(&file);
    return takes;
}
