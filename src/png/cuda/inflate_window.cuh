// SPDX-License-Identifier: MIT
// What both methods to inflate share (inflate.cu: one block of threads per image; split.cuh: many):
// reading a stream's header and the heads of DEFLATE blocks, and counting the bytes that each
// thread's part of a window produces.
#pragma once

#include "png/cuda/inflate.cuh"
#include "png/cuda/window.cuh"

// --- symbols in parallel -------------------------------------------------------------------------

// Finds the symbols of a stream in parallel, although only the first one's position is known. Each
// thread of a block guesses: it starts at the first bit of its own part of the next bits, and
// counts the bytes up to the next part. Codes of varying length soon synchronise, so most of the
// ends are right even if the starts were wrong. Each thread then corrects its start to the end of
// the preceding part, until all agree. (After Klein and Wiseman, "Parallel Huffman decoding with
// applications to JPEG files"; Weissenberger and Schmidt, "Massively parallel Huffman decoding on
// GPUs".)

// Segments of a part. A thread that counts its part again stops at the first segment boundary that
// it reaches at the same bit as before, since everything after it is then unchanged.
#define SEGMENTS 4
// Rounds of correction. Parts that are still wrong after them are left to the next window. With
// codes that do not synchronise, a block is as slow as one thread, but makes progress.
#define MOST_ROUNDS 24

// A thread's position: a bit of the stage, and in the top bits the reason why it stopped there.
#define PLACE_STOPPED (1u << 31)
#define PLACE_INVALID (1u << 30)
#define PLACE_BIT (PLACE_INVALID - 1)

struct part {
    uint32_t start;
    uint32_t places[SEGMENTS]; // after each segment
    uint32_t bytes[SEGMENTS];
};

__device__ __forceinline__ uint32_t segment_of(const uint32_t *of, int p)
{
    static_assert(SEGMENTS == 4, "registers have no index");
    return p == 0 ? of[0] : p == 1 ? of[1] : p == 2 ? of[2] : of[3];
}

__device__ __forceinline__ void set_segments(uint32_t *of, int first, int last, uint32_t value)
{
    for (int p = 0; p < SEGMENTS; p++)
        of[p] = p >= first && p <= last ? value : of[p];
}

// Counts the bytes of a part, the bits from `first` to `last`, beginning at bit `start`.
__device__ __forceinline__ void count_part(struct part *part, const uint32_t *entries,
                                           const uint32_t *stage, uint32_t start, uint32_t first,
                                           uint32_t last)
{
    struct bits bits = read_bits(stage, start);
    uint32_t step = (last - first) / SEGMENTS;
    part->start = start;
#pragma unroll 1
    for (int p = 0; p < SEGMENTS; p++) {
        uint32_t bytes = 0, limit = p == SEGMENTS - 1 ? last : first + (uint32_t)(p + 1) * step;
        uint32_t stop = count_symbols(entries, &bits, limit, &bytes);
        uint32_t place =
            bits.at | (stop ? PLACE_STOPPED : 0) | (stop == SYMBOLS_INVALID ? PLACE_INVALID : 0);
        bool known = place == segment_of(part->places, p);
        set_segments(part->bytes, p, p, bytes);
        if (known)
            break;
        set_segments(part->places, p, stop ? SEGMENTS - 1 : p, place);
        if (stop) {
            set_segments(part->bytes, p + 1, SEGMENTS - 1, 0);
            break;
        }
    }
}

