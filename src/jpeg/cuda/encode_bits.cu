// SPDX-License-Identifier: MIT
// From the chunks' bits to files: positions of all bits, zeros stuffed after bytes of ones, EOI.
// Chunks begin and end at any bit. A byte belongs to the chunk in which it begins; as only an
// image's last chunk has less than 16 bytes, its other bits are in the next chunk or, as all bits
// after the last, ones.
#include "jpeg/cuda/jpeg_encode.cuh"

#define THREADS 128 // of kernels with a chunk per warp
#define WARPS (THREADS / WARP)

// --- positions -----------------------------------------------------------------------------------

#define PLACE_CHUNKS_THREADS 256
#define PLACE_IMAGES_THREADS 1024

// The sum of the threads' values up to this one; *all is the sum of all. `sums` has a place for
// each warp. Synchronises the block.
__device__ inline uint64_t sum_threads(uint64_t *sums, uint32_t threads, uint64_t value,
                                       uint64_t *all)
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint64_t until = sum_below(value);
    if (lane == WARP - 1)
        sums[warp] = until;
    __syncthreads(); // the warps' sums are there
    uint64_t of_warps = sum_below(lane < threads / WARP ? sums[lane] : 0);
    uint64_t before = of_lane(of_warps, (warp + WARP - 1) % WARP);
    *all = of_lane(of_warps, WARP - 1);
    __syncthreads(); // and have been read
    return until + (warp > 0 ? before : 0);
}

// A block of 256 threads per image, of which each takes a chunk at a time. STUFFED: sums of stuffed
// bytes, otherwise of bits.
template <bool STUFFED>
static __global__ void __launch_bounds__(PLACE_CHUNKS_THREADS)
    place_chunks(const struct jpeg_scratch scratch)
{
    __shared__ uint64_t sums[WARP];
    const struct conv_jpeg_encode_image &image = scratch.images[blockIdx.x];
    struct jpeg_chunk *chunks = scratch.chunks + image.first_chunk;
    uint64_t before = 0;
    for (uint32_t first = 0; first < image.chunks; first += PLACE_CHUNKS_THREADS) {
        uint32_t i = first + threadIdx.x;
        uint64_t all, value = 0;
        if (i < image.chunks)
            value = STUFFED ? chunks[i].stuffed : chunks[i].bits;
        uint64_t until = before + sum_threads(sums, PLACE_CHUNKS_THREADS, value, &all);
        if (i < image.chunks)
            (STUFFED ? chunks[i].stuffed_before : chunks[i].bits_before) = until - value;
        before += all;
    }
    if (threadIdx.x == 0)
        (STUFFED ? scratch.data[blockIdx.x].stuffed : scratch.data[blockIdx.x].bits) = before;
}

// Without EOI and stuffed bytes.
__device__ inline uint64_t data_bytes(const struct jpeg_data &data)
{
    return (data.bits + 7) / 8;
}

// One block, 1,024 images at a time.
static __global__ void __launch_bounds__(PLACE_IMAGES_THREADS)
    place_images(const struct jpeg_scratch scratch, struct conv_encode_result *results)
{
    __shared__ uint64_t sums[WARP];
    uint64_t before = 0;
    for (int first = 0; first < scratch.count; first += PLACE_IMAGES_THREADS) {
        int i = first + (int)threadIdx.x;
        uint64_t all, size = 0;
        if (i < scratch.count)
            size = data_bytes(scratch.data[i]) + scratch.data[i].stuffed + 2; // EOI
        uint64_t room = (size + CONV_ENCODE_ALIGN - 1) / CONV_ENCODE_ALIGN * CONV_ENCODE_ALIGN;
        uint64_t offset = before + sum_threads(sums, PLACE_IMAGES_THREADS, room, &all) - room;
        if (i < scratch.count) {
            scratch.data[i].offset = offset;
            *(ulonglong2 *)&results[i] = {offset, size};
        }
        before += all;
    }
}

// --- bytes of a chunk ----------------------------------------------------------------------------

struct chunk_bytes {
    struct jpeg_chunk own;
    const uint32_t *words;
    uint32_t next_bits; // of the next chunk, 0 if there is none
    const uint32_t *next_words;
    uint32_t first_bit; // of the first byte that begins in the chunk
    uint32_t count;     // of these bytes
};

