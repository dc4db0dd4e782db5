// SPDX-License-Identifier: MIT
// Inside of check_codec's encode part: a batch on the device, and what it became.
#ifndef CONV_CHECK_CODEC_ENCODE_H
#define CONV_CHECK_CODEC_ENCODE_H

#include <cuda_runtime_api.h>

#include "check_codec.h"
#include "png/cuda/cuda_encode.h"

// Prints what failed.
bool check_cuda_failed(cudaError_t error, const char *what);

// Planes, table and memories of a batch, ready to run.
struct check_encode {
    int count;
    struct conv_encode_image *images;
    void *(*memory)[CONV_IMAGE_MAX_CHANNELS]; // each plane's own, so that who looks for accesses
                                              // beside it (compute-sanitizer, emulated/) finds them
    void *d_images, *d_scratch;
    uint8_t *d_output, *d_results; // with guards around them
    struct conv_encode_batch batch;
};

// Prints and returns false if CUDA fails; check_encode_free in any case.
bool check_encode_open(struct check_encode *run, const struct conv_image *images, int count);
void check_encode_free(struct check_encode *run);

struct check_encoded {
    uint8_t *output;
    struct conv_encode_result *results;
};

// After the batch has run. False if something beside output or results was written.
bool check_encode_fetch(const struct check_encode *run, struct check_encoded *encoded);
void check_encoded_free(struct check_encoded *encoded);

#endif
