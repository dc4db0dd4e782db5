// SPDX-License-Identifier: MIT
// Converts symbols to bytes, a window of the output at a time, in shared memory. A match is stored
// as its begin and distance only, so that no thread waits for another one's bytes or copies a long
// match alone. When all symbols are stored, all threads find the earlier byte that each byte of a
// match equals, follow these references until they lead to bytes, and write those as words.
#pragma once

#include "png/cuda/inflate.cuh"
#include "png/cuda/sums.cuh"

// Places that a warp processes at a time. A match that begins before them is stored again at their
// first place. The longest match is shorter, so that this happens once at most.
#define STRETCH 512
#define NO_SOURCE INT32_MAX
#define MOST_HOPS 8 // along references before others see how far they lead
#define GROUPS_AT_ONCE 2

// The window. Place 0 is the first byte of the aligned eight in which the output continues; the
// first `skip` places are earlier output.
struct window {
    uint8_t *rows;    // all of the output
    uint16_t *states; // of split images: all of the output, as described in split.cuh; else unused
    uint32_t first;   // likewise: where the output of this part begins
    uint32_t start;   // bytes of the output before the window
    uint32_t skip, end; // places: the window's bytes are from skip to end - 1
};

// The contents of a place once its match is resolved, for an image that one block of threads
// inflates: references to before the window are bytes, since all earlier output is known.
struct whole_image {
    static constexpr uint32_t FINAL = LITERAL; // the least value that is no reference
    static __device__ inline uint32_t literal(uint32_t token)
    {
        return token;
    }
    // The value of a byte before the window: `at` of the output.
    static __device__ inline uint32_t earlier(const struct window &window, uint32_t at)
    {
        return LITERAL | window.rows[at];
    }
};

__device__ __forceinline__ struct window open_window(uint8_t *rows, uint32_t start, uint32_t bytes)
{
    uint32_t skip = start % WINDOW_ALIGN; // rows are aligned
    struct window window = {rows, nullptr, 0, start, skip, skip + bytes};
    return window;
}

// Stores the symbols from bit `start` of the stage to bit `limit`; the first one's bytes are at
// `place`. They have been counted before, so all are valid.
template <int THREADS>
__device__ __forceinline__ void put_symbols(struct block_memory<THREADS> &shared, uint32_t start,
                                            uint32_t limit, uint32_t place)
{
    uint16_t *places = (uint16_t *)shared.window;
    struct bits bits = read_bits(shared.stage, start);
    uint32_t from = BETWEEN_SYMBOLS, length = 0; // length: of the match whose distance follows
    bool in_match;                               // a length has been read, and not its distance
    if (bits.at >= limit)
        return;
    do {
        uint32_t next = peek_bits(&bits);
        uint32_t entry = look_further(shared.entries, look_up(shared.entries, from, next), next);
        if ((entry & 31) == 0)
            break;
        uint32_t value = entry_value(entry, next), bytes = (entry & ENTRY_BYTES) / ENTRY_BYTE;
        uint32_t end = place + length + bytes, stretch = (end - 1) / STRETCH * STRETCH;
        bool literal = entry & ENTRY_LITERAL;
        in_match = entry & ENTRY_LENGTH;
        if (!in_match)
            places[place] = (uint16_t)(literal ? LITERAL | (value & 255) : value);
        if (literal && bytes == 2)
            places[place + 1] = (uint16_t)(LITERAL | value >> 8);
        if (!in_match && !literal && stretch > place) // the match extends into that stretch
            places[stretch] = (uint16_t)value;
        place = end;
        length = in_match ? value : 0;
        from = next_place(entry);
        drop_bits(&bits, entry & 31);
    } while (in_match || bits.at < limit);
}

// The multiple of the distance of a match that leads from `inside` places after its begin to the
// places before its first `distance` ones: 0 for these. Flat images consist of matches that overlap
// themselves, and following one reference after the other would take most of the time.
__device__ __forceinline__ uint32_t whole_distances(uint32_t inside, uint32_t distance)
{
    // At least 1/516 from any integer, because both are below 258 if this is used: the error of a
    // fast division is far smaller.
    uint32_t times = (uint32_t)__fdividef((float)inside + 0.5f, (float)distance);
    return inside < distance ? 0 : times * distance;
}

