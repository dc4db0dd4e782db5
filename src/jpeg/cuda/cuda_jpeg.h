// SPDX-License-Identifier: MIT
// JPEG on the device: the interface of its decoder and of its encoder. Plain C without CUDA types,
// for the engine and the tests. Both produce what libjpeg-turbo does with its default settings
// (accurate integer DCT, smooth upsampling of chroma), to the last bit.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/device_encode.h"
#include "jpeg/decoding.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- the standard Huffman tables -----------------------------------------------------------------

struct conv_jpeg_standard {
    uint8_t counts[16];  // codes of each length, as in a DHT segment
    const char *symbols; // in order of their codes
};

// Those of luma and of chroma, each for DC and for AC (ITU-T T.81, tables K.3 to K.6).
#ifdef __cplusplus
static constexpr
#else
static const
#endif
    struct conv_jpeg_standard conv_jpeg_standard[2][2] = {
        {{{0, 1, 5, 1, 1, 1, 1, 1, 1}, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b"},
         {{0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125},
          "\x01\x02\x03\x00\x04\x11\x05\x12\x21\x31\x41\x06\x13\x51\x61\x07\x22\x71\x14\x32"
          "\x81\x91\xa1\x08\x23\x42\xb1\xc1\x15\x52\xd1\xf0\x24\x33\x62\x72\x82\x09\x0a\x16"
          "\x17\x18\x19\x1a\x25\x26\x27\x28\x29\x2a\x34\x35\x36\x37\x38\x39\x3a\x43\x44\x45"
          "\x46\x47\x48\x49\x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68\x69"
          "\x6a\x73\x74\x75\x76\x77\x78\x79\x7a\x83\x84\x85\x86\x87\x88\x89\x8a\x92\x93\x94"
          "\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xb2\xb3\xb4\xb5\xb6"
          "\xb7\xb8\xb9\xba\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6\xd7\xd8"
          "\xd9\xda\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8"
          "\xf9\xfa"}},
        {{{0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b"},
         {{0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119},
          "\x00\x01\x02\x03\x11\x04\x05\x21\x31\x06\x12\x41\x51\x07\x61\x71\x13\x22\x32\x81"
          "\x08\x14\x42\x91\xa1\xb1\xc1\x09\x23\x33\x52\xf0\x15\x62\x72\xd1\x0a\x16\x24\x34"
          "\xe1\x25\xf1\x17\x18\x19\x1a\x26\x27\x28\x29\x2a\x35\x36\x37\x38\x39\x3a\x43\x44"
          "\x45\x46\x47\x48\x49\x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68"
          "\x69\x6a\x73\x74\x75\x76\x77\x78\x79\x7a\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x92"
          "\x93\x94\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xb2\xb3\xb4"
          "\xb5\xb6\xb7\xb8\xb9\xba\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6"
          "\xd7\xd8\xd9\xda\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf2\xf3\xf4\xf5\xf6\xf7\xf8"
          "\xf9\xfa"}},
};

// --- decoding ------------------------------------------------------------------------------------

// An image to be decoded. Kernels read this struct.
struct conv_jpeg_decode_image {
    // Set by the caller.
    const uint8_t *d_stream;                // 16-byte aligned, after an upload
    uint32_t stream_bytes;                  // or an upper bound of them, before
    uint8_t *d_plane[CONV_JPEG_COMPONENTS]; // 1 (gray) or 3 (R, G, B) planes
    // Bytes from a pixel to the next and from a row to the next in all planes, which may be
    // negative. If `column` is 1, planes and rows are 16-byte aligned, and a row is written up to
    // the next multiple of 16 bytes.
    int64_t column, stride;
    int32_t width, height; // pixels
    int32_t components;    // 1 or 3
    bool gray;             // one plane, of 3 components: their luminance,
    bool weighed;          // or the weighted mean of R, G and B (conv_image_weigh)
    uint8_t h[CONV_JPEG_COMPONENTS], v[CONV_JPEG_COMPONENTS];
    uint32_t segments;
    // Set by conv_cuda_jpeg_decode_plan: places in the scratch memory, counts. (The decoder's own.)
    uint64_t plan[16];
};

// The status word of an image. Unless it is DECODED, the CPU has to decode the file or report its
// error, and the contents of the planes are undefined. The other codes are diagnostic only.
enum conv_jpeg_decode_result {
    CONV_JPEG_DECODED, // the planes are right, and libjpeg-turbo warns of nothing
    CONV_JPEG_CODE,    // an unused codeword, or a table that libjpeg-turbo refuses
    CONV_JPEG_INDEX,   // more than 64 coefficients in a block
    CONV_JPEG_SIZE,    // a segment with too few or too many data
    CONV_JPEG_RANGE,   // coefficients so large that implementations of the DCT differ
    CONV_JPEG_COSTLY,  // possibly valid, but it synchronises too slowly
    CONV_JPEG_STOPPED, // not finished because of the batch's d_stop
    CONV_JPEG_RESULTS
};

struct conv_jpeg_decode_batch {
    const struct conv_jpeg_decode_image *images;   // readable by the host, planned
    const struct conv_jpeg_decode_image *d_images; // the same table in device memory
    int count;                                     // at least 1
    void *d_scratch;                               // as passed to the planner
    const uint32_t *d_stop;                        // as in conv_decode_batch; may be NULL
    uint32_t *d_status; // `count` words: device memory, or pinned host memory that is mapped
    void *stream;       // the cudaStream_t, one of the calling thread's current device
};

// True if the kernels can decode such an image. Reads the caller's part without d_stream, d_plane
// and stride. False if stream_bytes, which may be the size of the file, are more than the image's
// coefficients can take and 64 KiB.
bool conv_cuda_jpeg_decode_takes(const struct conv_jpeg_decode_image *image);

// Bytes of device memory that such an image needs while it is decoded, whatever its stream holds;
// a multiple of 256.
size_t conv_cuda_jpeg_decode_scratch(const struct conv_jpeg_decode_image *image);

// Sets the planner's part of all entries. d_scratch is 256-byte aligned, as large as the sum of
// conv_cuda_jpeg_decode_scratch over the images (struct conv_jpeg_decode_image), and reserved until
// the kernels have run.
void conv_cuda_jpeg_decode_plan(void *images, int count, uint8_t *d_scratch);

// Enqueues the decoding of all images; does not wait and does not allocate. Every d_status word is
// written, whatever the streams contain, and no image touches another's memory. On failure
// CONV_ERR_DEVICE; cudaGetLastError has the cause.
enum conv_status conv_cuda_jpeg_decode(const struct conv_jpeg_decode_batch *batch);

// --- encoding ------------------------------------------------------------------------------------

// An image in device memory. Kernels read this struct.
struct conv_jpeg_encode_image {
    // 1 (gray) or 3 (R, G, B) planes of 8 bits, 16-byte aligned.
    const uint8_t *plane[CONV_JPEG_COMPONENTS];
    int64_t stride; // bytes from a row to the next, of every plane; a multiple of 16 that covers a
                    // row. Bytes after a row within it may be read and have no effect.
    int32_t width, height; // pixels, 1 to 65,500
    int32_t components;    // 1 or 3
    int32_t h, v;          // sampling factors of luma; those of chroma are 1, as is that of gray
    // Of luma and of chroma, in zigzag order, 1 to 255.
    uint16_t quant[2][CONV_JPEG_BLOCK];
    // Set by conv_cuda_jpeg_encode_plan.
    uint32_t mcus_across, mcus;
    uint32_t first_chunk, chunks; // groups of MCUs, numbered in the batch
    uint64_t bits_at;             // first 32-bit word of the chunks' bits
};

// Upper bound for the data of such an image, rounded up to CONV_ENCODE_ALIGN; 0 if the device
// does not encode it: sampling factors of luma other than 1x1, 2x1 and 2x2, or more than 2^31
// bytes. Reads the sizes, the number of components and the sampling factors.
size_t conv_cuda_jpeg_encode_bound(const struct conv_jpeg_encode_image *image);

// Plans a batch of any mix of images (struct conv_jpeg_encode_image): sets the planner's part of
// each image and *plan. CONV_ERR_UNSUPPORTED: an image has no bound, or the batch is too large.
enum conv_status conv_cuda_jpeg_encode_plan(struct conv_encode_plan *plan, void *images, int count);

// Enqueues the batch (of at least one image) with a constant number of launches; does not allocate
// and does not wait. The data of an image is entropy-coded, stuffed bytes and EOI included; with
// the standard Huffman tables it is libjpeg-turbo's. Nothing is written after the zeros of the last
// image. CONV_ERR_DEVICE if a launch failed; the cause is cudaGetLastError's.
enum conv_status conv_cuda_jpeg_encode(const struct conv_encode_batch *batch);

#ifdef __cplusplus
}
#endif
