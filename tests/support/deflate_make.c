// SPDX-License-Identifier: MIT
#include "support/deflate_make.h"

#include <string.h>
#include <zlib.h>

enum {
    MOST_BITS = 15,
    MOST_TOKENS = 2048,
    LITLENS = 288,
    DISTANCES = 32,
    PRECODES = 19,
    END = 256,
    FIRST_LENGTH = 257,
};

unsigned deflate_make_random(uint32_t *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(*seed ^ *seed >> 16) * n >> 32);
}

static unsigned draw(struct deflate_make *make, unsigned n)
{
    return deflate_make_random(&make->seed, n);
}

// --- bits ----------------------------------------------------------------------------------------

static void put_byte(struct deflate_make *make, unsigned byte)
{
    make->full |= make->size == make->room;
    if (!make->full)
        make->data[make->size++] = (uint8_t)byte;
}

static void put_bits(struct deflate_make *make, unsigned value, unsigned count)
{
    make->bits |= (uint64_t)value << make->count;
    for (make->count += count; make->count >= 8; make->count -= 8) {
        put_byte(make, make->bits & 255);
        make->bits >>= 8;
    }
}

static void align(struct deflate_make *make)
{
    if (make->count > 0)
        put_bits(make, 0, 8 - make->count);
}

// --- codes ---------------------------------------------------------------------------------------

struct code {
    uint8_t lengths[LITLENS];
    uint16_t codewords[LITLENS];
    int symbols;
};

// Canonical codewords, as RFC 1951, 3.2.2 has them; of a code that is none only their low bits.
static void number_codewords(struct code *code)
{
    unsigned next[MOST_BITS + 2] = {0}, count[MOST_BITS + 1] = {0};
    for (int s = 0; s < code->symbols; s++)
        count[code->lengths[s]]++;
    count[0] = 0;
    for (int n = 1; n <= MOST_BITS; n++)
        next[n + 1] = (next[n] + count[n]) << 1;
    for (int s = 0; s < code->symbols; s++)
        code->codewords[s] = (uint16_t)next[code->lengths[s]]++;
}

static void put_symbol(struct deflate_make *make, const struct code *code, int symbol)
{
    for (unsigned n = code->lengths[symbol]; n-- > 0;)
        put_bits(make, code->codewords[symbol] >> n & 1, 1);
}

// A random complete code for the symbols whose length is not 0; for a single one a bit. The leaves
// of a tree are split until there are enough, the newest more often, which makes long codewords.
static void draw_code(struct deflate_make *make, struct code *code, unsigned most_bits)
{
    uint8_t leaves[LITLENS] = {0};
    unsigned wanted = 0, leaf, count = 1;
    bool deep = draw(make, 3) == 0;
    for (int s = 0; s < code->symbols; s++)
        wanted += code->lengths[s] != 0;
    leaves[0] = wanted == 1;
    for (; count < wanted; count++) {
        leaf = deep && draw(make, 4) ? count - 1 : draw(make, count);
        while (leaves[leaf] == most_bits)
            leaf = draw(make, count);
        leaves[count] = ++leaves[leaf];
    }
    for (int s = 0; s < code->symbols; s++) {
        if (code->lengths[s] == 0)
            continue;
        leaf = draw(make, count--);
        code->lengths[s] = leaves[leaf];
        leaves[leaf] = leaves[count];
    }
    number_codewords(code);
}

static void set_fixed(struct code *litlen, struct code *distance)
{
    litlen->symbols = LITLENS;
    distance->symbols = DISTANCES;
    for (int s = 0; s < LITLENS; s++)
        litlen->lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    memset(distance->lengths, 5, DISTANCES);
    number_codewords(litlen);
    number_codewords(distance);
}

// --- tokens --------------------------------------------------------------------------------------

static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                       67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t distance_base[] = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

