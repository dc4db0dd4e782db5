// SPDX-License-Identifier: MIT
// Pixels to bits, in one kernel, with all steps' results in shared memory: colour conversion and
// downsampling, DCT, quantisation, Huffman codes. The results are libjpeg-turbo's: each step
// computes the same integers. A thread block codes a chunk (jpeg_encode.cuh).
#include "jpeg/cuda/jpeg_encode.cuh"

#define THREADS CHUNK_BLOCKS
#define BLOCKS_PER_SM 5 // as many as shared memory allows
// From a block to the next in shared memory: 8 rows and one more, so that threads that access
// different blocks use different banks.
#define SAMPLES_STRIDE 72 // bytes
#define COEFS_STRIDE 72   // coefficients
// Words for a block's bits. An odd number, for the same reason.
#define BITS_STRIDE 37
static_assert(BITS_STRIDE * 32 >= BLOCK_BITS_MOST, "the bits of a block fit");
// Words for all bits of a chunk, in the place of its coefficients. Of one block only the DC
// coefficient is used.
#define CHUNK_WORDS (CHUNK_BLOCKS * COEFS_STRIDE / 2)
static_assert(CHUNK_WORDS * 32 >= (CHUNK_BLOCKS - 1) * BLOCK_BITS_MOST, "the chunk's bits fit");

// --- constants -----------------------------------------------------------------------------------

// A Huffman code followed by as many zeros as bits of a value follow it, and above these bits the
// number of both, at most 26.
#define ENTRY_SHIFT 27
#define ENTRY_MASK ((1u << ENTRY_SHIFT) - 1)
// Entries of DC differences by the size of the value in bits; from CODE_AC on those of AC
// coefficients, SIZES for each run of zeros before them.
#define CODE_AC 12
#define SIZES 11
#define CODE_END CODE_AC
#define CODE_ZEROS (CODE_AC + 15 * SIZES) // 16 zeros
#define CODES (CODE_AC + 16 * SIZES)

struct jpeg_codes {
    uint32_t entry[2][CODES]; // of luma and of chroma
};

// Symbols are the run of zeros and the size of the value.
constexpr void add_codes(uint32_t *entry, const struct conv_jpeg_standard &table)
{
    uint32_t code = 0, next = 0;
    for (uint32_t bits = 1; bits <= 16; bits++, code <<= 1)
        for (uint32_t i = 0; i < table.counts[bits - 1]; i++, code++, next++) {
            uint32_t run = (uint8_t)table.symbols[next] >> 4, size = table.symbols[next] & 15;
            entry[run * SIZES + size] = (bits + size) << ENTRY_SHIFT | code << size;
        }
}

constexpr struct jpeg_codes make_codes()
{
    struct jpeg_codes codes = {};
    for (int i = 0; i < 2; i++) {
        add_codes(codes.entry[i], conv_jpeg_standard[i][0]);
        add_codes(codes.entry[i] + CODE_AC, conv_jpeg_standard[i][1]);
    }
    return codes;
}

// The places in zigzag order of each column's coefficients, byte k of which is that of row k.
struct jpeg_zigzag {
    uint64_t column[8];
};

constexpr struct jpeg_zigzag make_zigzag()
{
    struct jpeg_zigzag zigzag = {};
    uint64_t place = 0;
    for (int diagonal = 0; diagonal < 15; diagonal++)
        for (int i = 0; i <= diagonal; i++) {
            int row = diagonal % 2 ? i : diagonal - i, column = diagonal - row;
            if (row < 8 && column < 8)
                zigzag.column[column] |= place++ << 8 * row;
        }
    return zigzag;
}

static __device__ const struct jpeg_codes jpeg_codes = make_codes();
static __device__ const struct jpeg_zigzag jpeg_zigzag = make_zigzag();

// Divides by 8 * quant (the DCT's results are 8 times too large) and rounds halves away from 0:
// adds half of the divisor, then multiplies by 2^32 / divisor, rounded up, which is exact for
// numbers below 2^32 / divisor.
struct divisor {
    uint32_t half, multiplier;
};

// --- a chunk -------------------------------------------------------------------------------------

