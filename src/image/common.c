// SPDX-License-Identifier: MIT
#include "image/common.h"

#include <string.h>

#define ICC_HEADER 128
#define ICC_SPACE 16 // offset of the colour space's name

void conv_common_free(struct conv_common *common)
{
    conv_buffer_free(&common->icc);
    conv_buffer_free(&common->exif);
    conv_buffer_free(&common->xmp);
    conv_buffer_free(&common->comments);
    *common = (struct conv_common){0};
}

bool conv_common_icc_fits(const struct conv_buffer *icc, int colors)
{
    return icc->size >= ICC_HEADER &&
           memcmp(icc->data + ICC_SPACE, colors == 3 ? "RGB " : "GRAY", 4) == 0;
}
