// SPDX-License-Identifier: MIT
// Converts symbols to bytes, a window of the output at a time, in shared memory. A match is stored
// as its begin and distance only, so that no thread waits for another one's bytes or copies a long
// match alone. When all symbols are stored, all threads find the earlier byte that each byte of a
// match equals, follow these references until they lead to bytes, and write those as words.
#ifndef CONV_PNG_CUDA_WINDOW_CUH
#define CONV_PNG_CUDA_WINDOW_CUH

#include "png/cuda/adler.cuh"
#include "png/cuda/inflate.cuh"

// Places that a warp processes at a time. A match that begins before them is stored again at their
// first place. The longest match is shorter, so that this happens once at most.
#define STRETCH 512
#define MOST_HOPS 4 // along references between two checks for remaining ones
#define PAIRS_AT_ONCE 8

// The window. Place 0 is the first byte of the aligned word in which the output continues; the
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
    static constexpr uint32_t FINAL = LITERAL; // a bit that everything except references has
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
    uint32_t skip = start % 4; // rows are aligned
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
        uint32_t next = peek_bits(&bits), entry = look_up(shared.entries, from, next);
        if (entry & ENTRY_RARE)
            entry = look_further(shared.entries, entry, next);
        if (entry & ENTRY_RARE)
            break;
        uint32_t value = entry_value(entry, next), end = place + length;
        uint32_t bytes = entry & ENTRY_BYTES, stretch = (end - 1) / STRETCH * STRETCH;
        in_match = entry & ENTRY_LENGTH;
        if (!in_match)
            places[place] = (uint16_t)(bytes ? LITERAL | (value & 255) : value);
        if (entry & 2 * ENTRY_BYTE)
            places[place + 1] = (uint16_t)(LITERAL | value >> 8);
        if (length > 0 && stretch > place) // the match extends into that stretch
            places[stretch] = (uint16_t)value;
        place = end + bytes / ENTRY_BYTE;
        length = in_match ? value : 0;
        from = place_of(in_match);
        drop_bits(&bits, entry & 31);
    } while (in_match || bits.at < limit);
}

// The distance from a place, `inside` places after the match's begin, to its source: the match's
// distance, or the multiple of it that leads to before the match. Flat images consist of matches
// that overlap themselves, and following one reference after the other would take most of the time.
__device__ __forceinline__ uint32_t source_distance(uint32_t distance, uint32_t inside)
{
    return inside < distance ? distance : distance + inside / distance * distance;
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
        uint32_t former = 0;
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
            int32_t sources[4]; // bytes of the output
            uint32_t states[4];
            bool matched[4], earlier[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t place = first + at + i;
                begin = tokens[i] != INSIDE ? (at + i) << 16 | tokens[i] : begin;
                matched[i] = !(begin & LITERAL) && place - window.skip < window.end - window.skip;
                sources[i] =
                    (int32_t)(place + offset -
                              source_distance((begin & 0xffff) + 1, at + i - (begin >> 16)));
                lowest = min(lowest, matched[i] ? sources[i] : 0);
                earlier[i] = matched[i] && sources[i] < (int32_t)window.start;
            }
            // All four loads are issued before the first result is used.
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                states[i] = earlier[i] ? STATE::earlier(window, (uint32_t)max(sources[i], 0)) : 0;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                states[i] = earlier[i]   ? states[i]
                            : matched[i] ? ((uint32_t)sources[i] - offset) & 0xffff
                                         : STATE::literal(tokens[i]);
            shared.window[(first + at) / 4] =
                make_uint2(states[1] << 16 | states[0], states[3] << 16 | states[2]);
        }
    }
    return lowest < 0;
}

// The target of a reference after up to MOST_HOPS hops: a byte, or another reference.
template <uint32_t FINAL>
__device__ __forceinline__ uint32_t follow(const uint16_t *places, uint32_t place)
{
    for (int hops = 0; hops < MOST_HOPS && !(place & FINAL); hops++)
        place = places[place];
    return place;
}

// Follows the references of every THREADS-th pair of places, PAIRS_AT_ONCE of them from `first` on.
// True if they do not all lead to bytes yet. Contains two barriers, so that no place is read while
// it is written.
template <uint32_t FINAL, int THREADS>
__device__ __forceinline__ bool follow_pairs(uint32_t *pairs, uint32_t first, uint32_t count)
{
    const uint16_t *places = (const uint16_t *)pairs;
    uint32_t both[PAIRS_AT_ONCE], followed = 0; // a bit for each of them
    bool left = false;
#pragma unroll
    for (uint32_t i = 0; i < PAIRS_AT_ONCE; i++) {
        uint32_t at = first + i * THREADS;
        both[i] = at < count ? pairs[at] : INSIDE_TWICE;
        uint32_t low = both[i] & 0xffff, high = both[i] >> 16;
        if ((low & FINAL) && (high & FINAL))
            continue;
        low = follow<FINAL>(places, low);
        high = follow<FINAL>(places, high);
        both[i] = high << 16 | low;
        followed |= 1u << i;
        left |= !(low & FINAL) || !(high & FINAL);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < PAIRS_AT_ONCE; i++)
        if (followed >> i & 1)
            pairs[first + i * THREADS] = both[i];
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
    uint32_t *pairs = (uint32_t *)shared.window, count = (window.end + 1) / 2;
    bool left;
    do {
        left = false;
        for (uint32_t first = 0; first < count; first += PAIRS_AT_ONCE * THREADS)
            left |= follow_pairs<FINAL, THREADS>(pairs, first + threadIdx.x, count);
    } while (__syncthreads_or(left));
}

// Writes the bytes, and leaves the window empty for the next one.
template <int THREADS>
__device__ inline void write_window(struct block_memory<THREADS> &shared,
                                    const struct window &window, struct adler *adler)
{
    uint8_t *out = window.rows + (window.start - window.skip);
    uint32_t bytes = 0, weighted = 0;
    for (uint32_t i = threadIdx.x; 4 * i < window.end; i += THREADS) {
        uint2 places = shared.window[i];
        shared.window[i] = make_uint2(INSIDE_TWICE, INSIDE_TWICE);
        uint32_t word = __byte_perm(places.x, places.y, 0x6420);
        if (4 * i >= window.skip && 4 * i + 4 <= window.end) {
            ((uint32_t *)out)[i] = word;
        } else {
            uint32_t kept = 0;
            for (uint32_t b = 0; b < 4; b++) {
                uint32_t place = 4 * i + b, byte = word >> 8 * b & 255;
                if (place < window.skip || place >= window.end)
                    continue;
                out[place] = (uint8_t)byte;
                kept |= byte << 8 * b;
            }
            word = kept;
        }
        uint32_t sum = __dp4a(word, 0x01010101u, 0u);
        bytes += sum;
        weighted += 4 * i * sum + __dp4a(word, 0x03020100u, 0u);
    }
    add_adler(adler, window.start - window.skip, bytes, weighted);
}

#endif
