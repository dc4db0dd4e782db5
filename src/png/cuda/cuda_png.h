// SPDX-License-Identifier: MIT
// PNG on the device: the interface of its decoder and of its encoder.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/device_encode.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- decoding ------------------------------------------------------------------------------------

// Decodes PNG image data to planes on a CUDA device: inflate, Adler-32, filters, for many images at
// once. The host has walked the chunks and checked their CRCs; the device reports a status word per
// image. Plain C without CUDA types, for the backend and the tests.

// An image of colour type 0, 2, 4 or 6 with 8 or 16 bits, not interlaced, without tRNS. Kernels
// read this struct.
struct conv_decode_image {
    // Set by the caller.
    const uint8_t *d_stream; // the concatenated IDAT data; any alignment
    uint8_t *d_plane[4];     // `channels` planes, each 16-byte aligned
    int64_t stride;          // bytes from a row to the next in all planes, a multiple of 16. A row
                             // is written up to the next multiple of 16 bytes.
    uint32_t stream_bytes;
    int32_t width, height;   // pixels
    int32_t channels, depth; // 1 to 4; 8 or 16 (to native uint16_t)
    // Set by conv_cuda_decode_plan.
    uint32_t row_bytes; // of a row without its filter byte
    uint8_t *d_rows;    // in the scratch memory: the filtered rows, each after its filter byte
    uint32_t rows_bytes;
    uint32_t turn;              // of entry i: the i-th image in order of falling stream length
    uint32_t parts, part_bytes; // of the stream, for many blocks of threads; 0 if it is too short
    uint8_t *d_split;           // in the scratch memory: the decoded parts. After decoding in parts
                                // the first word is 0 if that has succeeded.
};

// How streams that have parts are inflated: by one block of threads per part, or by one in total.
// AUTO: by many if few images are in flight.
enum conv_decode_split {
    CONV_DECODE_SPLIT_AUTO,
    CONV_DECODE_SPLIT_ALWAYS,
    CONV_DECODE_SPLIT_NEVER
};

// The status word of an image. Unless it is DECODED, the CPU has to decode the file or report its
// error, and the contents of the planes are undefined. The other codes are diagnostic only.
enum conv_decode_result {
    CONV_DECODE_DECODED,   // the planes are right, and so is the Adler-32
    CONV_DECODE_HEADER,    // not a zlib stream, or its window is too small for the image
    CONV_DECODE_BLOCK,     // a reserved block type, or a stored block whose size is not confirmed
    CONV_DECODE_CODE,      // codes that zlib refuses
    CONV_DECODE_SYMBOL,    // an unused codeword
    CONV_DECODE_DISTANCE,  // a match from before the first byte
    CONV_DECODE_TRUNCATED, // the stream ends within a block
    CONV_DECODE_SIZE,      // more or fewer bytes than the image has, or than the stream has
    CONV_DECODE_ADLER,     // a wrong Adler-32
    CONV_DECODE_FILTER,    // a row with a filter that does not exist
    CONV_DECODE_COSTLY,    // possibly valid, but its blocks cost too much for their output
    CONV_DECODE_STOPPED,   // not finished because of the batch's d_stop
    CONV_DECODE_RESULTS
};

struct conv_decode_batch {
    const struct conv_decode_image *images;   // readable by the host, planned
    const struct conv_decode_image *d_images; // the same table in device memory
    int count;                                // at least 1
    int threads; // per image in inflate: 128, 256, 512; 0: chosen by `at_once`
    int at_once; // images that the device decodes at the same time, in this batch and on other
                 // streams; 0: unknown, at least `count`
    enum conv_decode_split split;
    bool at_any_cost; // for tests: no CONV_DECODE_COSTLY
    // A word, usually in mapped host memory. Any thread may set it while the kernels run; within
    // some milliseconds unfinished streams end as CONV_DECODE_STOPPED. May be NULL.
    const uint32_t *d_stop;
    uint32_t *d_status; // `count` words: device memory, or pinned host memory that is mapped
    void *stream;       // the cudaStream_t, one of the calling thread's current device
    void (*mark)(void *context, const char *kernel); // called after each launch
                                                     // (two that overlap count as one); may
                                                     // be NULL
    void *context;
};

// True if the kernels can decode such an image. Reads the caller's part without d_stream, d_plane
// and stride; stream_bytes may be an upper bound, such as the size of the file. False for images
// whose rows take 256 MiB or more, streams larger than 5/4 of the rows and 64 KiB, and more than
// 8192 rows of less than 256 bytes each.
bool conv_cuda_decode_takes(const struct conv_decode_image *image);

// Bytes of device memory for the filtered rows of such an image, whatever its stream_bytes, a
// multiple of 128: the rows, and for images of 256 KiB or more 2.5 times as much again.
size_t conv_cuda_decode_scratch(const struct conv_decode_image *image);

// The part of that for an image's d_split: memory that is 128-byte aligned, of any image with
// parts.
size_t conv_cuda_decode_split_bytes(const struct conv_decode_image *image);

// Sets the planner's part of all entries from the sizes in the caller's part. d_scratch is 128-byte
// aligned, as large as the sum of conv_cuda_decode_scratch over the images, and reserved until the
// kernels have run.
// `images`: struct conv_decode_image.
void conv_cuda_decode_plan(void *images, int count, uint8_t *d_scratch);

// Enqueues the decoding of all images; does not wait and does not allocate. Every d_status word is
// written, whatever the streams contain, and no image touches another's memory. On failure
// CONV_ERR_DEVICE; cudaGetLastError has the cause.
enum conv_status conv_cuda_decode(const struct conv_decode_batch *batch);

// --- encoding ------------------------------------------------------------------------------------

// Encodes planes on a CUDA device to complete IDAT chunks, one per image; nothing else leaves the
// device.

#define CONV_ENCODE_MAX_PLANES 4

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

// Upper bound for the chunk of such an image, rounded up to CONV_ENCODE_ALIGN; 0 if it could exceed
// the limit of a chunk (2^31 - 1 bytes), which this encoder does not support.
size_t conv_cuda_encode_bound(int width, int height, int channels, int depth);

// Plans a batch of any mix of images (struct conv_encode_image): sets the planner's part of each
// image and *plan. A plan is valid for other planes of the same shapes, too. CONV_ERR_UNSUPPORTED:
// an image is too large (conv_cuda_encode_bound), or the batch has 2^31 rows or more.
enum conv_status conv_cuda_encode_plan(struct conv_encode_plan *plan, void *images, int count);

// Enqueues the batch (of at least one image) with a constant number of launches; does not allocate
// and does not wait. Planes and table must stay until the kernels have run. The data of an image is
// its chunk: length, "IDAT", zlib stream and CRC.
// CONV_ERR_DEVICE if a launch failed; the cause is cudaGetLastError's.
enum conv_status conv_cuda_encode(const struct conv_encode_batch *batch);

#ifdef __cplusplus
}
#endif
