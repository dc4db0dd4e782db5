// SPDX-License-Identifier: MIT
// Finds the first DEFLATE block with codes of its own in each part of a stream. It tests for each
// bit whether the 13 bits from there on can begin the head of such a block; then, if they can,
// whether the precode is complete; and for the few bits that remain, whether the codes are
// complete. Of 10^9 random bits about one passes all tests; counting, below, detects such
// false begins.
#include <cuda_runtime_api.h>

#include "png/cuda/inflate_window.cuh"
#include "png/cuda/launches.cuh"
#include "png/cuda/split.cuh"

#define FIND_THREADS 128
#define FIND_WARPS (FIND_THREADS / LANES)
#define FIND_WORDS 1024    // of the stream, searched at a time
#define MOST_SURVIVORS 512 // of a warp's 32 words: the bits 0, 0, 1 begin at most at every third
#define MOST_FOUND 256
#define VERIFIERS 64 // threads that read codes
#define FIXED_HEAD 17

struct find_memory {
    uint32_t words[FIND_WORDS + HEAD_WORDS + 4];
    union {
        uint16_t survivors[FIND_WARPS][MOST_SURVIVORS];
        uint8_t precodes[VERIFIERS][1 << PRECODE_BITS]; // symbol << 3 | length
    };
    uint8_t sums[512]; // of 2^(7 - length) for three lengths
    uint32_t found[MOST_FOUND], count, first;
};

__device__ __forceinline__ uint32_t bits_at(const uint32_t *words, uint32_t at)
{
    return __funnelshift_r(words[at / 32], words[at / 32 + 1], at);
}

// The bits of a word at which the head of a block that is not the last one may begin: the bits 0,
// 0, 1, then two fields of five bits whose values are below 30.
__device__ __forceinline__ uint32_t may_begin(const uint32_t *words)
{
    uint32_t low = words[0], high = words[1], first = low;
#define AT(n) __funnelshift_r(low, high, n)
    uint32_t litlens = AT(4) & AT(5) & AT(6) & AT(7), distances = AT(9) & AT(10) & AT(11) & AT(12);
    uint32_t begins = ~first & ~AT(1) & AT(2) & ~litlens & ~distances;
#undef AT
    return begins;
}

__device__ __forceinline__ bool has_precode(const struct find_memory &memory, uint32_t at)
{
    uint32_t count = 4 + (bits_at(memory.words, at) >> 13 & 15), sum = 0;
    // The first 9 lengths take 27 bits, the others up to 30.
    uint32_t low = bits_at(memory.words, at + FIXED_HEAD) & 0x7ffffff;
    uint32_t high = bits_at(memory.words, at + FIXED_HEAD + 27) & 0x3fffffff;
    low &= count < 9 ? (1u << 3 * count) - 1 : UINT32_MAX;
    high &= count <= 9 ? 0 : (1u << 3 * (count - 9)) - 1;
#pragma unroll
    for (int i = 0; i < 3; i++)
        sum += memory.sums[low >> 9 * i & 511];
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += memory.sums[high >> 9 * i & 511];
    return sum == 1 << PRECODE_BITS;
}

// The position of a precode symbol's length in the head.
__device__ __forceinline__ uint32_t precode_place(uint32_t symbol)
{
    return symbol > 15   ? symbol - 16
           : symbol == 0 ? 3
           : symbol > 7  ? 4 + 2 * (symbol - 8)
                         : 3 + 2 * (8 - symbol);
}

// Makes the precode's table. The precode is complete, so all of the table is written.
__device__ inline void make_precode(uint8_t *table, const uint32_t *words, uint32_t at,
                                    uint32_t count)
{
    uint64_t lengths = (uint64_t)bits_at(words, at + 32) << 32 | bits_at(words, at);
    uint64_t next = 0; // codeword of each length, a byte each
    lengths &= ((uint64_t)1 << 3 * count) - 1;
    for (uint32_t i = 0; i < count; i++)
        next += (uint64_t)1 << 8 * (lengths >> 3 * i & 7);
    uint32_t code = 0;
    uint64_t numbers = next;
    next = 0;
    for (uint32_t length = 1; length <= PRECODE_BITS; length++) {
        next |= (uint64_t)code << 8 * length;
        code = 2 * (code + (uint32_t)(numbers >> 8 * length & 255));
    }
    for (uint32_t symbol = 0; symbol < PRECODES; symbol++) {
        uint32_t length = (uint32_t)(lengths >> 3 * precode_place(symbol) & 7);
        if (length == 0)
            continue;
        uint32_t codeword = (uint32_t)(next >> 8 * length & 255);
        next += (uint64_t)1 << 8 * length;
        for (uint32_t i = reverse_bits(codeword) >> (32 - length); i < 1 << PRECODE_BITS;
             i += 1u << length)
            table[i] = (uint8_t)(symbol << 3 | length);
    }
}