// The block's first threads count one part each: `bits` bits from bit `at` of the stage on, up to
// `end`. The other threads call beside() meanwhile. True if this thread's part begins where the one
// before it ends, and not after the end of the DEFLATE block. Each round has one barrier, which
// also tells all threads whether the end of any part has changed; the part after it is then counted
// again. Parts after the end of the DEFLATE block are not corrected. A warp learns one round late
// whether that end is in an earlier warp's parts; if this has changed, so has an earlier part, and
// another round follows.
template <int THREADS, typename BESIDE>
__device__ inline bool count_parts(struct block_memory<THREADS> &shared, struct part *part,
                                   uint32_t at, uint32_t bits, uint32_t end, BESIDE beside)
{
    const uint32_t WARPS = THREADS / block_memory<THREADS>::SHARES / LANES;
    uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, below = (1u << lane) - 1;
    uint32_t first = min(at + threadIdx.x * bits, end), last = min(first + bits, end);
    uint32_t start = first;
    bool counts = warp < WARPS, wrong = counts;
    bool ended = false; // the DEFLATE block ends in an earlier warp's parts
    set_segments(part->places, 0, SEGMENTS - 1, UINT32_MAX);
#pragma unroll 1
    for (int round = 0;; round++) {
        uint32_t former = part->places[SEGMENTS - 1];
        if (wrong)
            count_part(part, shared.entries, shared.stage, start, first, last);
        else if (round == 0)
            beside();
        __syncwarp();
        uint32_t place = part->places[SEGMENTS - 1];
        uint32_t before = __shfl_up_sync(ALL_LANES, place, 1);
        uint32_t stops = __ballot_sync(ALL_LANES, place & PLACE_STOPPED);
        bool after = stops & below;
        bool changed = counts && place != former && !after && !ended;
        uint32_t *ends = shared.ends[round % 2];
        if (lane == LANES - 1 && counts)
            ends[warp] = stops ? place | PLACE_STOPPED : place;
        bool again = __syncthreads_or(changed);
        uint32_t earlier = lane < WARPS && lane < warp ? ends[lane] : 0;
        ended = __ballot_sync(ALL_LANES, earlier & PLACE_STOPPED);
        uint32_t latest = __shfl_sync(ALL_LANES, earlier, (int)(warp - 1) & (LANES - 1));
        before = lane == 0 ? latest : before;
        if (threadIdx.x == 0)
            before = first;
        bool reached = counts && !ended && !after;
        wrong = reached && before != part->start;
        if (!again || round == MOST_ROUNDS)
            return reached && !wrong;
        start = before;
    }
}

// --- windows -------------------------------------------------------------------------------------

// What both methods to inflate share (inflate.cu: one block of threads per image; split.cuh: many):
// reading a stream's header and the heads of DEFLATE blocks, and counting the bytes that each
// thread's part of a window produces.

// The cost of a DEFLATE block's head, in microseconds of 128 threads on an H200, measured when one
// thread read the lengths of codewords (a warp takes a third of that): 0.5 to 0.7 for a stored
// block, 8.8 for a fixed one, 15.6 for a dynamic one with a head of 90 bits, 117 with 2270. One
// megabyte of empty blocks takes a GPU up to 7 s and holds up its whole batch; one core of a CPU
// reads it in milliseconds. So each stream has a budget: FREE_COST, and 1 for every BYTES_PER_COST
// bytes of output so far. A stream that exceeds it is left to the CPU. Ordinary encoders stay far
// below it: zlib's default is 16 K symbols per block (a budget of 410 or more for each),
// libdeflate's least block is 5,000 bytes (125).
#define STORED_COST 1
#define FIXED_COST 9
#define DYNAMIC_COST 16
#define HEAD_BITS_PER_COST 24
#define FREE_COST 2048
#define BYTES_PER_COST 40

// The position in stream and output; equal in all threads.
struct progress {
    uint32_t at;        // bit of the stream
    uint32_t out;       // bytes of output so far
    uint32_t part_bits; // bits of input per part of the next window
    uint32_t cost;      // cost of the heads of blocks so far
    uint32_t windows;   // windows so far, in blocks that have codes
    uint32_t written;   // bytes of the output that have been written; the others are in the window
};

// True if the host has set d_stop: thread 0 reads it once per POLL_EACH windows. A read of host
// memory takes 1 to 2 us, POLL_EACH windows 1 ms or more. Images of fewer than FIRST_POLL windows
// never poll.
#define POLL_EACH 64
#define FIRST_POLL 3
__device__ __forceinline__ bool is_stopped(const struct progress &progress,
                                           const volatile uint32_t *stop)
{
    return threadIdx.x == 0 && stop && progress.windows % POLL_EACH == FIRST_POLL && *stop;
}