// Slots are its MCUs, with the one before.
struct chunk {
    const uint8_t *plane[CONV_JPEG_COMPONENTS];
    int64_t stride;
    int width, height, h, v;
    int slots;      // in use
    int lead;       // 1 if the first is that before the chunk
    int mcu_blocks; // blocks per slot
    int luma;       // of these
};

struct chunk_memory {
    union {
        alignas(16) int16_t coefs[CHUNK_BLOCKS * COEFS_STRIDE];
        uint32_t words[CHUNK_WORDS]; // all bits
    };
    union {
        alignas(16) uint8_t samples[CHUNK_BLOCKS * SAMPLES_STRIDE];
        uint32_t bits[CHUNK_BLOCKS][BITS_STRIDE]; // of each block
    };
    uint32_t codes[2][CODES];
    struct divisor divisors[2][CONV_JPEG_BLOCK];
    uint2 mcu[CHUNK_BLOCKS]; // column and row of each slot's
    uint32_t sums[THREADS / WARP];
};

__device__ inline struct chunk open_chunk(const struct conv_jpeg_encode_image &image,
                                          uint32_t first)
{
    struct chunk chunk;
    for (int c = 0; c < CONV_JPEG_COMPONENTS; c++)
        chunk.plane[c] = image.plane[c];
    chunk.stride = image.stride;
    chunk.width = image.width;
    chunk.height = image.height;
    chunk.h = image.h;
    chunk.v = image.v;
    chunk.lead = first > 0;
    chunk.slots = chunk.lead + (int)min(chunk_mcus(image), image.mcus - first);
    chunk.mcu_blocks = mcu_blocks(image);
    chunk.luma = image.h * image.v;
    return chunk;
}

__device__ inline void fill_tables(struct chunk_memory *memory,
                                   const struct conv_jpeg_encode_image &image, uint32_t first_mcu)
{
    int t = (int)threadIdx.x, row = t / 8 % 8;
    for (int i = t; i < 2 * CODES; i += THREADS)
        memory->codes[i / CODES][i % CODES] = jpeg_codes.entry[i / CODES][i % CODES];
    uint32_t place = (uint32_t)(jpeg_zigzag.column[t % 8] >> 8 * row) & 0xff;
    uint32_t quant = image.quant[image.components == 1 ? 0 : t / 64][place];
    memory->divisors[t / 64][t % 64] = {4 * quant, ~0u / (8 * quant) + 1};
    uint32_t mcu = first_mcu + (uint32_t)t, across = image.mcus_across;
    memory->mcu[t] = make_uint2(mcu % across, mcu / across);
}
static_assert(THREADS == 2 * CONV_JPEG_BLOCK, "a divisor per thread");

// --- samples -------------------------------------------------------------------------------------

// Eight samples of a row from column x on, a multiple of 8. Where the row has ended before the
// eighth, repeat_last() must repeat its last sample.
__device__ inline uint2 load_eight(const uint8_t *row, int x, int width)
{
    return __ldg((const uint2 *)(row + min(x, (width - 1) & ~7)));
}

__device__ inline void repeat_last(uint2 *eight, int x, int width)
{
    uint64_t all = (uint64_t)eight->y << 32 | eight->x;
    uint64_t fill = (all >> 8 * ((width - 1) & 7) & 0xff) * 0x0101010101010101;
    uint64_t mask = x < width ? ~(uint64_t)0 << 8 * (width - x) : ~(uint64_t)0;
    all = (all & ~mask) | (fill & mask);
    *eight = make_uint2((uint32_t)all, (uint32_t)(all >> 32));
}

__device__ inline uint32_t byte_of(const uint2 &eight, int k)
{
    return __byte_perm(k < 4 ? eight.x : eight.y, 0, 0x4440 + k % 4);
}

// Byte `k` of four words.
template <int k> __device__ inline uint32_t join_bytes(const uint32_t *words)
{
    const uint32_t two = k | (k + 4) << 4;
    return __byte_perm(__byte_perm(words[0], words[1], two), __byte_perm(words[2], words[3], two),
                       0x5410);
}

