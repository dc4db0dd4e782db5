// SPDX-License-Identifier: MIT
// Chooses how a block is coded, and stores it if nothing is shorter. The space a block takes:
// - conv_deflate_store writes 5 bytes per STORED_MOST bytes and the bits pending before it.
// - Any other block is replaced by a stored one if it is longer, so no finished block takes more.
//   While it is written it takes at most the header (17 bits, 19 lengths of 3 bits, 316 lengths of
//   7 bits; a folded run is shorter), CONV_DEFLATE_LIMIT bits per byte and for its end (a match
//   takes 15 + 5 + 15 + 13 bits, less than the 4 or more literals it replaces), and the bytes that
//   a flush writes ahead.
#include "png/cpu/deflate_internal.h"

#include <stdlib.h>

#include "base/features.h"
#include "png/cpu/deflate.h"

#define STORED_MOST 65535u
#define HEADER_MOST 300

size_t conv_deflate_bound(size_t size, size_t block)
{
    size_t blocks = size / block + 1;
    size_t stored = size + 5 * (size / STORED_MOST + blocks + 1) + 1;
    size_t largest = size < CONV_DEFLATE_BLOCK ? size : CONV_DEFLATE_BLOCK;
    size_t ahead = (largest + 8) / 8 * CONV_DEFLATE_LIMIT + HEADER_MOST + CONV_BITS_SLACK;
    return stored + ahead;
}

struct conv_deflate *conv_deflate_open(unsigned features)
{
    struct conv_deflate *deflate = malloc(sizeof *deflate);
    if (deflate)
        conv_deflate_init_tokens(&deflate->tokens, features);
    return deflate;
}

void conv_deflate_close(struct conv_deflate *deflate)
{
    free(deflate);
}

void conv_deflate_store(struct conv_bits *out, const uint8_t *data, size_t size, bool last)
{
    do {
        size_t count = size < STORED_MOST ? size : STORED_MOST;
        conv_bits_put(out, last && count == size, 1);
        conv_bits_put(out, CONV_DEFLATE_STORED, 2);
        conv_bits_align(out);
        conv_bits_put(out, count | (count ^ 0xffff) << 16, 32);
        conv_bits_flush(out);
        memcpy(out->at, data, count);
        out->at += count;
        data += count;
        size -= count;
    } while (size > 0);
}

// --- samples ------------------------------------------------------------------------------------

// 64 of every 256 bytes are examined: enough to estimate the gain of a Huffman code and how much of
// the block is flat.
#define SAMPLE 64
#define SAMPLE_STEP 256
// Matches are searched first if at least 1/16 of a block is flat: consists of words of 8 zeros.
#define FLAT_PART 16

bool conv_deflate_is_flat(const uint8_t *data, size_t size)
{
    size_t flat = 0, bytes = 0;
    for (size_t at = 0; at + SAMPLE <= size; at += SAMPLE_STEP, bytes += SAMPLE) {
        for (size_t i = at; i < at + SAMPLE; i += 8) {
            uint64_t word;
            memcpy(&word, data + i, sizeof word);
            flat += word == 0;
        }
    }
    return flat * 8 * FLAT_PART >= (size < SAMPLE_STEP ? size : bytes);
}

// Counts of some of a block's bytes.
struct sample {
    uint32_t count[256];
    size_t bytes; // sum of the counts
};

static void take_sample(struct sample *sample, const uint8_t *data, size_t size)
{
    uint32_t count[4][256] = {{0}}; // four tables: an increment does not depend on its neighbour's
    *sample = (struct sample){.bytes = 0};
    for (size_t at = 0; at + SAMPLE <= size; at += SAMPLE_STEP) {
        for (size_t i = at; i < at + SAMPLE; i += 8) {
            uint64_t word;
            memcpy(&word, data + i, sizeof word);
            for (int k = 0; k < 2; k++) {
                count[0][word & 0xff]++;
                count[1][word >> 8 & 0xff]++;
                count[2][word >> 16 & 0xff]++;
                count[3][word >> 24 & 0xff]++;
                word >>= 32;
            }
        }
        sample->bytes += SAMPLE;
    }
    if (size < SAMPLE_STEP) { // fewer than 64 bytes, or the first 64 only: count all
        memset(count, 0, sizeof count);
        sample->bytes = size;
        for (size_t i = 0; i < size; i++)
            count[0][data[i]]++;
    }
    for (int s = 0; s < 256; s++)
        sample->count[s] = count[0][s] + count[1][s] + count[2][s] + count[3][s];
}

bool conv_deflate_is_short(const struct conv_bits *out, const struct conv_bits *start, size_t size)
{
    return (size_t)(out->at - start->at) <= size + 5 * (size / STORED_MOST + 1);
}

// --- blocks of literals -------------------------------------------------------------------------

// Blocks of literals only, the best form for most filtered rows of photographs. Two literals are
// looked up at a time, in a table of codeword pairs built for each block.

