// SPDX-License-Identifier: MIT
// PNG image data made on the device: planes go in, complete IDAT chunks come out, one an image,
// and nothing else leaves the device. Plain C, so that the backend and the tests see no CUDA type.
//
//   plan = conv_cuda_encode_plan(images, count)        host: once for each batch
//   copy `images` to the device
//   conv_cuda_encode(&batch)                             queues work on the stream, nothing else
//   wait for the stream; results[i] says where image i's chunk is in `output`
//
// The bytes of a chunk depend on the image alone: not on its neighbours in the batch, on streams
// or on the order in which the device ran.
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

// An image in device memory. Kernels read this struct as it stands.
struct conv_encode_image {
    // `channels` planes, 128-byte aligned; 16-bit samples are native uint16_t.
    const uint8_t *plane[CONV_ENCODE_MAX_PLANES];
    int64_t stride; // bytes from a row to the next, of every plane; a multiple of 16 that covers a
                    // row. What lies behind a row within it may be read and has no effect.
    int32_t width, height; // pixels, at least 1
    int32_t channels;      // 1 to 4
    int32_t depth;         // 8 or 16

    // The rest is conv_cuda_encode_plan's.
    uint32_t block_bytes; // of the image's scanlines in each of its deflate blocks but the last
    uint32_t blocks;
    uint32_t first_block; // of the image among those of the batch
    uint32_t spans;       // parts of a row whose filter is judged at a time
    uint32_t first_span;  // of the image among those of the batch
    uint32_t first_row;
    uint64_t stream_at; // offset of its scanlines in the scratch memory's part for them
    uint64_t bits_at;   // offset of its blocks' bits in the part for those
};

// What a batch needs. Only the sizes are for the caller.
struct conv_encode_plan {
    size_t scratch_bytes; // of device memory, 256-byte aligned
    size_t output_bytes;  // most that the chunks of all images can take
    int32_t count;
    uint32_t blocks, rows, spans;
    uint64_t stream_bytes, bits_bytes;
};

// Where an image's chunk lies in the output: length, "IDAT", zlib stream, CRC, `size` bytes in
// all.
struct conv_encode_result {
    uint64_t offset; // a multiple of CONV_ENCODE_ALIGN
    uint64_t size;
};

struct conv_encode_batch {
    struct conv_encode_plan plan;
    const struct conv_encode_image *d_images; // the planned table, copied to the device
    void *d_scratch;                          // plan.scratch_bytes; any content
    // The device's addresses of device memory, or of pinned host memory mapped into it: both are
    // only written. What is behind each chunk up to the next multiple of 16 becomes 0.
    uint8_t *output;                    // plan.output_bytes, 16-byte aligned
    struct conv_encode_result *results; // plan.count, 16-byte aligned
    void *stream;                       // the cudaStream_t, of the calling thread's device
    // Called after each launch, for benchmarks that put an event there; may be NULL.
    void (*mark)(void *context, const char *kernel);
    void *mark_context;
};

// Most bytes that the chunk of such an image takes, rounded up to CONV_ENCODE_ALIGN; 0 if it could
// be too large for one chunk (2^31 - 1 bytes), and so for this encoder.
size_t conv_cuda_encode_bound(int width, int height, int channels, int depth);

// Plans a batch of any mix of images: fills the second half of each image and *plan. A plan
// holds for other planes of the same shapes too. CONV_ERR_UNSUPPORTED: an image is too large
// (conv_cuda_encode_bound), or the batch has 2^31 rows or more. Any thread.
enum conv_status conv_cuda_encode_plan(struct conv_encode_plan *plan,
                                       struct conv_encode_image *images, int count);

// Queues the batch (of at least one image): a constant number of launches however many images,
// no allocation, no waiting. The planes and the table must stay until they have run.
// CONV_ERR_DEVICE if a launch failed; the cause is cudaGetLastError's.
enum conv_status conv_cuda_encode(const struct conv_encode_batch *batch);

#ifdef __cplusplus
}
#endif

#endif
