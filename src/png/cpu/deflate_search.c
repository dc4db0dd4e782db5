// SPDX-License-Identifier: MIT
// Hash chains with one step of lazy matching, decided by prices in bits. Literals are priced by
// their frequency in the block, lengths and distances by the codes of the previous block.
#include "png/cpu/deflate.h"

#include <math.h>
#include <stdlib.h>

#include "base/features.h"
#include "base/parallel.h"
#include "png/cpu/deflate_internal.h"

#define HASH_BITS 16
#define HASH_BITS_LEAST 10
// A block continues until it has this many tokens: fewer are not worth a header of their own.
#define BLOCK_TOKENS ((size_t)8 << 10)
// Prices are in eighths of a bit.
#define UNIT 8
// A match this long is taken without trying more candidates.
#define ENOUGH 128
// Prices in the first block; the price of a symbol that had no codeword in the previous block.
#define FIRST_LENGTH_BITS 7
#define FIRST_DISTANCE_BITS 6
#define UNUSED_BITS 11

_Static_assert(BLOCK_TOKENS + CONV_DEFLATE_SEARCH_BLOCK <= CONV_DEFLATE_BLOCK, "tokens fit");

struct conv_deflate_search {
    int candidates;
    int skip_shift; // see conv_deflate_search_set_effort
    int hash_shift;
    uint32_t head[1 << HASH_BITS];        // last position of each hash
    uint32_t before[CONV_DEFLATE_WINDOW]; // by position modulo the window: the one before it
    uint32_t price_to[CONV_DEFLATE_SEARCH_BLOCK + 1]; // of the first n literals of a part
    uint32_t length_price[CONV_DEFLATE_MATCH_MOST + 1];
    uint32_t distance_price[CONV_DEFLATE_DISTANCES];
    struct conv_deflate_codes codes;
    struct conv_deflate_tokens tokens;
};

// Positions are modulo 2^32. One that is too old results in a distance beyond the window, or in a
// candidate that is compared and does not match.
struct place {
    const uint8_t *data; // of the stream
    size_t block;        // its first byte
    size_t from, to;     // the part of it that is searched: at most CONV_DEFLATE_SEARCH_BLOCK
};

struct found {
    int32_t gain; // 0: nothing
    uint32_t length, distance;
};

struct conv_deflate_search *conv_deflate_search_open(void)
{
    struct conv_deflate_search *search = calloc(1, sizeof *search);
    if (search)
        conv_deflate_init_tokens(&search->tokens, conv_cpu_features());
    return search;
}

void conv_deflate_search_set_effort(struct conv_deflate_search *search, int candidates,
                                    int skip_shift)
{
    search->candidates = candidates;
    search->skip_shift = skip_shift;
}

void conv_deflate_search_close(struct conv_deflate_search *search)
{
    free(search);
}

// --- prices -------------------------------------------------------------------------------------

static void price_symbols(struct conv_deflate_search *search, bool first)
{
    unsigned extra;
    for (unsigned length = CONV_DEFLATE_MATCH_LEAST; length <= CONV_DEFLATE_MATCH_MOST; length++) {
        unsigned bits = search->codes.litlen_bits[conv_deflate_length_symbol(length, &extra)];
        bits = first ? FIRST_LENGTH_BITS : bits ? bits : UNUSED_BITS;
        search->length_price[length] = UNIT * (bits + extra);
    }
    for (unsigned s = 0; s < CONV_DEFLATE_DISTANCES; s++) {
        unsigned bits = search->codes.distance_bits[s];
        bits = first ? FIRST_DISTANCE_BITS : bits ? bits : UNUSED_BITS;
        search->distance_price[s] = UNIT * (bits + (s < 4 ? 0 : s / 2 - 1));
    }
}

// In four arrays, as count_symbols of deflate_tokens.c.
static void count_bytes(uint32_t (*restrict counts)[256], const uint8_t *restrict data, size_t size)
{
    size_t i = 0;
    for (; size - i >= 4; i += 4) {
        for (size_t k = 0; k < 4; k++)
            counts[k][data[i + k]]++;
    }
    for (; i < size; i++)
        counts[0][data[i]]++;
}

static void sum_prices(uint32_t *restrict price_to, const uint32_t *restrict price,
                       const uint8_t *restrict data, size_t size)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        price_to[i] = sum;
        sum += price[data[i]];
    }
    price_to[size] = sum;
}

static void price_literals(struct conv_deflate_search *search, const uint8_t *data, size_t size)
{
    uint32_t counts[4][256] = {{0}}, price[256];
    count_bytes(counts, data, size);
    for (int s = 0; s < 256; s++) {
        uint32_t count = counts[0][s] + counts[1][s] + counts[2][s] + counts[3][s];
        float bits = count ? log2f((float)size / (float)count) : 0;
        price[s] = (uint32_t)(UNIT * (bits < 1 ? 1 : bits) + 0.5f);
    }
    sum_prices(search->price_to, price, data, size);
}

// --- the search ---------------------------------------------------------------------------------

// Enters a position, with at least four bytes to hash; returns the last one with its hash.
static inline uint32_t enter(struct conv_deflate_search *search, const uint8_t *data, size_t at)
{
    uint32_t *head =
        &search->head[conv_match_load32(data + at) * 0x9e3779b1u >> search->hash_shift];
    uint32_t last = *head;
    search->before[at % CONV_DEFLATE_WINDOW] = last;
    *head = (uint32_t)at;
    return last;
}