// An entry holds two codewords and, in its top 6 bits, their length together. If they are longer
// than PAIR_MOST, which takes two rare literals, it holds the length ESCAPE instead: the sum of two
// entries' lengths then exceeds that of any two pairs that fit.
#define PAIR_SHIFT 26
#define PAIR_MOST 26
#define PAIR_MASK ((1u << PAIR_SHIFT) - 1)
#define ESCAPE 63u

#define INLINE static inline __attribute__((always_inline))

// Makes codewords for all 256 literals, since one that the sample lacks may still occur.
static void make_codes(struct conv_deflate_codes *codes, const struct sample *sample)
{
    uint32_t counts[CONV_DEFLATE_LITLENS] = {0};
    static const uint32_t no_distance[CONV_DEFLATE_DISTANCES];
    for (int s = 0; s < 256; s++)
        counts[s] = 4 * sample->count[s] + 1;
    counts[CONV_DEFLATE_END] = 1;
    conv_huffman_lengths(codes->litlen_bits, counts, CONV_DEFLATE_LITLENS, CONV_DEFLATE_LIMIT);
    conv_huffman_codes(codes->litlen, codes->litlen_bits, CONV_DEFLATE_LITLENS);
    conv_huffman_lengths(codes->distance_bits, no_distance, CONV_DEFLATE_DISTANCES,
                         CONV_DEFLATE_LIMIT);
}

// A gain below 1/64 is not worth it: stored bytes are faster to write and to read.
static bool gains(const struct conv_deflate_codes *codes, const struct sample *sample)
{
    uint64_t bits = 0;
    for (int s = 0; s < 256; s++)
        bits += (uint64_t)sample->count[s] * codes->litlen_bits[s];
    return bits + bits / 64 < 8 * (uint64_t)sample->bytes;
}

INLINE void make_pairs(uint32_t *restrict pair, const struct conv_deflate_codes *restrict codes)
{
    uint32_t second[256], second_bits[256];
    for (int s = 0; s < 256; s++) {
        second[s] = codes->litlen[s];
        second_bits[s] = codes->litlen_bits[s];
    }
    for (int first = 0; first < 256; first++) {
        uint32_t bits = codes->litlen_bits[first];
        uint32_t base = codes->litlen[first] | bits << PAIR_SHIFT;
        uint32_t *row = pair + 256 * first;
        for (int s = 0; s < 256; s++) {
            uint32_t entry = base + (second[s] << bits) + (second_bits[s] << PAIR_SHIFT);
            row[s] = bits + second_bits[s] > PAIR_MOST ? ESCAPE << PAIR_SHIFT : entry;
        }
    }
}

INLINE uint64_t load_first_highest(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return __builtin_bswap64(word);
}

// The writer is passed by value here and below. Through a pointer, stores to out.at might alias it,
// and the compiler would keep it in memory instead of in registers.
static struct conv_bits put_singly(struct conv_bits out, const struct conv_deflate_codes *codes,
                                   const uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        conv_bits_put(&out, codes->litlen[data[i]], codes->litlen_bits[data[i]]);
        conv_bits_flush(&out);
    }
    return out;
}

// Puts four literals, given the table entries of both pairs. Eight at once where they fit was 4 %
// faster on photographs and 12 % slower on embossed ones.
INLINE struct conv_bits put_four(struct conv_bits out, const struct conv_deflate_codes *codes,
                                 uint32_t first, uint32_t second, const uint8_t *data)
{
    unsigned first_bits = first >> PAIR_SHIFT, bits = first_bits + (second >> PAIR_SHIFT);
    if (__builtin_expect(bits > 2 * PAIR_MOST, 0))
        return put_singly(out, codes, data, 4);
    uint64_t four = (first & PAIR_MASK) | (uint64_t)(second & PAIR_MASK) << first_bits;
    conv_bits_put(&out, four, bits);
    conv_bits_flush(&out);
    return out;
}

INLINE void put_words(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                      size_t words)
{
    const struct conv_deflate_codes *codes = &deflate->codes;
    const uint32_t *pair = deflate->pair;
    struct conv_bits o = *out;
    make_pairs(deflate->pair, codes);
    for (; words > 0; words--, data += 8) {
        uint64_t word = load_first_highest(data);
        o = put_four(o, codes, pair[word >> 48], pair[word >> 32 & 0xffff], data);
        o = put_four(o, codes, pair[word >> 16 & 0xffff], pair[word & 0xffff], data + 4);
    }
    *out = o;
}

static void put_words_plain(struct conv_deflate *deflate, struct conv_bits *out,
                            const uint8_t *data, size_t words)
{
    put_words(deflate, out, data, words);
}

#if defined(__x86_64__)
// The same, compiled with variable shifts and wider vectors.
__attribute__((target("avx2,bmi2"))) static void put_words_avx2(struct conv_deflate *deflate,
                                                                struct conv_bits *out,
                                                                const uint8_t *data, size_t words)
{
    put_words(deflate, out, data, words);
}
#endif

