// SPDX-License-Identifier: MIT
// Huffman decoding by many threads per image. A decoder that begins anywhere in the data is soon in
// step with one that began at its start (Klein and Wiseman, "Parallel Huffman decoding with
// applications to JPEG files", 2003). So each thread decodes a subsequence from a guess, then again
// from the state in which the thread before ended, until nothing changes; then the starts of all
// subsequences are right (Weissenberger and Schmidt, "Massively parallel Huffman decoding on GPUs",
// 2018). Segments between restart markers begin in a known state.
#include "jpeg/cuda/huffman.cuh"

// Repetitions, each of which takes some 10 us, that jpeg_link may need for an image. A file of one
// colour synchronises only from its start on; 500 KB of such data hold 35 megapixels.
#ifndef CONV_JPEG_MOST_ROUNDS
#define CONV_JPEG_MOST_ROUNDS 4096
#endif

// The data of an image.
struct jpeg_data {
    const uint8_t *bytes;
    const uint32_t *offsets; // of the segments, in bytes
    uint32_t bits;           // of all
    uint32_t segments;
    uint32_t segment_blocks;
    uint32_t blocks;
};

__device__ inline struct jpeg_data find_data(const struct conv_jpeg_decode_image &image)
{
    const struct conv_jpeg_stream &head = head_of(image);
    struct jpeg_data data;
    data.bytes = image.d_stream + head.data_at;
    data.offsets = (const uint32_t *)(image.d_stream + head.offsets_at);
    data.bits = 8 * head.data_bytes;
    data.segments = head.segments;
    data.segment_blocks = head.segment_mcus * plan_of(image).mcu_blocks;
    data.blocks = plan_of(image).blocks;
    return data;
}

// False if the stream is not that of the image that was planned.
__device__ inline bool is_planned(const struct conv_jpeg_decode_image &image)
{
    const struct conv_jpeg_stream &head = head_of(image);
    const struct jpeg_plan &plan = plan_of(image);
    bool same = head.width == image.width && head.height == image.height &&
                head.components == image.components && head.segments == image.segments &&
                head.data_bytes <= plan.subs * SUB_BYTES && head.segment_mcus <= plan.mcus &&
                (uint64_t)head.segment_mcus * head.segments >= plan.mcus;
    for (int c = 0; c < image.components; c++)
        same = same && head.h[c] == image.h[c] && head.v[c] == image.v[c];
    return same;
}

// --- subsequences --------------------------------------------------------------------------------

