// SPDX-License-Identifier: MIT
// Metadata from and to the first directory of a TIFF. Those of Exif are the same structure in other
// formats, so image/exif.c reads them; the others are tags of their own.
#include <ctype.h>
#include <string.h>

#include "tiff/tiff.h"

#define ENTRY 12
#define INLINE 4 // bytes of a value that is in its entry

enum {
    BITS = 258,
    DESCRIPTION = 270,
    X_RESOLUTION = 282,
    Y_RESOLUTION = 283,
    RESOLUTION_UNIT = 296,
    REFERENCE_BLACK_WHITE = 532, // and before it what belongs to YCbCr
    YCBCR_COEFFICIENTS = 529,
    XMP = 700,
    IPTC = 33723,
    PHOTOSHOP = 34377,
    ICC = 34675,
};
enum { BYTE = 1, ASCII = 2, RATIONAL = 5, UNDEFINED = 7 };
enum { UNIT_NONE = 1, UNIT_INCH, UNIT_CENTIMETRE };

// The head of the resource of captions in Photoshop's resources: without a name.
static const uint8_t captions[8] = {'8', 'B', 'I', 'M', 0x04, 0x04, 0, 0};
#define CAPTIONS_HEAD (sizeof captions + 4) // and the size of its data

// --- from a file ---------------------------------------------------------------------------------

static bool take_tag(struct conv_buffer *to, const uint8_t *data, size_t size, unsigned tag)
{
    struct conv_exif_tag found;
    if (!conv_exif_find(data, size, tag, &found) || found.size > CONV_COMMON_MOST)
        return true;
    return conv_buffer_append(to, found.value, found.size);
}

// Captions alone become a resource, unless there is one.
static bool take_captions(struct conv_buffer *photoshop, const uint8_t *data, size_t size)
{
    struct conv_exif_tag found;
    uint8_t head[CAPTIONS_HEAD];
    size_t at = 0;
    while (at < photoshop->size) {
        if (photoshop->size - at >= sizeof captions &&
            memcmp(photoshop->data + at, captions, sizeof captions) == 0)
            return true;
        conv_clean_photoshop_next(photoshop, &at);
    }
    if (!conv_exif_find(data, size, IPTC, &found) || found.size > CONV_COMMON_MOST)
        return true;
    memcpy(head, captions, sizeof captions);
    conv_bytes_put(head + sizeof captions, 4, found.size, false);
    return conv_buffer_append(photoshop, head, sizeof head) &&
           conv_buffer_append(photoshop, found.value, found.size) &&
           (found.size % 2 == 0 || conv_buffer_append(photoshop, (const uint8_t *)"", 1));
}

static uint32_t take_density(const uint8_t *data, size_t size, unsigned tag, int unit)
{
    struct conv_exif_tag found;
    if (!conv_exif_find(data, size, tag, &found) || found.type != RATIONAL || found.size != 8)
        return 0;
    double above = conv_bytes_u32(found.value, found.little);
    double below = conv_bytes_u32(found.value + 4, found.little);
    double scale = unit == UNIT_INCH ? 1 / 0.0254 : unit == UNIT_CENTIMETRE ? 100 : 1;
    double density = below > 0 ? above / below * scale + 0.5 : 0;
    return density < UINT32_MAX ? (uint32_t)density : 0;
}

static void take_densities(struct conv_common *common, const uint8_t *data, size_t size)
{
    struct conv_exif_tag found;
    int unit = UNIT_INCH;
    if (conv_exif_find(data, size, RESOLUTION_UNIT, &found) && found.size == 2)
        unit = (int)conv_bytes_u16(found.value, found.little);
    common->metres = unit == UNIT_INCH || unit == UNIT_CENTIMETRE;
    common->density_x = take_density(data, size, X_RESOLUTION, unit);
    common->density_y = take_density(data, size, Y_RESOLUTION, unit);
    if (common->density_x == 0 || common->density_y == 0)
        common->density_x = common->density_y = 0;
}