// Writes a block of literals only, with a code made from a sample. False if that is hardly shorter
// than a stored block; the caller then has to reset *out, to which a part may have been written.
static bool put_literals(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                         size_t size, bool last)
{
    struct conv_deflate_codes *codes = &deflate->codes;
    struct sample sample;
    take_sample(&sample, data, size);
    make_codes(codes, &sample);
    if (!gains(codes, &sample))
        return false;
    conv_deflate_put_header(out, codes, last);
    size_t done = size / 8 * 8;
#if defined(__x86_64__)
    if (deflate->tokens.features & CONV_CPU_VBMI)
        done = conv_deflate_put_vbmi(out, codes, data, size);
    else if (deflate->tokens.features & CONV_CPU_AVX2)
        put_words_avx2(deflate, out, data, size / 8);
    else
#endif
        put_words_plain(deflate, out, data, size / 8);
    *out = put_singly(*out, codes, data + done, size - done);
    conv_bits_put(out, codes->litlen[CONV_DEFLATE_END], codes->litlen_bits[CONV_DEFLATE_END]);
    conv_bits_flush(out);
    return true;
}

// --- blocks with matches -------------------------------------------------------------------------

// Blocks with matches at the fast level: drawings, text, skies. Each position has one candidate, a
// run of the byte before it or the last position with the same hash, and a match is used without
// looking for a better one. The step grows while nothing matches.

// One more position is skipped per step for each 2^SKIP_SHIFT bytes without a match.
#define SKIP_SHIFT 5
#define SKIP_MOST 15 // bounded so that the start of a repeated pattern is found
// A match at a greater distance costs some 20 bits, more than a few cheap literals: it has to be
// FAR_LEAST bytes long.
#define NEAR 64
#define FAR_LEAST 6

static inline uint32_t *head_of(uint32_t *head, uint32_t word)
{
    return &head[word * 0x9e3779b1u >> (32 - CONV_DEFLATE_HASH_BITS)];
}

// Returns the length of the match at position `at`, or 0. At least one byte before `at` and four
// from it on must exist.
static inline size_t find(const struct conv_deflate_tokens *tokens, uint32_t *heads, size_t at,
                          size_t *distance)
{
    const uint8_t *here = tokens->data + at, *end = tokens->data + tokens->size;
    uint32_t word = conv_match_load32(here), *head = head_of(heads, word);
    size_t before = *head;
    *head = (uint32_t)at;
    if (conv_match_load32(here - 1) == word) {
        *distance = 1;
        return 4 + conv_match_length(here + 3, here + 4, end);
    }
    *distance = at - before;
    if (*distance > CONV_DEFLATE_WINDOW || conv_match_load32(tokens->data + before) != word)
        return 0;
    // In a flat part only the filter byte of a row needs a far match; continuing as a run takes 1/6
    // of the bits.
    if (end - here > CONV_DEFLATE_MATCH_MOST)
        end = here + CONV_DEFLATE_MATCH_MOST;
    size_t length = 4 + conv_match_length(tokens->data + before + 4, here + 4, end);
    return length >= FAR_LEAST || *distance <= NEAR ? length : 0;
}

static void find_all(struct conv_deflate_tokens *tokens, uint32_t *heads)
{
    const uint8_t *data = tokens->data;
    size_t at = 1;
    while (at + 4 <= tokens->size) {
        size_t distance, length = find(tokens, heads, at, &distance);
        if (length == 0) {
            size_t skip = (at - tokens->done) >> SKIP_SHIFT;
            at += 1 + (skip < SKIP_MOST ? skip : SKIP_MOST);
            continue;
        }
        // Skipping may have passed the match's beginning.
        while (at > tokens->done && at > distance && data[at - 1] == data[at - 1 - distance]) {
            at--;
            length++;
        }
        conv_deflate_add_match(tokens, at, length, distance);
        at += length;
        if (at + 2 <= tokens->size) // enter the match's end
            *head_of(heads, conv_match_load32(data + at - 2)) = (uint32_t)(at - 2);
    }
}

// False as put_literals().
static bool put_matches(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, bool last)
{
    conv_deflate_start_tokens(&deflate->tokens, data, size);
    // An unused entry reads as position 0, which is compared like any other.
    memset(deflate->head, 0, sizeof deflate->head);
    find_all(&deflate->tokens, deflate->head);
    return conv_deflate_put_tokens(out, &deflate->codes, &deflate->tokens, last);
}

// --- the choice ---------------------------------------------------------------------------------

void conv_deflate_block(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, size_t pixel, bool last)
{
    const struct conv_bits start = *out;
    bool done;
    if (conv_deflate_is_flat(data, size))
        done = conv_deflate_put_runs(deflate, out, data, size, pixel, last);
    else // incompressible literals may still repeat
        done = put_literals(deflate, out, data, size, last) ||
               put_matches(deflate, out, data, size, last);
    if (!done || !conv_deflate_is_short(out, &start, size)) {
        *out = start;
        conv_deflate_store(out, data, size, last);
    }
}
