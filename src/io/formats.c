// SPDX-License-Identifier: MIT
// The table, and how a format is chosen from it.
#include "io/formats.h"

#include <fnmatch.h>
#include <string.h>

#include "png/png.h"

const struct conv_format *const conv_formats[] = {&conv_png_format};
const int conv_format_count = sizeof conv_formats / sizeof conv_formats[0];

bool conv_formats_match_name(const char *name)
{
    for (int i = 0; i < conv_format_count; i++)
        if (fnmatch(conv_formats[i]->pattern, name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

const struct conv_format *conv_formats_find(const uint8_t *data, size_t size)
{
    const char *name = conv_format_of_bytes(data, size);
    for (int i = 0; name && i < conv_format_count; i++)
        if (strcmp(conv_formats[i]->name, name) == 0)
            return conv_formats[i];
    return conv_formats[0];
}
