// SPDX-License-Identifier: MIT
// Shared by the kernels of the PNG encoder: the division of a batch into work, and the data that
// the kernels pass on in scratch memory.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/common/warp.cuh"
#include "png/cuda/cuda_png.h"
#include "png/cuda/deflate.cuh"

// Scanlines are cut into deflate blocks of at most this many bytes, each with its own codes and its
// own thread block. An icon of 128 x 128 pixels of four bytes is one block. Photographs: 0.5823 of
// raw with 16 KiB, 0.5808 with 48, 0.5812 with 128. It also keeps sums (Adler-32, encode_filter.cu)
// within 32 bits.
#define BLOCK_MOST 66560
// Bytes of each plane's row per warp; longer rows are shared by several warps.
#define SPAN_BYTES 32768
// A warp takes a window at a time, eight bytes per lane. Runs do not continue in the next window.
// tokens.cuh says what is a run.
#define WINDOW 256
#define LANE_BYTES (WINDOW / WARP)
// Chunks per deflate block, each written by a separate warp.
#define CHUNKS 8

// --- tokens --------------------------------------------------------------------------------------

// Tokens are literals, the end of the block, and runs: matches of RUN_LEAST to WINDOW bytes that
// repeat the byte before them, or the pixel before them. The table of codes has an entry for each.
#define RUN_LEAST 4
#define RUN_LENGTHS (WINDOW - RUN_LEAST + 1)
#define TOKEN_END DEFLATE_END
#define TOKEN_NEAR (TOKEN_END + 1) // plus the length minus RUN_LEAST
#define TOKEN_PIXEL (TOKEN_NEAR + RUN_LENGTHS)
#define TOKENS (TOKEN_PIXEL + RUN_LENGTHS)
// Runs are counted by length, whatever their distance.
#define COUNT_RUN 256
#define COUNTS (COUNT_RUN + RUN_LENGTHS)

// An entry: the bits to send, and above these their number. A run takes at most DEFLATE_LIMIT + 5
// for its length and 6 for its distance.
#define ENTRY_SHIFT 27
#define ENTRY_MASK ((1u << ENTRY_SHIFT) - 1)

// Distances up to the one of a pixel of eight bytes.
#define DISTANCES_MOST 6
// Upper bound of the bits of a block's header: 17, the lengths of 19 codes, and all lengths of 7
// bits each. An item that stands for several lengths takes fewer bits than they would.
#define HEADER_MOST (17 + 3 * 19 + 7 * (DEFLATE_LITLENS + DISTANCES_MOST))
#define HEADER_WORDS ((HEADER_MOST + 31) / 32)

// --- scratch memory ------------------------------------------------------------------------------

struct encode_block {
    uint32_t count[COUNTS];        // filter: literals and runs
    uint32_t entry[TOKENS];        // codes
    uint32_t header[HEADER_WORDS]; // codes
    uint32_t header_bits;
    uint32_t adler[2];           // filter: of the block alone, beginning with 0
    uint32_t chunk_bits[CHUNKS]; // pack
    uint32_t crc;                // pack: the remainder of the block's bits times x^1024
    uint32_t bits;               // pack: of all chunks
    uint64_t start;              // layout: first bit within the image's chunk
};

struct encode_size {
    uint64_t data_end; // first bit after the image's last block
    uint64_t size;     // of its chunk, bytes
    uint64_t offset;   // in the output
    uint32_t adler, crc;
};

// All scratch memory of a batch, on the device.
struct encode_scratch {
    const struct conv_encode_image *images;
    int count;
    uint32_t *costs; // PNG_FILTERS per row
    struct encode_block *blocks;
    struct encode_size *sizes; // one per image
    uint8_t *streams;          // scanlines of all images, each image's at a multiple of WINDOW
    uint32_t *bits;            // chunks of all blocks
};

// The bits that come before the first block: length, "IDAT", the head of a zlib stream.
#define PREAMBLE_BITS 80
// Bytes around a stream: the preamble before it, and Adler-32 and CRC-32 after it.
#define FRAME_BYTES (PREAMBLE_BITS / 8 + 8)

// Bytes reserved for each chunk of a block: DEFLATE_LIMIT bits per byte, the first one's header,
// the last one's end, in whole lines of 32 words.
CONV_HOST_DEVICE static inline uint32_t chunk_bytes(uint32_t block_bytes)
{
    return (block_bytes + CHUNKS * WINDOW - 1) / (CHUNKS * WINDOW) * WINDOW;
}

CONV_HOST_DEVICE static inline uint32_t chunk_room(uint32_t block_bytes)
{
    uint32_t bits = DEFLATE_LIMIT * chunk_bytes(block_bytes) + HEADER_MOST + DEFLATE_LIMIT;
    return (bits + 1023) / 1024 * 128;
}

CONV_HOST_DEVICE static inline uint32_t pixel_bytes(const struct conv_encode_image &image)
{
    return (uint32_t)(image.channels * (image.depth / 8));
}

CONV_HOST_DEVICE static inline uint32_t row_bytes(const struct conv_encode_image &image)
{
    return (uint32_t)image.width * pixel_bytes(image);
}

// Bytes of the image's scanlines, with the filters' numbers.
CONV_HOST_DEVICE static inline uint32_t stream_bytes(const struct conv_encode_image &image)
{
    return (row_bytes(image) + 1) * (uint32_t)image.height;
}

// --- where a block works -------------------------------------------------------------------------

// A deflate block: its place among those of the batch and in its image's scanlines.
struct work {
    struct conv_encode_image image;
    int image_index;
    uint32_t index; // in the batch
    uint32_t begin, end;
};

__device__ inline struct work find_work(const struct encode_scratch &scratch)
{
    const struct conv_encode_image *images = scratch.images;
    struct work work;
    work.index = blockIdx.x;
    work.image_index =
        find_last(scratch.count, blockIdx.x, [&](int i) { return images[i].first_block; });
    work.image = images[work.image_index];
    uint32_t all = stream_bytes(work.image);
    work.begin = (blockIdx.x - work.image.first_block) * work.image.block_bytes;
    work.end = min(all, work.begin + work.image.block_bytes);
    return work;
}

// --- launchers, in the order in which they run ---------------------------------------------------

// Each enqueues one kernel, which is described in the file of its name.
extern "C" {
void conv_encode_filter_cost(const struct encode_scratch &scratch, uint32_t spans,
                             cudaStream_t stream);
void conv_encode_filter(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream);
void conv_encode_codes(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream);
void conv_encode_pack(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream);
void conv_encode_layout(const struct encode_scratch &scratch, cudaStream_t stream);
void conv_encode_place(const struct encode_scratch &scratch, struct conv_encode_result *results,
                       cudaStream_t stream);
void conv_encode_assemble(const struct encode_scratch &scratch, uint32_t blocks, uint8_t *output,
                          cudaStream_t stream);
}
