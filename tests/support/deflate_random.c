// SPDX-License-Identifier: MIT
#include "support/deflate_random.h"

#include <string.h>
#include <zlib.h>

#include "support/random.h"

enum { MOST_BITS = 15, MOST_TOKENS = 2048 };

// --- codes ---------------------------------------------------------------------------------------

// Draws a complete code for the symbols whose length is not 0; a single one gets a bit. The leaves
// of a tree are split until there are enough, the newest more often, which makes long codewords.
static void draw_lengths(uint64_t *random, uint8_t *lengths, int symbols, unsigned most_bits)
{
    uint8_t leaves[DEFLATE_ALL_LITLENS] = {0};
    unsigned wanted = 0, leaf, count = 1;
    bool deep = random_below(random, 3) == 0;
    for (int s = 0; s < symbols; s++)
        wanted += lengths[s] != 0;
    leaves[0] = wanted == 1;
    for (; count < wanted; count++) {
        leaf = deep && random_below(random, 4) ? count - 1 : random_below(random, count);
        while (leaves[leaf] == most_bits)
            leaf = random_below(random, count);
        leaves[count] = ++leaves[leaf];
    }
    for (int s = 0; s < symbols; s++) {
        if (lengths[s] == 0)
            continue;
        leaf = random_below(random, count--);
        lengths[s] = leaves[leaf];
        leaves[leaf] = leaves[count];
    }
}

// --- tokens --------------------------------------------------------------------------------------

// A literal if `distance` is 0.
struct token {
    unsigned length, distance;
    uint8_t literal;
};

// Which matches a block may have.
enum matches { NO_MATCH, MATCH_LAST_BYTE, ANY_MATCH };

// Matches are tried at a few distances, small ones among them.
static struct token next_token(uint64_t *random, enum matches matches, const uint8_t *raw,
                               size_t at, size_t to)
{
    size_t most = to - at < 258 ? to - at : 258;
    for (unsigned turn = 0; turn < 3 && at > 0 && matches != NO_MATCH; turn++) {
        size_t window = at < 32768 ? at : 32768;
        unsigned distance = 1 + random_below(random, turn < 2 && window > 4 ? 4 : (unsigned)window),
                 n = 0;
        if (matches == MATCH_LAST_BYTE)
            distance = 1;
        while (n < most && raw[at + n] == raw[at + n - distance])
            n++;
        if (n >= 3)
            return (struct token){.length =
                                      random_below(random, 2) ? n : 3 + random_below(random, n - 2),
                                  .distance = distance};
    }
    return (struct token){.length = 1, .literal = raw[at]};
}

static int draw_tokens(uint64_t *random, struct token *tokens, enum matches matches,
                       const uint8_t *raw, size_t *from, size_t to)
{
    int count = 0;
    for (; *from < to && count < MOST_TOKENS; count++) {
        tokens[count] = next_token(random, matches, raw, *from, to);
        *from += tokens[count].length;
    }
    return count;
}

static void put_tokens(struct deflate_make *make, const struct token *tokens, int count)
{
    for (int i = 0; i < count; i++) {
        if (tokens[i].distance == 0)
            deflate_make_literal(make, tokens[i].literal);
        else
            deflate_make_match(make, tokens[i].length, tokens[i].distance);
    }
    deflate_make_end_block(make);
}

// --- dynamic blocks ------------------------------------------------------------------------------

// The lengths of both codes as symbols of the precode, with runs folded or not at random.
static int draw_runs(uint64_t *random, struct deflate_run *runs, const uint8_t *lengths, int count)
{
    int made = 0;
    bool greedy = random_below(random, 4) != 0;
    for (int i = 0, n; i < count; i += n) {
        n = 1;
        while (i + n < count && lengths[i + n] == lengths[i])
            n++;
        if (lengths[i] == 0 && n >= 3 && greedy) {
            n = n > 138 ? 138 : n;
            runs[made++] = n > 10 ? (struct deflate_run){18, (uint8_t)(n - 11), 7}
                                  : (struct deflate_run){17, (uint8_t)(n - 3), 3};
        } else if (i > 0 && lengths[i] == lengths[i - 1] && n >= 3 && greedy) {
            n = n > 6 ? 6 : n;
            runs[made++] = (struct deflate_run){16, (uint8_t)(n - 3), 2};
        } else {
            n = 1;
            runs[made++] = (struct deflate_run){lengths[i], 0, 0};
        }
    }
    return made;
}

