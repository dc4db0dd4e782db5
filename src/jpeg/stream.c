// SPDX-License-Identifier: MIT
// The stream that the device decodes (cuda/cuda_jpeg.h), taken out of a whole file, and the head of
// a file around data that it encodes. Markers are read as libjpeg does; a file that libjpeg might
// refuse or warn of has no stream.
#include <string.h>

#include "jpeg/cuda/cuda_jpeg.h"
#include "jpeg/jpeg.h"

#define TABLES 4
#define ALIGN 16
#define MOST_DC_SYMBOL 15 // bits of a difference; libjpeg checks this as well

// The tables that are in force at the scan, where the file defines them.
struct tables {
    struct {
        const uint8_t *entries; // NULL: not defined
        bool wide;              // of 16 bits
    } quant[TABLES];
    const uint8_t *code[2][TABLES]; // DC, AC: counts, then symbols
    struct conv_jpeg_colours colours;
    uint32_t interval; // MCUs from a restart marker to the next; 0: none
};

size_t conv_jpeg_stream_bytes(const struct conv_image_header *header, size_t size)
{
    size_t offsets = ((size_t)header->jpeg.segments + 1) * sizeof(uint32_t);
    return conv_image_align(sizeof(struct conv_jpeg_stream), ALIGN) +
           conv_image_align(offsets, ALIGN) + conv_image_align(size + ALIGN, ALIGN);
}

// --- tables --------------------------------------------------------------------------------------

static bool read_quant(struct tables *tables, const struct conv_marker *marker)
{
    const uint8_t *p = marker->data, *end = p + marker->length;
    while (p < end) {
        int table = *p & 15;
        bool wide = *p++ >> 4;
        size_t size = CONV_JPEG_BLOCK * (wide ? 2 : 1);
        if (table >= TABLES || (size_t)(end - p) < size)
            return false;
        tables->quant[table].entries = p;
        tables->quant[table].wide = wide;
        p += size;
    }
    return true;
}

static size_t count_symbols(const uint8_t *code)
{
    size_t count = 0;
    for (int i = 0; i < 16; i++)
        count += code[i];
    return count;
}

static bool read_codes(struct tables *tables, const struct conv_marker *marker)
{
    const uint8_t *p = marker->data, *end = p + marker->length;
    while (p < end) {
        int kind = *p >> 4, table = *p & 15;
        if (kind > 1 || table >= TABLES || end - ++p < 16)
            return false;
        size_t count = count_symbols(p);
        if (count > 256 || count > (size_t)(end - p) - 16)
            return false;
        tables->code[kind][table] = p;
        p += 16 + count;
    }
    return true;
}

void conv_jpeg_note_colours(struct conv_jpeg_colours *colours, const struct conv_marker *marker)
{
    if (marker->code == CONV_MARKER_APP0 && marker->length >= 14 &&
        conv_marker_starts_with(marker, "JFIF", 5))
        colours->jfif = true;
    if (marker->code == CONV_MARKER_APP0 + 14 && marker->length >= 12 &&
        conv_marker_starts_with(marker, "Adobe", 5)) {
        colours->adobe = true;
        colours->transform = marker->data[11];
    }
}

static bool read_interval(struct tables *tables, const struct conv_marker *marker)
{
    if (marker->length != 2)
        return false;
    tables->interval = conv_marker_read_u16(marker->data);
    return true;
}

static bool read_marker(struct tables *tables, const struct conv_marker *marker)
{
    switch (marker->code) {
    case CONV_MARKER_DQT:
        return read_quant(tables, marker);
    case CONV_MARKER_DHT:
        return read_codes(tables, marker);
    case CONV_MARKER_DRI:
        return read_interval(tables, marker);
    case CONV_MARKER_COM:
        return true;
    default:
        conv_jpeg_note_colours(&tables->colours, marker);
        return marker->code >= CONV_MARKER_APP0 && marker->code <= CONV_MARKER_APP15;
    }
}

// --- the head ------------------------------------------------------------------------------------

static bool put_quant(uint16_t to[CONV_JPEG_BLOCK], const struct tables *tables, int table)
{
    if (table >= TABLES || !tables->quant[table].entries)
        return false;
    const uint8_t *p = tables->quant[table].entries;
    bool usual = true;
    for (int i = 0; i < CONV_JPEG_BLOCK; i++) {
        unsigned value = tables->quant[table].wide ? conv_marker_read_u16(p + (size_t)2 * i) : p[i];
        to[i] = (uint16_t)value;
        usual = usual && value > 0 && value < 32768; // libjpeg's SIMD code has 16 bits with a sign
    }
    return usual;
}

