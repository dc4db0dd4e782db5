// SPDX-License-Identifier: MIT
// Selects the segments of a JPEG that are carried from input to output, and converts them for other
// formats.
#include <string.h>

#include "jpeg/jpeg.h"
#include "jpeg/marker.h"

#define JFIF "JFIF" // these four end with their NUL
#define XMP "http://ns.adobe.com/xap/1.0/"
#define XMP_MORE "http://ns.adobe.com/xmp/extension/"
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
    return metadata && metadata->size >= CONV_JPEG_JFIF_SIZE &&
           memcmp(metadata->data, conv_jpeg_jfif, HEAD + sizeof JFIF) == 0;
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

static bool append_marker(struct conv_buffer *buffer, const struct conv_marker *marker)
{
    return append_segment(buffer, marker->code, NULL, 0, marker->data, marker->length);
}

static bool append_icc_part(struct conv_buffer *buffer, int number, int count, const uint8_t *data,
                            size_t size)
{
    uint8_t name[ICC_HEAD] = ICC;
    name[sizeof ICC] = (uint8_t)number;
    name[sizeof ICC + 1] = (uint8_t)count;
    return append_segment(buffer, CONV_MARKER_APP2, name, sizeof name, data, size);
}

static bool append_exif(struct conv_buffer *buffer, const uint8_t *tiff, size_t size)
{
    size_t at = buffer->size + HEAD + sizeof EXIF;
    if (size > CONV_MARKER_MOST - sizeof EXIF)
        return true;
    if (!append_segment(buffer, CONV_MARKER_APP1, EXIF, sizeof EXIF, tiff, size))
        return false;
    conv_exif_drop_thumbnail(buffer->data + at, &size);
    size_t length = 2 + sizeof EXIF + size;
    buffer->size = at + size;
    buffer->data[at - sizeof EXIF - 2] = (uint8_t)(length >> 8);
    buffer->data[at - sizeof EXIF - 1] = (uint8_t)length;
    return true;
}

// A resource of Photoshop: "8BIM", a number, a name (length, text, even in total), a size, data
// (even). False if there is no complete one at *at.
struct resource {
    const uint8_t *start;
    size_t size; // with everything
    unsigned number;
};

