// SPDX-License-Identifier: MIT
// The header of a JPEG, and whether its image data can be enough. Nothing is decoded here.
#include "jpeg/jpeg.h"

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

// --- the header ----------------------------------------------------------------------------------

// The header of a JPEG, and whether its image data can be enough. Nothing is decoded here.

#define MAX_COMPONENTS 3
#define MAX_SAMPLING 4
#define BLOCK 8 // pixels of a block's side

// Reports why there is no complete marker at `at`.
static enum conv_status refuse_marker(const uint8_t *data, size_t size, size_t at,
                                      struct conv_err *err)
{
    if (at < size && data[at] != 0xFF)
        return conv_err_format(err, "damaged: no marker at byte %zu", at);
    for (size_t i = at; i < size; i++) {
        if (data[i] == 0xFF)
            continue;
        if (data[i] == 0 || (size - i > 2 && conv_marker_read_u16(data + i + 1) < 2))
            return conv_err_format(err, "damaged: impossible marker at byte %zu", at);
        return conv_err_format(err, "truncated: ends inside the segment that starts at byte %zu",
                               at);
    }
    return conv_err_format(err, "truncated: ends before the image data");
}

static enum conv_status check_kind(int code, int precision, int components, struct conv_err *err)
{
    const char *kind = NULL;
    int type = code - CONV_MARKER_SOF0;
    if (type == 3 || type == 11)
        kind = "lossless";
    else if (type != 0 && type != 1 && type != 2 && type != 9 && type != 10)
        kind = "hierarchical";
    if (kind)
        return conv_err_unsupported(err, "%s JPEG; only sequential and progressive ones are read",
                                    kind);
    if (precision == 12)
        return conv_err_unsupported(err, "JPEG of 12 bits per sample; only 8 bits are read");
    if (precision != 8)
        return conv_err_format(err, "bad header: %d bits per sample", precision);
    if (components == 4)
        return conv_err_unsupported(
            err, "CMYK JPEG (four channels for print); only gray and RGB are read: vips "
                 "icc_transform INPUT OUTPUT.jpg srgb converts it");
    if (components != 1 && components != MAX_COMPONENTS)
        return conv_err_format(err, "bad header: %d channels", components);
    return CONV_OK;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

// Counts the blocks of the components, whose sampling factors are at p[1], p[4], ...
static enum conv_status count_blocks(struct conv_image_header *header, const uint8_t *p,
                                     struct conv_err *err)
{
    int most_h = 1, most_v = 1;
    uint64_t blocks = 0, padded = 0;
    for (int c = 0; c < header->shape.channels; c++) {
        int h = p[3 * c + 1] >> 4, v = p[3 * c + 1] & 15;
        if (h < 1 || v < 1 || h > MAX_SAMPLING || v > MAX_SAMPLING)
            return conv_err_format(err, "bad header: sampling factors %d and %d", h, v);
        most_h = h > most_h ? h : most_h;
        most_v = v > most_v ? v : most_v;
        header->jpeg.h[c] = (uint8_t)(header->shape.channels == 1 ? 1 : h);
        header->jpeg.v[c] = (uint8_t)(header->shape.channels == 1 ? 1 : v);
    }
    for (int c = 0; c < header->shape.channels; c++) {
        uint64_t h = p[3 * c + 1] >> 4, v = p[3 * c + 1] & 15;
        uint64_t wide = divide_up((uint64_t)header->shape.width * h, (uint64_t)most_h * BLOCK);
        uint64_t high = divide_up((uint64_t)header->shape.height * v, (uint64_t)most_v * BLOCK);
        blocks += wide * high;
        padded += divide_up(wide, h) * h * divide_up(high, v) * v;
    }
    header->jpeg.blocks = (uint32_t)blocks; // at most 3 * 2^26
    header->jpeg.padded_blocks = (uint32_t)padded;
    if (header->shape.channels == 1)
        most_h = most_v = 1; // the scan has the blocks of its only component row by row
    header->jpeg.mcus =
        (uint32_t)(divide_up((uint64_t)header->shape.width, (uint64_t)most_h * BLOCK) *
                   divide_up((uint64_t)header->shape.height, (uint64_t)most_v * BLOCK));
    return CONV_OK;
}

static enum conv_status read_frame(const struct conv_marker *marker,
                                   struct conv_image_header *header, struct conv_err *err)
{
    const uint8_t *p = marker->data;
    if (marker->length < 6 || marker->length != 6 + 3 * (size_t)p[5])
        return conv_err_format(err, "bad header: %zu bytes", marker->length);
    enum conv_status status = check_kind(marker->code, p[0], p[5], err);
    if (status)
        return status;
    int type = marker->code - CONV_MARKER_SOF0;
    *header = (struct conv_image_header){
        .lossy = true,
        .shape = {.height = (int)conv_marker_read_u16(p + 1),
                  .width = (int)conv_marker_read_u16(p + 3),
                  .channels = p[5],
                  .depth = 8},
        .jpeg = {.progressive = type == 2 || type == 10,
                 .arithmetic = type >= 9,
                 .components = p[5]},
    };
    if (header->shape.width == 0 || header->shape.height == 0)
        return conv_err_format(err, "bad header: %d x %d pixels", header->shape.width,
                               header->shape.height);
    return count_blocks(header, p + 6, err);
}

// True if our decoders may decode the one scan, in a file of `size` bytes. The markers after this
// one and the tables decide it (stream.c).
static bool has_stream(const struct conv_image_header *header, size_t size)
{
    enum { MOST_SIZE = 1 << 28 }; // so that 32 bits count the bits of the data
    int most_h = 1, most_v = 1, blocks = 0;
    bool whole = true;
    for (int c = 0; c < header->shape.channels; c++) {
        int h = header->jpeg.h[c], v = header->jpeg.v[c];
        most_h = h > most_h ? h : most_h;
        most_v = v > most_v ? v : most_v;
        blocks += h * v;
    }
    for (int c = 0; c < header->shape.channels; c++)
        whole = whole && most_h % header->jpeg.h[c] == 0 && most_v % header->jpeg.v[c] == 0;
    return whole && blocks <= CONV_JPEG_MCU_BLOCKS && !header->jpeg.progressive &&
           !header->jpeg.arithmetic && !header->jpeg.several_scans && size < MOST_SIZE &&
           header->jpeg.segments <= size / 3 && header->shape.width <= CONV_LIBJPEG_MOST_SIDE &&
           header->shape.height <= CONV_LIBJPEG_MOST_SIDE;
}

// `interval` is of restart markers, in MCUs, or 0.
static enum conv_status read_scan(const struct conv_marker *marker, uint32_t interval, size_t size,
                                  struct conv_image_header *header, struct conv_err *err)
{
    if (header->shape.width == 0)
        return conv_err_format(err, "damaged: image data before the header");
    if (marker->length < 1)
        return conv_err_format(err, "damaged: a scan without channels");
    header->jpeg.several_scans =
        header->jpeg.progressive || marker->data[0] < header->shape.channels;
    header->jpeg.segments = interval ? (uint32_t)divide_up(header->jpeg.mcus, interval) : 1;
    header->device_stream = header->jpeg.streamed = has_stream(header, size);
    return CONV_OK;
}

enum conv_status conv_jpeg_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                 struct conv_err *err)
{
    struct conv_marker marker;
    size_t at = 2;
    uint32_t interval = 0;
    enum conv_status status = conv_format_check_head(&conv_jpeg_format, data, size, err);
    *header = (struct conv_image_header){0};
    while (!status) {
        size_t from = at;
        if (!conv_marker_next(&marker, data, size, &at))
            return refuse_marker(data, size, from, err);
        if (marker.code == CONV_MARKER_SOS)
            return read_scan(&marker, interval, size, header, err);
        if (marker.code == CONV_MARKER_DRI && marker.length == 2)
            interval = conv_marker_read_u16(marker.data);
        if (marker.code == CONV_MARKER_EOI)
            return conv_err_format(err, "damaged: there is no image data");
        if (marker.code == CONV_MARKER_SOI)
            return conv_err_format(err, "damaged: starts twice");
        if (conv_marker_is_frame(marker.code)) {
            if (header->shape.width != 0)
                return conv_err_format(err, "damaged: two headers");
            status = read_frame(&marker, header, err);
        }
    }
    return status;
}

