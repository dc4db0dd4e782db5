// SPDX-License-Identifier: MIT
// Decoding of symbols, one at a time, by one thread: the tables in shared memory, and the loop.
#pragma once

#include "jpeg/cuda/decode.cuh"

// --- states --------------------------------------------------------------------------------------

// Where a decoder is between two symbols: bits beyond the end of the subsequence before, at most
// 30; the block's number in the pattern of tables; the index of the next coefficient; and the
// blocks completed in that subsequence, since its last start of a segment if there is one.
#define STATE_OVER(state) ((state)&31)
#define STATE_PHASE(state) ((state) >> 5 & 15)
#define STATE_INDEX(state) ((state) >> 9 & 63)
#define STATE_COUNT(state) ((state) >> 16)
#define STATE_PLACE 0x7fffu // all but the count
#define KNOWN_ENTRY 0xffffu
static_assert(SUB_BITS / 2 <= 0xffff, "the blocks of a subsequence, of two bits each, are counted");

// Where the thread of a subsequence begins if it does not know better. To guess that it is within a
// block takes as many repetitions.
#define GUESS 0

// --- tables --------------------------------------------------------------------------------------

#define LOOK_BITS 10
#define LOOK_SIZE (1 << LOOK_BITS)
#define CODE_BITS 16 // of the longest codes

// What a symbol does, in 16 bits: the bits of its code and of the value after it, at most 31; the
// bits of that value; by how much the index of the coefficient grows. 0: the code is longer.
#define ENTRY(bits, size, step) ((bits) | (size) << 5 | (step) << 9)
#define ENTRY_BITS(entry) ((entry)&31)
#define ENTRY_SIZE(entry) ((entry) >> 5 & 15)
#define ENTRY_STEP(entry) ((entry) >> 9)
#define STEP_END 64u                    // of end-of-block
#define STEP_ZEROS 16                   // of 16 zeros
#define UNUSED_CODE ENTRY(1u, 0u, 127u) // a code without a symbol; the step is of none other

struct jpeg_tables {
    // By component, DC or AC, and the first bits.
    uint16_t look[CONV_JPEG_COMPONENTS * 2 * LOOK_SIZE];
    uint32_t limit[CONV_JPEG_COMPONENTS][2][CODE_BITS]; // 16 bits from here on begin a longer code
    int32_t offset[CONV_JPEG_COMPONENTS][2][CODE_BITS]; // of the symbol, from the code
    const struct conv_jpeg_stream *head;
    uint32_t turns[CONV_JPEG_MOST_BLOCKS]; // of the tables, by phase
};

// Whose tables the blocks of an MCU use: where those for DC begin in look[], the next block's
// phase, and the own one.
#define TURN(look, next, phase) ((look) | (next) << 16 | (phase) << 24)
#define TURN_LOOK(turn) ((turn)&0xffff)
#define TURN_NEXT(turn) ((turn) >> 16 & 255)
#define TURN_PHASE(turn) ((turn) >> 24)

__device__ __forceinline__ const struct conv_jpeg_code &code_of(const struct conv_jpeg_stream &head,
                                                                uint32_t component, uint32_t ac)
{
    return ac ? head.ac[component] : head.dc[component];
}

__device__ __forceinline__ uint32_t make_entry(uint32_t length, uint32_t symbol, uint32_t ac)
{
    uint32_t size = symbol & 15, run = symbol >> 4;
    uint32_t step = !ac || size ? run + 1 : run == 15 ? STEP_ZEROS : STEP_END;
    return ENTRY(length + size, size, step);
}

// The entry of the code that begins 16 bits. Its length is found from `length` on.
__device__ inline uint32_t find_entry(const struct jpeg_tables &tables, uint32_t component,
                                      uint32_t ac, uint32_t bits, uint32_t length)
{
    const uint32_t *limit = tables.limit[component][ac];
    while (length <= CODE_BITS && bits >= limit[length - 1])
        length++;
    if (length > CODE_BITS)
        return UNUSED_CODE;
    uint32_t at =
        (bits >> (CODE_BITS - length)) + (uint32_t)tables.offset[component][ac][length - 1];
    return make_entry(length, code_of(*tables.head, component, ac).symbols[at & 255], ac);
}