static bool next_resource(struct resource *resource, const uint8_t *data, size_t size, size_t *at)
{
    size_t left = size - *at;
    const uint8_t *p = data + *at;
    if (left < 12 || memcmp(p, "8BIM", 4) != 0)
        return false;
    size_t name = ((size_t)p[6] + 2) & ~(size_t)1;
    if (left < 6 + name + 4)
        return false;
    const uint8_t *length = p + 6 + name;
    size_t bytes =
        (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | length[3];
    size_t whole = 6 + name + 4 + bytes + (bytes & 1);
    if (bytes > left || whole > left)
        return false;
    *resource = (struct resource){p, whole, conv_marker_read_u16(p + 4)};
    *at += whole;
    return true;
}

// Appends captions (IPTC) and other resources, but no thumbnails.
static bool append_photoshop(struct conv_buffer *buffer, const struct conv_marker *marker)
{
    enum { THUMBNAIL_OLD = 0x0409, THUMBNAIL = 0x040C };
    struct resource resource;
    size_t from = sizeof PHOTOSHOP, start = buffer->size, at = from;
    if (!append_segment(buffer, marker->code, PHOTOSHOP, sizeof PHOTOSHOP, NULL, 0))
        return false;
    while (next_resource(&resource, marker->data, marker->length, &at)) {
        if (resource.number != THUMBNAIL && resource.number != THUMBNAIL_OLD &&
            !conv_buffer_append(buffer, resource.start, resource.size))
            return false;
    }
    size_t length = buffer->size - start - 2;
    buffer->data[start + 2] = (uint8_t)(length >> 8);
    buffer->data[start + 3] = (uint8_t)length;
    if (length == 2 + from) // nothing is left
        buffer->size = start;
    return true;
}

static bool append_jfif(struct conv_buffer *buffer, int unit, unsigned x, unsigned y)
{
    uint8_t segment[CONV_JPEG_JFIF_SIZE];
    memcpy(segment, conv_jpeg_jfif, sizeof segment);
    segment[JFIF_UNIT] = (uint8_t)unit;
    segment[JFIF_DENSITY] = (uint8_t)(x >> 8);
    segment[JFIF_DENSITY + 1] = (uint8_t)x;
    segment[JFIF_DENSITY + 2] = (uint8_t)(y >> 8);
    segment[JFIF_DENSITY + 3] = (uint8_t)y;
    return conv_buffer_append(buffer, segment, sizeof segment);
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

// --- to a JPEG -----------------------------------------------------------------------------------

struct collection {
    struct conv_buffer *buffer;
    struct icc icc;
    bool exif, profile; // seen
};

// False: out of memory.
static bool collect_segment(struct collection *collection, const struct conv_marker *marker)
{
    struct conv_buffer *buffer = collection->buffer;
    struct icc *icc = &collection->icc;
    bool ok = true;
    if (is_exif(marker) && !collection->exif) {
        collection->exif = true;
        return append_exif(buffer, marker->data + sizeof EXIF, marker->length - sizeof EXIF);
    }
    if (marker->code == CONV_MARKER_APP2 && STARTS_WITH(marker, ICC) && !collection->profile) {
        collection->profile = true;
        for (int i = 1; i <= icc->count && ok; i++)
            ok = append_icc_part(buffer, i, icc->count, icc->part[i].data, icc->part[i].size);
        return ok;
    }
    if (marker->code == CONV_MARKER_APP13 && STARTS_WITH(marker, PHOTOSHOP))
        return append_photoshop(buffer, marker);
    if (marker->code == CONV_MARKER_COM || is_xmp(marker) ||
        (marker->code == CONV_MARKER_APP1 && STARTS_WITH(marker, XMP_MORE)))
        return append_marker(buffer, marker);
    return true;
}

// JFIF comes first, wherever it was.
static bool collect_jfif(struct conv_buffer *buffer, const uint8_t *data, size_t size)
{
    struct conv_marker marker;
    size_t at = 2;
    while (conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS) {
        const uint8_t *p = marker.data + JFIF_UNIT - HEAD;
        if (is_jfif(&marker))
            return append_jfif(buffer, p[0] <= UNIT_CENTIMETRE ? p[0] : UNIT_NONE,
                               conv_marker_read_u16(p + 1), conv_marker_read_u16(p + 3));
    }
    return true;
}

static enum conv_status finish(struct conv_metadata *metadata, const struct conv_buffer *buffer,
                               bool ok, struct conv_err *err)
{
    *metadata = (struct conv_metadata){buffer->data, buffer->size, buffer->capacity, buffer->size};
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

static bool is_for_gray(const struct icc *icc)
{
    enum { SPACE = 16 }; // offset of the colour space
    return icc->count > 0 && icc->part[1].size >= SPACE + 4 &&
           memcmp(icc->part[1].data + SPACE, "GRAY", 4) == 0;
}

enum conv_status conv_jpeg_collect(const uint8_t *data, size_t size,
                                   const struct conv_image_header *header,
                                   struct conv_metadata *metadata, struct conv_err *err)
{
    struct conv_buffer buffer = {.data = metadata->data, .capacity = metadata->capacity};
    struct collection collection = {.buffer = &buffer};
    struct conv_marker marker;
    size_t at = 2;
    find_icc(&collection.icc, data, size);
    // Colours may have become gray.
    collection.profile = header->shape.channels == 1 && !is_for_gray(&collection.icc);
    bool ok = collect_jfif(&buffer, data, size);
    while (ok && conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS)
        ok = collect_segment(&collection, &marker);
    return finish(metadata, &buffer, ok, err);
}

// --- from and to other formats -------------------------------------------------------------------

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

// The first of each kind.
static bool take_segment(struct conv_common *common, const struct conv_marker *marker)
{
    static const uint8_t nul = 0;
    if (is_jfif(marker) && common->density_x == 0)
        take_density(common, marker->data + JFIF_UNIT - HEAD);
    if (is_exif(marker) && common->exif.size == 0) {
        if (!conv_buffer_append(&common->exif, marker->data + sizeof EXIF,
                                marker->length - sizeof EXIF))
            return false;
        conv_exif_drop_thumbnail(common->exif.data, &common->exif.size);
    }
    if (is_xmp(marker) && common->xmp.size == 0)
        return conv_buffer_append(&common->xmp, marker->data + sizeof XMP,
                                  marker->length - sizeof XMP);
    if (marker->code == CONV_MARKER_COM)
        return conv_buffer_append(&common->comments, marker->data,
                                  strnlen((const char *)marker->data, marker->length)) &&
               conv_buffer_append(&common->comments, &nul, 1);
    return true;
}

enum conv_status conv_jpeg_take_common(const uint8_t *data, size_t size,
                                       const struct conv_image_header *header,
                                       struct conv_common *common, struct conv_err *err)
{
    struct conv_marker marker;
    struct icc icc;
    size_t at = 2;
    bool ok = true;
    (void)header;
    find_icc(&icc, data, size);
    for (int i = 1; i <= icc.count && ok; i++)
        ok = conv_buffer_append(&common->icc, icc.part[i].data, icc.part[i].size);
    while (ok && conv_marker_next(&marker, data, size, &at) && marker.code != CONV_MARKER_SOS)
        ok = take_segment(common, &marker);
    return ok ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

static bool put_density(struct conv_buffer *buffer, const struct conv_common *common)
{
    uint64_t x = common->density_x, y = common->density_y;
    if (common->metres) {
        x = (x * 254 + 5000) / 10000;
        y = (y * 254 + 5000) / 10000;
    }
    if (x == 0 || y == 0 || x > 65535 || y > 65535)
        return true;
    return append_jfif(buffer, common->metres ? UNIT_INCH : UNIT_NONE, (unsigned)x, (unsigned)y);
}

static bool put_icc(struct conv_buffer *buffer, const struct conv_buffer *icc)
{
    size_t count = (icc->size + ICC_PART - 1) / ICC_PART;
    bool ok = true;
    for (size_t i = 0; i < count && count <= MOST_ICC_PARTS && ok; i++) {
        size_t from = i * ICC_PART, left = icc->size - from;
        ok = append_icc_part(buffer, (int)i + 1, (int)count, icc->data + from,
                             left < ICC_PART ? left : ICC_PART);
    }
    return ok;
}

static bool put_comments(struct conv_buffer *buffer, const struct conv_buffer *comments)
{
    bool ok = true;
    for (size_t at = 0; at < comments->size && ok;) {
        size_t length = strlen((const char *)comments->data + at);
        ok = append_segment(buffer, CONV_MARKER_COM, NULL, 0, comments->data + at, length);
        at += length + 1;
    }
    return ok;
}

enum conv_status conv_jpeg_put_common(const struct conv_common *common,
                                      const struct conv_image *shape,
                                      struct conv_metadata *metadata, struct conv_err *err)
{
    struct conv_buffer buffer = {.data = metadata->data, .capacity = metadata->capacity};
    bool ok = put_density(&buffer, common);
    if (ok && common->exif.size > 0)
        ok = append_exif(&buffer, common->exif.data, common->exif.size);
    if (ok && common->xmp.size > 0)
        ok = append_segment(&buffer, CONV_MARKER_APP1, XMP, sizeof XMP, common->xmp.data,
                            common->xmp.size);
    if (ok && conv_common_icc_fits(&common->icc, shape->channels < 3 ? 1 : 3))
        ok = put_icc(&buffer, &common->icc);
    ok = ok && put_comments(&buffer, &common->comments);
    return finish(metadata, &buffer, ok, err);
}
