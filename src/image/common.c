// SPDX-License-Identifier: MIT
#include "image/common.h"

#include <string.h>

#include "image/clean.h"
#include "image/embedded.h"

#define ICC_HEADER 128
#define ICC_SPACE 16 // offset of the colour space's name

void conv_common_free(struct conv_common *common)
{
    conv_buffer_free(&common->icc);
    conv_buffer_free(&common->exif);
    conv_buffer_free(&common->xmp);
    conv_buffer_free(&common->photoshop);
    conv_buffer_free(&common->comments);
    *common = (struct conv_common){0};
}

static void clean_comments(struct conv_buffer *comments)
{
    uint8_t *data = comments->data;
    size_t size = comments->size;
    comments->size = 0;
    for (size_t at = 0; at < size;) {
        size_t length = strlen((const char *)data + at);
        if (conv_embedded_is_text(data + at, length) && !conv_embedded_image(data + at, length)) {
            memmove(data + comments->size, data + at, length + 1);
            comments->size += length + 1;
        }
        at += length + 1;
    }
}

bool conv_common_clean(struct conv_common *common, bool look)
{
    clean_comments(&common->comments);
    if (conv_embedded_in_tables(common->icc.data, common->icc.size))
        common->icc.size = 0;
    if (look) {
        common->xmp.size = common->photoshop.size = common->comments.size = 0;
        common->density_x = common->density_y = 0;
    }
    return (common->exif.size == 0 || conv_clean_exif(&common->exif, look)) &&
           (common->xmp.size == 0 || conv_clean_xmp(&common->xmp)) &&
           (common->photoshop.size == 0 || conv_clean_photoshop(&common->photoshop));
}

bool conv_common_icc_fits(const struct conv_buffer *icc, int colors)
{
    return icc->size >= ICC_HEADER &&
           memcmp(icc->data + ICC_SPACE, colors == 3 ? "RGB " : "GRAY", 4) == 0;
}