// Stores where the shares of a part begin. Other threads write these shares.
template <int THREADS>
__device__ __forceinline__ void share_part(struct block_memory<THREADS> &shared,
                                           const struct part &part, uint32_t before)
{
    const int SHARES = block_memory<THREADS>::SHARES, EACH = SEGMENTS / SHARES;
    static_assert(SEGMENTS % SHARES == 0, "a share is whole segments");
    uint32_t start = part.start;
#pragma unroll
    for (int p = 0; p < SEGMENTS; p++) {
        if (p % EACH == 0)
            shared.shares[threadIdx.x * SHARES + p / EACH] = before << SHARE_BITS | start;
        start = part.places[p] & PLACE_BIT;
        before += part.bytes[p];
    }
}

// Determines the parts whose bytes form the window: those before the first one that does not begin
// where its predecessor ends, does not fit, or comes after the end of the block.
template <int THREADS>
__device__ inline void agree(struct block_memory<THREADS> &shared, const struct part &part,
                             bool right, bool stopped, uint32_t skip)
{
    const uint32_t SHARES = block_memory<THREADS>::SHARES, WARPS = THREADS / SHARES / LANES;
    uint32_t bytes = 0, total, lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (int p = 0; p < SEGMENTS && warp < WARPS; p++)
        bytes += part.bytes[p];
    uint32_t before = sum_before(shared, bytes, 0, &total);
    bool fits = right && skip + before + bytes <= THREADS * THREAD_ROOM;
    uint32_t refused = __ballot_sync(ALL_LANES, !fits);
    if (lane == 0)
        shared.sums[1][warp] = refused ? (uint32_t)__ffs((int)refused) - 1 : LANES;
    if (warp < WARPS)
        share_part(shared, part, before);
    __syncthreads();
    uint32_t parts = 0; // that fit, without a gap from the first on
    for (uint32_t w = 0; w < WARPS && parts == w * LANES; w++)
        parts += shared.sums[1][w];
    if (threadIdx.x + 1 == parts) {
        uint32_t place = part.places[SEGMENTS - 1];
        shared.agreed.at = place & PLACE_BIT;
        shared.agreed.bytes = before + bytes;
        shared.agreed.stop = place & ~PLACE_BIT;
        shared.shares[parts * SHARES] = place & PLACE_BIT;
    }
    if (threadIdx.x == 0)
        shared.agreed.parts = stopped ? PARTS_STOPPED : parts;
    __syncthreads();
}

// --- streams -------------------------------------------------------------------------------------

__device__ inline struct stream open_stream(const struct conv_decode_image &image)
{
    struct stream stream;
    stream.lead = (uint32_t)((uintptr_t)image.d_stream % 4);
    stream.words = (const uint32_t *)(image.d_stream - stream.lead);
    stream.bytes = image.stream_bytes;
    stream.end = 8 * (stream.lead + stream.bytes - 4);
    return stream;
}

__device__ inline uint32_t check_header(const struct stream &stream, uint32_t rows_bytes)
{
    if (stream.bytes < 2 + 4)
        return CONV_DECODE_HEADER;
    uint32_t method = stream_byte(stream, 0), flags = stream_byte(stream, 1);
    // As src/png/cpu/inflate.c: deflate, no dictionary, and a window that holds all or is the
    // largest, so that no distance is beyond it.
    bool right = (method & 15) == 8 && method >> 4 <= 7 && (method << 8 | flags) % 31 == 0 &&
                 !(flags & 32) && (method >> 4 == 7 || rows_bytes <= 256u << (method >> 4));
    return right ? CONV_DECODE_DECODED : CONV_DECODE_HEADER;
}

__device__ __forceinline__ bool is_costly(const struct progress &progress, uint32_t free_cost)
{
    return progress.cost > free_cost && progress.cost - free_cost > progress.out / BYTES_PER_COST;
}

// --- heads of blocks -----------------------------------------------------------------------------