// Sets the turns of the shortest period. One that is shorter than an MCU need not be synchronised
// with it.
__device__ inline void set_turns(struct jpeg_tables *tables,
                                 const struct conv_jpeg_decode_image &image)
{
    uint32_t pattern = 0, blocks = 0, period = 1; // two bits per block: the component
    for (int c = 0; c < image.components; c++)
        for (int i = image.h[c] * image.v[c]; i > 0; i--)
            pattern |= (uint32_t)tables->head->tables[c] << 2 * blocks++;
    for (uint32_t p = 1; p < blocks; p++) {
        uint32_t same = (1u << 2 * (blocks - p)) - 1; // blocks that have one p later
        if (period == p && (blocks % p || (pattern & same) != pattern >> 2 * p))
            period++;
    }
    for (uint32_t phase = 0; phase < period; phase++) {
        uint32_t component = pattern >> 2 * phase & 3;
        tables->turns[phase] =
            TURN(component * 2 * LOOK_SIZE, phase + 1 == period ? 0 : phase + 1, phase);
    }
}

// By all threads of a block.
__device__ inline void make_tables(struct jpeg_tables *tables,
                                   const struct conv_jpeg_decode_image &image)
{
    const struct conv_jpeg_stream *head = &head_of(image);
    uint32_t codes = 2 * (uint32_t)image.components;
    if (threadIdx.x < codes) { // component, and DC or AC
        uint32_t component = threadIdx.x / 2, ac = threadIdx.x % 2, next = 0, symbols = 0;
        const struct conv_jpeg_code &code = code_of(*head, component, ac);
        for (uint32_t i = 0; i < CODE_BITS; i++) {
            next = 2 * next + code.counts[i];
            symbols += code.counts[i];
            tables->limit[component][ac][i] = next << (CODE_BITS - 1 - i);
            tables->offset[component][ac][i] = (int32_t)(symbols - next);
        }
    }
    if (threadIdx.x == 0) {
        tables->head = head;
        set_turns(tables, image);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < codes << LOOK_BITS; i += blockDim.x) {
        uint32_t component = i >> (LOOK_BITS + 1), ac = i >> LOOK_BITS & 1;
        if (head->tables[component] != component)
            continue;
        uint32_t bits = (i & (LOOK_SIZE - 1)) << (CODE_BITS - LOOK_BITS);
        tables->look[i] = (uint16_t)(bits < tables->limit[component][ac][LOOK_BITS - 1]
                                         ? find_entry(*tables, component, ac, bits, 1)
                                         : 0);
    }
    __syncthreads();
}

// --- data ----------------------------------------------------------------------------------------

// What the threads of a block decode, in shared memory: a thread reads words in an order that no
// cache line serves, since the others are at other places. Two words more may be read.
#define SUB_WORDS (SUB_BYTES / 4)
#define STAGE_QUADS (THREADS * SUB_WORDS / 4 + 1)
static_assert(SUB_WORDS % 4 == 0, "subsequences begin at quads");

// The place of a word of the data in the stage.
struct jpeg_stage {
    const uint32_t *words;
    uint32_t first;
};

__device__ __forceinline__ uint32_t swap_bytes(uint32_t word)
{
    return __byte_perm(word, 0, 0x0123); // the first byte of the data is the highest
}