// True if both codes are complete; a code of distances may have one codeword or none.
__device__ inline bool has_codes(uint8_t *table, const uint32_t *words, uint32_t at)
{
    struct bits bits = read_bits(words, at + 3);
    struct length_counts counts;
    if (!read_length_counts(&bits, &counts))
        return false;
    make_precode(table, words, at + FIXED_HEAD, counts.precodes);
    bits = read_bits(words, at + FIXED_HEAD + 3 * counts.precodes);
    uint32_t total = counts.litlens + counts.distances, former = 0;
    uint32_t litlens = 0, distances = 0, codewords = 0; // 1 is 2^-15
    bool ends = false;
    for (uint32_t done = 0; done < total;) {
        uint32_t next = peek_bits(&bits), entry = table[next & ((1 << PRECODE_BITS) - 1)];
        uint32_t symbol = entry >> 3, drop = entry & 7, repeat = 1;
        if (symbol > 15) {
            if (symbol == 16 && done == 0)
                return false;
            uint32_t extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            repeat = (symbol == 18 ? 11 : 3) + (next >> drop & ((1u << extra) - 1));
            drop += extra;
        }
        drop_bits(&bits, drop);
        former = symbol < 16 ? symbol : symbol == 16 ? former : 0;
        if (repeat > total - done)
            return false;
        uint32_t near = done >= counts.litlens ? 0 : min(repeat, counts.litlens - done);
        uint32_t share = former ? 1u << (MOST_LENGTH - former) : 0;
        ends |= former && done <= END_OF_BLOCK && done + repeat > END_OF_BLOCK;
        litlens += near * share;
        distances += (repeat - near) * share;
        codewords += former ? repeat - near : 0;
        if (litlens > 1 << MOST_LENGTH || distances > 1 << MOST_LENGTH)
            return false;
        done += repeat;
    }
    return ends && litlens == 1 << MOST_LENGTH &&
           (distances == 1 << MOST_LENGTH || codewords == 0 ||
            (codewords == 1 && distances == 1 << (MOST_LENGTH - 1)));
}

// Tests the bits of a warp's words; those that pass are stored in memory.found.
__device__ inline void search_words(struct find_memory &memory, uint32_t word)
{
    uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    uint32_t begins = may_begin(memory.words + word + lane);
    uint32_t mine = (uint32_t)__popc(begins), end = mine;
    for (uint32_t step = 1; step < LANES; step *= 2) {
        uint32_t before = __shfl_sync(ALL_LANES, end, (int)(lane - step) & (LANES - 1));
        if (lane >= step)
            end += before;
    }
    uint32_t total = __shfl_sync(ALL_LANES, end, LANES - 1);
    for (uint32_t at = end - mine; begins; at++, begins &= begins - 1)
        if (at < MOST_SURVIVORS)
            memory.survivors[warp][at] = (uint16_t)(32 * lane + (uint32_t)__ffs((int)begins) - 1);
    __syncwarp();
    for (uint32_t i = lane; i < min(total, (uint32_t)MOST_SURVIVORS); i += LANES) {
        uint32_t at = 32 * word + memory.survivors[warp][i];
        if (!has_precode(memory, at))
            continue;
        uint32_t place = atomicAdd(&memory.count, 1u);
        if (place < MOST_FOUND)
            memory.found[place] = at;
    }
    __syncwarp();
}

