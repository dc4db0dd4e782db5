// SPDX-License-Identifier: MIT
// Metadata from and to the segments of a JPEG.
#include <string.h>

#include "image/format.h"
#include "jpeg/jpeg.h"

#define JFIF "JFIF" // these five end with their NUL
#define XMP "http://ns.adobe.com/xap/1.0/"
#define PHOTOSHOP "Photoshop 3.0"
#define EXIF "Exif\0" // and another NUL
#define ICC "ICC_PROFILE"

#define ICC_HEAD (sizeof ICC + 2)              // and number and count
#define ICC_PART (CONV_MARKER_MOST - ICC_HEAD) // bytes of a profile in one segment
#define MOST_ICC_PARTS 255

#define HEAD 4 // marker and length

const uint8_t conv_jpeg_jfif[CONV_JPEG_JFIF_SIZE] = {
    0xFF, CONV_MARKER_APP0, 0, 16, 'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
enum { JFIF_UNIT = 11, JFIF_DENSITY = 12 }; // offsets in it

enum { UNIT_NONE, UNIT_INCH, UNIT_CENTIMETRE };

// Compares with the string and its NUL.
#define STARTS_WITH(marker, text) conv_marker_starts_with(marker, text, sizeof(text))

bool conv_jpeg_has_jfif(const struct conv_metadata *metadata)
{
    return metadata && metadata->bytes.size >= CONV_JPEG_JFIF_SIZE &&
           memcmp(metadata->bytes.data, conv_jpeg_jfif, HEAD + sizeof JFIF) == 0;
}

// --- ICC profiles --------------------------------------------------------------------------------

// The parts of a profile by their numbers, which begin with 1.
struct icc {
    int count; // 0: no profile
    struct {
        const uint8_t *data;
        size_t size;
    } part[MOST_ICC_PARTS + 1];
};

// Finds a profile, whatever the order of its parts. One with a part that is missing, repeated or
// of another profile counts as none.
static void find_icc(struct icc *icc, const uint8_t *data, size_t size)
{
    struct conv_marker marker;
    size_t at = 2;
    int found = 0;
    bool good = true;
    memset(icc, 0, sizeof *icc);
    while (conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS) {
        if (marker.code != CONV_MARKER_APP2 || !STARTS_WITH(&marker, ICC) ||
            marker.length < ICC_HEAD)
            continue;
        int number = marker.data[sizeof ICC], count = marker.data[sizeof ICC + 1];
        good = good && number > 0 && number <= count && !icc->part[number].data &&
               (found == 0 || count == icc->count);
        if (!good)
            break;
        icc->count = count;
        icc->part[number].data = marker.data + ICC_HEAD;
        icc->part[number].size = marker.length - ICC_HEAD;
        found++;
    }
    if (!good || found != icc->count)
        icc->count = 0;
}

// --- segments ------------------------------------------------------------------------------------

// Appends a segment of `name` and `data`, unless it is too long for one.
static bool append_segment(struct conv_buffer *buffer, int code, const void *name, size_t name_size,
                           const uint8_t *data, size_t size)
{
    size_t length = 2 + name_size + size;
    const uint8_t head[HEAD] = {0xFF, (uint8_t)code, (uint8_t)(length >> 8), (uint8_t)length};
    if (size > CONV_MARKER_MOST - name_size)
        return true;
    return conv_buffer_append(buffer, head, HEAD) && conv_buffer_append(buffer, name, name_size) &&
           conv_buffer_append(buffer, data, size);
}

// A JFIF segment says version, unit and densities after its name.
static bool is_jfif(const struct conv_marker *marker)
{
    return marker->code == CONV_MARKER_APP0 && STARTS_WITH(marker, JFIF) &&
           marker->length >= CONV_JPEG_JFIF_SIZE - HEAD - 2;
}

static bool is_exif(const struct conv_marker *marker)
{
    return marker->code == CONV_MARKER_APP1 && STARTS_WITH(marker, EXIF);
}

static bool is_xmp(const struct conv_marker *marker)
{
    return marker->code == CONV_MARKER_APP1 && STARTS_WITH(marker, XMP);
}

static uint32_t per_metre(unsigned density, int unit)
{
    return unit == UNIT_INCH ? (density * 10000 + 127) / 254 : density * 100;
}

static void take_density(struct conv_common *common, const uint8_t *p)
{
    unsigned x = conv_marker_read_u16(p + 1), y = conv_marker_read_u16(p + 3);
    common->metres = p[0] == UNIT_INCH || p[0] == UNIT_CENTIMETRE;
    common->density_x = common->metres ? per_metre(x, p[0]) : x;
    common->density_y = common->metres ? per_metre(y, p[0]) : y;
}

// The first of each kind. Long Exif goes on in segments that do not begin with a TIFF header; the
// resources of Photoshop go on in any.
static bool take_segment(struct conv_common *common, const struct conv_marker *marker)
{
    const uint8_t *data = marker->data;
    size_t size = marker->length;
    if (is_jfif(marker) && common->density_x == 0)
        take_density(common, data + JFIF_UNIT - HEAD);
    if (is_exif(marker)) {
        data += sizeof EXIF;
        size -= sizeof EXIF;
        bool first = size >= 4 && (memcmp(data, "II*", 4) == 0 || memcmp(data, "MM\0*", 4) == 0);
        return (common->exif.size > 0 && first) || conv_buffer_append(&common->exif, data, size);
    }
    if (is_xmp(marker) && common->xmp.size == 0)
        return conv_buffer_append(&common->xmp, data + sizeof XMP, size - sizeof XMP);
    if (marker->code == CONV_MARKER_APP13 && STARTS_WITH(marker, PHOTOSHOP))
        return conv_buffer_append(&common->photoshop, data + sizeof PHOTOSHOP,
                                  size - sizeof PHOTOSHOP);
    return marker->code != CONV_MARKER_COM ||
           conv_common_add_comment(common, marker->data, marker->length);
}

int conv_jpeg_orientation(const uint8_t *data, size_t size)
{
    struct conv_marker marker;
    size_t at = 2;
    while (conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS)
        if (is_exif(&marker))
            return conv_exif_orientation(marker.data, marker.length);
    return 1;
}

bool conv_jpeg_take_common(const uint8_t *data, size_t size, const struct conv_image_header *,
                           struct conv_cleaning cleaning, struct conv_common *common)
{
    struct conv_marker marker;
    struct icc icc;
    size_t at = 2;
    bool ok = true;
    find_icc(&icc, data, size);
    for (int i = 1; i <= icc.count && ok; i++)
        ok = conv_buffer_append(&common->icc, icc.part[i].data, icc.part[i].size);
    while (ok && conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS)
        ok = take_segment(common, &marker);
    return ok && conv_common_clean(common, cleaning);
}

// In dots per inch, or per centimetre where only that is exact.
static bool put_density(struct conv_buffer *buffer, const struct conv_common *common)
{
    uint8_t segment[CONV_JPEG_JFIF_SIZE];
    uint64_t x = common->density_x, y = common->density_y;
    int unit = common->metres ? UNIT_INCH : UNIT_NONE;
    if (common->metres) {
        bool centimetres = x % 100 == 0 && y % 100 == 0;
        x = (x * 254 + 5000) / 10000;
        y = (y * 254 + 5000) / 10000;
        if (centimetres && (per_metre((unsigned)x, UNIT_INCH) != common->density_x ||
                            per_metre((unsigned)y, UNIT_INCH) != common->density_y)) {
            unit = UNIT_CENTIMETRE;
            x = common->density_x / 100;
            y = common->density_y / 100;
        }
    }
    if (x == 0 || y == 0 || x > 65535 || y > 65535)
        return true;
    memcpy(segment, conv_jpeg_jfif, sizeof segment);
    segment[JFIF_UNIT] = (uint8_t)unit;
    conv_bytes_put(segment + JFIF_DENSITY, 2, (uint32_t)x, false);
    conv_bytes_put(segment + JFIF_DENSITY + 2, 2, (uint32_t)y, false);
    return conv_buffer_append(buffer, segment, sizeof segment);
}

// In as many segments as they need, without a resource in two of them.
static bool put_photoshop(struct conv_buffer *buffer, const struct conv_buffer *photoshop)
{
    size_t from = 0, to = 0, most = CONV_MARKER_MOST - sizeof PHOTOSHOP;
    bool ok = true;
    while (ok && from < photoshop->size) {
        size_t next = to;
        if (to < photoshop->size)
            conv_clean_photoshop_next(photoshop, &next);
        if (next - from <= most && next > to) {
            to = next;
            continue;
        }
        if (to > from)
            ok = append_segment(buffer, CONV_MARKER_APP13, PHOTOSHOP, sizeof PHOTOSHOP,
                                photoshop->data + from, to - from);
        else
            to = next; // longer than a segment
        from = to;
    }
    return ok;
}

static bool put_icc(struct conv_buffer *buffer, const struct conv_buffer *icc)
{
    uint8_t name[ICC_HEAD] = ICC;
    size_t count = (icc->size + ICC_PART - 1) / ICC_PART;
    name[sizeof ICC + 1] = (uint8_t)count;
    bool ok = true;
    for (size_t i = 0; i < count && count <= MOST_ICC_PARTS && ok; i++) {
        size_t from = i * ICC_PART, left = icc->size - from;
        name[sizeof ICC] = (uint8_t)(i + 1);
        ok = append_segment(buffer, CONV_MARKER_APP2, name, sizeof name, icc->data + from,
                            left < ICC_PART ? left : ICC_PART);
    }
    return ok;
}

static bool put_comments(struct conv_buffer *buffer, const struct conv_common *common)
{
    size_t at = 0;
    const char *comment;
    bool ok = true;
    while (ok && (comment = conv_common_next_comment(common, &at)))
        ok = append_segment(buffer, CONV_MARKER_COM, NULL, 0, (const uint8_t *)comment,
                            strlen(comment));
    return ok;
}

bool conv_jpeg_put_common(const struct conv_common *common, const struct conv_image *shape,
                          struct conv_metadata *metadata)
{
    struct conv_buffer *buffer = &metadata->bytes;
    buffer->size = 0;
    bool ok = put_density(buffer, common);
    if (ok && common->exif.size > 0)
        ok = append_segment(buffer, CONV_MARKER_APP1, EXIF, sizeof EXIF, common->exif.data,
                            common->exif.size);
    if (ok && common->xmp.size > 0)
        ok = append_segment(buffer, CONV_MARKER_APP1, XMP, sizeof XMP, common->xmp.data,
                            common->xmp.size);
    ok = ok && put_photoshop(buffer, &common->photoshop);
    if (ok && conv_common_icc_fits(&common->icc, shape->channels < 3 ? 1 : 3))
        ok = put_icc(buffer, &common->icc);
    ok = ok && put_comments(buffer, common);
    metadata->front = buffer->size;
    return ok;
}