struct token {
    int symbol;     // literal or length
    unsigned extra; // of the length
    int distance;   // its symbol
    unsigned distance_rest;
};

static int find_base(const uint16_t *bases, int count, unsigned value)
{
    int i = count - 1;
    while (bases[i] > value)
        i--;
    return i;
}

static struct token make_match(unsigned length, unsigned distance)
{
    int l = find_base(length_base, sizeof length_base / sizeof length_base[0], length);
    int d = find_base(distance_base, sizeof distance_base / sizeof distance_base[0], distance);
    return (struct token){FIRST_LENGTH + l, length - length_base[l], d,
                          distance - distance_base[d]};
}

// Which matches a block may have.
enum matches { NO_MATCH, MATCH_LAST_BYTE, ANY_MATCH };

// Matches are tried at a few distances, the last ones among them.
static struct token next_token(struct deflate_make *make, enum matches matches, const uint8_t *raw,
                               size_t at, size_t to, size_t *length)
{
    size_t most = to - at < 258 ? to - at : 258;
    for (unsigned turn = 0; turn < 3 && at > 0 && matches != NO_MATCH; turn++) {
        size_t window = at < 32768 ? at : 32768;
        size_t distance = 1 + draw(make, turn < 2 && window > 4 ? 4 : (unsigned)window), n = 0;
        if (matches == MATCH_LAST_BYTE)
            distance = 1;
        while (n < most && raw[at + n] == raw[at + n - distance])
            n++;
        if (n >= 3) {
            *length = draw(make, 2) ? n : 3 + draw(make, (unsigned)n - 2);
            return make_match((unsigned)*length, (unsigned)distance);
        }
    }
    *length = 1;
    return (struct token){.symbol = raw[at]};
}

static int make_tokens(struct deflate_make *make, struct token *tokens, enum matches matches,
                       const uint8_t *raw, size_t *from, size_t to)
{
    int count = 0;
    for (size_t length; *from < to && count < MOST_TOKENS; *from += length)
        tokens[count++] = next_token(make, matches, raw, *from, to, &length);
    return count;
}

static void put_tokens(struct deflate_make *make, const struct token *tokens, int count,
                       const struct code *litlen, const struct code *distance)
{
    for (int i = 0; i < count; i++) {
        const struct token *token = &tokens[i];
        put_symbol(make, litlen, token->symbol);
        if (token->symbol < FIRST_LENGTH)
            continue;
        put_bits(make, token->extra, length_extra[token->symbol - FIRST_LENGTH]);
        put_symbol(make, distance, token->distance);
        put_bits(make, token->distance_rest,
                 token->distance < 4 ? 0 : (unsigned)token->distance / 2 - 1);
    }
    put_symbol(make, litlen, END);
}

// --- dynamic blocks ------------------------------------------------------------------------------

// Symbols of both codes' lengths as the precode has them: each alone, or runs in one, at random.
struct run {
    uint8_t symbol, extra, bits;
};

static int make_runs(struct deflate_make *make, struct run *runs, const uint8_t *lengths, int count)
{
    int made = 0;
    bool greedy = draw(make, 4) != 0;
    for (int i = 0, n; i < count; i += n) {
        n = 1;
        while (i + n < count && lengths[i + n] == lengths[i])
            n++;
        if (lengths[i] == 0 && n >= 3 && greedy) {
            n = n > 138 ? 138 : n;
            runs[made++] = n > 10 ? (struct run){18, (uint8_t)(n - 11), 7}
                                  : (struct run){17, (uint8_t)(n - 3), 3};
        } else if (i > 0 && lengths[i] == lengths[i - 1] && n >= 3 && greedy) {
            n = n > 6 ? 6 : n;
            runs[made++] = (struct run){16, (uint8_t)(n - 3), 2};
        } else {
            n = 1;
            runs[made++] = (struct run){lengths[i], 0, 0};
        }
    }
    return made;
}

