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

// --- the choice ---------------------------------------------------------------------------------

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

static void take_sample(struct conv_deflate_sample *sample, const uint8_t *data, size_t size)
{
    uint32_t count[4][256] = {{0}}; // four tables: an increment does not depend on its neighbour's
    *sample = (struct conv_deflate_sample){.bytes = 0};
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

static bool put_literals(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                         size_t size, bool last)
{
    struct conv_deflate_sample sample;
    take_sample(&sample, data, size);
    return conv_deflate_put_literals(deflate, out, &sample, data, size, last);
}

void conv_deflate_block(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                        size_t size, size_t pixel, bool last)
{
    const struct conv_bits start = *out;
    bool done;
    if (conv_deflate_is_flat(data, size))
        done = conv_deflate_put_runs(deflate, out, data, size, pixel, last);
    else // incompressible literals may still repeat
        done = put_literals(deflate, out, data, size, last) ||
               conv_deflate_put_matches(deflate, out, data, size, last);
    if (!done || !conv_deflate_is_short(out, &start, size)) {
        *out = start;
        conv_deflate_store(out, data, size, last);
    }
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

bool conv_deflate_put_matches(struct conv_deflate *deflate, struct conv_bits *out,
                              const uint8_t *data, size_t size, bool last)
{
    conv_deflate_start_tokens(&deflate->tokens, data, size);
    // An unused entry reads as position 0, which is compared like any other.
    memset(deflate->head, 0, sizeof deflate->head);
    find_all(&deflate->tokens, deflate->head);
    return conv_deflate_put_tokens(out, &deflate->codes, &deflate->tokens, last);
}
