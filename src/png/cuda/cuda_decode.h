// SPDX-License-Identifier: MIT
// PNG image data to planes on a CUDA device: inflate, Adler-32, filters, for many images at
// once. The host has walked the chunks and checked their CRCs; what it cannot know before the data
// is inflated comes back as a word an image. Plain C: the backend and the tests see no CUDA type.
#ifndef CONV_PNG_CUDA_CUDA_DECODE_H
#define CONV_PNG_CUDA_CUDA_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

// One image: colour type 0, 2, 4 or 6 with 8 or 16 bits, not interlaced, without tRNS. Kernels
// read this struct as it stands.
struct conv_decode_image {
    // The caller's.
    const uint8_t *d_stream; // the zlib stream: the IDAT chunks' data, joined; any alignment
    uint8_t *d_plane[4];     // `channels` planes, each 16-byte aligned
    int64_t stride;          // bytes from a row to the next in all planes, a multiple of 16. A row
                             // is written up to the next multiple of 16 bytes.
    uint32_t stream_bytes;
    int32_t width, height;   // pixels
    int32_t channels, depth; // 1 to 4; 8 or 16 (to native uint16_t)
    // conv_cuda_decode_plan's.
    uint32_t row_bytes; // a row's, without its filter
    uint8_t *d_rows;    // in the scratch: the filtered rows, each behind its filter
    uint32_t rows_bytes;
    uint32_t turn; // of entry i: the image that comes i-th, the longest streams first
};

// The word of an image. Whatever is not DECODED is the CPU's to decode, which alone says what is
// wrong; the planes then hold anything. The reasons are for tests and for curious people.
enum conv_decode_result {
    CONV_DECODE_DECODED,   // the planes are right, and so is the Adler-32
    CONV_DECODE_HEADER,    // not a zlib stream, or its window is too small for the image
    CONV_DECODE_BLOCK,     // a reserved block type, or a stored block whose size is not confirmed
    CONV_DECODE_CODE,      // codes that zlib refuses
    CONV_DECODE_SYMBOL,    // a codeword that stands for nothing
    CONV_DECODE_DISTANCE,  // a match from before the first byte
    CONV_DECODE_TRUNCATED, // the stream ends within a block
    CONV_DECODE_SIZE,      // more or fewer bytes than the image has, or than the stream has
    CONV_DECODE_ADLER,     // a wrong Adler-32
    CONV_DECODE_FILTER,    // a row with a filter that does not exist
    CONV_DECODE_COSTLY,    // may be right, but its blocks give too few bytes for what they cost
    CONV_DECODE_STOPPED,   // not finished, because of the batch's d_stop
    CONV_DECODE_RESULTS
};

struct conv_decode_batch {
    const struct conv_decode_image *images;   // readable by the host, planned
    const struct conv_decode_image *d_images; // the same table in device memory
    int count;                                // at least 1
    int threads;      // that inflate an image together: 128, 256, 512; 0: chosen by `count`
    bool at_any_cost; // for tests: nothing is refused as CONV_DECODE_COSTLY
    // A word, usually of the host's memory, mapped. While the kernels run, any thread may make it
    // non-zero; within some milliseconds streams that are not finished end as CONV_DECODE_STOPPED.
    // May be NULL.
    const uint32_t *d_stop;
    uint32_t *d_status; // `count` words: device memory, or pinned host memory that is mapped
    void *stream;       // the cudaStream_t, one of the calling thread's current device
    void (*mark)(void *context, const char *kernel); // called after each launch; may be NULL
    void *context;
};

// True if the caller's part of an entry is an image that the kernels take: d_stream, d_plane and
// stride are not read. stream_bytes may be an upper bound, such as the size of the file. Not taken
// are streams and images of about 512 MB and more, streams that are a quarter larger than the image
// (and 64 KiB), and more than 8192 rows of less than 256 bytes each.
bool conv_cuda_decode_takes(const struct conv_decode_image *image);

// Device memory for the filtered rows of an image (a multiple of 128) that is taken.
size_t conv_cuda_decode_scratch(const struct conv_decode_image *image);

// Fills the planner's part of all entries; of the caller's part, the sizes must be set. d_scratch
// is 128-byte aligned and as large as the sum of conv_cuda_decode_scratch over the images; nobody
// else uses it as long as the kernels run.
void conv_cuda_decode_plan(struct conv_decode_image *images, int count, uint8_t *d_scratch);

// Queues the decoding of all images and returns; nothing waits and nothing is allocated. Each
// d_status word is written, whatever the streams hold, and no image touches another's memory.
// CONV_ERR_DEVICE leaves the cause to be asked for with cudaGetLastError.
enum conv_status conv_cuda_decode(const struct conv_decode_batch *batch);

#ifdef __cplusplus
}
#endif

#endif