// The first head in some words of the stream from `word` on, at a bit below `end`, relative to
// them; SPLIT_NONE if there is none. Called by all threads; the same for all.
__device__ inline uint32_t search(struct find_memory &memory, const struct stream &stream,
                                  uint32_t word, uint32_t count, uint32_t begin, uint32_t end)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count + HEAD_WORDS + 4; i += FIND_THREADS)
        memory.words[i] = stream_word(stream, word + i);
    if (threadIdx.x == 0) {
        memory.count = 0;
        memory.first = SPLIT_NONE;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x / LANES * LANES; i < count; i += FIND_THREADS)
        search_words(memory, i);
    __syncthreads();
    uint32_t found = min(memory.count, (uint32_t)MOST_FOUND), first = SPLIT_NONE;
    if (threadIdx.x < VERIFIERS)
        for (uint32_t i = threadIdx.x; i < found; i += VERIFIERS) {
            uint32_t at = memory.found[i];
            if (at >= begin && at < end && at < first &&
                has_codes(memory.precodes[threadIdx.x], memory.words, at))
                first = at;
        }
    if (first != SPLIT_NONE)
        atomicMin(&memory.first, first);
    __syncthreads();
    return memory.first;
}

static __global__ void __launch_bounds__(FIND_THREADS)
    split_find(const struct conv_decode_image *images, const uint32_t *stop)
{
    __shared__ struct find_memory own[1];
    struct find_memory &memory = own[0];
    struct conv_decode_image image = images[blockIdx.y];
    uint32_t number = blockIdx.x;
    if (number >= image.parts)
        return;
    struct split_state *state = find_split(image).state;
    struct split_part *part = &state->parts[number];
    const struct stream stream = open_stream(image);
    uint32_t first = 8 * (stream.lead + number * image.part_bytes);
    uint32_t end = min(first + 8 * image.part_bytes, stream.end), start = SPLIT_NONE;
    if (number == 0) {
        start = 8 * (stream.lead + 2);
        if (threadIdx.x == 0) {
            state->failed = check_header(stream, image.rows_bytes) || (stop && *stop);
            state->windows = state->codes = state->live = state->done = 0;
            state->bytes = state->weighted = 0;
            *result_of(image) = CONV_DECODE_STOPPED;
        }
    } else {
        for (uint32_t i = threadIdx.x; i < 512; i += FIND_THREADS) {
            uint32_t sum = 0;
            for (uint32_t shift = 0; shift < 9; shift += 3)
                sum += (1u << PRECODE_BITS >> (i >> shift & 7)) & ((1u << PRECODE_BITS) - 1);
            memory.sums[i] = (uint8_t)sum;
        }
        for (uint32_t at = first / 32 * 32; at < end && start == SPLIT_NONE;
             at += 32 * FIND_WORDS) {
            uint32_t count = min((uint32_t)FIND_WORDS, (end - at + 31) / 32);
            count = (count + LANES - 1) / LANES * LANES;
            uint32_t found =
                search(memory, stream, at / 32, count, at < first ? first - at : 0, end - at);
            start = found == SPLIT_NONE ? SPLIT_NONE : at + found;
        }
    }
    if (threadIdx.x == 0) {
        struct split_part empty = {start, SPLIT_NONE, 0, SPLIT_NONE, SPLIT_NONE};
        *part = empty;
    }
}

