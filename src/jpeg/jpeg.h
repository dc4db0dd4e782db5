// SPDX-License-Identifier: MIT
// JPEG bytes to planes and planes to JPEG bytes, by libjpeg-turbo and a faster decoder for baseline
// files. The pipeline uses this through conv_jpeg_format only.
//
// Read: Huffman and arithmetic coding, sequential and progressive, 8 bits, gray and colour. Decoded
// samples are those of libjpeg-turbo's default settings (accurate integer DCT, smooth upsampling of
// chroma), in R'G'B' as stored: filters work on them as they are.
// Written: sequential or progressive, Huffman-coded, 8 bits, gray or YCbCr, with a JFIF header.
//
// Refused: CMYK and YCCK, 12 bits, lossless and hierarchical files, and everything that
// libjpeg-turbo only warns about and replaces by gray: data that end early, bad codes, missing
// restart markers or scans. Ignored: bytes after EOI (further images of phones and 3-D cameras), up
// to 64 stray bytes before it, and unknown versions of JFIF.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "image/format.h"

extern const struct conv_format conv_jpeg_format; // format.c

// --- container.c: the markers before the first scan ----------------------------------------------

#define CONV_JPEG_HEAD_SIZE 3 // with which each begins

// Reads the markers up to the first scan of a whole file. CONV_ERR_FORMAT, and CONV_ERR_UNSUPPORTED
// for kinds of JPEG that are not read, with the cause.
enum conv_status conv_jpeg_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                 struct conv_err *err);

// CONV_ERR_FORMAT if the scans are too short to hold a code for each block.
enum conv_status conv_jpeg_check_size(const uint8_t *data, size_t size,
                                      const struct conv_image_header *header, struct conv_err *err);

// conv_format.extent: to the end of EOI, or of further images that an index (MPF, CIPA DC-007)
// announces; UINT64_MAX if that cannot be read.
bool conv_jpeg_extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes);

// --- stream.c ------------------------------------------------------------------------------------

#define CONV_JPEG_MCU_BLOCKS 10 // at most (ITU-T T.81, annex B.2.3)

// Most bytes of the stream (cuda/cuda_jpeg.h) of such a file of `size` bytes.
size_t conv_jpeg_stream_bytes(const struct conv_image_header *header, size_t size);

// conv_format_device.copy_stream. `stream` is 16-byte aligned and has room for
// conv_jpeg_stream_bytes. Whatever passes, and is decoded by a device, libjpeg decodes as well.
bool conv_jpeg_copy_stream(uint8_t *stream, size_t *stream_bytes, const uint8_t *data, size_t size,
                           const struct conv_image_header *header);

// Writes what libjpeg-turbo writes before data that a device has encoded: SOI to SOS, without
// application segments. Returns the number of bytes: at most 2 for SOI, 138 for DQT, 19 for SOF0,
// 432 for DHT and 14 for SOS.
#define CONV_JPEG_HEAD_MOST 605
size_t conv_jpeg_write_head(uint8_t head[CONV_JPEG_HEAD_MOST], const struct conv_image *shape,
                            const struct conv_device_encoding *encoding);

// --- metadata.c ----------------------------------------------------------------------------------

// conv_format.take_common and .put_common: ICC profile, Exif, XMP, resources of Photoshop, comments
// and resolution. Segments of unknown meaning are not carried over.
bool conv_jpeg_take_common(const uint8_t *data, size_t size, const struct conv_image_header *header,
                           struct conv_cleaning cleaning, struct conv_common *common);
bool conv_jpeg_put_common(const struct conv_common *common, const struct conv_image *shape,
                          struct conv_metadata *metadata);

// conv_format.orientation: of the first Exif segment.
int conv_jpeg_orientation(const uint8_t *data, size_t size);

// The segment that follows SOI where metadata has no JFIF segment of its own.
#define CONV_JPEG_JFIF_SIZE 18
extern const uint8_t conv_jpeg_jfif[CONV_JPEG_JFIF_SIZE];

// True if the metadata, which may be NULL, begin with a JFIF segment.
bool conv_jpeg_has_jfif(const struct conv_metadata *metadata);

// --- markers and their segments (ITU-T T.81, annex B) --------------------------------------------

// Markers and their segments in a JPEG file (ITU-T T.81, annex B).

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
    CONV_MARKER_DQT = 0xDB,
    CONV_MARKER_DNL = 0xDC,
    CONV_MARKER_DRI = 0xDD,
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

// --- encoding.c ----------------------------------------------------------------------------------

#define CONV_JPEG_BLOCK_SAMPLES 64

// The place in a block, row by row, of each place in zigzag order.
extern const uint8_t conv_jpeg_zigzag[CONV_JPEG_BLOCK_SAMPLES];

