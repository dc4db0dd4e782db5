// SPDX-License-Identifier: MIT
// Shared by the kernels of the JPEG encoder: the division of a batch into chunks, and the data that
// the kernels pass on in scratch memory.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "jpeg/cuda/cuda_jpeg.h"
#include "kernels/common/place.h"
#include "kernels/common/warp.cuh"

// A thread block codes a chunk: as many MCUs as have this many blocks, a thread for each. The first
// of them is the last one of the chunk before, of which only the DC coefficients are used.
#define CHUNK_BLOCKS 128
// Upper bounds for a block, in which coefficients are not larger than 8-bit samples can make them:
// the sum of their squares is at most 64 * 128^2. For a multiplier m, the sum over all symbols of
// (their bits - m * the square of the smallest coefficient that has them), which dynamic
// programming maximises over all sequences of 63 coefficients, plus m * 64 * 128^2, is such a
// bound. The best m gives 1,159 bits, and 214.1 bytes with a zero after each byte of ones.
#define BLOCK_BITS_MOST 1160
#define BLOCK_BYTES_MOST 216

struct jpeg_chunk {
    uint32_t image;
    // A chunk has bits, and the bytes that begin in it have stuffed zeros.
    uint32_t bits, stuffed;
    uint64_t bits_before, stuffed_before; // of the image's chunks before it
};

struct jpeg_data {
    uint64_t bits, stuffed; // of all chunks
    uint64_t offset;        // in the output
};

// All scratch memory of a batch, on the device.
struct jpeg_scratch {
    const struct conv_jpeg_encode_image *images;
    int count;
    uint32_t all_chunks;
    struct jpeg_chunk *chunks;
    struct jpeg_data *data; // one per image
    uint32_t *bits;         // words of chunks; the first bit is the highest
};

CONV_HOST_DEVICE static inline int mcu_blocks(const struct conv_jpeg_encode_image &image)
{
    return image.components == 1 ? 1 : image.h * image.v + 2;
}

CONV_HOST_DEVICE static inline uint32_t chunk_mcus(const struct conv_jpeg_encode_image &image)
{
    return (uint32_t)(CHUNK_BLOCKS / mcu_blocks(image)) - 1;
}

// Words reserved for each chunk of an image.
CONV_HOST_DEVICE static inline uint32_t chunk_room(const struct conv_jpeg_encode_image &image)
{
    uint32_t mcus = chunk_mcus(image) < image.mcus ? chunk_mcus(image) : image.mcus;
    return (mcus * (uint32_t)mcu_blocks(image) * BLOCK_BITS_MOST + 127) / 128 * 4;
}

// --- launchers, in the order in which they run ---------------------------------------------------

extern "C" {
// encode_blocks.cu: pixels to each chunk's bits.
void conv_jpeg_encode_blocks(const struct jpeg_scratch &scratch, cudaStream_t stream);
// encode_bits.cu: positions of bits, stuffed zeros, their positions, images, bytes.
void conv_jpeg_encode_place_bits(const struct jpeg_scratch &scratch, cudaStream_t stream);
void conv_jpeg_encode_count(const struct jpeg_scratch &scratch, cudaStream_t stream);
void conv_jpeg_encode_place_stuffed(const struct jpeg_scratch &scratch, cudaStream_t stream);
void conv_jpeg_encode_place(const struct jpeg_scratch &scratch, struct conv_encode_result *results,
                            cudaStream_t stream);
void conv_jpeg_encode_write(const struct jpeg_scratch &scratch, uint8_t *output,
                            cudaStream_t stream);
}
