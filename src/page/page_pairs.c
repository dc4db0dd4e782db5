// SPDX-License-Identifier: MIT
// The page's images, as data in the page itself.
#include <string.h>

#include "page/page_internal.h"

// RFC 4648.
static void write_base64(FILE *file, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t bits = (uint32_t)data[i] << 16;
        if (left > 1)
            bits |= (uint32_t)data[i + 1] << 8;
        if (left > 2)
            bits |= data[i + 2];
        fputc(digits[bits >> 18], file);
        fputc(digits[bits >> 12 & 63], file);
        fputc(left > 1 ? digits[bits >> 6 & 63] : '=', file);
        fputc(left > 2 ? digits[bits & 63] : '=', file);
    }
}

static void write_before(FILE *file, const void *what)
{
    const struct conv_page_pair *pair = what;
    write_base64(file, pair->before, pair->before_size);
}

static void write_after(FILE *file, const void *what)
{
    const struct conv_page_pair *pair = what;
    write_base64(file, pair->after, pair->after_size);
}

bool conv_page_next_pair(struct conv_template *filled, const char *list, int index)
{
    struct conv_page_state *state = filled->context;
    const struct conv_page *page = state->page;
    if (strcmp(list, "cropped") == 0)
        return index == 0 && (state->pair->width != state->pair->crop_width ||
                              state->pair->height != state->pair->crop_height);
    if (strcmp(list, "pairs") != 0 || index >= page->pair_count)
        return false;
    const struct conv_page_pair *pair = state->pair = &page->pairs[index];
    conv_template_text(filled, "pair_name", pair->name);
    conv_template_number(filled, "pair_width", pair->width, 0);
    conv_template_number(filled, "pair_height", pair->height, 0);
    conv_template_number(filled, "crop_width", pair->crop_width, 0);
    conv_template_number(filled, "crop_height", pair->crop_height, 0);
    conv_template_number(filled, "crop_x", pair->crop_x, 0);
    conv_template_number(filled, "crop_y", pair->crop_y, 0);
    conv_template_markup(filled, "before", write_before, pair);
    conv_template_markup(filled, "after", write_after, pair);
    return true;
}