// Bytes of entropy-coded data in all scans up to EOI; counting ends at `enough`. Comments and
// restart markers could make a file of any length without them.
static size_t count_coded(const uint8_t *data, size_t size, size_t enough)
{
    struct conv_marker marker = {0};
    size_t at = 2, count = 0;
    while (at < size && count < enough) {
        if (marker.code == CONV_MARKER_SOS || conv_marker_is_restart(marker.code)) {
            const uint8_t *next = memchr(data + at, 0xFF, size - at);
            size_t to = next ? (size_t)(next - data) : size;
            count += to - at;
            at = to;
            if (size - at >= 2 && data[at + 1] == 0) { // a byte FF
                count++;
                at += 2;
                continue;
            }
        }
        if (!conv_marker_next(&marker, data, size, &at) || marker.code == CONV_MARKER_EOI)
            break;
    }
    return count;
}

// Each block of each component has a Huffman code of at least one bit for its first coefficient,
// and in a sequential scan one for the others. Arithmetic codes may be far shorter than a bit, but
// only while the image has one colour: no photograph comes near ARITHMETIC_BLOCKS per byte.
enum conv_status conv_jpeg_check_size(const uint8_t *data, size_t size,
                                      const struct conv_image_header *header, struct conv_err *err)
{
    enum { ARITHMETIC_BLOCKS = 1024, ARITHMETIC_FREE = 65536 }; // 4 Mpix of gray without any data
    size_t blocks = header->jpeg.blocks, needed = blocks / (header->jpeg.progressive ? 8 : 4);
    if (header->jpeg.arithmetic)
        needed = blocks > ARITHMETIC_FREE ? (blocks - ARITHMETIC_FREE) / ARITHMETIC_BLOCKS : 0;
    size_t count = count_coded(data, size, needed);
    if (count < needed)
        return conv_err_format(err, "truncated: %zu bytes of image data cannot hold %d x %d pixels",
                               count, header->shape.width, header->shape.height);
    return CONV_OK;
}

