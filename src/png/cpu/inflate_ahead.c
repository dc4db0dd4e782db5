// SPDX-License-Identifier: MIT
// The memory of a part: CONV_INFLATE_WINDOW markers, the symbols, the window before the bytes, the
// bytes. Finishing turns symbols into bytes in place, from the last one to the first, so that they
// end where the bytes begin.
#include "png/cpu/inflate_internal.h"

#include <libdeflate.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/features.h"
#include "png/chunk.h"

// --- symbols of 16 bits --------------------------------------------------------------------------

// Before the bytes in front of a part are known, each byte of its output is a symbol of 16 bits,
// which may stand for an unknown byte.

#define ELEMENT uint16_t

CONV_INFLATE_INLINE void put_literals(uint16_t *out, uint64_t entry)
{
    out[0] = entry >> 32 & 255;
    out[1] = entry >> 40 & 255;
}

static inline void copy8(uint16_t *dst, const uint16_t *src)
{
    uint64_t value[2]; // loaded before anything is stored: src and dst may overlap
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

static inline void copy16(uint16_t *dst, const uint16_t *src)
{
    uint64_t value[4]; // as above
    memcpy(value, src, sizeof value);
    memcpy(dst, value, sizeof value);
}

// Overwrites up to 24 symbols after the match.
CONV_INFLATE_INLINE void copy_match(uint16_t *out, size_t distance, size_t length)
{
    uint16_t *end = out + length;
    if (distance < 8) { // repeat the pattern until its distance is at least 8
        size_t step = distance * ((7 + distance) / distance);
        for (size_t i = 0; i < step; i++)
            out[i] = out[i - distance];
        out += step;
        distance = step;
    }
    for (; out < end; out += 8)
        copy8(out, out - distance);
}

#include "png/cpu/inflate_symbols_body.h"

typedef enum conv_inflate_state (*decode_fn)(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct decode_range *range);

#define DECODER(name, target, inside, mixed, low)                                                  \
    target static enum conv_inflate_state name(const struct conv_inflate_tables *tables,           \
                                               struct conv_inflate_reader *reader,                 \
                                               struct decode_range *range)                         \
    {                                                                                              \
        return decode_symbols(tables, reader, range, inside, mixed, low, copy_match);              \
    }

DECODER(decode_literals, , true, false, conv_inflate_low_plain)
DECODER(decode_mixed, , true, true, conv_inflate_low_plain)
DECODER(decode_tail, , false, false, conv_inflate_low_plain)
#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,bmi2"))) // BMI2 comes with AVX2
DECODER(decode_literals_avx2, AVX2, true, false, conv_inflate_low_bmi2)
DECODER(decode_mixed_avx2, AVX2, true, true, conv_inflate_low_bmi2)
#endif

static decode_fn choose(bool mixed, unsigned features)
{
#ifdef __x86_64__
    if (features & CONV_CPU_AVX2)
        return mixed ? decode_mixed_avx2 : decode_literals_avx2;
#endif
    (void)features;
    return mixed ? decode_mixed : decode_literals;
}

// As conv_inflate_symbols, from *at, which it advances, until it is beyond `stop`. Matches do not
// reach before `begin`. CONV_INFLATE_SLACK symbols after `stop` may be overwritten. `features`: of
// conv_cpu_features.
static enum conv_inflate_state decode_wide(const struct conv_inflate_tables *tables,
                                           struct conv_inflate_reader *reader, uint16_t **at,
                                           uint16_t *begin, uint16_t *stop, unsigned features)
{
    struct decode_range range = {begin, *at, stop};
    enum conv_inflate_state state = CONV_INFLATE_WORKING;
    if (reader->end - reader->at >= INSIDE)
        state = choose(tables->mixed, features)(tables, reader, &range);
    if (state == CONV_INFLATE_WORKING && range.at <= stop)
        state = decode_tail(tables, reader, &range);
    *at = range.at;
    return state;
}

// --- where a block may begin ---------------------------------------------------------------------

// The search goes bit by bit, as in rapidgzip (Knespel and Brunst, 2023), with two tables: one maps
// the next 15 bits to the distance of the next possible begin, the other adds up a precode, four
// lengths at a time.

enum {
    SEEN = 15,  // bits that index the first table
    PARTS = 12, // and the second: four lengths
    FIXED = 17, // bits of a header before the precode
    LEAST = 24, // bytes from the start of a header: 17 bits and 57, read 8 bytes at a time
    MOST_LITLENS = 29,
    MOST_DISTANCES = 29,
    COMPLETE = 128, // the sum of 2^(7 - length) in a complete code of lengths up to 7
};

static uint8_t to_next[1 << SEEN];
static uint16_t sum_of[1 << PARTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

// True unless the lowest `count` bits are not those of a header of a dynamic block.
static bool may_begin(unsigned bits, unsigned count)
{
    if (bits & 1 || (count >= 2 && bits & 2) || (count >= 3 && !(bits & 4)))
        return false;
    return (count < 8 || (bits >> 3 & 31) <= MOST_LITLENS) &&
           (count < 13 || (bits >> 8 & 31) <= MOST_DISTANCES);
}

static void make_tables(void)
{
    for (unsigned bits = 0; bits < 1u << SEEN; bits++) {
        unsigned skip = 0;
        while (skip < SEEN && !may_begin(bits >> skip, SEEN - skip))
            skip++;
        to_next[bits] = (uint8_t)skip;
    }
    for (unsigned bits = 0; bits < 1u << PARTS; bits++) {
        unsigned sum = 0;
        for (unsigned shift = 0; shift < PARTS; shift += 3) {
            unsigned length = bits >> shift & 7;
            sum += length > 0 ? (unsigned)COMPLETE >> length : 0;
        }
        sum_of[bits] = (uint16_t)sum;
    }
}

static uint64_t read_bits(const uint8_t *data, size_t bit) // 57 of them are valid
{
    return conv_inflate_load64(data + bit / 8) >> bit % 8;
}

static bool has_precode(const uint8_t *data, size_t bit)
{
    unsigned count = 4 + (unsigned)(read_bits(data, bit) >> 13 & 15);
    uint64_t lengths = read_bits(data, bit + FIXED) & (((uint64_t)1 << 3 * count) - 1);
    unsigned sum = 0;
    for (; lengths; lengths >>= PARTS)
        sum += sum_of[lengths & ((1 << PARTS) - 1)];
    return sum == COMPLETE;
}

size_t conv_inflate_find(const uint8_t *data, size_t size, size_t from, size_t to)
{
    pthread_once(&once, make_tables);
    size_t end = size < LEAST ? 0 : 8 * (size - LEAST);
    to = to < end ? to : end;
    for (size_t bit = from; bit < to;) {
        unsigned skip = to_next[read_bits(data, bit) & ((1 << SEEN) - 1)];
        bit += skip;
        if (skip > 0)
            continue;
        if (has_precode(data, bit))
            return bit;
        bit++;
    }
    return CONV_INFLATE_NOWHERE;
}

// --- decoding from there -------------------------------------------------------------------------

// The memory of a part: CONV_INFLATE_WINDOW markers, the symbols, the window before the bytes, the
// bytes. Finishing turns symbols into bytes in place, from the last one to the first, so that they
// end where the bytes begin.

#define WINDOW CONV_INFLATE_WINDOW
#define SLACK CONV_INFLATE_SLACK

enum {
    MARKER = 256,            // + a place in the window
    BETWEEN_STOPS = 8 << 10, // bytes that are searched between two reads of *stop
    STRETCH = 16 << 10,      // symbols between two checks whether bytes can be written
    JOINED_AFTER = 16 << 10, // as in inflate.c
    GROUP = 32,              // symbols that are resolved together
};

static uint16_t *first_symbol(const struct conv_inflate_ahead *ahead)
{
    return (uint16_t *)(void *)ahead->memory + WINDOW;
}

// The address for the bytes that follow `symbols` symbols.
static uint8_t *first_byte(const struct conv_inflate_ahead *ahead, size_t symbols)
{
    return (uint8_t *)(first_symbol(ahead) + symbols) + WINDOW;
}

// --- searching -----------------------------------------------------------------------------------

static bool has_header(struct conv_inflate_ahead *ahead, size_t bit)
{
    struct conv_inflate_reader reader = {.end = ahead->data + ahead->size};
    conv_inflate_move(&reader, ahead->data, bit);
    conv_inflate_drop(&reader, 3);
    return conv_inflate_read_dynamic(&ahead->inflate, &reader, false) &&
           conv_inflate_used_bits(&reader, ahead->data) <= 8 * ahead->size;
}

bool conv_inflate_ahead_find(struct conv_inflate_ahead *ahead, size_t from)
{
    while (from < ahead->until && !atomic_load_explicit(ahead->stop, memory_order_relaxed)) {
        size_t left = ahead->until - from, most = (size_t)8 * BETWEEN_STOPS;
        size_t to = from + (left < most ? left : most);
        size_t bit = conv_inflate_find(ahead->data, ahead->size, from, to);
        if (bit == CONV_INFLATE_NOWHERE) {
            from = to;
        } else if (has_header(ahead, bit)) {
            ahead->first = bit;
            return true;
        } else {
            from = bit + 1;
        }
    }
    return false;
}

// --- blocks --------------------------------------------------------------------------------------

struct work {
    struct conv_inflate_ahead *ahead;
    struct conv_inflate_reader reader;
    uint16_t *at;      // the next symbol
    unsigned features; // of the CPU
    bool narrow;       // bytes are written
    struct conv_inflate_output output;
};

static size_t symbols_of(const struct work *work)
{
    return (size_t)(work->at - first_symbol(work->ahead));
}

// True if `more` symbols leave room for a window, SLACK and, before them, SLACK symbols.
static bool has_room(const struct work *work, size_t more)
{
    const struct conv_inflate_ahead *ahead = work->ahead;
    const uint8_t *end = first_byte(ahead, symbols_of(work) + more + SLACK) + SLACK;
    return (size_t)(end - ahead->memory) <= ahead->room;
}

static uint8_t *go_on(void *context, uint8_t *at)
{
    const struct conv_inflate_ahead *ahead = context;
    return atomic_load_explicit(ahead->stop, memory_order_relaxed) ? NULL : at;
}

// Switches to bytes if the last symbols are bytes.
static void try_narrow(struct work *work)
{
    struct conv_inflate_ahead *ahead = work->ahead;
    const uint16_t *from = work->at - WINDOW;
    unsigned any = 0;
    for (size_t i = 0; i < WINDOW && any < MARKER; i += 1024)
        for (size_t j = i; j < i + 1024; j++)
            any |= from[j];
    if (any >= MARKER || !has_room(work, 0))
        return;
    size_t symbols = symbols_of(work);
    uint8_t *out = first_byte(ahead, symbols);
    for (size_t i = 0; i < WINDOW; i++)
        out[i - WINDOW] = (uint8_t)from[i];
    ahead->inflate.next = go_on;
    ahead->inflate.context = ahead;
    size_t credit = ahead->inflate.credit;
    conv_inflate_start(&ahead->inflate, &work->output, out,
                       ahead->room - SLACK - (size_t)(out - ahead->memory));
    ahead->inflate.credit = credit;
    work->output.begin = out - WINDOW;
    work->narrow = true;
}

static bool copy_stored(struct work *work)
{
    struct conv_inflate_reader *reader = &work->reader;
    if (!conv_inflate_align(reader) || reader->end - reader->at < 4)
        return false;
    const uint8_t *p = reader->at;
    size_t size = p[0] | (size_t)p[1] << 8, check = p[2] | (size_t)p[3] << 8;
    if (size != (check ^ 0xffff) || size > (size_t)(reader->end - p) - 4 || !has_room(work, size))
        return false;
    for (size_t i = 0; i < size; i++)
        work->at[i] = p[4 + i];
    work->at += size;
    reader->at += 4 + size;
    return true;
}

static bool decode_block(struct work *work, const struct conv_inflate_tables *tables)
{
    struct conv_inflate_ahead *ahead = work->ahead;
    const uint16_t *start = work->at;
    for (;;) {
        if (!has_room(work, STRETCH) || atomic_load_explicit(ahead->stop, memory_order_relaxed))
            return false;
        uint16_t *stop = work->at + STRETCH;
        enum conv_inflate_state state = decode_wide(
            tables, &work->reader, &work->at, first_symbol(ahead) - WINDOW, stop, work->features);
        if (state != CONV_INFLATE_WORKING)
            return state == CONV_INFLATE_DONE;
        if (work->at <= stop)
            return false;
        if (!tables->joined && work->at - start >= JOINED_AFTER)
            conv_inflate_code_join(&ahead->inflate.tables);
        try_narrow(work);
        if (work->narrow)
            return conv_inflate_rest_of_block(&ahead->inflate, tables, &work->reader,
                                              &work->output) &&
                   work->output.at <= work->output.end;
    }
}

static bool read_wide(struct work *work, bool *last)
{
    struct conv_inflate *inflate = &work->ahead->inflate;
    conv_inflate_refill(&work->reader);
    *last = conv_inflate_take(&work->reader, 1);
    switch (conv_inflate_take(&work->reader, 2)) {
    case 0:
        return copy_stored(work);
    case 1:
        return decode_block(work, conv_inflate_code_fixed());
    case 2:
        return conv_inflate_read_dynamic(inflate, &work->reader, false) &&
               decode_block(work, &inflate->tables);
    default:
        return false;
    }
}

static bool read_block(struct work *work, unsigned number, bool *last)
{
    if (work->narrow)
        return conv_inflate_next_block(&work->ahead->inflate, &work->reader, &work->output, number,
                                       last) &&
               work->output.at <= work->output.end;
    size_t before = symbols_of(work);
    if (!read_wide(work, last))
        return false;
    if (!work->narrow && symbols_of(work) / STRETCH != before / STRETCH)
        try_narrow(work);
    return true;
}

bool conv_inflate_ahead_decode(struct conv_inflate_ahead *ahead)
{
    struct work work = {.ahead = ahead,
                        .reader = {.end = ahead->data + ahead->size},
                        .at = first_symbol(ahead),
                        .features = conv_cpu_features()};
    uint16_t *markers = first_symbol(ahead) - WINDOW;
    for (unsigned i = 0; i < WINDOW; i++)
        markers[i] = (uint16_t)(MARKER + i);
    conv_inflate_move(&work.reader, ahead->data, ahead->first);
    ahead->inflate.credit = 0;
    ahead->end = ahead->first;
    ahead->last = false;
    for (unsigned number = 1; !ahead->last && ahead->end < ahead->to; number++) {
        bool last;
        if (!read_block(&work, number, &last))
            break;
        size_t end = conv_inflate_used_bits(&work.reader, ahead->data);
        if (end > 8 * ahead->size)
            break;
        if (work.narrow)
            conv_inflate_count(&work.output);
        ahead->end = end;
        ahead->last = last;
        ahead->symbols = symbols_of(&work);
        ahead->bytes = work.narrow ? work.output.counted : 0;
        ahead->bytes_sum = work.narrow ? work.output.adler : 1;
    }
    return ahead->end > ahead->first;
}

// --- once the bytes in front are known -----------------------------------------------------------

static inline uint8_t resolve(uint16_t symbol, const uint8_t *before)
{
    return symbol < MARKER ? (uint8_t)symbol : before[symbol - MARKER];
}

void conv_inflate_ahead_window(const struct conv_inflate_ahead *ahead, uint8_t *window,
                               const uint8_t *before)
{
    if (ahead->bytes > 0) { // their window is resolved
        memcpy(window, first_byte(ahead, ahead->symbols) + ahead->bytes - WINDOW, WINDOW);
        return;
    }
    const uint16_t *from = first_symbol(ahead) + ahead->symbols - WINDOW;
    for (size_t i = 0; i < WINDOW; i++)
        window[i] = resolve(from[i], before);
}

// Converts GROUP symbols. A table without branches serves those that are markers: whether a symbol
// is one cannot be predicted.
static void resolve_group(const uint16_t *symbols, const uint8_t *table, uint8_t *out)
{
    uint16_t group[GROUP];
    memcpy(group, symbols, sizeof group);
    unsigned any = 0;
    for (int i = 0; i < GROUP; i++)
        any |= group[i];
    if (any < MARKER)
        for (int i = 0; i < GROUP; i++)
            out[i] = (uint8_t)group[i];
    else
        for (int i = 0; i < GROUP; i++)
            out[i] = table[group[i]];
}

uint8_t *conv_inflate_ahead_finish(struct conv_inflate_ahead *ahead, const uint8_t *before,
                                   uint32_t *adler)
{
    uint8_t table[MARKER + WINDOW];
    for (unsigned i = 0; i < MARKER; i++)
        table[i] = (uint8_t)i;
    memcpy(table + MARKER, before, WINDOW);
    const uint16_t *symbols = first_symbol(ahead);
    uint8_t *out = first_byte(ahead, ahead->symbols) - ahead->symbols;
    size_t left = ahead->symbols;
    for (; left >= GROUP; left -= GROUP)
        resolve_group(symbols + left - GROUP, table, out + left - GROUP);
    for (; left > 0; left--)
        out[left - 1] = table[symbols[left - 1]];
    uint32_t sum = libdeflate_adler32(1, out, ahead->symbols);
    *adler = conv_adler_join(sum, ahead->bytes_sum, ahead->bytes);
    return out;
}
