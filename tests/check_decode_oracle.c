// SPDX-License-Identifier: MIT
// The CPU's decoder as the oracle for streams: those that its fast path decodes are valid, with
// these planes.
#include <stdlib.h>
#include <string.h>

#include "check_decode.h"
#include "png/cpu/decode.h"
#include "support/png_make.h"

void check_alloc_planes(struct conv_image *planes, const struct check_stream *stream)
{
    *planes = (struct conv_image){
        .width = stream->width,
        .height = stream->height,
        .channels = stream->channels,
        .depth = stream->depth,
        .alpha = stream->channels % 2 == 0,
    };
    size_t stride = conv_image_stride(planes->width, planes->depth);
    size_t bytes = conv_image_plane_bytes(planes->width, planes->height, planes->depth);
    uint8_t *memory = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, bytes * (size_t)planes->channels);
    if (!memory)
        abort();
    for (int c = 0; c < planes->channels; c++)
        planes->plane[c] = (struct conv_plane){memory + (size_t)c * bytes, (ptrdiff_t)stride};
}

void check_free_planes(struct conv_image *planes)
{
    free(planes->plane[0].data);
    planes->plane[0].data = NULL;
}

bool check_oracle(struct conv_image *planes, const struct check_stream *stream)
{
    static const int color_types[] = {0, 0, 4, 2, 6};
    static struct conv_decoder decoder;
    struct png_file file = {0};
    png_make_head(&file, stream->width, stream->height, stream->depth,
                  color_types[stream->channels]);
    png_make_chunk(&file, "IDAT", stream->bytes, stream->size);
    png_make_chunk(&file, "IEND", NULL, 0);
    struct conv_png_header header;
    struct conv_err err;
    check_alloc_planes(planes, stream);
    bool right = conv_png_probe(file.data, file.size, &header, &err) == CONV_OK &&
                 conv_decode_fast(&decoder, file.data, file.size, &header, planes);
    png_make_free(&file);
    return right;
}
