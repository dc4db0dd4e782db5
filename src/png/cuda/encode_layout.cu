// SPDX-License-Identifier: MIT
// Determines the positions of all bits from the sizes: first of the blocks within each image, with
// its checksums, then of the images.
#include "png/cuda/crc_tables.cuh"
#include "png/cuda/encode_internal.cuh"

#define WARPS 4
#define PLACE_THREADS 1024

__device__ inline uint64_t add_up(uint64_t value, uint32_t lanes)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t step = 1; step < lanes; step *= 2) {
        uint32_t low = __shfl_up_sync(ALL_LANES, (uint32_t)value, step);
        uint32_t high = __shfl_up_sync(ALL_LANES, (uint32_t)(value >> 32), step);
        value += lane >= step ? (uint64_t)high << 32 | low : 0;
    }
    return value;
}

__device__ inline uint64_t of_lane(uint64_t value, uint32_t lane)
{
    uint32_t low = __shfl_sync(ALL_LANES, (uint32_t)value, lane);
    return (uint64_t)__shfl_sync(ALL_LANES, (uint32_t)(value >> 32), lane) << 32 | low;
}

// Gives each of the image's blocks its first bit; returns the first bit after the last block.
__device__ inline uint64_t place_blocks(struct encode_block *blocks, uint32_t count)
{
    uint64_t at = PREAMBLE_BITS;
    for (uint32_t first = 0; first < count; first += WARP) {
        uint32_t i = first + threadIdx.x % WARP;
        uint64_t bits = i < count ? blocks[i].bits : 0, until = add_up(bits, WARP);
        if (i < count)
            blocks[i].start = at + until - bits;
        at += of_lane(until, WARP - 1);
    }
    return at;
}

// For the sums s and w of each block's bytes (encode_filter.cu), b bytes after it and n in total:
// Adler-32's halves are 1 + sum of s, and n + sum of w + b * s.
__device__ inline uint32_t join_adler(const struct encode_block *blocks,
                                      const struct conv_encode_image &image)
{
    uint32_t all = stream_bytes(image), sums[2] = {0, 0};
    for (uint32_t i = threadIdx.x % WARP; i < image.blocks; i += WARP) {
        uint32_t end = i + 1 < image.blocks ? (i + 1) * image.block_bytes : all;
        uint64_t after = (all - end) % ADLER_MODULUS;
        sums[0] = (sums[0] + blocks[i].adler[0]) % ADLER_MODULUS;
        sums[1] =
            (uint32_t)((sums[1] + blocks[i].adler[1] + after * blocks[i].adler[0]) % ADLER_MODULUS);
    }
    for (int step = WARP / 2; step > 0; step /= 2)
        for (int k = 0; k < 2; k++)
            sums[k] += __shfl_xor_sync(ALL_LANES, sums[k], step);
    return (uint32_t)(((uint64_t)sums[1] + all) % ADLER_MODULUS) << 16 |
           (sums[0] + 1) % ADLER_MODULUS;
}

// value * x^after: the contribution of a part followed by `after` bits to the CRC.
__device__ inline uint32_t crc_of(uint32_t value, uint64_t after)
{
    return crc_multiply(value, crc_power_by_table(crc_exponent(after), 8));
}

__device__ inline uint32_t swap_bytes(uint32_t value)
{
    return __byte_perm(value, 0, 0x0123);
}

// The CRC-32 of "IDAT" and the stream, whose last byte is filled after data_end and followed by the
// Adler-32. A CRC begins with ones, which complements the first 32 bits: "IDAT".
__device__ inline uint32_t join_crc(const struct encode_block *blocks, uint32_t count,
                                    uint64_t data_end, uint32_t adler)
{
    uint64_t end = (data_end + 7) / 8 * 8 + 32; // of the bits that are summed up
    uint32_t lane = threadIdx.x % WARP, crc = 0;
    for (uint32_t i = lane; i < count; i += WARP) {
        // x^1024 is in a block's remainder already, and 2^32 - 1 is the order of x.
        uint64_t after = end - blocks[i].start - blocks[i].bits;
        crc ^= crc_of(blocks[i].crc, after + crc_inverse(1024));
    }
    // "IDAT", the first two bytes of the stream, its last four.
    if (lane == 0)
        crc ^= crc_of(~0x54414449u, end - 64 + 32);
    else if (lane == 1)
        crc ^= crc_of(0x0178u, end - 96 + 32);
    else if (lane == 2)
        crc ^= crc_of(swap_bytes(adler), 32);
    for (int step = WARP / 2; step > 0; step /= 2)
        crc ^= __shfl_xor_sync(ALL_LANES, crc, step);
    return ~crc;
}

// 4 warps per block, one image per warp.
static __global__ void __launch_bounds__(WARPS *WARP) layout(const struct encode_scratch scratch)
{
    int index = (int)(blockIdx.x * WARPS + threadIdx.x / WARP);
    if (index >= scratch.count)
        return;
    const struct conv_encode_image &image = scratch.images[index];
    struct encode_block *blocks = scratch.blocks + image.first_block;
    uint64_t data_end = place_blocks(blocks, image.blocks);
    __syncwarp();
    uint32_t adler = join_adler(blocks, image);
    uint32_t crc = join_crc(blocks, image.blocks, data_end, adler);
    if (threadIdx.x % WARP == 0) {
        struct encode_size *size = &scratch.sizes[index];
        size->data_end = data_end;
        size->size = (data_end + 7) / 8 + 8;
        size->adler = adler;
        size->crc = crc;
    }
}

void conv_encode_layout(const struct encode_scratch &scratch, cudaStream_t stream)
{
    layout<<<((unsigned)scratch.count + WARPS - 1) / WARPS, WARPS * WARP, 0, stream>>>(scratch);
}

// --- images ------------------------------------------------------------------------------------

// One block of 32 warps, 1,024 images at a time: each warp adds up 32 sizes, one adds up the warps'
// sums, and all continue from these.
static __global__ void __launch_bounds__(PLACE_THREADS)
    place(const struct encode_scratch scratch, struct conv_encode_result *results)
{
    __shared__ uint64_t sums[PLACE_THREADS / WARP];
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint64_t at = 0;
    for (int first = 0; first < scratch.count; first += PLACE_THREADS) {
        int i = first + (int)threadIdx.x;
        uint64_t size = i < scratch.count ? scratch.sizes[i].size : 0;
        uint64_t room = (size + CONV_ENCODE_ALIGN - 1) / CONV_ENCODE_ALIGN * CONV_ENCODE_ALIGN;
        uint64_t until = add_up(room, WARP);
        if (lane == WARP - 1)
            sums[warp] = until;
        __syncthreads(); // the warps' sums are written
        uint64_t of_warps = add_up(sums[lane], WARP);
        uint64_t before = warp > 0 ? of_lane(of_warps, warp - 1) : 0;
        if (i < scratch.count) {
            scratch.sizes[i].offset = at + before + until - room;
            ulonglong2 result = {at + before + until - room, size};
            *(ulonglong2 *)&results[i] = result;
        }
        at += of_lane(of_warps, WARP - 1);
        __syncthreads(); // and have been read
    }
}

void conv_encode_place(const struct encode_scratch &scratch, struct conv_encode_result *results,
                       cudaStream_t stream)
{
    place<<<1, PLACE_THREADS, 0, stream>>>(scratch, results);
}
