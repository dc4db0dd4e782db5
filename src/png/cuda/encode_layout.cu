// SPDX-License-Identifier: MIT
// Determines the positions of all bits from the sizes: first of the blocks within each image, with
// its checksums, then of the images.
#include "png/cuda/encode_internal.cuh"
#include "png/cuda/sums.cuh"

// --- places --------------------------------------------------------------------------------------

#define WARPS 4
#define PLACE_THREADS 1024

// Gives each of the image's blocks its first bit; returns the first bit after the last block.
__device__ inline uint64_t place_blocks(struct encode_block *blocks, uint32_t count)
{
    uint64_t at = PREAMBLE_BITS;
    for (uint32_t first = 0; first < count; first += WARP) {
        uint32_t i = first + threadIdx.x % WARP;
        uint64_t bits = i < count ? blocks[i].bits : 0, until = sum_below(bits);
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
        uint64_t until = sum_below(room);
        if (lane == WARP - 1)
            sums[warp] = until;
        __syncthreads(); // the warps' sums are written
        uint64_t of_warps = sum_below(sums[lane]);
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

// --- files ---------------------------------------------------------------------------------------

// Packs the chunks of bits into complete IDAT chunks. Each 16 bytes of output are written once, by
// one lane, and never read, so the output may also be mapped host memory.

#define PART 128 // bits that a lane stores

// An image's chunk; a segment below is a place in it: its blocks consist of segments of bits.
struct image_bits {
    const struct encode_block *blocks;
    const uint32_t *bits; // of the image's first segment
    uint32_t count;       // of blocks
    uint32_t room;        // words from a segment to the next
    struct encode_size size;
};

struct segment {
    uint32_t block, chunk;
    const uint32_t *words;
    uint64_t begin, end; // in the image's chunk
};

__device__ inline void open_segment(struct segment *segment, const struct image_bits &image,
                                    uint64_t begin)
{
    segment->begin = begin;
    segment->end = begin + image.blocks[segment->block].chunk_bits[segment->chunk];
    segment->words = image.bits + ((uint64_t)segment->block * CHUNKS + segment->chunk) * image.room;
}

// Moves to the segment that contains bit `at`, which is not before this one and before data_end.
__device__ inline void seek_segment(struct segment *segment, const struct image_bits &image,
                                    uint64_t at)
{
    while (at >= segment->end) {
        if (++segment->chunk == CHUNKS) {
            segment->chunk = 0;
            segment->block++;
        }
        open_segment(segment, image, segment->end);
    }
}

// The bits before the blocks, from bit `at` on.
__device__ inline uint32_t preamble_bits(const struct encode_size &size, uint32_t at)
{
    uint32_t words[4] = {swap_bytes((uint32_t)size.size - 12), 0x54414449u, 0x0178u, 0}; // "IDAT"
    uint32_t low = at < 32 ? words[0] : at < 64 ? words[1] : words[2];
    uint32_t high = at < 32 ? words[1] : at < 64 ? words[2] : words[3];
    return __funnelshift_r(low, high, at % 32);
}

// The bits after the data: the rest of a byte, Adler-32, CRC-32, zeros.
__device__ inline uint32_t trailer_bits(const struct encode_size &size, uint64_t at)
{
    uint64_t sums = (uint64_t)swap_bytes(size.crc) << 32 | swap_bytes(size.adler);
    int64_t into = (int64_t)(at - (size.data_end + 7) / 8 * 8);
    return (uint32_t)(into < 0 ? sums << -into : into < 64 ? sums >> into : 0);
}

// 32 bits from bit `at` on; those after the segment's end are undefined.
__device__ inline uint32_t segment_bits(const struct segment &segment, uint64_t at)
{
    uint32_t offset = (uint32_t)(at - segment.begin), shift = offset % 32;
    bool two = segment.end - at > 32 - shift; // else there may be no next word
    const uint32_t *words = segment.words + offset / 32;
    return __funnelshift_r(words[0], two ? words[1] : 0, shift);
}

// 32 bits of the image's chunk from `at` on, whatever they belong to. `segment` is one that begins
// no later; it is moved on.
__device__ inline uint32_t find_word(const struct image_bits &image, struct segment *segment,
                                     uint64_t at)
{
    uint32_t word = 0;
    for (uint32_t have = 0; have < 32;) {
        uint64_t from = at + have, until = at + 32;
        uint32_t bits;
        if (from < PREAMBLE_BITS) {
            bits = preamble_bits(image.size, (uint32_t)from);
            until = min(until, (uint64_t)PREAMBLE_BITS);
        } else if (from < image.size.data_end) {
            seek_segment(segment, image, from);
            bits = segment_bits(*segment, from);
            until = min(until, segment->end);
        } else {
            bits = trailer_bits(image.size, from);
        }
        uint32_t count = (uint32_t)(until - from);
        word |= (bits & ~0u >> (32 - count)) << have;
        have += count;
    }
    return word;
}

// A part whose bits are not all in one segment: the first of an image, and the last of each
// segment.
__device__ inline uint4 find_part(const struct image_bits &image, struct segment segment,
                                  uint64_t at)
{
    uint4 part;
    part.x = find_word(image, &segment, at);
    part.y = find_word(image, &segment, at + 32);
    part.z = find_word(image, &segment, at + 64);
    part.w = find_word(image, &segment, at + 96);
    return part;
}

// A part within a segment: five words, shifted.
__device__ inline uint4 copy_part(const struct segment &segment, uint64_t at)
{
    uint32_t offset = (uint32_t)(at - segment.begin), shift = offset % 32;
    const uint32_t *words = segment.words + offset / 32;
    uint32_t w[5];
#pragma unroll
    for (int i = 0; i < 5; i++)
        w[i] = i < 4 || shift ? words[i] : 0; // else there may be no fifth word
    return make_uint4(__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
                      __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift));
}

// A block of 8 warps for a deflate block, one segment per warp. A warp writes the parts whose first
// bit is in its segment; the image's first segment also has those of the preamble, its last one
// those of the trailer.
static __global__ void __launch_bounds__(CHUNKS *WARP)
    assemble(const struct encode_scratch scratch, uint8_t *output)
{
    struct work work = find_work(scratch);
    struct image_bits image;
    image.blocks = scratch.blocks + work.image.first_block;
    image.bits = scratch.bits + work.image.bits_at / 4;
    image.count = work.image.blocks;
    image.room = chunk_room(work.image.block_bytes) / 4;
    image.size = scratch.sizes[work.image_index];

    struct segment segment;
    segment.block = work.index - work.image.first_block;
    segment.chunk = threadIdx.x / WARP;
    const struct encode_block &block = image.blocks[segment.block];
    uint64_t begin = block.start;
    for (uint32_t i = 0; i < segment.chunk; i++)
        begin += block.chunk_bits[i];
    open_segment(&segment, image, begin);

    bool first = segment.block == 0 && segment.chunk == 0;
    bool last = segment.block == image.count - 1 && segment.chunk == CHUNKS - 1;
    uint64_t at = first ? 0 : (segment.begin + PART - 1) / PART * PART;
    uint64_t end = last ? image.size.size * 8 : segment.end;
    uint4 *parts = (uint4 *)(output + image.size.offset);
    for (at += threadIdx.x % WARP * PART; at < end; at += WARP * PART) {
        bool within = at >= segment.begin && at + PART <= segment.end;
        parts[at / PART] = within ? copy_part(segment, at) : find_part(image, segment, at);
    }
}

void conv_encode_assemble(const struct encode_scratch &scratch, uint32_t blocks, uint8_t *output,
                          cudaStream_t stream)
{
    assemble<<<blocks, CHUNKS * WARP, 0, stream>>>(scratch, output);
}