// The last segment that begins before bit `end`.
__device__ inline uint32_t find_segment(const struct jpeg_data &data, uint32_t end)
{
    uint32_t low = 0, high = data.segments;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (8 * data.offsets[middle] < end)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// What a thread decodes.
struct subsequence {
    uint32_t begin, end; // bits; equal if it is after the data
    bool starts;         // a segment begins in it: the last of them is `segment`
    uint32_t segment;    // that one, or the one that contains it
    uint32_t start;      // bit of the segment's beginning
};

__device__ inline struct subsequence find_subsequence(const struct jpeg_data &data, uint32_t number)
{
    struct subsequence sub;
    sub.begin = min(number * SUB_BITS, data.bits);
    sub.end = min(number * SUB_BITS + SUB_BITS, data.bits);
    sub.segment = find_segment(data, sub.end);
    sub.start = 8 * data.offsets[sub.segment];
    sub.starts = sub.start >= sub.begin && sub.begin < sub.end;
    return sub;
}

// The state after the symbols up to bit `end`.
__device__ __forceinline__ uint32_t pass(struct jpeg_cursor cursor, uint32_t end,
                                         const struct jpeg_tables &tables,
                                         const struct jpeg_stage &stage)
{
    struct jpeg_output none = {};
    decode<false>(&cursor, tables, stage, end, none);
    uint32_t over = cursor.bit > end ? cursor.bit - end : 0;
    return over | cursor.phase << 5 | cursor.index << 9 | cursor.block << 16;
}

__device__ __forceinline__ struct jpeg_cursor enter(uint32_t begin, uint32_t entry)
{
    return {begin + STATE_OVER(entry), STATE_PHASE(entry), STATE_INDEX(entry), 0};
}

// What the threads of a block have found about their subsequences.
struct jpeg_states {
    uint32_t after[THREADS]; // the state after it
    uint32_t listed[2];      // the number of the threads below, in every other repetition
    uint16_t entry[THREADS]; // the state that it was entered in, or KNOWN_ENTRY
    uint8_t list[THREADS];   // threads whose subsequences are decoded again
};
static_assert(THREADS <= 256, "their numbers are bytes");

// Corrects states, until each subsequence is entered as the one before ends. Those that are not are
// listed and divided among the first threads, because in a photograph half of them are right after
// the first repetition, and half of the others after each one more. `first` is the number of thread
// 0's subsequence, whose entry stays as it is. *rounds limits the repetitions and is counted down.
__device__ inline void settle(struct jpeg_states *states, uint32_t first,
                              const struct jpeg_tables &tables, const struct jpeg_stage &stage,
                              uint32_t bits, uint32_t *rounds)
{
    uint32_t own = threadIdx.x, turn = 0;
    if (own < 2)
        states->listed[own] = 0;
    for (;; turn ^= 1) {
        __syncthreads();
        uint32_t entry = states->entry[own];
        uint32_t before = own ? states->after[own - 1] & STATE_PLACE : entry;
        if (entry != KNOWN_ENTRY && entry != before) {
            states->entry[own] = (uint16_t)before;
            states->list[atomicAdd(&states->listed[turn], 1)] = (uint8_t)own;
        }
        __syncthreads();
        uint32_t listed = states->listed[turn];
        if (listed == 0 || *rounds == 0)
            return;
        --*rounds;
        if (own == 0)
            states->listed[turn ^ 1] = 0;
        if (own < listed) {
            uint32_t other = states->list[own], begin = (first + other) * SUB_BITS;
            states->after[other] = pass(enter(begin, states->entry[other]),
                                        min(begin + SUB_BITS, bits), tables, stage);
        }
    }
}

// --- numbers of blocks ---------------------------------------------------------------------------

// Sums of blocks that are completed, which begin anew where a segment starts: its number is known.
struct block_count {
    bool fixed; // from the beginning of the image, else from that of the summed part
    uint32_t blocks;
};

__device__ __forceinline__ struct block_count add_counts(const struct block_count &before,
                                                         const struct block_count &after)
{
    struct block_count sum = {before.fixed || after.fixed,
                              after.fixed ? after.blocks : before.blocks + after.blocks};
    return sum;
}

__device__ inline struct block_count count_of(const struct subsequence &sub, uint32_t state,
                                              const struct jpeg_data &data)
{
    struct block_count count = {sub.starts, STATE_COUNT(state)};
    if (sub.starts)
        count.blocks += sub.segment * data.segment_blocks;
    return count;
}

// The sum of the counts of the threads before this one; *all: of all threads.
__device__ inline struct block_count scan_counts(struct block_count own, struct block_count *all)
{
    __shared__ struct block_count warps[THREADS / WARP];
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    struct block_count sum = own;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        struct block_count before = {__shfl_up_sync(ALL_LANES, (uint32_t)sum.fixed, step) != 0,
                                     __shfl_up_sync(ALL_LANES, sum.blocks, step)};
        if (lane >= step)
            sum = add_counts(before, sum);
    }
    __syncthreads(); // the last use of warps[] is over
    if (lane == WARP - 1)
        warps[warp] = sum;
    struct block_count before = {__shfl_up_sync(ALL_LANES, (uint32_t)sum.fixed, 1) != 0,
                                 __shfl_up_sync(ALL_LANES, sum.blocks, 1)};
    __syncthreads();
    *all = {};
    struct block_count result = {};
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) {
        if (w == warp)
            result = *all;
        *all = add_counts(*all, warps[w]);
    }
    return lane ? add_counts(result, before) : result;
}