enum conv_status conv_cuda_split_find(const struct conv_decode_batch *batch, const char **name)
{
    dim3 grid(conv_cuda_split_most_parts(batch), (unsigned)batch->count);
    split_find<<<grid, FIND_THREADS, 0, (cudaStream_t)batch->stream>>>(batch->d_images,
                                                                       batch->d_stop);
    *name = "split_find";
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// --- counting -----------------------------------------------------------------------------------

// Counts the output of each part of a split stream (split.cuh), from the block that was found in it
// to the block that was found in a later part, and stores where each thread's symbols begin. A
// second kernel follows the parts from the first on: those that it reaches form the stream.

// Counting fails after this many times the size of a part: decoding from a wrong begin rarely
// reaches a right one, and one block of threads decodes DEFLATE blocks this large as fast.
#define MOST_PART_SIZES 16
// Counting fails if fewer than one part in this many has a begin: the DEFLATE blocks are too large.
#define PARTS_PER_BEGIN 5

// Places of a window reserved before its bytes, because their alignment is not known yet.
#define MOST_SKIP (WINDOW_ALIGN - 1)

// The tables of a part that is being counted, the same in all threads.
struct counting {
    struct split split;
    struct progress progress;
    uint32_t *link;  // receives the number of the next window
    uint32_t window; // reserved number of the next window; SPLIT_NONE if none is reserved
    uint32_t codes;  // number of this block's codes
};

// Reserves the next number below `most`, which all threads get; SPLIT_NONE if there is none left.
// Contains barriers.
template <int THREADS>
__device__ inline uint32_t reserve(struct block_memory<THREADS> &shared, uint32_t *used,
                                   uint32_t most)
{
    __syncthreads();
    if (threadIdx.x == 0)
        shared.agreed.result = atomicAdd(used, 1u);
    __syncthreads();
    uint32_t number = shared.agreed.result;
    return number < most ? number : SPLIT_NONE;
}

// Describes the reserved window, except for `shares`, and appends it to the part's list.
__device__ inline void note_window(struct counting *counting, uint32_t codes, uint32_t at,
                                   uint32_t bits, uint32_t parts, uint32_t bytes)
{
    struct split_window *window = &counting->split.windows[counting->window];
    if (threadIdx.x == 0) {
        window->next = SPLIT_NONE;
        window->codes = codes;
        window->at = at;
        window->bits = bits;
        window->parts = parts;
        window->bytes = bytes;
        *counting->link = counting->window;
    }
    counting->link = &window->next;
    counting->window = SPLIT_NONE;
}

template <int THREADS>
__device__ inline bool reserve_window(struct block_memory<THREADS> &shared,
                                      struct counting *counting)
{
    if (counting->window == SPLIT_NONE)
        counting->window =
            reserve(shared, &counting->split.state->windows, counting->split.most_windows);
    return counting->window != SPLIT_NONE;
}

// Counts a block that has codes. False if the part cannot be counted.
template <int THREADS>
__device__ inline bool count_symbols_of(struct block_memory<THREADS> &shared,
                                        const struct stream &stream, struct counting *counting,
                                        uint32_t end)
{
    struct progress *progress = &counting->progress;
    counting->codes = reserve(shared, &counting->split.state->codes, counting->split.most_codes);
    if (counting->codes == SPLIT_NONE)
        return false;
    uint8_t *lengths = counting->split.codes[counting->codes].lengths;
    for (uint32_t i = threadIdx.x; i < LITLENS + DISTANCES; i += THREADS)
        lengths[i] = shared.making.lengths[i];
    for (bool ended = false; !ended;) {
        if (progress->at >= end || !reserve_window(shared, counting))
            return false;
        __syncthreads(); // the lengths, or the stage, are no longer read
        uint32_t bits = progress->part_bits;
        count_window(shared, stream, progress, MOST_SKIP, nullptr, [] {});
        struct agreement agreed = shared.agreed;
        if (agreed.parts == 0) {
            progress->part_bits = LEAST_PART_BITS;
            continue;
        }
        if (agreed.stop & PLACE_INVALID)
            return false;
        uint32_t *shares = counting->split.windows[counting->window].shares;
        for (uint32_t i = threadIdx.x; i < THREADS + 1; i += THREADS)
            shares[i] = shared.shares[i];
        note_window(counting, counting->codes, progress->at, bits, agreed.parts, agreed.bytes);
        ended = advance<THREADS>(progress, agreed);
    }
    return true;
}

template <int THREADS>
__device__ inline bool count_stored(struct block_memory<THREADS> &shared,
                                    const struct stream &stream, struct counting *counting)
{
    uint32_t first, size;
    if (read_stored(stream, counting->progress.at, &first, &size) ||
        !reserve_window(shared, counting))
        return false;
    note_window(counting, SPLIT_NONE, first, 0, 0, size);
    counting->progress.at = 8 * (stream.lead + first + size);
    counting->progress.out += size;
    return true;
}

// Counts one DEFLATE block after the other until a later part begins at the end of one. Returns the
// number of that part, `parts` at the end of the stream, or SPLIT_NONE if it fails.
template <int THREADS>
__device__ inline uint32_t count_part_of(struct block_memory<THREADS> &shared,
                                         const struct conv_decode_image &image,
                                         const struct stream &stream, struct counting *counting,
                                         uint32_t number, uint32_t free_cost)
{
    struct progress *progress = &counting->progress;
    uint64_t furthest = (uint64_t)progress->at + 8ull * MOST_PART_SIZES * image.part_bytes;
    uint32_t end = (uint32_t)min(furthest, (uint64_t)stream.end);
    for (;;) {
        bool final;
        uint32_t type;
        if (is_costly(*progress, free_cost) || read_head(shared, stream, progress, &final, &type))
            return SPLIT_NONE;
        bool right = type == 0 ? count_stored(shared, stream, counting)
                               : count_symbols_of(shared, stream, counting, end);
        if (!right || progress->out > image.rows_bytes)
            return SPLIT_NONE;
        if (final)
            return (progress->at + 7) / 8 * 8 == stream.end ? image.parts : SPLIT_NONE;
        uint32_t next = (progress->at / 8 - stream.lead) / image.part_bytes;
        if (next > number && next < image.parts &&
            counting->split.state->parts[next].start == progress->at)
            return next;
    }
}

static __global__ void __launch_bounds__(SPLIT_THREADS, 1024 / SPLIT_THREADS)
    split_count(const struct conv_decode_image *images, uint32_t free_cost)
{
    extern __shared__ uint4 memory[];
    struct block_memory<SPLIT_THREADS> &shared = *(struct block_memory<SPLIT_THREADS> *)memory;
    struct conv_decode_image image = images[blockIdx.y];
    uint32_t number = blockIdx.x;
    if (number >= image.parts)
        return;
    struct split split = find_split(image);
    struct split_part *part = &split.state->parts[number];
    uint32_t start = part->start, begins;
    if (split.state->failed || start == SPLIT_NONE)
        return;
    bool found = threadIdx.x < image.parts && split.state->parts[threadIdx.x].start != SPLIT_NONE;
    sum_before(shared, found, 0, &begins);
    if (begins * PARTS_PER_BEGIN < image.parts)
        return;
    const struct stream stream = open_stream(image);
    struct counting counting = {
        split,
        {start, 0, block_memory<SPLIT_THREADS>::SHARES * FIRST_THREAD_BITS, 0, 0, 0},
        &part->window,
        SPLIT_NONE,
        SPLIT_NONE};
    uint32_t next = count_part_of(shared, image, stream, &counting, number, free_cost);
    if (threadIdx.x == 0) {
        part->bytes = counting.progress.out;
        part->next = next;
    }
}
static_assert(CONV_SPLIT_MOST_PARTS <= SPLIT_THREADS, "a thread per part");

// Follows the parts of each image from the first on. One block per image.
static __global__ void __launch_bounds__(CONV_SPLIT_MOST_PARTS)
    split_chain(const struct conv_decode_image *images)
{
    __shared__ uint32_t next[CONV_SPLIT_MOST_PARTS];
    __shared__ uint32_t bytes[CONV_SPLIT_MOST_PARTS];
    struct conv_decode_image image = images[blockIdx.x];
    if (image.parts == 0)
        return;
    struct split_state *state = find_split(image).state;
    if (threadIdx.x < image.parts) {
        next[threadIdx.x] = state->parts[threadIdx.x].next;
        bytes[threadIdx.x] = state->parts[threadIdx.x].bytes;
    }
    __syncthreads();
    if (threadIdx.x > 0 || state->failed)
        return;
    uint32_t part = 0, live = 0;
    uint64_t out = 0;
    while (part < image.parts) {
        state->parts[part].out = state->outs[live++] = (uint32_t)out;
        out += bytes[part];
        part = next[part]; // a later one
        if (out > image.rows_bytes)
            part = SPLIT_NONE;
    }
    state->live = live;
    state->failed = part != image.parts || out != image.rows_bytes;
}

enum conv_status conv_cuda_split_count(const struct conv_decode_batch *batch, const char **name)
{
    const int bytes = (int)sizeof(struct block_memory<SPLIT_THREADS>);
    dim3 grid(conv_cuda_split_most_parts(batch), (unsigned)batch->count);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (cudaFuncSetAttribute((const void *)split_count, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             bytes))
        return CONV_ERR_DEVICE;
    split_count<<<grid, SPLIT_THREADS, (size_t)bytes, stream>>>(
        batch->d_images, batch->at_any_cost ? UINT32_MAX : FREE_COST);
    if (cudaPeekAtLastError())
        return CONV_ERR_DEVICE;
    split_chain<<<(unsigned)batch->count, CONV_SPLIT_MOST_PARTS, 0, stream>>>(batch->d_images);
    *name = "split_count";
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