// Y, Cb and Cr of eight pixels of a row, times 2^16. As JFIF says, with libjpeg's rounding of the
// factors.
__device__ inline void convert_eight(uint32_t (&y)[8], uint32_t (&cb)[8], uint32_t (&cr)[8],
                                     const struct chunk &chunk, int64_t row, int x)
{
    uint2 rgb[3];
#pragma unroll
    for (int c = 0; c < 3; c++)
        rgb[c] = load_eight(chunk.plane[c] + row, x, chunk.width);
    if (x + 8 > chunk.width)
        for (int c = 0; c < 3; c++)
            repeat_last(&rgb[c], x, chunk.width);
    const uint32_t offset = (128 << 16) + (1 << 15) - 1;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t red = byte_of(rgb[0], k), green = byte_of(rgb[1], k), blue = byte_of(rgb[2], k);
        y[k] = 19595 * red + 38470 * green + 7471 * blue + (1 << 15);
        cb[k] = offset - 11059 * red - 21709 * green + 32768 * blue;
        cr[k] = offset - 27439 * green - 5329 * blue + 32768 * red;
    }
}

__device__ inline uint8_t *samples_of(struct chunk_memory *memory, const struct chunk &chunk,
                                      int slot, int block, int row)
{
    return memory->samples + (slot * chunk.mcu_blocks + block) * SAMPLES_STRIDE + 8 * row;
}

// Each thread takes eight pixels of V rows at a time. Below the image, luma repeats the last row of
// pixels, chroma its own last row. Chroma is the mean of H * V pixels; halves are rounded down and
// up by turns.
template <int H, int V>
__device__ inline void load_colour(struct chunk_memory *memory, const struct chunk &chunk)
{
    const int SLOTS = CHUNK_BLOCKS / (H * V + 2);
    for (int i = (int)threadIdx.x; i < SLOTS * 8 * H; i += THREADS) {
        int half = i % H, slot = i / H % SLOTS, row = i / (H * SLOTS); // of chroma
        if (slot >= chunk.slots)
            continue;
        uint2 mcu = memory->mcu[slot];
        int x = 8 * (H * (int)mcu.x + half), y = V * (8 * (int)mcu.y + row);
        int top = min(y, (chunk.height - 1) / V * V);
        uint32_t sums[2][8 / H] = {};
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint32_t luma[8], chroma[2][8];
            int from = min(top + v, chunk.height - 1);
            convert_eight(luma, chroma[0], chroma[1], chunk, from * chunk.stride, x);
#pragma unroll
            for (int k = 0; k < 8; k++)
                for (int c = 0; c < 2; c++)
                    sums[c][k / H] += chroma[c][k] >> 16;
            uint2 eight = make_uint2(join_bytes<2>(luma), join_bytes<2>(luma + 4));
            for (int to = y > top ? 0 : v; to <= v; to++) {
                int of_luma = V * row + to, block = of_luma / 8 * H + half;
                *(uint2 *)samples_of(memory, chunk, slot, block, of_luma % 8) = eight;
            }
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            uint8_t *to = samples_of(memory, chunk, slot, H * V + c, row) + 8 / H * half;
#pragma unroll
            for (int k = 0; k < 8 / H; k++) // adds 0, 1, ... to two, 1, 2, ... to four
                sums[c][k] = H == 1 ? sums[c][k] : (sums[c][k] + V / 2 + k % 2) / (H * V);
#pragma unroll
            for (int k = 0; k < 8 / H; k += 4)
                *(uint32_t *)(to + k) = join_bytes<0>(sums[c] + k);
        }
    }
}

__device__ inline void load_gray(struct chunk_memory *memory, const struct chunk &chunk)
{
    for (int i = (int)threadIdx.x; i < CHUNK_BLOCKS * 8; i += THREADS) {
        int slot = i % CHUNK_BLOCKS, row = i / CHUNK_BLOCKS;
        if (slot >= chunk.slots)
            continue;
        uint2 mcu = memory->mcu[slot];
        int x = 8 * (int)mcu.x, y = min(8 * (int)mcu.y + row, chunk.height - 1);
        uint2 eight = load_eight(chunk.plane[0] + y * chunk.stride, x, chunk.width);
        if (x + 8 > chunk.width)
            repeat_last(&eight, x, chunk.width);
        *(uint2 *)samples_of(memory, chunk, slot, 0, row) = eight;
    }
}