// Where the bytes of a stored block whose head ends at bit `at` begin in the stream, and how many
// they are.
__device__ inline uint32_t read_stored(const struct stream &stream, uint32_t at, uint32_t *first,
                                       uint32_t *size)
{
    uint32_t from = (at + 7) / 8 - stream.lead, end = stream.bytes - 4;
    if (from > end || end - from < 4)
        return CONV_DECODE_TRUNCATED;
    *size = stream_byte(stream, from) | stream_byte(stream, from + 1) << 8;
    uint32_t check = stream_byte(stream, from + 2) | stream_byte(stream, from + 3) << 8;
    if (*size != (check ^ 0xffff))
        return CONV_DECODE_BLOCK;
    *first = from + 4;
    return *size > end - *first ? CONV_DECODE_TRUNCATED : CONV_DECODE_DECODED;
}

// Reads a block's head and makes the tables of its codes, if it has any (type 1 or 2).
template <int THREADS>
__device__ inline uint32_t read_head(struct block_memory<THREADS> &shared,
                                     const struct stream &stream, struct progress *progress,
                                     bool *final, uint32_t *type)
{
    if (progress->at + 3 > stream.end)
        return CONV_DECODE_TRUNCATED;
    __syncthreads(); // the stage is no longer read
    uint32_t origin = progress->at / 32 * 32;
    fill_stage(shared, stream, origin, HEAD_WORDS);
    __syncthreads();
    uint32_t at = progress->at - origin;
    struct bits head = read_bits(shared.stage, at);
    *final = take_bits(&head, 1);
    *type = take_bits(&head, 2);
    progress->at += 3;
    progress->cost += *type == 0 ? STORED_COST : *type == 1 ? FIXED_COST : DYNAMIC_COST;
    if (*type == 0)
        return CONV_DECODE_DECODED;
    if (*type == 3)
        return CONV_DECODE_BLOCK;
    at += 3;
    uint32_t result = read_codes(shared, *type == 1, &at);
    progress->cost += (origin + at - progress->at) / HEAD_BITS_PER_COST;
    progress->at = origin + at;
    return result == CONV_DECODE_DECODED ? make_tables(shared) : result;
}

// --- windows -------------------------------------------------------------------------------------

// Counts the bytes of the next window, whose first `skip` places are not used. On return,
// shared.agreed has the number of its parts, and shared.shares what each thread is to store. Before
// the call a barrier must follow the making of the tables and the last read of the stage. Threads
// that count nothing call beside(); barriers follow.
template <int THREADS, typename BESIDE>
__device__ inline void count_window(struct block_memory<THREADS> &shared,
                                    const struct stream &stream, struct progress *progress,
                                    uint32_t skip, const uint32_t *stop, BESIDE beside)
{
    uint32_t origin = progress->at / 32 * 32, at = progress->at - origin;
    uint32_t bits = progress->part_bits, end = stream.end - origin;
    fill_stage(shared, stream, origin, stage_words<THREADS>(at, bits));
    __syncthreads();
    bool stopped = is_stopped(*progress, stop);
    progress->windows++;
    struct part part;
    bool right = count_parts(shared, &part, at, bits, end, beside);
    agree(shared, part, right, stopped, skip);
}

// Stores the symbols of this thread's share of a window that has `parts` parts.
template <int THREADS>
__device__ __forceinline__ void put_share(struct block_memory<THREADS> &shared, uint32_t parts,
                                          uint32_t skip)
{
    if (threadIdx.x >= parts * block_memory<THREADS>::SHARES)
        return;
    uint32_t own = shared.shares[threadIdx.x], next = shared.shares[threadIdx.x + 1];
    const uint32_t mask = (1u << SHARE_BITS) - 1;
    put_symbols(shared, own & mask, next & mask, skip + (own >> SHARE_BITS));
}

// Moves to the end of a window that has been counted. True at the block's end.
template <int THREADS>
__device__ __forceinline__ bool advance(struct progress *progress, const struct agreement &agreed)
{
    uint32_t origin = progress->at / 32 * 32;
    if (agreed.bytes > 0)
        progress->part_bits = choose_part_bits(
            agreed.at - (progress->at - origin), agreed.bytes, block_memory<THREADS>::SHARES,
            block_memory<THREADS>::SHARES * block_memory<THREADS>::SHARE_MOST);
    progress->at = origin + agreed.at;
    progress->out += agreed.bytes;
    return agreed.stop != 0;
}