// Programs of microscopes may write one directory for many images that follow one another, whose
// number the description has: ImageJ if they take 4 GiB, tifffile if asked.
bool conv_tiff_has_pages(const uint8_t *data, size_t size)
{
    static const char images[] = "\nimages=", truncated[] = "\"truncated\": true";
    struct conv_exif_tag found;
    if (conv_exif_has_pages(data, size))
        return true;
    if (!conv_exif_find(data, size, DESCRIPTION, &found))
        return false;
    const uint8_t *number = memmem(found.value, found.size, images, strlen(images));
    size_t left = number ? (size_t)(found.value + found.size - number) - strlen(images) : 0;
    if (left >= 2 && memcmp(found.value, "ImageJ=", strlen("ImageJ=")) == 0)
        return number[strlen(images)] != '1' || isdigit(number[strlen(images) + 1]);
    return found.value[0] == '{' && memmem(found.value, found.size, truncated, strlen(truncated));
}

// Palettes and few bits are not decoded to what the file states.
static bool is_stored_as(const struct conv_image *shape, const uint8_t *data, size_t size)
{
    struct conv_exif_tag found;
    return conv_exif_find(data, size, BITS, &found) && found.size == 2 * (size_t)shape->channels &&
           (int)conv_bytes_u16(found.value, found.little) == shape->depth;
}

bool conv_tiff_take_common(const uint8_t *data, size_t size, const struct conv_image_header *header,
                           struct conv_cleaning cleaning, struct conv_common *common)
{
    cleaning.reshaped |=
        conv_tiff_has_pages(data, size) || !is_stored_as(&header->shape, data, size);
    take_densities(common, data, size);
    return take_tag(&common->icc, data, size, ICC) && take_tag(&common->xmp, data, size, XMP) &&
           take_tag(&common->photoshop, data, size, PHOTOSHOP) &&
           (common->photoshop.size == 0 || conv_clean_photoshop(&common->photoshop)) &&
           take_captions(&common->photoshop, data, size) &&
           conv_clean_exif(&common->exif, data, size, (struct conv_cleaning){0}) &&
           conv_common_clean(common, cleaning);
}

// --- to a file -----------------------------------------------------------------------------------

static bool is_little(const struct conv_metadata *metadata)
{
    return !metadata || metadata->bytes.size == 0 || metadata->bytes.data[0] == 'I';
}

// An entry whose value goes to *values, at an even offset, unless it is short.
static bool put_entry(struct conv_buffer *entries, struct conv_buffer *values, bool little,
                      unsigned tag, unsigned type, size_t count, const uint8_t *value, size_t size)
{
    uint8_t entry[ENTRY] = {0};
    bool ok = values->size % 2 == 0 || conv_buffer_append(values, (const uint8_t *)"", 1);
    conv_bytes_put(entry, 2, tag, little);
    conv_bytes_put(entry + 2, 2, type, little);
    conv_bytes_put(entry + 4, 4, count, little);
    if (size <= INLINE) {
        memcpy(entry + 8, value, size);
    } else {
        conv_bytes_put(entry + 8, 4, values->size, little);
        ok = ok && conv_buffer_append(values, value, size);
    }
    return ok && conv_buffer_append(entries, entry, ENTRY);
}

static bool has_tag(const struct conv_buffer *entries, unsigned tag, bool little)
{
    for (size_t i = 0; i < entries->size; i += ENTRY)
        if (conv_bytes_u16(entries->data + i, little) == tag)
            return true;
    return false;
}