// The next marker in entropy-coded data that is neither a restart nor a stuffed 0xFF.
static size_t skip_scan(const uint8_t *data, size_t size, size_t at)
{
    for (;;) {
        const uint8_t *found = at < size ? memchr(data + at, 0xFF, size - at) : NULL;
        if (!found || found + 1 == data + size)
            return size;
        at = (size_t)(found - data);
        int code = found[1];
        if (code != 0 && code != 0xFF && !(code >= CONV_MARKER_RST0 && code < CONV_MARKER_SOI))
            return at;
        at += code == 0xFF ? 1 : 2;
    }
}

// Bytes that must be there to tell what the marker at `from` is; 0: it is damaged.
static uint64_t marker_needs(const uint8_t *data, size_t size, size_t from)
{
    size_t at = from;
    while (at < size && data[at] == 0xFF)
        at++;
    if (at == size)
        return (uint64_t)size + 1;
    if (at == from || data[at] == 0)
        return 0;
    if (size - at < 3)
        return (uint64_t)at + 3;
    uint64_t length = conv_marker_read_u16(data + at + 1);
    return length < 2 ? 0 : at + 1 + length;
}

// Where the further images end that an index in the header announces (MPF, CIPA DC-007); 0: there
// is no index, UINT64_MAX: it cannot be read.
static uint64_t announced_end(const uint8_t *data, size_t size)
{
    enum { TAG = 0xB002, ENTRY = 16, SIZE = 4, OFFSET = 8 }; // the offset is from the index on
    struct conv_marker marker = {0};
    struct conv_exif_tag list;
    size_t at = 2;
    uint64_t end = UINT64_MAX;
    do {
        if (!conv_marker_next(&marker, data, size, &at) || marker.code == CONV_MARKER_SOS)
            return 0;
    } while (marker.code != CONV_MARKER_APP2 || !conv_marker_starts_with(&marker, "MPF", 4));
    const uint8_t *index = marker.data + 4;
    bool found = conv_exif_find(index, marker.length - 4, TAG, &list);
    for (size_t i = 0; found && i + ENTRY <= list.size; i += ENTRY) {
        uint64_t number[2] = {0}; // size and offset
        for (int b = 0; b < 4; b++)
            for (int n = 0; n < 2; n++)
                number[n] |= (uint64_t)list.value[i + (n ? OFFSET : SIZE) + b]
                             << 8 * (list.little ? b : 3 - b);
        uint64_t to = number[1] ? (uint64_t)(index - data) + number[1] + number[0] : 0;
        end = end == UINT64_MAX || to > end ? to : end;
    }
    return end;
}

bool conv_jpeg_extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes)
{
    const size_t in_scan = ~(SIZE_MAX >> 1); // a bit of *at: it is in entropy-coded data
    size_t from = *at & ~in_scan, next = from ? from : 2;
    struct conv_marker marker = {.code = *at & in_scan ? CONV_MARKER_SOS : 0};
    for (;;) {
        from = marker.code == CONV_MARKER_SOS ? skip_scan(data, size, next) : next;
        if (from == size && marker.code == CONV_MARKER_SOS) { // FF may be its last byte
            *at = (size > next ? size - 1 : next) | in_scan;
            *bytes = (uint64_t)size + 1;
            return false;
        }
        next = from;
        if (!conv_marker_next(&marker, data, size, &next)) {
            *at = from;
            *bytes = marker_needs(data, size, from);
            return false;
        }
        if (marker.code == CONV_MARKER_EOI || marker.code == CONV_MARKER_SOI) {
            *bytes = marker.code == CONV_MARKER_EOI ? announced_end(data, size) : 0;
            next -= marker.code == CONV_MARKER_SOI ? 2 : 0; // of another: this image breaks off
            *bytes = *bytes > next ? *bytes : next;
            return true;
        }
    }
}