// The place up to which refer() writes: the last match seems to go on after the window.
__device__ __forceinline__ uint32_t referred_end(const struct window &window)
{
    return (window.end + 4 * LANES - 1) / (4 * LANES) * (4 * LANES);
}

// Makes each place within a match a reference to a place before the match, or to one where the
// match was stored again. A lane takes four places; a place belongs to the match that begins last
// before it. A match's begin is held as its token in the lower half of a word and its place within
// the stretch in the upper half. Must be called after a barrier. True if a match refers to bytes
// before the first one.
template <typename STATE, int THREADS>
__device__ inline bool refer(struct block_memory<THREADS> &shared, const struct window &window)
{
    const uint32_t offset = window.start - window.skip; // from places to bytes of the output
    const uint32_t lane = threadIdx.x % LANES, below = (1u << lane) - 1;
    int32_t lowest = 0; // first byte of the output that a match refers to, if it is negative
    for (uint32_t first = threadIdx.x / LANES * STRETCH; first < window.end;
         first += THREADS / LANES * STRETCH) {
        uint32_t former = LITERAL; // no match
        for (uint32_t at = 4 * lane; at < STRETCH && first + at - 4 * lane < window.end;
             at += 4 * LANES) {
            uint2 places = shared.window[(first + at) / 4];
            uint32_t tokens[4] = {places.x & 0xffff, places.x >> 16, places.y & 0xffff,
                                  places.y >> 16};
            uint32_t last = INSIDE;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                last = tokens[i] != INSIDE ? (at + i) << 16 | tokens[i] : last;
            // The last begin in the lanes before this one, and the last one in all lanes.
            uint32_t begins = __ballot_sync(ALL_LANES, last != INSIDE), before = begins & below;
            uint32_t nearest = __shfl_sync(ALL_LANES, last, LANES - 1 - __clz((int)before));
            uint32_t latest = __shfl_sync(ALL_LANES, last, LANES - 1 - __clz((int)begins));
            uint32_t begin = before ? nearest : former;
            former = begins ? latest : former;
            int32_t sources[4]; // bytes of the output; NO_SOURCE outside of matches
            uint32_t states[4], distances[4], inside[4];
            bool overlaps = false;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                begin = tokens[i] != INSIDE ? (at + i) << 16 | tokens[i] : begin;
                bool matched = !(begin & LITERAL);
                distances[i] = (begin & 0xffff) + 1;
                inside[i] = at + i - (begin >> 16);
                overlaps |= inside[i] >= distances[i];
                sources[i] =
                    matched ? (int32_t)(first + at + i + offset - distances[i]) : NO_SOURCE;
                states[i] = matched ? (uint32_t)sources[i] - offset : STATE::literal(tokens[i]);
            }
            if (__ballot_sync(ALL_LANES, overlaps))
                for (uint32_t i = 0; i < 4; i++) {
                    uint32_t more = whole_distances(inside[i], distances[i]);
                    more = sources[i] == NO_SOURCE ? 0 : more;
                    sources[i] -= (int32_t)more;
                    states[i] -= more;
                }
            uint32_t loaded[4];
            // Without a branch, so that all loads are issued before the first result is used.
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                bool earlier = (uint32_t)sources[i] < window.start;
                lowest = min(lowest, sources[i]);
                loaded[i] = STATE::earlier(window, earlier ? (uint32_t)sources[i] : 0);
            }
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                states[i] = (uint32_t)sources[i] < window.start ? loaded[i] : states[i];
            shared.window[(first + at) / 4] = make_uint2(__byte_perm(states[0], states[1], 0x5410),
                                                         __byte_perm(states[2], states[3], 0x5410));
        }
    }
    return lowest < 0;
}