static void put_lengths(struct deflate_make *make, const struct code *litlen,
                        const struct code *distance)
{
    static const uint8_t order[PRECODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITLENS + DISTANCES];
    struct run runs[LITLENS + DISTANCES];
    struct code precode = {.symbols = PRECODES};
    memcpy(lengths, litlen->lengths, (size_t)litlen->symbols);
    memcpy(lengths + litlen->symbols, distance->lengths, (size_t)distance->symbols);
    int count = make_runs(make, runs, lengths, litlen->symbols + distance->symbols);
    for (int i = 0; i < count; i++)
        precode.lengths[runs[i].symbol] = 1;
    precode.lengths[draw(make, PRECODES)] = 1; // a precode of one symbol is none for zlib
    precode.lengths[precode.lengths[0] ? 1 : 0] = 1;
    draw_code(make, &precode, 7);
    int sent = PRECODES;
    while (sent > 4 && precode.lengths[order[sent - 1]] == 0 && draw(make, 8))
        sent--;
    put_bits(make, (unsigned)litlen->symbols - 257, 5);
    put_bits(make, (unsigned)distance->symbols - 1, 5);
    put_bits(make, (unsigned)sent - 4, 4);
    for (int i = 0; i < sent; i++)
        put_bits(make, precode.lengths[order[i]], 3);
    for (int i = 0; i < count; i++) {
        put_symbol(make, &precode, runs[i].symbol);
        put_bits(make, runs[i].extra, runs[i].bits);
    }
}

static void use_symbols(struct deflate_make *make, struct code *code, int most, unsigned more)
{
    for (; more > 0; more--)
        code->lengths[draw(make, (unsigned)most)] = 1;
}

// Makes one codeword a bit longer (then others mean nothing) or shorter.
static void spoil(struct deflate_make *make, struct code *code, int change)
{
    for (int turn = 0; turn < 1000; turn++) {
        uint8_t *length = &code->lengths[draw(make, (unsigned)code->symbols)];
        if (*length > 0 && *length + change > 0 && *length + change <= MOST_BITS) {
            *length = (uint8_t)(*length + change);
            break;
        }
    }
    number_codewords(code);
}

static void choose_codes(struct deflate_make *make, struct code *litlen, struct code *distance,
                         const struct token *tokens, int count, enum deflate_oddity oddity)
{
    bool matches = false;
    for (int i = 0; i < count; i++) {
        litlen->lengths[tokens[i].symbol] = 1;
        if (tokens[i].symbol < FIRST_LENGTH)
            continue;
        distance->lengths[tokens[i].distance] = 1;
        matches = true;
    }
    litlen->lengths[END] = 1;
    use_symbols(make, litlen, 286, draw(make, 3) ? draw(make, 4) : draw(make, 200));
    if (oddity == DEFLATE_ONE_DISTANCE && !matches)
        distance->lengths[draw(make, 30)] = 1;
    else if (oddity != DEFLATE_NO_DISTANCE && oddity != DEFLATE_ONE_DISTANCE)
        use_symbols(make, distance, 30, draw(make, 8));
    if (oddity == DEFLATE_RESERVED) {
        litlen->lengths[286 + draw(make, 2)] = 1;
        distance->lengths[30 + draw(make, 2)] = 1;
    }
    litlen->symbols = oddity == DEFLATE_RESERVED ? LITLENS : 286;
    distance->symbols = oddity == DEFLATE_RESERVED ? DISTANCES : 30;
    while (litlen->symbols > FIRST_LENGTH && !litlen->lengths[litlen->symbols - 1] &&
           draw(make, 16))
        litlen->symbols--;
    while (distance->symbols > 1 && !distance->lengths[distance->symbols - 1] && draw(make, 16))
        distance->symbols--;
    draw_code(make, litlen, MOST_BITS);
    draw_code(make, distance, MOST_BITS);
    if (oddity == DEFLATE_INCOMPLETE || oddity == DEFLATE_OVERSUBSCRIBED)
        spoil(make, draw(make, 2) ? litlen : distance, oddity == DEFLATE_INCOMPLETE ? 1 : -1);
    if (oddity == DEFLATE_NO_END)
        litlen->lengths[END] = 0;
}