// --- coefficients --------------------------------------------------------------------------------

// value / 2^BITS, rounded.
template <int BITS> __device__ inline int descale(int value)
{
    if constexpr (BITS > 0)
        return (value + (1 << (BITS - 1))) >> BITS;
    else
        return value * (1 << -BITS);
}

// One dimension of the DCT of Loeffler, Ligtenberg and Moschytz (ICASSP 1989), with libjpeg's
// factors of 13 bits. Its products are added up without rounding, so they may be collected to
// linear combinations: 9633, for example, is 2^13 sqrt(2) cos(3 pi / 16), and 11363 is
// 12299 - 7373 - 3196 + 9633, the four factors of that product. Results are 2^SCALE sqrt(8) times
// those of the orthonormal DCT, rounded.
template <int SCALE> __device__ inline void transform(int (&d)[8])
{
    int s[4], t[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = d[i] + d[7 - i];
        t[i] = d[i] - d[7 - i];
    }
    int a = s[0] + s[3], b = s[1] + s[2], c = s[0] - s[3], e = s[1] - s[2];
    const int BITS = 13 - SCALE;
    d[0] = descale<-SCALE>(a + b);
    d[4] = descale<-SCALE>(a - b);
    d[2] = descale<BITS>(10703 * c + 4433 * e);
    d[6] = descale<BITS>(4433 * c - 10704 * e);
    d[1] = descale<BITS>(11363 * t[0] + 9633 * t[1] + 6437 * t[2] + 2260 * t[3]);
    d[3] = descale<BITS>(9633 * t[0] - 2259 * t[1] - 11362 * t[2] - 6436 * t[3]);
    d[5] = descale<BITS>(6437 * t[0] - 11362 * t[1] + 2261 * t[2] + 9633 * t[3]);
    d[7] = descale<BITS>(2260 * t[0] - 6436 * t[1] + 9633 * t[2] - 11363 * t[3]);
}

__device__ inline uint32_t join_halves(int low, int high)
{
    return __byte_perm((uint32_t)low, (uint32_t)high, 0x5410);
}

// Eight lanes transform a block: a row each, then a column each, which they quantise and store in
// zigzag order. Rows pass through the place of the coefficients. The last round may include blocks
// that the chunk does not have; their results are not used.
__device__ inline void transform_blocks(struct chunk_memory *memory, const struct chunk &chunk)
{
    int lane = (int)threadIdx.x % 8, all = chunk.slots * chunk.mcu_blocks;
    uint64_t zigzag = jpeg_zigzag.column[lane];
    int reciprocal = 65536 / chunk.mcu_blocks + 1; // exact for block numbers
    for (int first = (int)threadIdx.x / WARP * 4; first < all; first += THREADS / 8) {
        int block = first + (int)threadIdx.x % WARP / 8, d[8];
        int within = block - (block * reciprocal >> 16) * chunk.mcu_blocks;
        uint2 row = *(const uint2 *)(memory->samples + block * SAMPLES_STRIDE + 8 * lane);
        int16_t *coefs = memory->coefs + block * COEFS_STRIDE;
#pragma unroll
        for (int k = 0; k < 8; k++)
            d[k] = (int)byte_of(row, k);
        transform<2>(d);
        d[0] -= 128 * 8 << 2; // samples are centred
        *(uint4 *)(coefs + 8 * lane) = make_uint4(join_halves(d[0], d[1]), join_halves(d[2], d[3]),
                                                  join_halves(d[4], d[5]), join_halves(d[6], d[7]));
        __syncwarp(); // the rows are there
#pragma unroll
        for (int k = 0; k < 8; k++)
            d[k] = coefs[8 * k + lane];
        __syncwarp(); // and have been read
        transform<-2>(d);
        const struct divisor *divisors = memory->divisors[within >= chunk.luma] + lane;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            struct divisor by = divisors[8 * k];
            int result = (int)__umulhi((uint32_t)abs(d[k]) + by.half, by.multiplier);
            d[k] = d[k] < 0 ? -result : result;
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
            coefs[zigzag >> 8 * k & 0xff] = (int16_t)d[k];
    }
}

