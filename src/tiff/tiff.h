// SPDX-License-Identifier: MIT
// TIFF: decode.c and format.c use libtiff; metadata.c has what is carried over.
#pragma once

#include <string.h>

#include "image/format.h"

extern const struct conv_format conv_tiff_format;

// --- decode.c ------------------------------------------------------------------------------------

// The functions of conv_format.
enum conv_status conv_tiff_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                 struct conv_err *err);
enum conv_status conv_tiff_check_size(const uint8_t *data, size_t size,
                                      const struct conv_image_header *header, struct conv_err *err);
size_t conv_tiff_decode_bytes(const struct conv_image_header *header, size_t size);

// conv_format.decode. codec->scratch: rows as they are in the file; row: planes of one row.
enum conv_status conv_tiff_decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  const struct conv_image *dst, const struct conv_rows *rows,
                                  struct conv_err *err);

// Copies samples of 1, 2 or 4 bytes; the steps from one to the next are in bytes.
static inline void conv_tiff_copy(uint8_t *restrict dst, size_t dst_step,
                                  const uint8_t *restrict src, size_t src_step, int count,
                                  size_t bytes)
{
    for (int x = 0; x < count; x++, dst += dst_step, src += src_step)
        if (bytes == 1)
            *dst = *src;
        else
            memcpy(dst, src, bytes == 2 ? 2 : 4);
}

// --- metadata.c ----------------------------------------------------------------------------------

bool conv_tiff_has_pages(const uint8_t *data, size_t size); // conv_format.is_animated

// conv_format.take_common and put_common. What put_common makes begins as the file does: a header,
// whose offset of the first directory is to be filled in, and what entries of that directory point
// to, `metadata->front` bytes in total. These entries follow, by tag.
bool conv_tiff_take_common(const uint8_t *data, size_t size, const struct conv_image_header *header,
                           struct conv_cleaning cleaning, struct conv_common *common);
bool conv_tiff_put_common(const struct conv_common *common, const struct conv_image *shape,
                          struct conv_metadata *metadata);

enum {
    CONV_TIFF_SHORT = 3,
    CONV_TIFF_LONG = 4,
};

// An entry of the directory of the image that is written: numbers of 16 or 32 bits.
struct conv_tiff_entry {
    uint16_t tag, type;
    uint32_t count;
    const uint64_t *values; // below 2^32
};

#define CONV_TIFF_HEADER 8

// Replaces the content of *directory by the first directory of a file, at the even offset `at`: of
// the entries, and of those of the metadata (NULL: none) with other tags.
// False: out of memory.
bool conv_tiff_write_directory(struct conv_buffer *directory, size_t at,
                               const struct conv_tiff_entry *entries, size_t count,
                               const struct conv_metadata *metadata);

// The header of the file, for a first directory at that offset.
void conv_tiff_write_header(uint8_t header[CONV_TIFF_HEADER], size_t at,
                            const struct conv_metadata *metadata);

// --- a TIFF that libtiff has open, in memory: format.c -------------------------------------------

// Largest block that libtiff allocates besides those for samples and lists: the tables of LZW have
// 144 KiB.
#define CONV_LIBTIFF_MOST_STATE ((size_t)256 << 10)

// Starts as {0} with `data` and `size`, or with `room`.
struct conv_libtiff {
    struct tiff *tif;    // libtiff's TIFF; NULL: it could not be opened
    const uint8_t *data; // that is read
    size_t size, at;
    bool decoding;  // the directory has been read: almost every warning is of damage
    bool failed;    // `fault` says why
    bool closed;    // what libtiff still writes is not wanted
    uint8_t *strip; // that is written, after the header
    size_t room;    // bytes that it may take
    struct conv_format_fault fault;
};

// Opens a file for the thread that calls this. `most`: bytes that libtiff may allocate at once.
// Sets tiff->failed unless it is open; conv_libtiff_close in either case.
void conv_libtiff_open(struct conv_libtiff *tiff, const char *mode, size_t most);
void conv_libtiff_close(struct conv_libtiff *tiff);