// --- blocks --------------------------------------------------------------------------------------

static void put_stored(struct deflate_make *make, const uint8_t *raw, size_t size)
{
    align(make);
    put_bits(make, (unsigned)size, 16);
    put_bits(make, (unsigned)size ^ 0xffff, 16);
    for (size_t i = 0; i < size; i++)
        put_byte(make, raw[i]);
}

void deflate_make_start(struct deflate_make *make, int window)
{
    unsigned head = (unsigned)(window - 8) << 12 | 0x800;
    head += 31 - head % 31;
    make->size = 0;
    make->full = false;
    make->bits = make->count = 0;
    put_byte(make, head >> 8);
    put_byte(make, head & 255);
}

void deflate_make_block(struct deflate_make *make, enum deflate_block kind,
                        enum deflate_oddity oddity, const uint8_t *raw, size_t from, size_t to,
                        bool last)
{
    static struct token tokens[MOST_TOKENS + 1];
    do {
        struct code litlen = {0}, distance = {0};
        size_t end = kind == DEFLATE_STORED && to - from > 65535 ? from + 65535 : to, at = from;
        enum matches matches = oddity == DEFLATE_NO_DISTANCE    ? NO_MATCH
                               : oddity == DEFLATE_ONE_DISTANCE ? MATCH_LAST_BYTE
                                                                : ANY_MATCH;
        int count = kind == DEFLATE_STORED ? 0 : make_tokens(make, tokens, matches, raw, &at, end);
        end = kind == DEFLATE_STORED ? end : at;
        if (oddity == DEFLATE_FAR && kind != DEFLATE_STORED)
            tokens[count++] = make_match(3, from < 32767 ? (unsigned)end + 1 : 32768);
        put_bits(make, last && end == to, 1);
        put_bits(make, kind, 2);
        if (kind == DEFLATE_STORED) {
            put_stored(make, raw + from, end - from);
        } else if (kind == DEFLATE_FIXED) {
            set_fixed(&litlen, &distance);
            put_tokens(make, tokens, count, &litlen, &distance);
        } else {
            choose_codes(make, &litlen, &distance, tokens, count, oddity);
            put_lengths(make, &litlen, &distance);
            put_tokens(make, tokens, count, &litlen, &distance);
        }
        from = end;
    } while (from < to && !make->full);
}

void deflate_make_end(struct deflate_make *make, const uint8_t *raw, size_t size)
{
    unsigned long sum = adler32_z(1, raw, size);
    align(make);
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(make, sum >> shift & 255);
}

void deflate_make_stream(struct deflate_make *make, const uint8_t *raw, size_t size)
{
    size_t from = 0;
    bool odd = draw(make, 8) == 0, last = false;
    deflate_make_start(make, draw(make, 8) ? 15 : 8 + (int)draw(make, 8));
    while (!last && !make->full) {
        enum deflate_block kind = (enum deflate_block)draw(make, DEFLATE_BLOCKS);
        size_t to = draw(make, 3) ? from : from + draw(make, (unsigned)(size - from) + 1);
        unsigned oddity = draw(make, odd ? DEFLATE_ODDITIES : DEFLATE_INCOMPLETE);
        last = draw(make, 4) == 0;
        deflate_make_block(make, kind, (enum deflate_oddity)oddity, raw, from, last ? size : to,
                           last);
        for (unsigned more = draw(make, 16) ? 0 : draw(make, 60); more > 0 && !last; more--)
            deflate_make_block(make, kind, DEFLATE_NORMAL, raw, to, to, false);
        from = to;
    }
    deflate_make_end(make, raw, size);
}