// --- codes ---------------------------------------------------------------------------------------

// What is coded of a block.
struct block_codes {
    const int16_t *coefs;
    const uint32_t *codes;
    int dc;               // difference
    uint32_t non_zero[2]; // bit k % 32 of word k / 32: AC coefficient k is not 0
};

// In an MCU at the right or lower edge, blocks wholly outside of the image have the DC coefficient
// of the block before, and no others. Returns the block whose DC coefficient it is.
__device__ inline int find_source(const struct chunk &chunk, const uint2 &mcu, int block)
{
    bool beside = chunk.h == 2 && 16 * (int)mcu.x + 8 >= chunk.width;
    bool below = chunk.v == 2 && 16 * (int)mcu.y + 8 >= chunk.height;
    if (block >= chunk.luma)
        return block;
    if (below && block >= chunk.h)
        block = chunk.h - 1;
    return beside ? block & ~1 : block;
}

__device__ inline int dc_of(const struct chunk_memory *memory, const struct chunk &chunk, int slot,
                            int block)
{
    int source = find_source(chunk, memory->mcu[slot], block);
    return memory->coefs[(slot * chunk.mcu_blocks + source) * COEFS_STRIDE];
}

__device__ inline void find_non_zero(uint32_t (&bits)[2], const int16_t *coefs)
{
    bits[0] = bits[1] = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint4 eight = *(const uint4 *)(coefs + 8 * i);
        uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            bits[i / 4] |= (uint32_t)((words[k] & 0xffff) != 0) << (8 * i + 2 * k) % 32;
            bits[i / 4] |= (uint32_t)((words[k] >> 16) != 0) << (8 * i + 2 * k + 1) % 32;
        }
    }
    bits[0] &= ~1u;
}

__device__ inline struct block_codes open_block(const struct chunk_memory *memory,
                                                const struct chunk &chunk, int slot, int block)
{
    struct block_codes codes;
    bool chroma = block >= chunk.luma;
    codes.coefs = memory->coefs + (slot * chunk.mcu_blocks + block) * COEFS_STRIDE;
    codes.codes = memory->codes[chroma];
    find_non_zero(codes.non_zero, codes.coefs);
    if (find_source(chunk, memory->mcu[slot], block) != block)
        codes.non_zero[0] = codes.non_zero[1] = 0;
    codes.dc = dc_of(memory, chunk, slot, block);
    if (block > 0 && !chroma)
        codes.dc -= dc_of(memory, chunk, slot, block - 1);
    else if (slot > 0)
        codes.dc -= dc_of(memory, chunk, slot - 1, chroma ? block : chunk.luma - 1);
    return codes;
}

// Bits of a value without its sign (F.1.2.1). Negative values are sent minus 1.
__device__ inline int size_of(int value)
{
    return 31 - __clz(abs(value)) + 1;
}

__device__ inline uint32_t value_bits(int value, int size)
{
    return (uint32_t)(value + (value >> 31)) & ((1u << size) - 1);
}

// Calls put(entry, bits of the value) for each code of the block.
template <typename Put> __device__ inline void for_codes(const struct block_codes &block, Put put)
{
    int size = size_of(block.dc), last = 0, base = 0;
    uint32_t rest = block.non_zero[0], next = block.non_zero[1];
    put(block.codes[size], value_bits(block.dc, size));
    while (rest | next) {
        if (rest == 0) {
            rest = next;
            next = 0;
            base = 32;
        }
        int k = base + __ffs((int)rest) - 1, value = block.coefs[k], run = k - last - 1;
        rest &= rest - 1;
#pragma unroll 1 // rare
        for (; run >= 16; run -= 16)
            put(block.codes[CODE_ZEROS], 0);
        size = size_of(value);
        put(block.codes[CODE_AC + run * SIZES + size], value_bits(value, size));
        last = k;
    }
    if (last < CONV_JPEG_BLOCK - 1)
        put(block.codes[CODE_END], 0);
}

