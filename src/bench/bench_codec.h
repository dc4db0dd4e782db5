// SPDX-License-Identifier: MIT
// `conv bench codec`: the images of a folder in memory, as files and as samples, and the parts that
// measure several threads and a device.
#pragma once

#include "bench/bench.h"
#include "png/png.h"
#include "run/job.h"

struct conv_bench_image {
    struct conv_file file;
    struct conv_image_header header;
    uint8_t *planes;         // of `image`; NULL before conv_bench_images_take
    struct conv_image image; // what is encoded: the samples of the file, or a filter's result
    uint8_t *stream;         // zlib, for a device; NULL: none
    size_t stream_bytes;
};

// Starts as {0}.
struct conv_bench_images {
    struct conv_bench_image *images;
    int count;
    size_t most_bytes; // of the largest image's planes
    uint64_t samples;  // bytes of all channels of all images
    uint64_t pixels;
};

// Loads all images of options->walk; a damaged one fails. CONV_ERR_USAGE if there is
// none; CONV_ERR_IO, CONV_ERR_FORMAT, CONV_ERR_LIMIT, CONV_ERR_MEMORY.
enum conv_status conv_bench_images_load(struct conv_bench_images *images,
                                        const struct conv_bench_options *options,
                                        struct conv_err *err);

// Takes planes for the samples of an image. CONV_ERR_MEMORY.
enum conv_status conv_bench_images_take(struct conv_bench_image *image, struct conv_err *err);

// Filters all of them on the CPU, alpha like a colour. CONV_ERR_MEMORY.
enum conv_status conv_bench_images_filter(struct conv_bench_images *images,
                                          const struct conv_bench_options *options,
                                          struct conv_err *err);

void conv_bench_images_free(struct conv_bench_images *images); // {0} afterwards

// Memory for conv_bench_read_back, which starts as {0}.
struct conv_bench_reader {
    struct conv_buffer file, scratch, planes;
};

// Decodes with libpng what a coder has made of `image`. CONV_ERR_FORMAT if it is another image;
// CONV_ERR_MEMORY. `err` may be NULL.
enum conv_status conv_bench_read_back(struct conv_bench_reader *reader,
                                      const struct conv_encoded *bytes,
                                      const struct conv_image *image, struct conv_err *err);
void conv_bench_reader_free(struct conv_bench_reader *reader);

// Another PNG decoder, measured for comparison and used nowhere else.
struct conv_competitor {
    const char *name;
    bool (*inflate)(uint8_t *dst, size_t room, const uint8_t *src, size_t size); // all of `room`
};

extern const struct conv_competitor conv_competitors[]; // ends with a name of NULL

// Decodes a PNG file into rows of conv_interleave_bytes(&header->shape) bytes; there is no split
// into planes. CONV_ERR_UNSUPPORTED for some kinds of images.
enum conv_status conv_competitor_decode(const struct conv_competitor *competitor,
                                        struct conv_buffer *pixels, const uint8_t *data,
                                        size_t size, const struct conv_image_header *header,
                                        struct conv_err *err);

// conv bench codec FOLDER -j N: the CPU's coders alone on N threads at once, without files, filters
// or a device: the upper bound of a run with N workers that decodes and encodes on the CPU. The
// images have been filtered (conv_bench_images_filter); the results are encoded. Prints a table, or
// JSON.
enum conv_status conv_bench_codec_jobs(const struct conv_bench_options *options,
                                       const struct conv_bench_images *images,
                                       struct conv_err *err);

// conv bench codec FOLDER --device cuda: the device's decoder and encoder alone, one row per
// kernel, with 1 to 4,000 images in flight (--images N: with N, and also with each number of
// threads per image). Decoded planes are compared with libpng's, encoded images are decoded by
// libpng. Images that the device does not decode are skipped. Prints a table, or JSON.
// CONV_ERR_FORMAT, after the table, if pixels were wrong.
enum conv_status conv_bench_codec_device(const struct conv_bench_options *options,
                                         struct conv_bench_images *images, struct conv_err *err);
