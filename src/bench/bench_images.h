// SPDX-License-Identifier: MIT
// The images of a folder in memory, as files and as what a filter makes of them.
#ifndef CONV_BENCH_BENCH_IMAGES_H
#define CONV_BENCH_BENCH_IMAGES_H

#include "cli/options.h"
#include "pipeline/job.h"
#include "png/png.h"

struct conv_bench_image {
    struct conv_file file;
    struct conv_png_header header;
    uint8_t *planes;            // of `filtered`; NULL before conv_bench_images_filter
    struct conv_image filtered; // what a run would encode
};

// Starts as {0}.
struct conv_bench_images {
    struct conv_bench_image *images;
    int count, capacity;
    size_t most_bytes; // of the planes of one
    uint64_t samples;  // bytes of all channels of all images
    uint64_t pixels;
};

// All of the folder, as the options' globs and limits have it; one that is bad ends it.
enum conv_status conv_bench_images_load(struct conv_bench_images *images,
                                        const struct conv_options *options, const char *folder,
                                        struct conv_err *err);

// Filters all of them with --filter, alpha like a colour.
enum conv_status conv_bench_images_filter(struct conv_bench_images *images,
                                          const struct conv_options *options, struct conv_err *err);

void conv_bench_images_free(struct conv_bench_images *images);

// True if two images of one shape have the same samples.
bool conv_bench_images_equal(const struct conv_image *a, const struct conv_image *b);

// An image of that shape whose planes lie one behind the other. Their bytes.
size_t conv_bench_images_place(struct conv_image *image, const struct conv_image *shape,
                               uint8_t *planes);

#endif