// The code of all ones must be unused at the length of any symbol (ITU-T T.81, annex C.2).
static bool put_code(struct conv_jpeg_code *to, const uint8_t *from, bool dc)
{
    if (!from)
        return false;
    size_t count = count_symbols(from);
    uint32_t next = 0;
    for (int i = 0; i < 16; i++) {
        next = 2 * next + from[i];
        if (from[i] && next >= 2u << i)
            return false;
    }
    for (size_t i = 0; i < count && dc; i++)
        if (from[16 + i] > MOST_DC_SYMBOL)
            return false;
    *to = (struct conv_jpeg_code){0};
    memcpy(to->counts, from, 16);
    memcpy(to->symbols, from + 16, count);
    return true;
}

// libjpeg converts R'G'B' to nothing, and the device converts YCbCr only.
bool conv_jpeg_is_ycc(const struct conv_jpeg_colours *colours, const uint8_t *frame)
{
    if (colours->jfif)
        return true;
    if (colours->adobe)
        return colours->transform != 0;
    return frame[6] != 'R' || frame[9] != 'G' || frame[12] != 'B';
}

// Frame and scan are the segments' data; the probe has checked their lengths up to the components.
static bool put_head(struct conv_jpeg_stream *head, const struct tables *tables,
                     const struct conv_marker *frame, const struct conv_marker *scan,
                     const struct conv_image_header *header)
{
    int count = header->jpeg.components;
    const uint8_t *f = frame->data, *s = scan->data;
    if (frame->length != 6 + 3 * (size_t)count || scan->length != 4 + 2 * (size_t)count ||
        f[5] != count || s[0] != count ||
        (int)conv_marker_read_u16(f + 1) != header->shape.height ||
        (int)conv_marker_read_u16(f + 3) != header->shape.width)
        return false;
    if (count == 3 &&
        (!conv_jpeg_is_ycc(&tables->colours, f) || f[6] == f[9] || f[6] == f[12] || f[9] == f[12]))
        return false;
    *head = (struct conv_jpeg_stream){.width = (uint16_t)header->shape.width,
                                      .height = (uint16_t)header->shape.height,
                                      .components = (uint8_t)count,
                                      .orientation = (uint8_t)header->orientation,
                                      .weighed = header->weighed,
                                      .segments = header->jpeg.segments};
    const uint8_t *end = s + 1 + 2 * count; // Ss, Se, Ah and Al follow
    if (end[0] != 0 || end[1] != CONV_JPEG_BLOCK - 1 || end[2] != 0)
        return false;
    head->segment_mcus = head->segments > 1 ? tables->interval : header->jpeg.mcus;
    for (int c = 0; c < count; c++) {
        int dc = s[2 + 2 * c] >> 4, ac = s[2 + 2 * c] & 15;
        head->h[c] = header->jpeg.h[c];
        head->v[c] = header->jpeg.v[c];
        if (s[1 + 2 * c] != f[6 + 3 * c] || dc >= TABLES || ac >= TABLES ||
            !put_quant(head->quant[c], tables, f[8 + 3 * c]) ||
            !put_code(&head->dc[c], tables->code[0][dc], true) ||
            !put_code(&head->ac[c], tables->code[1][ac], false))
            return false;
        while (memcmp(&head->dc[c], &head->dc[head->tables[c]], sizeof head->dc[c]) != 0 ||
               memcmp(&head->ac[c], &head->ac[head->tables[c]], sizeof head->ac[c]) != 0)
            head->tables[c]++;
    }
    return true;
}

// Reads the markers up to the scan; *at is then at its entropy-coded data.
static bool read_head(struct conv_jpeg_stream *head, const uint8_t *data, size_t size, size_t *at,
                      const struct conv_image_header *header)
{
    struct tables tables = {0};
    struct conv_marker marker, frame = {0};
    *at = 2;
    for (;;) {
        if (!conv_marker_next(&marker, data, size, at))
            return false;
        if (marker.code == CONV_MARKER_SOS)
            return frame.data && put_head(head, &tables, &frame, &marker, header);
        if (marker.code == CONV_MARKER_SOF0 || marker.code == CONV_MARKER_SOF0 + 1) {
            if (frame.data)
                return false;
            frame = marker;
        } else if (!read_marker(&tables, &marker)) {
            return false;
        }
    }
}

// --- entropy-coded data --------------------------------------------------------------------------

// Copies the segments; offsets[] has room for `segments` + 1. False unless they are separated by
// the right restart markers, none is empty, and EOI follows the last.
static bool copy_segments(uint8_t *to, uint32_t *offsets, uint32_t segments, const uint8_t *from,
                          const uint8_t *end)
{
    uint8_t *start = to;
    uint32_t done = 0;
    offsets[0] = 0;
    for (;;) {
        const uint8_t *found = from < end ? memchr(from, 0xFF, (size_t)(end - from)) : NULL;
        if (!found || found + 1 == end)
            return false;
        size_t length = (size_t)(found - from);
        int code = found[1];
        if (code == 0)
            length++; // the byte 0xFF without its stuffed 0
        memcpy(to, from, length);
        to += length;
        from = found + 2;
        if (code == 0)
            continue;
        uint32_t offset = (uint32_t)(to - start);
        if (offset == offsets[done])
            return false;
        offsets[++done] = offset;
        if (done == segments)
            return code == CONV_MARKER_EOI;
        if (code != CONV_MARKER_RST0 + (int)((done - 1) & 7))
            return false;
    }
}