// Stores the sum of a chunk's counts: of the threads that used theirs.
__device__ inline void put_count(struct jpeg_chunk *chunk, bool used, const struct subsequence &sub,
                                 uint32_t state, const struct jpeg_data &data)
{
    struct block_count own = {}, all;
    if (used)
        own = count_of(sub, state, data);
    (void)scan_counts(own, &all);
    if (threadIdx.x == 0) {
        chunk->fixed = all.fixed;
        chunk->count = all.blocks;
    }
}

// A block of threads per chunk.
static __global__ void __launch_bounds__(THREADS)
    jpeg_sync(const struct conv_jpeg_decode_image *images, uint32_t count,
              const volatile uint32_t *d_stop)
{
    __shared__ struct jpeg_tables shared_tables[1];
    __shared__ struct jpeg_states shared_states[1];
    __shared__ uint4 quads[STAGE_QUADS];
    struct jpeg_tables &tables = shared_tables[0];
    struct jpeg_states &states = shared_states[0];
    struct jpeg_place place = find_place(images, count, WORK_CHUNKS);
    const struct conv_jpeg_decode_image &image = *place.image;
    const struct jpeg_plan &plan = plan_of(image);
    if (threadIdx.x == 0 && !is_planned(image))
        fail_image(plan, CONV_JPEG_CODE);
    else if (threadIdx.x == 0 && d_stop && *d_stop)
        fail_image(plan, CONV_JPEG_STOPPED);
    if (has_failed(plan))
        return;
    struct jpeg_data data = find_data(image);
    if (place.index * CHUNK_SUBS * SUB_BITS >= data.bits)
        return;
    make_tables(&tables, image);
    // Before the image there are subsequences without bits.
    uint32_t first = place.index * CHUNK_SUBS - WARM_SUBS, number = first + threadIdx.x;
    struct jpeg_stage stage = stage_data(quads, data.bytes, data.bits / 8, first);
    bool early = place.index == 0 && threadIdx.x < WARM_SUBS;
    struct subsequence sub = find_subsequence(data, number);
    bool used = !early && sub.begin < sub.end;
    uint32_t entry = used && !sub.starts ? GUESS : KNOWN_ENTRY, after = 0, rounds = THREADS;
    if (used)
        after = pass(sub.starts ? enter(sub.start, 0) : enter(sub.begin, GUESS), sub.end, tables,
                     stage);
    states.entry[threadIdx.x] = (uint16_t)entry;
    states.after[threadIdx.x] = after;
    settle(&states, first, tables, stage, data.bits, &rounds);
    used = used && threadIdx.x >= WARM_SUBS;
    after = states.after[threadIdx.x];
    if (threadIdx.x == WARM_SUBS)
        plan.chunks[place.index].entry = states.entry[threadIdx.x];
    if (used)
        plan.states[number] = after;
    put_count(&plan.chunks[place.index], used, sub, after, data);
}

// --- chunks --------------------------------------------------------------------------------------

// Decodes the chunk again, from the end of the one before. False: too many repetitions.
__device__ inline bool redo_chunk(struct jpeg_states *states, uint4 *quads, uint32_t chunk,
                                  const struct jpeg_plan &plan, const struct jpeg_tables &tables,
                                  const struct jpeg_data &data, uint32_t *rounds)
{
    uint32_t first = chunk * CHUNK_SUBS, number = first + threadIdx.x;
    struct subsequence sub = find_subsequence(data, number);
    bool used = threadIdx.x < CHUNK_SUBS && sub.begin < sub.end;
    uint32_t entry = KNOWN_ENTRY, after = used ? plan.states[number] : 0;
    if (used && !sub.starts)
        entry = plan.states[number - 1] & STATE_PLACE;
    struct jpeg_stage stage = stage_data(quads, data.bytes, data.bits / 8, first);
    if (threadIdx.x == 0)
        after = pass(enter(sub.begin, entry), sub.end, tables, stage);
    states->entry[threadIdx.x] = (uint16_t)entry;
    states->after[threadIdx.x] = after;
    settle(states, first, tables, stage, data.bits, rounds);
    after = states->after[threadIdx.x];
    if (used)
        plan.states[number] = after;
    put_count(&plan.chunks[chunk], used, sub, after, data);
    __syncthreads(); // the states are written
    return *rounds > 0;
}

