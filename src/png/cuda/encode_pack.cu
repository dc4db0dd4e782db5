// SPDX-License-Identifier: MIT
// Converts scanlines to deflate's bits. A warp writes a chunk of a deflate block, a window at a
// time: each lane concatenates the codes of its eight bytes in registers, a prefix sum over the
// lanes gives their positions, and they are combined in shared memory, from where whole lines of 32
// words are stored. A chunk begins at bit 0 of its place; encode_layout.cu moves it to its final
// position. Its CRC is computed as a polynomial, which does not depend on the position (sums.cuh).
#include "png/cuda/encode_internal.cuh"
#include "png/cuda/sums.cuh"
#include "png/cuda/tokens.cuh"

// Bits of a chunk that wait for their line to be full, in a ring: less than a line is left when a
// window or the header is added, at most 256 bytes of 15 bits each, or HEADER_MOST, and one word
// more.
#define RING 256
#define LINE 32 // words
// Blocks per processor, as many as registers allow without spilling.
#define PACK_BLOCKS 6
static_assert(LINE + WINDOW * DEFLATE_LIMIT / 32 + 2 <= RING, "a window fits");
static_assert(LINE + HEADER_WORDS + 1 <= RING, "a header fits");

struct writer {
    uint32_t *ring; // shared, RING words, zero where nothing has been put yet
    uint32_t *out;
    uint32_t bits;  // put so far
    uint32_t lines; // written so far
    uint32_t crc;   // of this lane's words in those lines
};

__device__ inline uint32_t times_line(const uint32_t *tables, uint32_t value)
{
    return tables[value & 0xff] ^ tables[256 + (value >> 8 & 0xff)] ^
           tables[512 + (value >> 16 & 0xff)] ^ tables[768 + (value >> 24)];
}

// Writes the oldest line and clears its place.
__device__ inline void write_line(struct writer *writer, const uint32_t *crc_tables)
{
    uint32_t at = writer->lines * LINE + threadIdx.x % WARP;
    uint32_t *place = &writer->ring[at % RING], word = *place;
    *place = 0;
    writer->out[at] = word;
    writer->crc = times_line(crc_tables, writer->crc) ^ word;
    writer->lines++;
}

// Writes the lines that are full.
__device__ inline void write_lines(struct writer *writer, const uint32_t *crc_tables)
{
    __syncwarp(); // all lanes' bits are in the ring
    while (writer->bits / (32 * LINE) > writer->lines)
        write_line(writer, crc_tables);
    __syncwarp(); // the places are cleared
}

// Adds at most 128 bits to the ring: `low`, followed by `high`. Eight bytes of a photograph mostly
// fit two words, so the third and the following ones are tested separately.
__device__ inline void put_bits(uint32_t *ring, uint32_t at, uint64_t low, uint64_t high,
                                uint32_t count)
{
    uint32_t w0 = (uint32_t)low, w1 = (uint32_t)(low >> 32), shift = at % 32, i = at / 32;
    uint32_t until = shift + count;
    if (until > shift)
        atomicOr(&ring[i % RING], w0 << shift);
    if (until > 32)
        atomicOr(&ring[(i + 1) % RING], __funnelshift_l(w0, w1, shift));
    if (until > 64) {
        uint32_t w2 = (uint32_t)high, w3 = (uint32_t)(high >> 32);
        atomicOr(&ring[(i + 2) % RING], __funnelshift_l(w1, w2, shift));
        if (until > 96) {
            atomicOr(&ring[(i + 3) % RING], __funnelshift_l(w2, w3, shift));
            atomicOr(&ring[(i + 4) % RING], __funnelshift_l(w3, 0, shift));
        }
    }
}

// Byte k of a word, in one instruction.
__device__ inline uint32_t byte_at(uint32_t word, uint32_t k)
{
    return __byte_perm(word, 0, 0x4440 + k);
}

// The codes of four bytes, and their number of bits.
__device__ inline uint32_t join_codes(uint64_t *value, const uint32_t (&entry)[4])
{
    uint32_t bits0 = entry[0] >> ENTRY_SHIFT, bits2 = entry[2] >> ENTRY_SHIFT;
    uint32_t low = (entry[0] & ENTRY_MASK) | (entry[1] & ENTRY_MASK) << bits0;
    uint32_t high = (entry[2] & ENTRY_MASK) | (entry[3] & ENTRY_MASK) << bits2;
    bits0 += entry[1] >> ENTRY_SHIFT;
    *value = low | (uint64_t)high << bits0;
    return bits0 + bits2 + (entry[3] >> ENTRY_SHIFT);
}

