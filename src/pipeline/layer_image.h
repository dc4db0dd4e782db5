// SPDX-License-Identifier: MIT
// One image through a layer: read, decode, make its planes the layer's input, run.
#ifndef CONV_PIPELINE_LAYER_IMAGE_H
#define CONV_PIPELINE_LAYER_IMAGE_H

#include "backend/bank_context.h"
#include "backend/layer_context.h"
#include "io/image_reader.h"
#include "report/record.h"
#include "tensor/npy.h"

// Which values the samples of an image become.
struct conv_layer_samples {
    bool gray;        // luminance, as one channel
    bool to_255;      // 0 to 255 instead of 0 to 1
    bool first_frame; // of an animation; otherwise it is refused
};

// The layer or the filter bank, for both kinds of input. Neither changes after it was opened.
struct conv_layer_contexts {
    struct conv_layer_context *of_bytes;  // 8-bit samples, divided by the kernel
    struct conv_layer_context *of_floats; // everything else
    // The same of a bank, which takes one channel; the layers are then NULL.
    struct conv_bank_context *bank_of_bytes, *bank_of_floats;
    struct conv_pooling pool; // of the bank
};

// Of the results.
enum conv_element conv_layer_contexts_element(const struct conv_layer_contexts *contexts);

// What a worker has for its images. The memory is reused. Start with
// {.reader = {limits}, .contexts =, .samples =}.
struct conv_layer_image {
    const struct conv_layer_contexts *contexts;
    const struct conv_layer_samples *samples;
    struct conv_image_reader reader;

    // After conv_layer_image_read:
    bool of_bytes;                // which of the contexts fits the image
    struct conv_tensor_shape out; // (maps, height, width); pooled, (maps, kinds[, grid, grid])
    size_t bytes;                 // that the rest takes: planes, input and output
    // After conv_layer_image_compute: the result, until the next image.
    void *result;
    size_t result_bytes;

    size_t in_bytes;
    uint8_t *planes;
    size_t planes_size;
    struct conv_layer_stream *streams[2]; // of of_floats and of_bytes
    struct conv_bank_stream *bank_streams[2];
};

// Reads the file and checks that the image fits the layer. CONV_ERR_USAGE if it does not; errors as
// conv_image_reader_read. Times go to ns[].
enum conv_status conv_layer_image_read(struct conv_layer_image *image, const struct conv_item *item,
                                       uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err);

// Decodes and computes. Errors as conv_image_reader_decode and conv_layer_stream_run.
enum conv_status conv_layer_image_compute(struct conv_layer_image *image,
                                          uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err);

// Frees the memory of images; the next one takes its own.
void conv_layer_image_trim(struct conv_layer_image *image);
void conv_layer_image_close(struct conv_layer_image *image);

#endif
