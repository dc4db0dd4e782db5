// SPDX-License-Identifier: MIT
// One image through a layer: read, decode, make its planes the layer's input, run.
#ifndef CONV_RUN_LAYER_IMAGE_H
#define CONV_RUN_LAYER_IMAGE_H

#include "engine/operation.h"
#include "io/files/image_reader.h"
#include "report/trace.h"
#include "tensor/npy.h"

// How the samples of an image are converted.
struct conv_layer_samples {
    bool gray;        // luminance, as one channel
    bool to_255;      // 0 to 255 instead of 0 to 1
    bool first_frame; // of an animation; otherwise it is refused
};

// The layer or the filter bank, for both kinds of input. Neither changes after it was opened.
struct conv_layer_contexts {
    struct conv_operation of_bytes;  // 8-bit samples, divided by the kernel
    struct conv_operation of_floats; // everything else
    struct conv_pooling pool;        // of a bank
};

// The state of a worker for its images. The memory is reused. Start with {.reader = {limits},
// .contexts =, .samples =, .track =}.
struct conv_layer_image {
    const struct conv_layer_contexts *contexts;
    const struct conv_layer_samples *samples;
    struct conv_trace_track *track; // may be NULL
    struct conv_image_reader reader;

    // After conv_layer_image_read:
    bool of_bytes;                // which of the contexts fits the image
    struct conv_tensor_shape out; // (maps, height, width); pooled, (maps, kinds[, grid, grid])
    size_t bytes;                 // that the rest takes: planes, input and output
    // After conv_layer_image_compute: the result, until the next image.
    void *result;
    size_t result_bytes;

    const char *name; // of the item
    size_t in_bytes;
    uint8_t *planes;
    size_t planes_size;
    struct conv_operation_stream streams[2]; // of of_floats and of_bytes
    bool has_stream[2];
};

// Reads the file and checks that the image fits the layer. CONV_ERR_USAGE if it does not; errors as
// conv_image_reader_read. Times go to ns[] and to the track.
enum conv_status conv_layer_image_read(struct conv_layer_image *image, const struct conv_item *item,
                                       uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err);

// Decodes and computes. Errors as conv_image_reader_decode and conv_operation_stream_run.
enum conv_status conv_layer_image_compute(struct conv_layer_image *image,
                                          uint64_t ns[CONV_STAGE_COUNT], struct conv_err *err);

// Ends a stage of the image that conv_trace_begin began: adds its time to ns[] and to the track.
void conv_layer_image_end(const struct conv_layer_image *image, enum conv_stage stage,
                          uint64_t start, uint64_t ns[CONV_STAGE_COUNT]);

// Frees the memory of images; the next one takes its own.
void conv_layer_image_trim(struct conv_layer_image *image);
void conv_layer_image_close(struct conv_layer_image *image);

#endif