// Returns the number of the block's bits.
__device__ inline uint32_t write_bits(uint32_t *to, const struct block_codes &block)
{
    uint32_t waiting_bits = 0, all = 0;
    uint64_t waiting = 0;
    for_codes(block, [&](uint32_t entry, uint32_t value) {
        uint32_t bits = entry >> ENTRY_SHIFT;
        waiting = waiting << bits | (entry & ENTRY_MASK) | value;
        waiting_bits += bits;
        if (waiting_bits >= 32) {
            waiting_bits -= 32;
            *to++ = (uint32_t)(waiting >> waiting_bits);
            all += 32;
        }
    });
    if (waiting_bits > 0)
        *to = (uint32_t)(waiting << (32 - waiting_bits));
    return all + waiting_bits;
}

// Puts them at bit `at` of the words, which other threads fill as well.
__device__ inline void move_bits(uint32_t *words, uint32_t at, const uint32_t *from, uint32_t bits)
{
    uint32_t shift = at % 32, last = 0;
    words += at / 32;
    for (uint32_t i = 0; i < bits; i += 32) {
        uint32_t word = *from++;
        atomicOr(words++, __funnelshift_r(word, last, shift));
        last = word;
    }
    if (shift > 0 && last << (32 - shift) != 0)
        atomicOr(words, last << (32 - shift));
}

// The sum of the threads' bits up to this one. Synchronises the block.
__device__ inline uint32_t sum_threads(struct chunk_memory *memory, uint32_t bits)
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t below = __shfl_up_sync(ALL_LANES, bits, step);
        bits += lane >= step ? below : 0;
    }
    if (lane == WARP - 1)
        memory->sums[warp] = bits;
    __syncthreads(); // the warps' sums are there
    for (uint32_t i = 0; i < warp; i++)
        bits += memory->sums[i];
    return bits;
}

// --- the kernel ----------------------------------------------------------------------------------

static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    encode_blocks(const struct jpeg_scratch scratch)
{
    __shared__ struct chunk_memory shared[1];
    struct chunk_memory *memory = shared;
    const struct conv_jpeg_encode_image *images = scratch.images;
    int index = find_last(scratch.count, blockIdx.x, [&](int i) { return images[i].first_chunk; });
    const struct conv_jpeg_encode_image &image = images[index];
    uint32_t number = blockIdx.x - image.first_chunk, first = number * chunk_mcus(image);
    struct chunk chunk = open_chunk(image, first);
    fill_tables(memory, image, first - (uint32_t)chunk.lead);
    __syncthreads(); // the slots' MCUs are there

    if (image.components == 1)
        load_gray(memory, chunk);
    else if (image.h == 1)
        load_colour<1, 1>(memory, chunk);
    else if (image.v == 1)
        load_colour<2, 1>(memory, chunk);
    else
        load_colour<2, 2>(memory, chunk);
    __syncthreads(); // the samples are there
    transform_blocks(memory, chunk);
    __syncthreads(); // the coefficients are there

    int slot = (int)threadIdx.x / chunk.mcu_blocks, in_mcu = (int)threadIdx.x % chunk.mcu_blocks;
    bool own = slot >= chunk.lead && slot < chunk.slots;
    struct block_codes block = {};
    if (own)
        block = open_block(memory, chunk, slot, in_mcu);
    uint32_t bits = own ? write_bits(memory->bits[threadIdx.x], block) : 0;
    uint32_t until = sum_threads(memory, bits), all = 0;
    for (int i = 0; i < THREADS / WARP; i++)
        all += memory->sums[i];
    if (threadIdx.x == 0) {
        scratch.chunks[blockIdx.x].image = (uint32_t)index;
        scratch.chunks[blockIdx.x].bits = all;
    }
    uint32_t count = (all + 31) / 32;
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        memory->words[i] = 0;
    __syncthreads(); // the words are clear
    if (own)
        move_bits(memory->words, until - bits, memory->bits[threadIdx.x], bits);
    __syncthreads(); // the bits are there
    uint32_t *out = scratch.bits + image.bits_at + (uint64_t)number * chunk_room(image);
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        out[i] = memory->words[i];
}

void conv_jpeg_encode_blocks(const struct jpeg_scratch &scratch, cudaStream_t stream)
{
    encode_blocks<<<scratch.all_chunks, THREADS, 0, stream>>>(scratch);
}
