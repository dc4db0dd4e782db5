// SPDX-License-Identifier: MIT
// What the decoders in cpu/ and cuda/ share. Plain C, and CUDA for the functions.
#pragma once

#include <stdint.h>

#define CONV_JPEG_COMPONENTS 3
#define CONV_JPEG_BLOCK 64 // coefficients or samples of a block

// --- the stream of a file ------------------------------------------------------------------------

// What they read of a file, made by conv_jpeg_copy_stream (stream.c): this head, then the offsets
// of the restart segments, then their entropy-coded data without stuffed bytes and without restart
// markers. Files whose scan is not one baseline Huffman scan of all components, or whose markers
// are not as they should be, have no stream.
struct conv_jpeg_code {
    uint8_t counts[16];   // codes of each length, as in a DHT segment
    uint8_t symbols[256]; // in order of their codes
};

struct conv_jpeg_stream {
    uint32_t bytes;               // of all of it
    uint32_t segments;            // at least 1
    uint32_t segment_mcus;        // MCUs of each segment but the last; all if there is one
    uint32_t offsets_at;          // uint32_t[segments + 1]: where each begins and the last ends,
                                  // counted from data_at
    uint32_t data_at, data_bytes; // followed by at least 16 bytes of zeros
    uint16_t width, height;
    uint8_t components;                                       // 1 or 3
    uint8_t orientation, weighed;                             // as in struct conv_image_header
    uint8_t h[CONV_JPEG_COMPONENTS], v[CONV_JPEG_COMPONENTS]; // sampling factors; 1 if there is one
    uint16_t quant[CONV_JPEG_COMPONENTS][CONV_JPEG_BLOCK];    // in zigzag order
    uint8_t tables[CONV_JPEG_COMPONENTS]; // the first component that has the same codes
    struct conv_jpeg_code dc[CONV_JPEG_COMPONENTS], ac[CONV_JPEG_COMPONENTS]; // per component
};

// --- one dimension of the inverse DCT ------------------------------------------------------------

// The arithmetic is that of libjpeg's accurate integer DCT: 13 bits of constants, and 2 bits more
// between the passes.

#ifdef __device__ // CUDA
#define CONV_JPEG_INLINE __device__ __forceinline__
#else
#define CONV_JPEG_INLINE static inline
#endif

// How much smaller the results are made after the columns and after the rows.
#define CONV_JPEG_IDCT_FIRST (13 - 2)
#define CONV_JPEG_IDCT_SECOND (13 + 2 + 3)

// Eight inputs to eight outputs, scaled by 2^13 times the square root of 8. Loeffler, Ligtenberg,
// Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", 1989, figure 1 reversed.
CONV_JPEG_INLINE void conv_jpeg_idct(int32_t *out, const int32_t *in)
{
    // Rotation by 3/8 pi of inputs 2 and 6, and sums with the others of even number.
    int32_t turn = (in[2] + in[6]) * 4433;
    int32_t low = turn - in[6] * 15137, high = turn + in[2] * 6270;
    int32_t plus = (in[0] + in[4]) * 8192, minus = (in[0] - in[4]) * 8192;
    int32_t even0 = plus + high, even1 = minus + low, even2 = minus - low, even3 = plus - high;
    // The inputs of odd number.
    int32_t both = (in[1] + in[3] + in[5] + in[7]) * 9633;
    int32_t outer = (in[1] + in[7]) * -7373, inner = (in[3] + in[5]) * -20995;
    int32_t a = (in[3] + in[7]) * -16069 + both, b = (in[1] + in[5]) * -3196 + both;
    int32_t odd0 = in[1] * 12299 + outer + b, odd1 = in[3] * 25172 + inner + a;
    int32_t odd2 = in[5] * 16819 + inner + b, odd3 = in[7] * 2446 + outer + a;
    out[0] = even0 + odd0;
    out[1] = even1 + odd1;
    out[2] = even2 + odd2;
    out[3] = even3 + odd3;
    out[4] = even3 - odd3;
    out[5] = even2 - odd2;
    out[6] = even1 - odd1;
    out[7] = even0 - odd0;
}

CONV_JPEG_INLINE int32_t conv_jpeg_descale(int32_t value, int bits)
{
    return (value + (1 << (bits - 1))) >> bits;
}
