// SPDX-License-Identifier: MIT
// Blocks with matches at the fast level: drawings, text, skies. Each position has one candidate, a
// run of the byte before it or the last position with the same hash, and a match is used without
// looking for a better one. The step grows while nothing matches.
#include "png/cpu/deflate_internal.h"
#include "png/cpu/match_length.h"

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