// Those of the first directory of the cleaned Exif, which have been copied with all they point to.
static bool put_exif(struct conv_buffer *entries, const struct conv_buffer *exif, bool little)
{
    const uint8_t *directory = exif->data + CONV_TIFF_HEADER;
    bool ok = true;
    for (unsigned i = 0; i < conv_bytes_u16(directory, little) && ok; i++) {
        const uint8_t *entry = directory + 2 + (size_t)i * ENTRY;
        unsigned tag = conv_bytes_u16(entry, little);
        if (tag < YCBCR_COEFFICIENTS || tag > REFERENCE_BLACK_WHITE)
            ok = conv_buffer_append(entries, entry, ENTRY);
    }
    return ok;
}

static bool put_densities(struct conv_buffer *entries, struct conv_buffer *values, bool little,
                          const struct conv_common *common)
{
    uint8_t ratio[8], unit[2];
    bool ok = true;
    if (common->density_x == 0 || common->density_y == 0 ||
        has_tag(entries, X_RESOLUTION, little) || has_tag(entries, RESOLUTION_UNIT, little))
        return true;
    for (unsigned i = 0; i < 2 && ok; i++) {
        uint64_t density = i ? common->density_y : common->density_x;
        // In thousandths of dots per inch.
        uint64_t dots = common->metres ? (density * 254 + 5) / 10 : density;
        conv_bytes_put(ratio, 4, dots, little);
        conv_bytes_put(ratio + 4, 4, common->metres ? 1000 : 1, little);
        if (dots > UINT32_MAX)
            return true;
        ok = put_entry(entries, values, little, X_RESOLUTION + i, RATIONAL, 1, ratio, sizeof ratio);
    }
    conv_bytes_put(unit, 2, common->metres ? UNIT_INCH : UNIT_NONE, little);
    return ok && put_entry(entries, values, little, RESOLUTION_UNIT, CONV_TIFF_SHORT, 1, unit, 2);
}

// The first comment, where there is no description.
static bool put_comment(struct conv_buffer *entries, struct conv_buffer *values, bool little,
                        const struct conv_common *common)
{
    size_t at = 0;
    const char *comment = conv_common_next_comment(common, &at);
    if (!comment || !*comment || has_tag(entries, DESCRIPTION, little))
        return true;
    return put_entry(entries, values, little, DESCRIPTION, ASCII, at, (const uint8_t *)comment, at);
}

// The resources, and the captions among them once more as most programs read them.
static bool put_photoshop(struct conv_buffer *entries, struct conv_buffer *values, bool little,
                          const struct conv_buffer *photoshop)
{
    bool ok = true;
    for (size_t at = 0, next = 0; at < photoshop->size && ok; at = next) {
        const uint8_t *resource = photoshop->data + at;
        conv_clean_photoshop_next(photoshop, &next);
        if (next - at < CAPTIONS_HEAD || memcmp(resource, captions, sizeof captions) != 0)
            continue;
        uint32_t size = conv_bytes_u32(resource + sizeof captions, false);
        if (size > 0 && size <= next - at - CAPTIONS_HEAD)
            ok = put_entry(entries, values, little, IPTC, UNDEFINED, size, resource + CAPTIONS_HEAD,
                           size);
        break;
    }
    return ok &&
           (photoshop->size == 0 || put_entry(entries, values, little, PHOTOSHOP, BYTE,
                                              photoshop->size, photoshop->data, photoshop->size));
}

bool conv_tiff_put_common(const struct conv_common *common, const struct conv_image *shape,
                          struct conv_metadata *metadata)
{
    static const uint8_t header[CONV_TIFF_HEADER] = {'I', 'I', 42};
    struct conv_buffer *values = &metadata->bytes, entries = {0};
    const struct conv_buffer *exif = &common->exif, *icc = &common->icc, *xmp = &common->xmp;
    bool little = exif->size == 0 || exif->data[0] == 'I';
    values->size = 0;
    // The first directory of the structure is not used where it is.
    bool ok = exif->size > 0 ? conv_buffer_append(values, exif->data, exif->size) &&
                                   put_exif(&entries, exif, little)
                             : conv_buffer_append(values, header, sizeof header);
    ok = ok && put_comment(&entries, values, little, common) &&
         put_densities(&entries, values, little, common);
    if (ok && xmp->size > 0)
        ok = put_entry(&entries, values, little, XMP, BYTE, xmp->size, xmp->data, xmp->size);
    ok = ok && put_photoshop(&entries, values, little, &common->photoshop);
    if (ok && conv_common_icc_fits(icc, shape->channels < 3 ? 1 : 3))
        ok = put_entry(&entries, values, little, ICC, UNDEFINED, icc->size, icc->data, icc->size);
    ok = ok && (values->size % 2 == 0 || conv_buffer_append(values, (const uint8_t *)"", 1));
    metadata->front = values->size;
    ok = ok && (entries.size == 0 || conv_buffer_append(values, entries.data, entries.size));
    conv_buffer_free(&entries);
    return ok;
}