// The codes of the first `valid` bytes of a word, and their number of bits. ALL: of all four.
template <bool ALL>
__device__ inline uint32_t find_codes(uint64_t *value, const uint32_t *entries, uint32_t word,
                                      uint32_t valid)
{
    uint32_t entry[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        entry[k] = ALL || k < valid ? entries[byte_at(word, k)] : 0;
    return join_codes(value, entry);
}

template <bool ALL>
__device__ inline uint32_t find_bits(uint64_t *value, const uint32_t *entries, uint32_t word,
                                     uint32_t valid, uint32_t sends)
{
    uint32_t bits = find_codes<ALL>(value, entries, word, valid);
    if (sends != SENDS_LITERALS) {
        uint32_t entry = sends == SENDS_NOTHING ? 0 : entries[TOKEN_NEAR + 4 * sends - RUN_LEAST];
        *value = entry & ENTRY_MASK;
        bits = entry >> ENTRY_SHIFT;
    }
    return bits;
}

// The same in a window with many runs: that of the run that ends in the word, then those of its
// bytes that are literals, of which bit k of `literals` is set for byte k. A distance takes two
// bits at most, or six with fixed codes, whose other codes have less than ten.
static_assert((RUN_LEAST - 1) * DEFLATE_LIMIT + DEFLATE_LIMIT + 5 + 2 <= 64, "a word's bits fit");

__device__ inline uint32_t find_bits_of_runs(uint64_t *value, const uint32_t *entries,
                                             uint32_t word, uint32_t literals,
                                             const struct ended_run &run)
{
    uint32_t of_run = run.length ? entries[run.tokens + run.length - RUN_LEAST] : 0;
    uint32_t entry[4], run_bits = of_run >> ENTRY_SHIFT;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        entry[k] = literals >> k & 1 ? entries[byte_at(word, k)] : 0;
    uint64_t codes;
    uint32_t bits = join_codes(&codes, entry);
    *value = (of_run & ENTRY_MASK) | codes << run_bits;
    return run_bits + bits;
}

// The bits of a lane's two words.
struct lane_bits {
    uint64_t value[2];
    uint32_t bits[2];
};

__device__ inline struct lane_bits
find_lane_bits_of_runs(const uint32_t *entries, const struct lane_bytes &bytes, uint32_t pixel)
{
    struct lane_runs runs = find_runs(bytes, pixel);
    uint32_t literals = literal_bits(runs, bytes.valid);
    struct lane_bits lane;
    lane.bits[0] = find_bits_of_runs(&lane.value[0], entries, bytes.words.x, literals,
                                     find_ended_run(runs, 0));
    lane.bits[1] = find_bits_of_runs(&lane.value[1], entries, bytes.words.y, literals >> 4,
                                     find_ended_run(runs, 1));
    return lane;
}

template <bool ALL>
__device__ inline struct lane_bits find_lane_bits(const uint32_t *entries,
                                                  const struct lane_bytes &bytes, uint32_t pixel)
{
    struct lane_tokens tokens = find_tokens(bytes);
    if (tokens.many_runs)
        return find_lane_bits_of_runs(entries, bytes, pixel);
    uint32_t valid = bytes.valid;
    struct lane_bits lane;
    lane.bits[0] = find_bits<ALL>(&lane.value[0], entries, bytes.words.x, valid, tokens.sends[0]);
    lane.bits[1] = find_bits<ALL>(&lane.value[1], entries, bytes.words.y, valid > 4 ? valid - 4 : 0,
                                  tokens.sends[1]);
    return lane;
}

// One window. ALL: all of its 256 bytes belong to the block.
template <bool ALL>
__device__ inline void put_window(struct writer *writer, const uint32_t *entries,
                                  const struct lane_bytes &bytes, uint32_t pixel)
{
    struct lane_bits bits = find_lane_bits<ALL>(entries, bytes, pixel);
    uint32_t lane = threadIdx.x % WARP, bits0 = bits.bits[0], count = bits0 + bits.bits[1];
    uint32_t until = count;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        uint32_t below = __shfl_up_sync(ALL_LANES, until, step);
        until += lane >= (uint32_t)step ? below : 0;
    }
    // Concatenates them. The second shift is by 64 if the first is by 0.
    uint64_t low = bits.value[0] | bits.value[1] << bits0;
    uint64_t high = bits.value[1] >> 1 >> (63 - bits0);
    put_bits(writer->ring, writer->bits + until - count, low, high, count);
    writer->bits += __shfl_sync(ALL_LANES, until, WARP - 1);
}

__device__ inline void put_header(struct writer *writer, const struct encode_block *block)
{
    writer->bits = block->header_bits;
    for (uint32_t i = threadIdx.x % WARP; i < (writer->bits + 31) / 32; i += WARP)
        writer->ring[i] = block->header[i];
}

// The remainder of a block's bits, times x^1024. A chunk's remainder is that of its whole lines: it
// is divided by x for each bit after the chunk's own, and multiplied for each bit that follows in
// the block. Called by one warp. The factor x^1024 keeps exponents from being negative; they stay
// below 2^20.
static_assert((uint64_t)BLOCK_MOST * DEFLATE_LIMIT + HEADER_MOST + 2048 < 1 << 20,
              "five digits of 4 bits");

