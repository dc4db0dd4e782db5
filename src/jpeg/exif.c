// SPDX-License-Identifier: MIT
// Exif metadata are a TIFF structure: a directory of the image and, linked from it, one of the
// thumbnail (Exif 2.3, 4.5).
#include <string.h>

#include "jpeg/jpeg.h"

#define ENTRY 12 // bytes of a directory's entry

enum { TAG_THUMBNAIL_OFFSET = 0x0201, TAG_THUMBNAIL_BYTES = 0x0202 };

struct tiff {
    uint8_t *data;
    size_t size;
    bool little; // least significant byte first
};

static uint32_t read_number(const struct tiff *tiff, size_t at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | tiff->data[at + (size_t)(tiff->little ? bytes - 1 - i : i)];
    return value;
}

// Entries of the directory at `at`; 0 if it is not wholly inside.
static size_t count_entries(const struct tiff *tiff, size_t at)
{
    if (at < 8 || at > tiff->size || tiff->size - at < 6)
        return 0;
    size_t count = read_number(tiff, at, 2);
    return (tiff->size - at - 6) / ENTRY >= count ? count : 0;
}

static void erase(const struct tiff *tiff, size_t *size, size_t at, size_t bytes)
{
    if (at < 8 || at > tiff->size || bytes > tiff->size - at)
        return;
    if (bytes == tiff->size - at)
        *size = at;
    else
        memset(tiff->data + at, 0, bytes);
}

void conv_exif_drop_thumbnail(uint8_t *data, size_t *size)
{
    struct tiff tiff = {data, *size, *size >= 8 && data[0] == 'I'};
    if (*size < 8 || (memcmp(data, "II*\0", 4) != 0 && memcmp(data, "MM\0*", 4) != 0))
        return;
    size_t first = read_number(&tiff, 4, 4), count = count_entries(&tiff, first);
    if (count == 0)
        return;
    size_t link = first + 2 + count * ENTRY, second = read_number(&tiff, link, 4);
    memset(data + link, 0, 4);
    size_t at = 0, bytes = 0;
    count = count_entries(&tiff, second);
    for (size_t i = 0; i < count; i++) {
        size_t entry = second + 2 + i * ENTRY;
        uint32_t tag = read_number(&tiff, entry, 2), value = read_number(&tiff, entry + 8, 4);
        if (tag == TAG_THUMBNAIL_OFFSET)
            at = value;
        else if (tag == TAG_THUMBNAIL_BYTES)
            bytes = value;
    }
    if (bytes > 0)
        erase(&tiff, size, at, bytes);
}