// Copies the data of a block's threads, of which thread 0 has subsequence `first`. Words beyond the
// data, and before them where `first` is less than 0, become 0.
__device__ inline struct jpeg_stage stage_data(uint4 *quads, const uint8_t *data, uint32_t bytes,
                                               uint32_t first)
{
    uint32_t begin = first * (SUB_WORDS / 4), end = (bytes + 16) / 16; // zeros follow the data
    for (uint32_t i = threadIdx.x; i < STAGE_QUADS; i += THREADS) {
        uint4 quad = make_uint4(0, 0, 0, 0);
        if (begin + i < end)
            quad = ((const uint4 *)data)[begin + i];
        quads[i] = make_uint4(swap_bytes(quad.x), swap_bytes(quad.y), swap_bytes(quad.z),
                              swap_bytes(quad.w));
    }
    __syncthreads();
    return {(const uint32_t *)quads, 4 * begin};
}

// --- the loop ------------------------------------------------------------------------------------

struct jpeg_cursor {
    uint32_t bit;   // from the beginning of the data
    uint32_t phase; // in the pattern of tables
    uint32_t index; // of the next coefficient of the block
    uint32_t block; // completed ones
};

// Coefficients of the blocks that are completed, and where they go.
struct jpeg_output {
    int16_t *coefficients;
    int32_t *dc;
    const uint8_t *order; // of coefficients in a block, by index
    uint32_t last;        // block that is not decoded any more
};

// The value of `size` bits that begin at the top of `bits`: its own if its first bit is 1, else
// minus the complement (ITU-T T.81, annex F.2.2.1).
__device__ __forceinline__ int32_t extend(uint32_t bits, uint32_t size)
{
    int32_t value = (int32_t)(bits >> 1 >> (31 - size));
    return value + ((~(int32_t)bits >> 31) & (1 - (1 << size)));
}

// Decodes symbols that begin before bit `end`. WRITE: until the output's last block, and writes;
// the result is a failure or CONV_JPEG_DECODED.
template <bool WRITE>
__device__ __forceinline__ uint32_t decode(struct jpeg_cursor *cursor,
                                           const struct jpeg_tables &tables,
                                           const struct jpeg_stage &stage, uint32_t end,
                                           const struct jpeg_output &output)
{
    uint32_t failure = CONV_JPEG_DECODED;
    uint32_t bit = cursor->bit, index = cursor->index, block = cursor->block;
    const uint32_t *word = stage.words + (bit / 32 - stage.first);
    uint32_t high = word[0], low = word[1];
    uint32_t turn = tables.turns[cursor->phase];
    const uint16_t *dc = tables.look + TURN_LOOK(turn), *look = index ? dc + LOOK_SIZE : dc;
    while (bit < end && (!WRITE || block < output.last)) {
        uint32_t window = __funnelshift_l(low, high, bit);
        uint32_t entry = look[window >> (32 - LOOK_BITS)];
        if (entry == 0)
            entry = find_entry(tables, TURN_LOOK(turn) / (2 * LOOK_SIZE), index != 0,
                               window >> CODE_BITS, LOOK_BITS + 1);
        uint32_t used = ENTRY_BITS(entry), step = ENTRY_STEP(entry), before = bit;
        if (WRITE) {
            uint32_t size = ENTRY_SIZE(entry), after = index + step;
            int32_t value = extend(window << (used - size), size);
            if (index == 0)
                output.dc[block] = value;
            else if (size && after <= CONV_JPEG_BLOCK)
                output.coefficients[(size_t)block * CONV_JPEG_BLOCK + output.order[after - 1]] =
                    (int16_t)value;
            if (after > CONV_JPEG_BLOCK && step != STEP_END)
                failure = step > STEP_END ? CONV_JPEG_CODE : CONV_JPEG_INDEX;
        }
        bit += used;
        if ((bit ^ before) & 32) { // to the next word
            high = low;
            low = word[2];
            word++;
        }
        index += step;
        look = dc + LOOK_SIZE;
        if (index >= CONV_JPEG_BLOCK) {
            index = 0;
            block++;
            turn = tables.turns[TURN_NEXT(turn)];
            look = dc = tables.look + TURN_LOOK(turn);
        }
    }
    cursor->bit = bit;
    cursor->phase = TURN_PHASE(turn);
    cursor->index = index;
    cursor->block = block;
    return failure;
}