// Finds a chunk from `from` on whose entry is not the state after the one before, or returns the
// number of chunks.
__device__ inline uint32_t find_unlinked(uint32_t from, uint32_t chunks,
                                         const struct jpeg_plan &plan)
{
    __shared__ uint32_t found[1];
    if (threadIdx.x == 0)
        found[0] = chunks;
    __syncthreads();
    for (uint32_t c = from + threadIdx.x; c < chunks; c += THREADS) {
        uint32_t entry = plan.chunks[c].entry;
        if (entry != KNOWN_ENTRY && entry != (plan.states[c * CHUNK_SUBS - 1] & STATE_PLACE)) {
            atomicMin(found, c);
            break;
        }
    }
    __syncthreads();
    uint32_t chunk = found[0];
    __syncthreads();
    return chunk;
}

// Makes the counts of chunks the numbers of blocks before each chunk.
__device__ inline void sum_chunks(struct jpeg_chunk *chunks, uint32_t count)
{
    struct block_count total = {};
    for (uint32_t at = 0; at < count; at += THREADS) {
        uint32_t chunk = at + threadIdx.x;
        struct block_count own = {}, all;
        if (chunk < count)
            own = {chunks[chunk].fixed != 0, chunks[chunk].count};
        struct block_count before = add_counts(total, scan_counts(own, &all));
        if (chunk < count)
            chunks[chunk].count = before.blocks;
        total = add_counts(total, all);
    }
}

// A block of threads per image.
static __global__ void __launch_bounds__(THREADS)
    jpeg_link(const struct conv_jpeg_decode_image *images, const volatile uint32_t *d_stop)
{
    __shared__ struct jpeg_tables shared_tables[1];
    __shared__ struct jpeg_states states[1];
    __shared__ uint4 quads[STAGE_QUADS];
    struct jpeg_tables &tables = shared_tables[0];
    const struct conv_jpeg_decode_image &image = images[blockIdx.x];
    const struct jpeg_plan &plan = plan_of(image);
    if (has_failed(plan))
        return;
    struct jpeg_data data = find_data(image);
    uint32_t subs = (data.bits + SUB_BITS - 1) / SUB_BITS;
    uint32_t chunks = (subs + CHUNK_SUBS - 1) / CHUNK_SUBS, rounds = CONV_JPEG_MOST_ROUNDS;
    uint32_t chunk = find_unlinked(0, chunks, plan);
    if (chunk < chunks)
        make_tables(&tables, image);
    while (chunk < chunks) {
        bool stopped = __syncthreads_or(threadIdx.x == 0 && d_stop && *d_stop);
        if (stopped || !redo_chunk(states, quads, chunk, plan, tables, data, &rounds)) {
            if (threadIdx.x == 0)
                fail_image(plan, stopped ? CONV_JPEG_STOPPED : CONV_JPEG_COSTLY);
            return;
        }
        chunk = find_unlinked(chunk + 1, chunks, plan);
    }
    sum_chunks(plan.chunks, chunks);
}

// --- coefficients --------------------------------------------------------------------------------

