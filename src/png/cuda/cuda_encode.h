// SPDX-License-Identifier: MIT
// Encodes planes on a CUDA device to complete IDAT chunks, one per image; nothing else leaves the
// device. Plain C without CUDA types, for the backend and the tests.
//
//   plan = conv_cuda_encode_plan(images, count)        host: once for each batch
//   copy `images` to the device
//   conv_cuda_encode(&batch)                             enqueues work on the stream
//   wait for the stream; results[i] is the place of image i's chunk in `output`
//
// The bytes of a chunk depend on the image only, not on the rest of the batch, on streams or on the
// order of execution.
#ifndef CONV_PNG_CUDA_CUDA_ENCODE_H
#define CONV_PNG_CUDA_CUDA_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONV_ENCODE_MAX_PLANES 4
#define CONV_ENCODE_ALIGN 16 // of each image's chunk in the output

// An image in device memory. Kernels read this struct.
struct conv_encode_image {
    // `channels` planes, 16-byte aligned; 16-bit samples are native uint16_t.
    const uint8_t *plane[CONV_ENCODE_MAX_PLANES];
    int64_t stride; // bytes from a row to the next, of every plane; a multiple of 16 that covers a
                    // row. Bytes after a row within it may be read and have no effect.
    int32_t width, height; // pixels, at least 1
    int32_t channels;      // 1 to 4
    int32_t depth;         // 8 or 16

    // Set by conv_cuda_encode_plan.
    uint32_t block_bytes; // of the image's scanlines in each of its deflate blocks except the last
    uint32_t blocks;
    uint32_t first_block; // of the image among those of the batch
    uint32_t spans;       // parts of a row for which filter costs are added up
    uint32_t first_span;  // of the image among those of the batch
    uint32_t first_row;
    uint64_t stream_at; // offset of its scanlines in the scratch memory's part for them
    uint64_t bits_at;   // offset of its blocks' bits in the part for those
};

// The needs of a batch. The caller uses the two sizes only.
struct conv_encode_plan {
    size_t scratch_bytes; // of device memory, 256-byte aligned
    size_t output_bytes;  // upper bound for the chunks of all images
    int32_t count;
    uint32_t blocks, rows, spans;
    uint64_t stream_bytes, bits_bytes;
};

// The place of an image's chunk in the output: length, "IDAT", zlib stream and CRC.
struct conv_encode_result {
    uint64_t offset; // a multiple of CONV_ENCODE_ALIGN
    uint64_t size;
};

struct conv_encode_batch {
    struct conv_encode_plan plan;
    const struct conv_encode_image *d_images; // the planned table, copied to the device
    void *d_scratch;                          // plan.scratch_bytes; any content
    // Device addresses of device memory or of mapped pinned host memory, only written. Bytes after
    // each chunk up to the next multiple of 16 become 0.
    uint8_t *output;                    // plan.output_bytes, 16-byte aligned
    struct conv_encode_result *results; // plan.count, 16-byte aligned
    void *stream;                       // the cudaStream_t, of the calling thread's device
    // Called after each launch, for benchmarks that put an event there; may be NULL.
    void (*mark)(void *context, const char *kernel);
    void *mark_context;
};

// Upper bound for the chunk of such an image, rounded up to CONV_ENCODE_ALIGN; 0 if it could exceed
// the limit of a chunk (2^31 - 1 bytes), which this encoder does not support.
size_t conv_cuda_encode_bound(int width, int height, int channels, int depth);

// Plans a batch of any mix of images: sets the planner's part of each image and *plan. A plan is
// valid for other planes of the same shapes, too. CONV_ERR_UNSUPPORTED: an image is too large
// (conv_cuda_encode_bound), or the batch has 2^31 rows or more.
enum conv_status conv_cuda_encode_plan(struct conv_encode_plan *plan,
                                       struct conv_encode_image *images, int count);

// Enqueues the batch (of at least one image) with a constant number of launches; does not allocate
// and does not wait. Planes and table must stay until the kernels have run.
// CONV_ERR_DEVICE if a launch failed; the cause is cudaGetLastError's.
enum conv_status conv_cuda_encode(const struct conv_encode_batch *batch);

#ifdef __cplusplus
}
#endif

#endif