static void put_header(struct deflate_make *make, uint64_t *random,
                       const struct deflate_codes *codes, bool last)
{
    uint8_t lengths[DEFLATE_ALL_LITLENS + DEFLATE_ALL_DISTANCES], precode[DEFLATE_PRECODES] = {0};
    struct deflate_run runs[DEFLATE_ALL_LITLENS + DEFLATE_ALL_DISTANCES];
    memcpy(lengths, codes->litlen_lengths, (size_t)codes->litlen_count);
    memcpy(lengths + codes->litlen_count, codes->distance_lengths, (size_t)codes->distance_count);
    int count = draw_runs(random, runs, lengths, codes->litlen_count + codes->distance_count);
    for (int i = 0; i < count; i++)
        precode[runs[i].symbol] = 1;
    precode[random_below(random, DEFLATE_PRECODES)] = 1; // zlib refuses a precode of one symbol
    precode[precode[0] ? 1 : 0] = 1;
    draw_lengths(random, precode, DEFLATE_PRECODES, 7);
    int sent = DEFLATE_PRECODES;
    while (sent > 4 && precode[deflate_make_order[sent - 1]] == 0 && random_below(random, 8))
        sent--;
    deflate_make_header(make, codes, runs, count, precode, sent, last);
}

static void use_symbols(uint64_t *random, uint8_t *lengths, unsigned most, unsigned more)
{
    for (; more > 0; more--)
        lengths[random_below(random, most)] = 1;
}

// Makes a codeword a bit longer (the code is then incomplete) or shorter.
static void spoil(uint64_t *random, uint8_t *lengths, int symbols, int change)
{
    for (int turn = 0; turn < 1000; turn++) {
        uint8_t *length = &lengths[random_below(random, (unsigned)symbols)];
        if (*length > 0 && *length + change > 0 && *length + change <= MOST_BITS) {
            *length = (uint8_t)(*length + change);
            break;
        }
    }
}

static int choose_count(uint64_t *random, const uint8_t *lengths, int most, int least)
{
    while (most > least && !lengths[most - 1] && random_below(random, 16))
        most--;
    return most;
}

static void draw_codes(uint64_t *random, struct deflate_codes *codes, const struct token *tokens,
                       int count, enum deflate_oddity oddity)
{
    uint8_t *litlen = codes->litlen_lengths, *distance = codes->distance_lengths;
    bool matches = false, reserved = oddity == DEFLATE_RESERVED;
    for (int i = 0; i < count; i++) {
        if (tokens[i].distance == 0) {
            litlen[tokens[i].literal] = 1;
            continue;
        }
        litlen[deflate_make_length_symbol(tokens[i].length)] = 1;
        distance[deflate_make_distance_symbol(tokens[i].distance)] = 1;
        matches = true;
    }
    litlen[DEFLATE_END] = 1;
    use_symbols(random, litlen, DEFLATE_LITLENS,
                random_below(random, 3) ? random_below(random, 4) : random_below(random, 200));
    if (oddity == DEFLATE_ONE_DISTANCE && !matches)
        distance[random_below(random, DEFLATE_DISTANCES)] = 1;
    else if (oddity != DEFLATE_NO_DISTANCE && oddity != DEFLATE_ONE_DISTANCE)
        use_symbols(random, distance, DEFLATE_DISTANCES, random_below(random, 8));
    if (reserved) {
        litlen[DEFLATE_LITLENS + random_below(random, 2)] = 1;
        distance[DEFLATE_DISTANCES + random_below(random, 2)] = 1;
    }
    int litlens = reserved ? DEFLATE_ALL_LITLENS : DEFLATE_LITLENS;
    int distances = reserved ? DEFLATE_ALL_DISTANCES : DEFLATE_DISTANCES;
    codes->litlen_count = choose_count(random, litlen, litlens, DEFLATE_FIRST_LENGTH);
    codes->distance_count = choose_count(random, distance, distances, 1);
    draw_lengths(random, litlen, codes->litlen_count, MOST_BITS);
    draw_lengths(random, distance, codes->distance_count, MOST_BITS);
    if (oddity == DEFLATE_INCOMPLETE || oddity == DEFLATE_OVERSUBSCRIBED) {
        int change = oddity == DEFLATE_INCOMPLETE ? 1 : -1;
        if (random_below(random, 2))
            spoil(random, litlen, codes->litlen_count, change);
        else
            spoil(random, distance, codes->distance_count, change);
    }
    deflate_make_number(codes);
    if (oddity == DEFLATE_NO_END)
        litlen[DEFLATE_END] = 0;
}