static inline int32_t gain_of(const struct conv_deflate_search *search, size_t offset,
                              uint32_t length, uint32_t distance)
{
    unsigned extra;
    uint32_t literals = search->price_to[offset + length] - search->price_to[offset];
    return (int32_t)(literals - search->length_price[length] -
                     search->distance_price[conv_deflate_distance_symbol(distance, &extra)]);
}

// Enters position `at` and returns its match that saves most bits.
static inline __attribute__((always_inline)) struct found find(struct conv_deflate_search *search,
                                                               const struct place *place, size_t at)
{
    const uint8_t *here = place->data + at;
    struct found best = {0, CONV_DEFLATE_MATCH_LEAST - 1, 0};
    size_t most =
        place->to - at < CONV_DEFLATE_MATCH_MOST ? place->to - at : CONV_DEFLATE_MATCH_MOST;
    if (most < CONV_DEFLATE_MATCH_LEAST)
        return best;
    uint32_t candidate = enter(search, place->data, at);
    uint32_t farthest = at < CONV_DEFLATE_WINDOW ? (uint32_t)at : CONV_DEFLATE_WINDOW;
    for (int i = 0; i < search->candidates; i++) {
        uint32_t distance = (uint32_t)at - candidate;
        if (distance - 1 >= farthest)
            break;
        const uint8_t *there = here - distance;
        // Only a longer match can beat a nearer one: its last four bytes are compared first.
        if (conv_match_load32(there + best.length - 3) ==
            conv_match_load32(here + best.length - 3)) {
            uint32_t length = (uint32_t)conv_match_length(there, here, here + most);
            if (length > best.length) {
                int32_t gain = gain_of(search, at - place->from, length, distance);
                if (gain > best.gain)
                    best = (struct found){gain, length, distance};
                if (length >= ENOUGH || length == most)
                    break;
            }
        }
        candidate = search->before[candidate % CONV_DEFLATE_WINDOW];
    }
    return best;
}

static void find_all(struct conv_deflate_search *search, const struct place *place)
{
    size_t at = place->from, entered = at; // positions before `entered` are in the chains
    size_t hashable =
        place->to < CONV_DEFLATE_MATCH_LEAST ? 0 : place->to - CONV_DEFLATE_MATCH_LEAST + 1;
    while (at < place->to) {
        struct found found = find(search, place, at);
        entered = ++at;
        if (found.gain == 0) {
            at += (at - place->block - search->tokens.done) >> search->skip_shift;
            entered = at;
            continue;
        }
        // The match begins at at - 1, unless one at `at` saves more.
        while (found.length < ENOUGH && at < place->to) {
            struct found next = find(search, place, at);
            entered = at + 1;
            if (next.gain <= found.gain)
                break;
            found = next;
            at++;
        }
        size_t start = at - 1;
        conv_deflate_add_match(&search->tokens, start - place->block, found.length, found.distance);
        at = start + found.length;
        for (; entered < at && entered < hashable; entered++)
            enter(search, place->data, entered);
    }
}

// With the literals that are not collected yet.
static size_t count_tokens(const struct conv_deflate_tokens *tokens)
{
    return tokens->count + tokens->size - tokens->done;
}

static void put_block(struct conv_deflate_search *search, struct conv_bits *out, bool last)
{
    const uint8_t *data = search->tokens.data;
    size_t size = search->tokens.size;
    const struct conv_bits start = *out;
    if (!conv_deflate_put_tokens(out, &search->codes, &search->tokens, last) ||
        !conv_deflate_is_short(out, &start, size)) {
        *out = start;
        conv_deflate_store(out, data, size, last);
    }
}

// Enters the positions of the window before `from`.
static void enter_window(struct conv_deflate_search *search, const struct conv_deflate_part *part)
{
    size_t at = part->from < CONV_DEFLATE_WINDOW ? 0 : part->from - CONV_DEFLATE_WINDOW;
    for (; at < part->from && part->to - at >= CONV_DEFLATE_MATCH_LEAST; at++)
        enter(search, part->data, at);
}

void conv_deflate_search_put(struct conv_deflate_search *search, struct conv_bits *out,
                             const struct conv_deflate_part *part, const atomic_int *stop)
{
    // Small streams use a smaller part of the table, since resetting all of it would take longer
    // than compressing them.
    const uint8_t *data = part->data;
    size_t size = part->to - part->from;
    int bits = HASH_BITS;
    while (bits > HASH_BITS_LEAST && size < (size_t)1 << (bits - 1))
        bits--;
    search->hash_shift = 32 - bits;
    // 0x80808080: an unused entry is beyond the window.
    memset(search->head, 0x80, sizeof *search->head << bits);
    enter_window(search, part);
    size_t parts = (size - 1) / CONV_DEFLATE_SEARCH_BLOCK + 1, block = part->from;
    price_symbols(search, true);
    conv_deflate_start_tokens(&search->tokens, data + block, 0);
    for (size_t i = 0, from = block; i < parts && !conv_cancel_is_asked(stop); i++) {
        size_t to = from + (part->to - from) / (parts - i);
        const struct place place = {data, block, from, to};
        price_literals(search, data + from, to - from);
        search->tokens.size = to - block;
        find_all(search, &place);
        from = to;
        if (to < part->to && count_tokens(&search->tokens) < BLOCK_TOKENS)
            continue;
        put_block(search, out, part->last && to == part->to);
        price_symbols(search, false);
        block = to;
        conv_deflate_start_tokens(&search->tokens, data + block, 0);
    }
}
