// SPDX-License-Identifier: MIT
// Batches of images that a device encodes: what its encoders have in common. Plain C without CUDA
// types, for the engine, the benchmarks and the tests.
//
//   plan a batch                 host: the encoder's table of images, with the places of their work
//   copy the table to the device
//   encode                       enqueues work on the stream
//   wait for the stream; results[i] is the place of image i's data in `output`
//
// The bytes of an image depend on the image only, not on the rest of the batch, on streams or on
// the order of execution.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CONV_ENCODE_ALIGN 16 // of each image's data in the output

// The needs of a batch. The caller uses the two sizes only.
struct conv_encode_plan {
    size_t scratch_bytes; // of device memory, 256-byte aligned
    size_t output_bytes;  // upper bound for the data of all images
    int32_t count;
    // Of PNG: deflate blocks, rows, spans of rows, scanlines and bits. Of JPEG: `blocks` are its
    // groups of MCUs, bits_bytes their bits.
    uint32_t blocks, rows, spans;
    uint64_t stream_bytes, bits_bytes;
};

// The place of an image's data in the output. Zeros fill the space up to the next image's.
struct conv_encode_result {
    uint64_t offset; // a multiple of CONV_ENCODE_ALIGN
    uint64_t size;
};

struct conv_encode_batch {
    struct conv_encode_plan plan;
    const void *d_images; // the planned table, copied to the device
    void *d_scratch;      // plan.scratch_bytes; any content
    // Device addresses of device memory or of mapped pinned host memory, only written.
    uint8_t *output;                    // plan.output_bytes, 16-byte aligned
    struct conv_encode_result *results; // plan.count, 16-byte aligned
    void *stream;                       // the cudaStream_t, of the calling thread's device
    void (*mark)(void *context, const char *kernel); // called after each launch; may be NULL
    void *context;
};

static inline void conv_encode_mark(const struct conv_encode_batch *batch, const char *kernel)
{
    if (batch->mark)
        batch->mark(batch->context, kernel);
}
