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
    uint8_t *rows;      // all of the output
    uint16_t *states;   // of split images: all of the output, as split.cuh says; else unused
    uint32_t first;     // likewise: where the output of this part begins
    uint32_t start;     // bytes of the output before the window
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
    static __device__ inline uint32_t earlier(const struct window &window, int32_t at)
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
    struct step step = first_step();
    uint32_t length = 0;
    while (!between_symbols(&step) || bits.at < limit) {
        uint32_t next = peek_bits(&bits), entry = look_up(shared.entries, &step, next);
        uint32_t kind = entry & ENTRY_KIND, value = entry_value(entry, next);
        if (entry & ENTRY_STOP)
            break;
        if (kind == ENTRY_LITERAL)
            places[place] = (uint16_t)(LITERAL | (value & 255));
        if ((entry & ENTRY_BYTES) == 2 * ENTRY_BYTE)
            places[place + 1] = (uint16_t)(LITERAL | value >> 8);
        place += (entry & ENTRY_BYTES) / ENTRY_BYTE;
        if (kind == ENTRY_DISTANCE) {
            uint32_t stretch = (place + STRETCH - 1) / STRETCH * STRETCH;
            places[place] = (uint16_t)value;
            if (stretch < place + length)
                places[stretch] = (uint16_t)value;
            place += length;
        }
        if (kind == ENTRY_LENGTH)
            length = value;
        next_step(&step, entry);
        drop_bits(&bits, entry & 31);
    }
}

// True if `source` is a byte from before the window; *wrong is set if there is no such byte.
__device__ __forceinline__ bool is_earlier(const struct window &window, bool matched,
                                           int32_t source, bool *wrong)
{
    bool earlier = matched && source < (int32_t)window.skip;
    bool none = earlier && source + (int32_t)(window.start - window.skip) < 0;
    *wrong |= none;
    return earlier && !none;
}

// The distance from a place to its source: that of the match, or the multiple of it that leads to
// before the match, for a place `inside` places after its begin. Flat images consist of such runs,
// and following their references would take most of the time.
__device__ __forceinline__ uint32_t source_distance(uint32_t distance, uint32_t inside)
{
    return inside < distance ? distance : distance + inside / distance * distance;
}

// Makes each place within a match a reference to a place before the match, or to one where the
// match was stored again. A lane takes two places; the match that contains one begins at the last
// begin before it. To be called after a barrier. True if a match refers to
// before the first byte.
template <typename STATE, int THREADS>
__device__ inline bool refer(struct block_memory<THREADS> &shared, const struct window &window)
{
    uint32_t *pairs = (uint32_t *)shared.window;
    const int32_t offset = (int32_t)(window.start - window.skip);
    uint32_t lane = threadIdx.x % LANES, below = (1u << lane) - 1;
    bool wrong = false;
    for (uint32_t first = threadIdx.x / LANES * STRETCH; first < window.end;
         first += THREADS / LANES * STRETCH) {
        uint32_t end = min(first + STRETCH, window.end), former = 0, former_begin = first;
        for (uint32_t at = first; at < end; at += 2 * LANES) {
            uint32_t place = at + 2 * lane, pair = pairs[place / 2];
            uint32_t low = pair & 0xffff, high = pair >> 16;
            uint32_t last = high != INSIDE ? high : low;
            uint32_t begins = __ballot_sync(ALL_LANES, pair != INSIDE_TWICE);
            // `before`: from the nearest lane before this one where anything begins, at `begin`;
            // `latest`: from the last lane.
            uint32_t highs = __ballot_sync(ALL_LANES, high != INSIDE);
            uint32_t nearest = LANES - 1 - (uint32_t)__clz((int)(begins & below));
            uint32_t farthest = LANES - 1 - (uint32_t)__clz((int)begins);
            uint32_t before = __shfl_sync(ALL_LANES, last, (int)nearest);
            uint32_t latest = __shfl_sync(ALL_LANES, last, (int)farthest);
            uint32_t begin =
                begins & below ? at + 2 * nearest + (highs >> nearest & 1) : former_begin;
            before = low != INSIDE ? low : begins & below ? before : former;
            begin = low != INSIDE ? place : begin;
            former = begins ? latest : former;
            former_begin = begins ? at + 2 * farthest + (highs >> farthest & 1) : former_begin;
            uint32_t match = high != INSIDE ? high : before;
            bool low_matched = place >= window.skip && place < window.end && !(before & LITERAL);
            bool high_matched =
                place + 1 >= window.skip && place + 1 < window.end && !(match & LITERAL);
            int32_t low_source = (int32_t)(place - source_distance(before + 1, place - begin));
            uint32_t inside = high != INSIDE ? 0 : place + 1 - begin;
            int32_t high_source = (int32_t)(place + 1 - source_distance(match + 1, inside));
            if (low_matched)
                low = (uint32_t)low_source;
            if (high_matched)
                high = (uint32_t)high_source;
            // Both loads are issued before one is waited for.
            uint32_t low_state = 0, high_state = 0;
            bool low_earlier = is_earlier(window, low_matched, low_source, &wrong);
            bool high_earlier = is_earlier(window, high_matched, high_source, &wrong);
            if (low_earlier)
                low_state = STATE::earlier(window, offset + low_source);
            if (high_earlier)
                high_state = STATE::earlier(window, offset + high_source);
            low = low_earlier ? low_state : low_matched ? low & 0xffff : STATE::literal(low);
            high = high_earlier ? high_state : high_matched ? high & 0xffff : STATE::literal(high);
            pairs[place / 2] = high << 16 | low;
        }
    }
    return wrong;
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
