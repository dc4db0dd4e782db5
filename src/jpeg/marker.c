// SPDX-License-Identifier: MIT
#include "jpeg/marker.h"

#include <string.h>

static bool has_segment(int code)
{
    return code != CONV_MARKER_TEM && !(code >= CONV_MARKER_RST0 && code <= CONV_MARKER_EOI);
}

static bool may_be_skipped(int code)
{
    return code == CONV_MARKER_COM || code == CONV_MARKER_DNL ||
           (code >= CONV_MARKER_APP0 && code <= CONV_MARKER_APP15);
}

bool conv_marker_starts_with(const struct conv_marker *marker, const char *bytes, size_t size)
{
    return marker->length >= size && memcmp(marker->data, bytes, size) == 0;
}

bool conv_marker_next(struct conv_marker *marker, const uint8_t *file, size_t size, size_t *at)
{
    size_t from = *at;
    if (from >= size || file[from] != 0xFF)
        return false;
    marker->at = from;
    while (from < size && file[from] == 0xFF)
        from++;
    if (from == size || file[from] == 0)
        return false;
    marker->code = file[from++];
    marker->data = file + from;
    marker->length = 0;
    if (has_segment(marker->code)) {
        bool whole = size - from >= 2;
        size_t length = whole ? conv_marker_read_u16(file + from) : 0;
        if (whole && length < 2 && may_be_skipped(marker->code))
            length = 2;
        if (length < 2 || length > size - from)
            return false;
        marker->data = file + from + 2;
        marker->length = length - 2;
        from += length;
    }
    *at = from;
    return true;
}