// How a file is encoded.
struct conv_jpeg_encoding {
    bool progressive; // in several scans, with Huffman codes for the image
    bool optimize;    // with Huffman codes for the image, else the standard ones
    uint8_t h, v;     // sampling factors of luma, those of chroma being 1
    uint16_t quant[3][CONV_JPEG_BLOCK_SAMPLES]; // divisors in zigzag order
};

// conv_format.keep.
void conv_jpeg_keep(const uint8_t *data, size_t size, const struct conv_image_header *header,
                    struct conv_kept *kept);

// The encoding of an output of that shape. `metadata` as for conv_format.encode.
void conv_jpeg_choose(struct conv_jpeg_encoding *encoding, const struct conv_codec_config *config,
                      const struct conv_image *shape, const struct conv_metadata *metadata);

// conv_format_device.choose. device->h is 0 for an encoding that no device has: several scans,
// other Huffman codes, divisors above 255, chroma components with different divisors.
void conv_jpeg_choose_device(const struct conv_codec_config *config, const struct conv_image *shape,
                             const struct conv_metadata *metadata,
                             struct conv_device_encoding *device);

// Upper bounds: bytes of the compressed data, and of the coefficients that are held at once.
size_t conv_jpeg_most_bytes(const struct conv_jpeg_encoding *encoding,
                            const struct conv_image *shape);
size_t conv_jpeg_coefficient_bytes(const struct conv_jpeg_encoding *encoding,
                                   const struct conv_image *shape);

// What markers say about the colours of three components. Starts as {0}.
struct conv_jpeg_colours {
    bool jfif, adobe;
    uint8_t transform; // Adobe's
};

void conv_jpeg_note_colours(struct conv_jpeg_colours *colours, const struct conv_marker *marker);

// True if they are Y, Cb, Cr and not R, G, B, by libjpeg's rules. `frame`: its segment's data.
bool conv_jpeg_is_ycc(const struct conv_jpeg_colours *colours, const uint8_t *frame);

// --- libjpeg.c -----------------------------------------------------------------------------------

// Decoding and encoding by libjpeg-turbo.

#define CONV_LIBJPEG_MOST_SIDE 65500 // the library's limit, a little less than the format's

// A progressive file has about ten scans, or sixty from a thorough encoder. Each scan passes over
// all coefficients, however few bytes it has, so more are refused, as in libvips.
#define CONV_LIBJPEG_MOST_SCANS 100

// Decodes a whole file into dst->plane[] or, unless it is NULL, to `rows`. With header->jpeg.luma,
// Y of a YCbCr file. CONV_ERR_FORMAT: damaged, or not the image that `header` describes;
// CONV_ERR_MEMORY; CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop).
enum conv_status conv_libjpeg_decode(struct conv_buffer *scratch, const uint8_t *data, size_t size,
                                     const struct conv_image_header *header,
                                     const struct conv_image *dst, const struct conv_rows *rows,
                                     const atomic_int *stop, struct conv_err *err);

// Replaces the content of *file by a JPEG without a JFIF header, or by the part of it that rows
// `from` to `to` make, after those before them: `to` is the height or a multiple of 8 and luma's
// vertical factor. Of the channels of *src the first or the first three count; row y is at y times
// the stride. `source` NULL: its planes. The session, NULL before row 0, lasts to the last row, a
// failure or conv_libjpeg_end; `scratch`, `file`, `encoding` and `source` have to live as long.
// CONV_ERR_MEMORY, CONV_ERR_UNSUPPORTED if libjpeg-turbo refuses the image, CONV_ERR_CANCELLED as
// above.
struct conv_libjpeg_session;
enum conv_status conv_libjpeg_encode_some(struct conv_libjpeg_session **session,
                                          struct conv_buffer *scratch, struct conv_buffer *file,
                                          const struct conv_image *src,
                                          const struct conv_row_source *source,
                                          const struct conv_jpeg_encoding *encoding, int from,
                                          int to, const atomic_int *stop, struct conv_err *err);
void conv_libjpeg_end(struct conv_libjpeg_session **session); // *session may be NULL

// The same with the quantised coefficients of `source`, a colour JPEG of which conv_jpeg_keep says
// luma_apart, except that the first plane of *src replaces its luma. Of *encoding only what is not
// kept counts: its scans and Huffman codes. `luma`: scratch memory.
enum conv_status conv_libjpeg_replace_luma(struct conv_buffer *scratch, struct conv_buffer *luma,
                                           struct conv_buffer *file, const struct conv_image *src,
                                           const uint8_t *source, size_t size,
                                           const struct conv_jpeg_encoding *encoding,
                                           const atomic_int *stop, struct conv_err *err);
