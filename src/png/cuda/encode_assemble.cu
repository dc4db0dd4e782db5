// SPDX-License-Identifier: MIT
// Packs the chunks of bits into complete IDAT chunks. Each 16 bytes of output are written once, by
// one lane, and never read, so the output may also be mapped host memory.
#include "png/cuda/encode_internal.cuh"

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

__device__ inline uint32_t swap_bytes(uint32_t value)
{
    return __byte_perm(value, 0, 0x0123);
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
