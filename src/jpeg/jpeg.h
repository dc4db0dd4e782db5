// SPDX-License-Identifier: MIT
// JPEG bytes to planes and planes to JPEG bytes, by libjpeg-turbo. The pipeline uses this through
// conv_jpeg_format only.
//
// Read: Huffman and arithmetic coding, sequential and progressive, 8 bits, gray and colour. Decoded
// samples are those of libjpeg-turbo's default settings (accurate integer DCT, smooth upsampling of
// chroma), in R'G'B' as stored: filters work on them as they are.
// Written: sequential, Huffman-coded, 8 bits, gray or YCbCr, with a JFIF header.
//
// Refused: CMYK and YCCK, 12 bits, lossless and hierarchical files, and everything that
// libjpeg-turbo only warns about and replaces by gray: data that end early, bad codes, missing
// restart markers or scans. Ignored: bytes after EOI (further images of phones and 3-D cameras), up
// to 64 stray bytes before it, and unknown versions of JFIF.
#ifndef CONV_JPEG_JPEG_H
#define CONV_JPEG_JPEG_H

#include "base/err.h"
#include "image/format.h"

extern const struct conv_format conv_jpeg_format; // format.c

// --- container.c: the markers before the first scan ----------------------------------------------

// CONV_ERR_FORMAT if a file that begins with these bytes is not a JPEG.
#define CONV_JPEG_HEAD_SIZE 3
enum conv_status conv_jpeg_check_signature(const uint8_t *data, size_t size, struct conv_err *err);

// Reads the markers up to the first scan of a whole file. CONV_ERR_FORMAT, and CONV_ERR_UNSUPPORTED
// for kinds of JPEG that are not read, with the cause.
enum conv_status conv_jpeg_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                 struct conv_err *err);

// CONV_ERR_FORMAT if the scans are too short to hold a code for each block.
enum conv_status conv_jpeg_check_size(const uint8_t *data, size_t size,
                                      const struct conv_image_header *header, struct conv_err *err);

// conv_format.end: the end of EOI; `size` if an index of further images (MPF, CIPA DC-007)
// announces that they follow.
size_t conv_jpeg_end(const uint8_t *data, size_t size);

// --- metadata.c ----------------------------------------------------------------------------------

// conv_format.take_common and .put_common: ICC profile, Exif, XMP, resources of Photoshop, comments
// and resolution. Segments of unknown meaning are not carried over.
enum conv_status conv_jpeg_take_common(const uint8_t *data, size_t size,
                                       const struct conv_image_header *header, bool look,
                                       struct conv_common *common, struct conv_err *err);
enum conv_status conv_jpeg_put_common(const struct conv_common *common,
                                      const struct conv_image *shape,
                                      struct conv_metadata *metadata, struct conv_err *err);

// The segment that follows SOI where metadata has no JFIF segment of its own.
#define CONV_JPEG_JFIF_SIZE 18
extern const uint8_t conv_jpeg_jfif[CONV_JPEG_JFIF_SIZE];

// True if the metadata, which may be NULL, begin with a JFIF segment.
bool conv_jpeg_has_jfif(const struct conv_metadata *metadata);

#endif