// --- blocks --------------------------------------------------------------------------------------

void deflate_random_block(struct deflate_make *make, uint64_t *random, enum deflate_block kind,
                          enum deflate_oddity oddity, const uint8_t *raw, size_t from, size_t to,
                          bool last)
{
    static struct token tokens[MOST_TOKENS + 1];
    enum matches matches = oddity == DEFLATE_NO_DISTANCE    ? NO_MATCH
                           : oddity == DEFLATE_ONE_DISTANCE ? MATCH_LAST_BYTE
                                                            : ANY_MATCH;
    do {
        struct deflate_codes codes = {0};
        size_t end = from;
        if (kind == DEFLATE_STORED) {
            end = to - from > 65535 ? from + 65535 : to;
            deflate_make_stored(make, raw + from, end - from, last && end == to);
            from = end;
            continue;
        }
        int count = draw_tokens(random, tokens, matches, raw, &end, to);
        if (oddity == DEFLATE_FAR)
            tokens[count++] = (struct token){
                .length = 3, .distance = from < 32767 && end < 32768 ? (unsigned)end + 1 : 32768};
        if (kind == DEFLATE_FIXED) {
            deflate_make_fixed_codes(&codes);
            deflate_make_fixed(make, &codes, last && end == to);
        } else {
            draw_codes(random, &codes, tokens, count, oddity);
            put_header(make, random, &codes, last && end == to);
        }
        put_tokens(make, tokens, count);
        from = end;
    } while (from < to && !make->full);
}

void deflate_random_end(struct deflate_make *make, const uint8_t *raw, size_t size)
{
    deflate_make_end(make, (uint32_t)adler32_z(1, raw, size));
}

void deflate_random_stream(struct deflate_make *make, uint64_t *random, const uint8_t *raw,
                           size_t size)
{
    size_t from = 0;
    bool odd = random_below(random, 8) == 0, last = false;
    deflate_make_start(make, random_below(random, 8) ? 15 : 8 + (int)random_below(random, 8));
    while (!last && !make->full) {
        enum deflate_block kind = (enum deflate_block)random_below(random, DEFLATE_BLOCKS);
        size_t to = random_below(random, 3)
                        ? from
                        : from + random_below(random, (unsigned)(size - from) + 1);
        unsigned oddity = random_below(random, odd ? DEFLATE_ODDITIES : DEFLATE_INCOMPLETE);
        last = random_below(random, 4) == 0;
        deflate_random_block(make, random, kind, (enum deflate_oddity)oddity, raw, from,
                             last ? size : to, last);
        for (unsigned more = random_below(random, 16) ? 0 : random_below(random, 60);
             more > 0 && !last; more--)
            deflate_random_block(make, random, kind, DEFLATE_NORMAL, raw, to, to, false);
        from = to;
    }
    deflate_random_end(make, raw, size);
}