bool conv_jpeg_copy_stream(uint8_t *stream, size_t *stream_bytes, const uint8_t *data, size_t size,
                           const struct conv_image_header *header)
{
    struct conv_jpeg_stream *head = (struct conv_jpeg_stream *)(void *)stream;
    size_t at;
    if (!header->jpeg.streamed || !read_head(head, data, size, &at, header))
        return false;
    head->offsets_at = (uint32_t)conv_image_align(sizeof *head, ALIGN);
    head->data_at = head->offsets_at + (uint32_t)conv_image_align(
                                           (head->segments + (size_t)1) * sizeof(uint32_t), ALIGN);
    uint32_t *offsets = (uint32_t *)(void *)(stream + head->offsets_at);
    uint8_t *to = stream + head->data_at;
    if (!copy_segments(to, offsets, head->segments, data + at, data + size))
        return false;
    head->data_bytes = offsets[head->segments];
    *stream_bytes = head->data_at + conv_image_align(head->data_bytes + ALIGN, ALIGN);
    head->bytes = (uint32_t)*stream_bytes;
    memset(to + head->data_bytes, 0, *stream_bytes - head->data_at - head->data_bytes);
    return true;
}

// --- the head of a file --------------------------------------------------------------------------

// Returns where the segment's data begin, and the next one.
static uint8_t *put_segment(uint8_t **at, int code, size_t size)
{
    uint8_t *to = *at, *data = to + 4;
    to[0] = 0xFF;
    to[1] = (uint8_t)code;
    to[2] = (uint8_t)((size + 2) >> 8);
    to[3] = (uint8_t)(size + 2);
    *at = data + size;
    return data;
}

static void put_table(uint8_t **at, int table, const uint16_t *quant)
{
    uint8_t *data = put_segment(at, CONV_MARKER_DQT, 1 + CONV_JPEG_BLOCK);
    *data++ = (uint8_t)table;
    for (int k = 0; k < CONV_JPEG_BLOCK; k++)
        data[k] = (uint8_t)quant[k];
}

static void put_standard(uint8_t **at, int table, int ac)
{
    const struct conv_jpeg_standard *code = &conv_jpeg_standard[table][ac];
    size_t symbols = count_symbols(code->counts);
    uint8_t *data = put_segment(at, CONV_MARKER_DHT, 1 + 16 + symbols);
    *data++ = (uint8_t)(ac << 4 | table);
    memcpy(data, code->counts, 16);
    memcpy(data + 16, code->symbols, symbols);
}

static void put_frame(uint8_t **at, const struct conv_image *shape, int count, int sampling)
{
    uint8_t *data = put_segment(at, CONV_MARKER_SOF0, 6 + 3 * (size_t)count);
    const uint8_t head[] = {8, // bits
                            (uint8_t)(shape->height >> 8),
                            (uint8_t)shape->height,
                            (uint8_t)(shape->width >> 8),
                            (uint8_t)shape->width,
                            (uint8_t)count};
    memcpy(data, head, sizeof head);
    for (int c = 0; c < count; c++) {
        const uint8_t component[] = {(uint8_t)(c + 1), (uint8_t)(c > 0 ? 0x11 : sampling), c > 0};
        memcpy(data + sizeof head + 3 * c, component, sizeof component);
    }
}

static void put_scan(uint8_t **at, int count)
{
    uint8_t *data = put_segment(at, CONV_MARKER_SOS, 4 + 2 * (size_t)count);
    *data++ = (uint8_t)count;
    for (int c = 0; c < count; c++) {
        *data++ = (uint8_t)(c + 1);
        *data++ = c > 0 ? 0x11 : 0; // DC and AC tables
    }
    const uint8_t all[] = {0, CONV_JPEG_BLOCK - 1, 0};
    memcpy(data, all, sizeof all);
}

size_t conv_jpeg_write_head(uint8_t head[CONV_JPEG_HEAD_MOST], const struct conv_image *shape,
                            const struct conv_device_encoding *encoding)
{
    uint8_t *at = head;
    int count = shape->channels < 3 ? 1 : 3, tables = count > 1 ? 2 : 1;
    *at++ = 0xFF;
    *at++ = CONV_MARKER_SOI;
    for (int i = 0; i < tables; i++)
        put_table(&at, i, encoding->quant[i]);
    put_frame(&at, shape, count, encoding->h << 4 | encoding->v);
    for (int i = 0; i < 2 * tables; i++)
        put_standard(&at, i / 2, i % 2);
    put_scan(&at, count);
    return (size_t)(at - head);
}