void conv_tiff_write_header(uint8_t header[CONV_TIFF_HEADER], size_t at,
                            const struct conv_metadata *metadata)
{
    bool little = is_little(metadata);
    header[0] = header[1] = little ? 'I' : 'M';
    conv_bytes_put(header + 2, 2, 42, little);
    conv_bytes_put(header + 4, 4, at, little);
}

// The entry of that tag is sorted in; one that is there stays.
static void sort_in(uint8_t *first, size_t *count, const uint8_t *entry, bool little)
{
    unsigned tag = conv_bytes_u16(entry, little);
    size_t i = *count;
    while (i > 0 && conv_bytes_u16(first + (i - 1) * ENTRY, little) > tag)
        i--;
    if (i > 0 && conv_bytes_u16(first + (i - 1) * ENTRY, little) == tag)
        return;
    memmove(first + (i + 1) * ENTRY, first + i * ENTRY, (*count - i) * ENTRY);
    memcpy(first + i * ENTRY, entry, ENTRY);
    ++*count;
}

bool conv_tiff_write_directory(struct conv_buffer *directory, size_t at,
                               const struct conv_tiff_entry *entries, size_t count,
                               const struct conv_metadata *metadata)
{
    bool little = is_little(metadata);
    size_t carried = metadata ? (metadata->bytes.size - metadata->front) / ENTRY : 0, all = 0;
    size_t most = 2 + (count + carried) * ENTRY + 4, size = most;
    for (size_t i = 0; i < count; i++)
        size += (size_t)entries[i].count * INLINE;
    directory->size = 0;
    if (!conv_buffer_reserve(directory, size))
        return false;
    uint8_t *first = directory->data + 2, *values = directory->data + most;
    for (size_t i = 0; i < count; i++) {
        const struct conv_tiff_entry *from = &entries[i];
        uint8_t entry[ENTRY] = {0};
        int bytes = from->type == CONV_TIFF_SHORT ? 2 : 4;
        bool inside = from->count * (size_t)bytes <= INLINE;
        conv_bytes_put(entry, 2, from->tag, little);
        conv_bytes_put(entry + 2, 2, from->type, little);
        conv_bytes_put(entry + 4, 4, from->count, little);
        if (!inside)
            conv_bytes_put(entry + 8, 4, at + (size_t)(values - directory->data), little);
        for (uint32_t k = 0; k < from->count; k++)
            conv_bytes_put(inside ? entry + 8 + (size_t)k * (size_t)bytes
                                  : values + (size_t)k * (size_t)bytes,
                           bytes, from->values[k], little);
        values += inside ? 0 : ((size_t)from->count * (size_t)bytes + 1) / 2 * 2;
        sort_in(first, &all, entry, little);
    }
    for (size_t i = 0; i < carried; i++)
        sort_in(first, &all, metadata->bytes.data + metadata->front + i * ENTRY, little);
    // Room of tags that the image replaces stays empty.
    conv_bytes_put(directory->data, 2, all, little);
    memset(first + all * ENTRY, 0, most - 2 - all * ENTRY);
    directory->size = (size_t)(values - directory->data);
    return true;
}
