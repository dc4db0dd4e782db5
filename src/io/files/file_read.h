// SPDX-License-Identifier: MIT
// The bytes of an item's file: from its source into memory, within limits; and its pixels.
#pragma once

#include "image/format.h"
#include "io/source.h"

// A buffer, which is reused from file to file. Starts as {0}; its owner frees `data`.
struct conv_file {
    const uint8_t *bytes; // of the file: in `data`, or where the item has them in memory already
    size_t size;
    uint8_t *data;
    size_t capacity;        // of `data`
    bool is_mapped;         // `bytes` are pages of the file: conv_file_unmap
    struct conv_file *next; // in its owner's list
};

struct conv_file_read {
    size_t limit;         // bytes; larger files are refused
    uint64_t pixel_limit; // width * height; more is refused once the first bytes say it
    // Files of at least this many bytes are mapped instead, whatever the limit, if they have a
    // path; 0: none. The input stays open. A file that becomes shorter then ends the process by
    // SIGBUS.
    size_t map_from;
    atomic_int *stop;               // non-zero: reading is cancelled; may be NULL
    struct conv_parallel *parallel; // threads that may help with a large file; may be NULL
    // Each may be NULL. `grow` is called before the buffer takes `capacity` bytes and may wait;
    // `pause` and `resume` are called around waits for a pipe.
    void (*grow)(void *context, size_t capacity);
    void (*pause)(void *context), (*resume)(void *context);
    void *context;
};

// The capacity with which a file of that size is read.
size_t conv_file_read_capacity(size_t size);

// Opens the item, reads its file and closes it; bytes that are in memory already are not copied.
// *format is the format of the first bytes, which are checked before more memory is allocated; on
// failure it may be NULL. input->info is set. CONV_ERR_IO, CONV_ERR_USAGE, CONV_ERR_FORMAT,
// CONV_ERR_LIMIT with a hint, CONV_ERR_MEMORY, CONV_ERR_CANCELLED.
enum conv_status conv_file_read(const struct conv_file_read *how, const struct conv_item *item,
                                struct conv_input *input, struct conv_file *file,
                                const struct conv_format **format, struct conv_err *err);

// Unmaps the file, if it is mapped, and closes the input.
void conv_file_unmap(struct conv_file *file, const struct conv_item *item,
                     struct conv_input *input);

// --- images one at a time ------------------------------------------------------------------------

// Reads images one at a time: the file of an item as a whole, then its pixels. For callers without
// a pipeline; the pipeline does the same with several threads and bounded memory.

// Its memory is reused from image to image. Start with {.file_limit =, .pixel_limit =}.
struct conv_image_reader {
    size_t file_limit;    // bytes of a file
    uint64_t pixel_limit; // width * height

    // After a successful read, and until the next one.
    struct conv_file file;
    const struct conv_format *format;
    struct conv_image_header header;

    struct conv_codec *codec; // opened when first needed
};

// Reads the item's file and checks its header against the limits; of an animation the first frame
// counts. CONV_ERR_IO, CONV_ERR_FORMAT, CONV_ERR_LIMIT or CONV_ERR_MEMORY. Waits for a pipe.
enum conv_status conv_image_reader_read(struct conv_image_reader *reader,
                                        const struct conv_item *item, struct conv_err *err);

// Decodes the image that was read to the planes of *image, which has the shape of the header.
// Errors as conv_format.decode and .open.
enum conv_status conv_image_reader_decode(struct conv_image_reader *reader,
                                          const struct conv_image *image, struct conv_err *err);

// Frees the buffer and the codec.
void conv_image_reader_close(struct conv_image_reader *reader);

// CONV_ERR_UNSUPPORTED, with a hint, if a file holds more images than the one that is decoded: an
// animation, or images one after the other, as programs for video write them into pipes. What
// follows a JPEG counts on standard input and in pipes only, since cameras append previews to
// files.
enum conv_status conv_image_reader_check_single(const struct conv_format *format,
                                                const struct conv_file *file,
                                                const struct conv_item *item,
                                                const struct conv_input *input,
                                                struct conv_err *err);

// The check of the number of pixels alone, as far as the first bytes of a file say it.
enum conv_status conv_image_reader_check_head(const uint8_t *data, size_t size,
                                              uint64_t pixel_limit, struct conv_err *err);

// The check of the header for callers with the bytes of a file at hand: CONV_ERR_FORMAT, or
// CONV_ERR_LIMIT with a hint. Takes no memory.
enum conv_status conv_image_reader_probe(const struct conv_format *format, const uint8_t *data,
                                         size_t size, uint64_t pixel_limit,
                                         struct conv_image_header *header, struct conv_err *err);