__device__ inline void join_chunks(struct encode_block *block, const uint32_t *chunk_bits,
                                   const uint32_t *chunk_crc)
{
    uint32_t lane = threadIdx.x % WARP, behind = 0, all = 0, crc = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        all += chunk_bits[i];
        behind += i > lane ? chunk_bits[i] : 0;
    }
    if (lane < CHUNKS) {
        uint32_t spare = (0u - chunk_bits[lane]) % (32 * LINE);
        crc = crc_multiply(chunk_crc[lane], crc_power_by_table(behind + 1024 - spare, 5));
        block->chunk_bits[lane] = chunk_bits[lane];
    }
    for (int step = CHUNKS / 2; step > 0; step /= 2)
        crc ^= __shfl_xor_sync(ALL_LANES, crc, step);
    if (lane == 0) {
        block->crc = crc;
        block->bits = all;
    }
}

// A block of 8 warps for a deflate block, one chunk per warp. Shared: a ring per warp, the block's
// codes, and the table that multiplies CRCs by x^1024.
static __global__ void __launch_bounds__(CHUNKS *WARP, RESIDENT(CHUNKS *WARP, PACK_BLOCKS))
    pack(const struct encode_scratch scratch)
{
    __shared__ uint32_t rings[CHUNKS * RING];
    __shared__ uint32_t entries[TOKENS];
    __shared__ uint32_t crc_tables[4 * 256];
    __shared__ uint32_t chunk_bits[CHUNKS];
    __shared__ uint32_t chunk_crc[CHUNKS];
    struct work work = find_work(scratch);
    struct encode_block *block = &scratch.blocks[work.index];
    for (uint32_t i = threadIdx.x; i < TOKENS; i += CHUNKS * WARP)
        entries[i] = block->entry[i];
    for (uint32_t i = threadIdx.x; i < 4 * 256; i += CHUNKS * WARP)
        crc_tables[i] = crc_line_table.entry[i / 256][i % 256];
    for (uint32_t i = threadIdx.x; i < CHUNKS * RING; i += CHUNKS * WARP)
        rings[i] = 0;
    __syncthreads();

    uint32_t lane = threadIdx.x % WARP, chunk = threadIdx.x / WARP;
    uint32_t size = chunk_bytes(work.end - work.begin);
    uint32_t begin = work.begin + chunk * size, end = min(begin + size, work.end);
    uint32_t room = chunk_room(work.image.block_bytes);
    uint64_t place = work.image.bits_at +
                     ((uint64_t)(work.index - work.image.first_block) * CHUNKS + chunk) * room;
    struct writer writer = {rings + chunk * RING, scratch.bits + place / 4, 0, 0, 0};
    const uint8_t *stream = scratch.streams + work.image.stream_at;
    if (chunk == 0) {
        put_header(&writer, block);
        write_lines(&writer, crc_tables);
    }
    uint32_t pixel = pixel_bytes(work.image);
    uint2 last = {0, 0}; // the words of the window before
    if (chunk > 0 && begin < end && lane == WARP - 1)
        last = *(const uint2 *)(stream + begin - LANE_BYTES);
    for (uint32_t at = begin; at < end; at += WINDOW) {
        uint2 words = *(const uint2 *)(stream + at + lane * LANE_BYTES);
        bool has_before = at > work.begin;
        if (end - at >= WINDOW) {
            put_window<true>(&writer, entries, find_lane_bytes(words, last, 8, has_before), pixel);
        } else {
            uint32_t from = at + lane * LANE_BYTES, valid = from < end ? min(end - from, 8u) : 0;
            put_window<false>(&writer, entries, find_lane_bytes(words, last, valid, has_before),
                              pixel);
        }
        last = words;
        write_lines(&writer, crc_tables);
    }
    if (end == work.end && begin < end) { // the chunk that has the block's last byte
        uint32_t entry = entries[TOKEN_END], bits = entry >> ENTRY_SHIFT;
        if (lane == 0)
            put_bits(writer.ring, writer.bits, entry & ENTRY_MASK, 0, bits);
        writer.bits += bits;
        write_lines(&writer, crc_tables);
    }
    if (writer.bits > writer.lines * 32 * LINE)
        write_line(&writer, crc_tables);
    uint32_t crc = crc_multiply(writer.crc, crc_lane_table.entry[lane]);
    for (int step = WARP / 2; step > 0; step /= 2)
        crc ^= __shfl_xor_sync(ALL_LANES, crc, step);
    if (lane == 0) {
        chunk_bits[chunk] = writer.bits;
        chunk_crc[chunk] = crc;
    }
    __syncthreads();
    if (chunk == 0)
        join_chunks(block, chunk_bits, chunk_crc);
}

void conv_encode_pack(const struct encode_scratch &scratch, uint32_t blocks, cudaStream_t stream)
{
    pack<<<blocks, CHUNKS * WARP, 0, stream>>>(scratch);
}