// Decodes a subsequence from its true entry on, which is `block` blocks after the image's
// beginning. It may hold the ends of several segments. At the end of a segment all its blocks must
// be complete and less than a byte be left, which is checked wherever they are complete.
__device__ inline uint32_t put_subsequence(const struct subsequence &sub, uint32_t entry,
                                           uint32_t block, const struct jpeg_tables &tables,
                                           const struct jpeg_stage &stage,
                                           const struct jpeg_data &data, struct jpeg_output output)
{
    uint32_t segment = find_segment(data, sub.begin + 1);
    struct jpeg_cursor cursor = {8 * data.offsets[segment], 0, 0, segment * data.segment_blocks};
    if (cursor.bit != sub.begin) {
        cursor.bit = sub.begin + STATE_OVER(entry);
        cursor.phase = STATE_PHASE(entry);
        cursor.index = STATE_INDEX(entry);
        cursor.block = block;
    }
    for (;;) {
        uint32_t segment_end = 8 * data.offsets[segment + 1], end = min(sub.end, segment_end);
        output.last =
            segment + 1 < data.segments ? (segment + 1) * data.segment_blocks : data.blocks;
        uint32_t failure = decode<true>(&cursor, tables, stage, end, output);
        if (failure)
            return failure;
        bool complete = cursor.block >= output.last;
        if (complete ? segment_end - cursor.bit >= 8 : cursor.bit >= segment_end)
            return CONV_JPEG_SIZE;
        if (segment_end >= sub.end)
            return CONV_JPEG_DECODED;
        segment++;
        cursor = {segment_end, 0, 0, output.last};
    }
}

static __global__ void __launch_bounds__(THREADS)
    jpeg_write(const struct conv_jpeg_decode_image *images, uint32_t count)
{
    __shared__ struct jpeg_tables shared_tables[1];
    struct jpeg_tables &tables = shared_tables[0];
    __shared__ uint8_t order[CONV_JPEG_BLOCK];
    __shared__ uint4 quads[STAGE_QUADS];
    struct jpeg_place place = find_place(images, count, WORK_CHUNKS);
    const struct conv_jpeg_decode_image &image = *place.image;
    const struct jpeg_plan &plan = plan_of(image);
    if (has_failed(plan))
        return;
    struct jpeg_data data = find_data(image);
    uint32_t number = place.index * CHUNK_SUBS + threadIdx.x;
    if (place.index * CHUNK_SUBS * SUB_BITS >= data.bits)
        return;
    if (threadIdx.x < CONV_JPEG_BLOCK)
        order[threadIdx.x] = column_order(threadIdx.x);
    make_tables(&tables, image);
    struct jpeg_stage stage =
        stage_data(quads, data.bytes, data.bits / 8, place.index * CHUNK_SUBS);
    struct subsequence sub = find_subsequence(data, number);
    bool used = threadIdx.x < CHUNK_SUBS && sub.begin < sub.end;
    struct block_count own = {}, all;
    if (used)
        own = count_of(sub, plan.states[number], data);
    struct block_count before = scan_counts(own, &all);
    if (!used)
        return;
    uint32_t block = before.blocks + (before.fixed ? 0 : plan.chunks[place.index].count);
    uint32_t entry = number ? plan.states[number - 1] : 0;
    struct jpeg_output output = {plan.coefficients, plan.dc, order, 0};
    uint32_t failure = put_subsequence(sub, entry, block, tables, stage, data, output);
    if (failure)
        fail_image(plan, failure);
}

// --- launches ------------------------------------------------------------------------------------

void conv_jpeg_launch_sync(const struct conv_jpeg_decode_batch *batch, uint32_t blocks)
{
    jpeg_sync<<<blocks, THREADS, 0, (cudaStream_t)batch->stream>>>(
        batch->d_images, (uint32_t)batch->count, batch->d_stop);
}

void conv_jpeg_launch_link(const struct conv_jpeg_decode_batch *batch)
{
    jpeg_link<<<(uint32_t)batch->count, THREADS, 0, (cudaStream_t)batch->stream>>>(batch->d_images,
                                                                                   batch->d_stop);
}

void conv_jpeg_launch_write(const struct conv_jpeg_decode_batch *batch, uint32_t blocks)
{
    jpeg_write<<<blocks, THREADS, 0, (cudaStream_t)batch->stream>>>(batch->d_images,
                                                                    (uint32_t)batch->count);
}