__device__ inline struct chunk_bytes open_chunk(const struct jpeg_scratch &scratch, uint32_t index)
{
    struct chunk_bytes chunk;
    chunk.own = scratch.chunks[index];
    const struct conv_jpeg_encode_image &image = scratch.images[chunk.own.image];
    uint32_t number = index - image.first_chunk, room = chunk_room(image);
    chunk.words = scratch.bits + image.bits_at + (uint64_t)number * room;
    chunk.next_bits = number + 1 < image.chunks ? scratch.chunks[index + 1].bits : 0;
    chunk.next_words = chunk.words + room;
    chunk.first_bit = (0u - (uint32_t)chunk.own.bits_before) % 8;
    int bits = (int)(chunk.own.bits - chunk.first_bit); // may be negative
    chunk.count = bits > 0 ? (uint32_t)(bits + 7) / 8 : 0;
    return chunk;
}

// 32 bits from bit `at` on of `bits`, followed by zeros.
__device__ inline uint32_t bits_from(const uint32_t *words, uint32_t bits, uint32_t at)
{
    uint32_t word = at / 32, shift = at % 32;
    uint32_t high = at < bits ? words[word] : 0;
    uint32_t low = shift > 0 && (word + 1) * 32 < bits ? words[word + 1] : 0;
    return __funnelshift_l(low, high, shift);
}

// Four bytes from byte `at` of the chunk on, the first one highest. Those of the next chunk follow
// its own, then ones.
__device__ inline uint32_t bytes_from(const struct chunk_bytes &chunk, uint32_t at)
{
    uint32_t bit = chunk.first_bit + 8 * at, own = chunk.own.bits, all = own + chunk.next_bits;
    uint32_t bytes = bits_from(chunk.words, own, bit);
    if (bit + 32 > own) {
        uint32_t have = bit < own ? own - bit : 0, next = bit < own ? 0 : bit - own;
        bytes |= bits_from(chunk.next_words, chunk.next_bits, next) >> have;
    }
    if (bit + 32 > all)
        bytes |= bit < all ? ~0u >> (all - bit) : ~0u;
    return bytes;
}

// The highest bit of each byte of ones, among the first `valid` bytes.
__device__ inline uint32_t find_ones(uint32_t bytes, uint32_t valid)
{
    uint32_t ones = ((bytes & 0x7f7f7f7f) + 0x01010101) & bytes & 0x80808080;
    return valid >= 4 ? ones : valid > 0 ? ones & ~0u << (32 - 8 * valid) : 0;
}

// A chunk per warp.
static __global__ void __launch_bounds__(THREADS) count_ones(const struct jpeg_scratch scratch)
{
    uint32_t index = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= scratch.all_chunks)
        return;
    struct chunk_bytes chunk = open_chunk(scratch, index);
    uint32_t ones = 0;
    for (uint32_t at = 4 * lane; at < chunk.count; at += 4 * WARP)
        ones += (uint32_t)__popc(find_ones(bytes_from(chunk, at), chunk.count - at));
    ones = sum_lanes(ones);
    if (lane == 0)
        scratch.chunks[index].stuffed = ones;
}

// --- output --------------------------------------------------------------------------------------

// Bytes that wait until each lane has a part to store, in a ring: less than 512, and the at most
// 256 that a step adds.
#define RING 1024
#define PART CONV_ENCODE_ALIGN
#define STEP (4 * WARP) // bytes without stuffed ones

struct output {
    uint8_t *ring;        // shared
    uint4 *parts;         // of the image
    uint64_t at;          // bytes put so far, of the image
    uint64_t stored, end; // parts stored so far, and at the end
};

__device__ inline void put_byte(struct output *output, uint64_t at, uint32_t byte)
{
    output->ring[at % RING] = (uint8_t)byte;
}

