// SPDX-License-Identifier: MIT
// Image resources of Photoshop: "8BIM", a number, a name (length, text, even in total), a size,
// data (even). The captions of IPTC are one of them.
#include <string.h>

#include "image/format.h"

enum {
    RESOLUTION = 0x03ED,
    IPTC = 0x0404,
    COPYRIGHT = 0x040A,
    URL = 0x040B,
    FIRST_PATH = 0x07D0,
    LAST_PATH = 0x0BB6,
    CLIPPING_PATH = 0x0BB7, // the name of the path that cuts the image out
};
#define PATH_RECORD 26
#define MOST_DATA_SET 32767 // longer ones have another head
#define MOST_BINARY 64

// A data set of IPTC: 1C, record, number, size. Envelope and application records describe the
// image; 2:125 and 2:200 to 2:202 are images, and so are later records.
static bool clean_iptc(struct conv_buffer *out, const uint8_t *data, size_t size)
{
    enum { HEAD = 5, RASTER_CAPTION = 125, FIRST_PREVIEW = 200, LAST_PREVIEW = 202 };
    bool ok = true;
    while (ok && size >= HEAD && data[0] == 0x1C) {
        size_t length = conv_bytes_u16(data + 3, false), whole = HEAD + length;
        unsigned number = data[2];
        if (length > MOST_DATA_SET || whole > size)
            break;
        bool image = data[1] < 1 || data[1] > 2 || number == RASTER_CAPTION ||
                     (number >= FIRST_PREVIEW && number <= LAST_PREVIEW);
        if (!image && (length <= MOST_BINARY || conv_embedded_is_text(data + HEAD, length)) &&
            !conv_embedded_image(data + HEAD, length))
            ok = conv_buffer_append(out, data, whole);
        data += whole;
        size -= whole;
    }
    return ok;
}

// Records of a path begin with their kind.
static bool is_path(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i += PATH_RECORD)
        if (size - i < PATH_RECORD || data[i] != 0 || data[i + 1] > 8)
            return false;
    return true;
}

static bool is_kept(unsigned number, const uint8_t *data, size_t size)
{
    if (conv_embedded_image(data, size))
        return false;
    if (number >= FIRST_PATH && number <= LAST_PATH)
        return is_path(data, size);
    return size <= MOST_BINARY || number == URL
               ? number == RESOLUTION || number == COPYRIGHT || number == CLIPPING_PATH ||
                     (number == URL && conv_embedded_is_text(data, size))
               : false;
}

// Appends a resource with new data. The name, which is text, is kept if it is one.
static bool append_resource(struct conv_buffer *out, unsigned number, const uint8_t *name,
                            const uint8_t *data, size_t size)
{
    static const uint8_t none[2] = {0};
    bool named = conv_embedded_is_text(name + 1, name[0]) && name[0] <= MOST_BINARY;
    const uint8_t head[] = {'8', 'B', 'I', 'M', (uint8_t)(number >> 8), (uint8_t)number};
    uint8_t length[4];
    conv_bytes_put(length, 4, (uint32_t)size, false);
    return conv_buffer_append(out, head, sizeof head) &&
           conv_buffer_append(out, named ? name : none,
                              named ? ((size_t)name[0] + 2) & ~(size_t)1 : 2) &&
           conv_buffer_append(out, length, sizeof length) && conv_buffer_append(out, data, size) &&
           conv_buffer_append(out, none, size & 1);
}

static bool clean_resource(struct conv_buffer *out, unsigned number, const uint8_t *name,
                           const uint8_t *data, size_t size)
{
    struct conv_buffer iptc = {0};
    if (number != IPTC)
        return !is_kept(number, data, size) || append_resource(out, number, name, data, size);
    bool ok = clean_iptc(&iptc, data, size);
    if (ok && iptc.size > 0)
        ok = append_resource(out, number, name, iptc.data, iptc.size);
    conv_buffer_free(&iptc);
    return ok;
}

// A resource at `p`; false if it is not wholly inside.
struct resource {
    unsigned number;
    bool adobe; // other programs have other signatures
    const uint8_t *name, *data;
    size_t size, whole; // with everything; the last one may lack its even end
};

static bool read_resource(struct resource *resource, const uint8_t *p, size_t left)
{
    enum { HEAD = 6, LENGTH = 4 };
    if (left < HEAD + 2 + LENGTH)
        return false;
    size_t start = HEAD + (((size_t)p[HEAD] + 2) & ~(size_t)1) + LENGTH;
    if (start > left)
        return false;
    const uint8_t *data = p + start;
    size_t size = conv_bytes_u32(data - 4, false);
    if (size > left - start)
        return false;
    size_t whole = start + size + (size & 1);
    *resource = (struct resource){
        conv_bytes_u16(p + 4, false), memcmp(p, "8BIM", 4) == 0, p + HEAD, data, size,
        whole < left ? whole : left};
    return true;
}

bool conv_clean_photoshop(struct conv_buffer *photoshop)
{
    static const uint8_t no_name[2] = {0};
    const uint8_t *p = photoshop->data;
    size_t left = photoshop->size;
    struct conv_buffer out = {0};
    struct resource resource;
    bool ok = true;
    if (left > 0 && p[0] == 0x1C) // captions without a resource around them
        ok = clean_resource(&out, IPTC, no_name, p, left);
    while (ok && read_resource(&resource, p, left)) {
        if (resource.adobe)
            ok = clean_resource(&out, resource.number, resource.name, resource.data, resource.size);
        p += resource.whole;
        left -= resource.whole;
    }
    if (!ok)
        out.size = 0;
    conv_buffer_free(photoshop);
    *photoshop = out;
    return ok;
}

void conv_clean_photoshop_next(const struct conv_buffer *photoshop, size_t *at)
{
    struct resource resource = {.whole = photoshop->size - *at};
    (void)read_resource(&resource, photoshop->data + *at, photoshop->size - *at);
    *at += resource.whole;
}
