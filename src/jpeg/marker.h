// SPDX-License-Identifier: MIT
// Markers and their segments in a JPEG file (ITU-T T.81, annex B).
#ifndef CONV_JPEG_MARKER_H
#define CONV_JPEG_MARKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONV_MARKER_TEM = 0x01,
    CONV_MARKER_SOF0 = 0xC0, // to SOF15, without the three that follow
    CONV_MARKER_DHT = 0xC4,
    CONV_MARKER_JPG = 0xC8,
    CONV_MARKER_DAC = 0xCC,
    CONV_MARKER_SOF15 = 0xCF,
    CONV_MARKER_RST0 = 0xD0, // to RST7
    CONV_MARKER_RST7 = 0xD7,
    CONV_MARKER_SOI = 0xD8,
    CONV_MARKER_EOI = 0xD9,
    CONV_MARKER_SOS = 0xDA,
    CONV_MARKER_DNL = 0xDC,
    CONV_MARKER_APP0 = 0xE0, // to APP15
    CONV_MARKER_APP1 = 0xE1,
    CONV_MARKER_APP2 = 0xE2,
    CONV_MARKER_APP13 = 0xED,
    CONV_MARKER_APP15 = 0xEF,
    CONV_MARKER_COM = 0xFE,
};

// Bytes of the largest segment after its marker and length.
#define CONV_MARKER_MOST (65535 - 2)

// A marker with its segment. SOI, EOI, TEM and RST have none: their length is 0.
struct conv_marker {
    int code;            // its second byte
    size_t at;           // of its 0xFF
    const uint8_t *data; // after the length
    size_t length;       // of the data
};

static inline unsigned conv_marker_read_u16(const uint8_t *p)
{
    return (unsigned)(p[0] << 8 | p[1]);
}

static inline bool conv_marker_is_frame(int code)
{
    return code >= CONV_MARKER_SOF0 && code <= CONV_MARKER_SOF15 && code != CONV_MARKER_DHT &&
           code != CONV_MARKER_JPG && code != CONV_MARKER_DAC;
}

static inline bool conv_marker_is_restart(int code)
{
    return code >= CONV_MARKER_RST0 && code <= CONV_MARKER_RST7;
}

// True if the segment begins with these bytes.
bool conv_marker_starts_with(const struct conv_marker *marker, const char *bytes, size_t size);

// Reads the marker at *at, fill bytes before it included, and moves *at after its segment. False if
// there is no marker there or its segment is not wholly within the file. Entropy-coded data, which
// follow SOS, are not markers. The length of a segment includes its own two bytes; where a comment
// or application segment says 0 or 1, it is empty, as in libjpeg.
bool conv_marker_next(struct conv_marker *marker, const uint8_t *file, size_t size, size_t *at);

#endif