// Adds up to four bytes per lane, and the stuffed ones.
__device__ inline void put_bytes(struct output *output, uint32_t bytes, uint32_t valid)
{
    uint32_t ones = find_ones(bytes, valid), count = valid + (uint32_t)__popc(ones), until = count;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t below = __shfl_up_sync(ALL_LANES, until, step);
        until += threadIdx.x % WARP >= step ? below : 0;
    }
    uint64_t at = output->at + until - count;
    for (uint32_t i = 0; i < valid; i++, bytes <<= 8, ones <<= 8) {
        put_byte(output, at++, bytes >> 24);
        if (ones >> 31)
            put_byte(output, at++, 0);
    }
    output->at += __shfl_sync(ALL_LANES, until, WARP - 1);
}

// Stores up to 32 parts.
__device__ inline void store_parts(struct output *output)
{
    __syncwarp(); // the bytes are in the ring
    uint64_t part = output->stored + threadIdx.x % WARP;
    if (part < output->end && (part + 1) * PART <= output->at)
        output->parts[part] = *(const uint4 *)(output->ring + part * PART % RING);
    output->stored += WARP;
    __syncwarp(); // and have been read
}

// A chunk per warp. It stores the parts whose first byte belongs to the chunk, completed by bytes
// of the next chunk, EOI and zeros.
static __global__ void __launch_bounds__(THREADS)
    write_bytes(const struct jpeg_scratch scratch, uint8_t *out)
{
    __shared__ uint4 rings[WARPS * RING / PART];
    uint32_t index = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (index >= scratch.all_chunks)
        return;
    struct chunk_bytes chunk = open_chunk(scratch, index);
    const struct jpeg_data &data = scratch.data[chunk.own.image];
    uint64_t first = (chunk.own.bits_before + 7) / 8, rest = data_bytes(data) - first;
    bool last = chunk.next_bits == 0;
    struct output output;
    output.ring = (uint8_t *)(rings + threadIdx.x / WARP * (RING / PART));
    output.parts = (uint4 *)(out + data.offset);
    output.at = first + chunk.own.stuffed_before;
    output.stored = (output.at + PART - 1) / PART;
    uint64_t end = output.at + chunk.count + chunk.own.stuffed + (last ? 2 : 0);
    output.end = (end + PART - 1) / PART;

    uint32_t count = (uint32_t)min((uint64_t)chunk.count + (last ? 0 : PART), rest);
    for (uint32_t begin = 0; begin < count; begin += STEP) {
        uint32_t at = begin + 4 * lane, valid = at < count ? min(count - at, 4u) : 0;
        put_bytes(&output, valid > 0 ? bytes_from(chunk, at) : 0, valid);
        if (output.at >= (output.stored + WARP) * PART)
            store_parts(&output);
    }
    if (count == rest && lane < 2 + PART)
        put_byte(&output, output.at + lane, lane == 0 ? 0xff : lane == 1 ? 0xd9 : 0); // EOI
    output.at += count == rest ? 2 + PART : 0;
    store_parts(&output);
    if (output.stored < output.end)
        store_parts(&output);
}

// --- launchers -----------------------------------------------------------------------------------

void conv_jpeg_encode_place_bits(const struct jpeg_scratch &scratch, cudaStream_t stream)
{
    place_chunks<false><<<(unsigned)scratch.count, PLACE_CHUNKS_THREADS, 0, stream>>>(scratch);
}

void conv_jpeg_encode_count(const struct jpeg_scratch &scratch, cudaStream_t stream)
{
    count_ones<<<(scratch.all_chunks + WARPS - 1) / WARPS, THREADS, 0, stream>>>(scratch);
}

void conv_jpeg_encode_place_stuffed(const struct jpeg_scratch &scratch, cudaStream_t stream)
{
    place_chunks<true><<<(unsigned)scratch.count, PLACE_CHUNKS_THREADS, 0, stream>>>(scratch);
}

void conv_jpeg_encode_place(const struct jpeg_scratch &scratch, struct conv_encode_result *results,
                            cudaStream_t stream)
{
    place_images<<<1, PLACE_IMAGES_THREADS, 0, stream>>>(scratch, results);
}

void conv_jpeg_encode_write(const struct jpeg_scratch &scratch, uint8_t *output,
                            cudaStream_t stream)
{
    write_bytes<<<(scratch.all_chunks + WARPS - 1) / WARPS, THREADS, 0, stream>>>(scratch, output);
}