// Follows the references, the values below FINAL, of every THREADS-th group of eight places,
// GROUPS_AT_ONCE of them from group `first` on. True if they do not all lead to bytes yet. Contains
// two barriers, so that no place is read while it is written.
template <uint32_t FINAL, int THREADS>
__device__ __forceinline__ bool follow_groups(uint4 *groups, uint32_t first, uint32_t count)
{
    const int PAIRS = 4 * GROUPS_AT_ONCE;
    const uint16_t *places = (const uint16_t *)groups;
    uint32_t low[PAIRS], high[PAIRS];
    bool left;
#pragma unroll
    for (uint32_t i = 0; i < GROUPS_AT_ONCE; i++) {
        uint4 group = make_uint4(INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE);
        if (first + i * THREADS < count)
            group = groups[first + i * THREADS];
        const uint32_t pairs[] = {group.x, group.y, group.z, group.w};
#pragma unroll
        for (uint32_t p = 0; p < 4; p++) {
            low[4 * i + p] = pairs[p] & 0xffff;
            high[4 * i + p] = pairs[p] >> 16;
        }
    }
#pragma unroll 1
    for (int hops = 0;; hops++) {
        uint32_t least = INSIDE;
#pragma unroll
        for (uint32_t i = 0; i < PAIRS; i++)
            least = min(min(low[i], high[i]), least);
        left = least < FINAL;
        if (hops == MOST_HOPS || !__ballot_sync(ALL_LANES, left))
            break;
#pragma unroll
        for (uint32_t i = 0; i < PAIRS; i++) {
            low[i] = low[i] < FINAL ? places[low[i]] : low[i];
            high[i] = high[i] < FINAL ? places[high[i]] : high[i];
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < GROUPS_AT_ONCE; i++) {
        uint32_t pairs[4];
#pragma unroll
        for (uint32_t p = 0; p < 4; p++)
            pairs[p] = __byte_perm(low[4 * i + p], high[4 * i + p], 0x5410);
        if (first + i * THREADS < count)
            groups[first + i * THREADS] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    __syncthreads();
    return left;
}

// Follows references until all places are bytes. Each round starts from the shortened references of
// the one before, so there are at most as many rounds as the logarithm of the longest chain.
// Between barriers.
template <uint32_t FINAL, int THREADS>
__device__ inline void follow_references(struct block_memory<THREADS> &shared,
                                         const struct window &window)
{
    uint4 *groups = (uint4 *)shared.window;
    uint32_t count = (window.end + 7) / 8;
    bool left;
    do {
        left = false;
        for (uint32_t first = 0; first < count; first += GROUPS_AT_ONCE * THREADS)
            left |= follow_groups<FINAL, THREADS>(groups, first + threadIdx.x, count);
    } while (__syncthreads_or(left));
}

// Writes the bytes, and leaves the window empty for the next one. Called by the block's last
// WRITERS threads.
template <int WRITERS, int THREADS>
__device__ inline void write_window(struct block_memory<THREADS> &shared,
                                    const struct window &window, struct adler *adler)
{
    // Groups of eight places per thread.
    static_assert((THREADS * THREAD_ROOM / 8 + WRITERS - 1) / WRITERS * 8 * 255 <= ADLER_BYTES,
                  "a thread's bytes, for add_adler");
    uint8_t *out = window.rows + (window.start - window.skip);
    uint4 *groups = (uint4 *)shared.window;
    const uint4 empty = make_uint4(INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE, INSIDE_TWICE);
    uint32_t bytes = 0, weighted = 0;
    for (uint32_t i = threadIdx.x - (THREADS - WRITERS); 8 * i < referred_end(window);
         i += WRITERS) {
        uint4 places = groups[i];
        groups[i] = empty;
        uint2 words = make_uint2(__byte_perm(places.x, places.y, 0x6420),
                                 __byte_perm(places.z, places.w, 0x6420));
        if (8 * i >= window.skip && 8 * i + 8 <= window.end) {
            ((uint2 *)out)[i] = words;
        } else {
            uint2 kept = make_uint2(0, 0);
            for (uint32_t b = 0; b < 8; b++) {
                uint32_t place = 8 * i + b, byte = (b < 4 ? words.x : words.y) >> 8 * (b % 4) & 255;
                if (place < window.skip || place >= window.end)
                    continue;
                out[place] = (uint8_t)byte;
                kept.x |= b < 4 ? byte << 8 * b : 0;
                kept.y |= b < 4 ? 0 : byte << 8 * (b - 4);
            }
            words = kept;
        }
        uint32_t sum = __dp4a(words.y, 0x01010101u, __dp4a(words.x, 0x01010101u, 0u));
        bytes += sum;
        weighted += 8 * i * sum;
        weighted = __dp4a(words.y, 0x07060504u, __dp4a(words.x, 0x03020100u, weighted));
    }
    add_adler(adler, window.start - window.skip, bytes, weighted);
}
