// SPDX-License-Identifier: MIT
// The memory of a part: CONV_INFLATE_WINDOW markers, the symbols, the window before the bytes, the
// bytes. Finishing turns symbols into bytes in place, from the last one to the first, so that they
// end where the bytes begin.
#include "png/cpu/inflate_ahead.h"

#include <libdeflate.h>
#include <string.h>

#include "png/cpu/adler.h"
#include "png/cpu/inflate_block.h"
#include "png/cpu/inflate_find.h"

#define WINDOW CONV_INFLATE_WINDOW
#define SLACK CONV_INFLATE_SLACK
#define DROP CONV_INFLATE_DROP
#define KIND CONV_INFLATE_KIND
#define LITERALS CONV_INFLATE_LITERALS

enum {
    MARKER = 256,            // + a place in the window
    BETWEEN_STOPS = 8 << 10, // bytes that are searched between two reads of *stop
    STRETCH = 16 << 10,      // symbols between two checks whether bytes can be written
    JOINED_AFTER = 16 << 10, // as in inflate.c
    INSIDE = 32, // bytes of input for an iteration of decode_wide, as in inflate_symbols.c
    LITLEN_BITS = CONV_INFLATE_LITLEN_BITS,
    DISTANCE_BITS = CONV_INFLATE_DISTANCE_BITS,
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

// --- symbols of 16 bits --------------------------------------------------------------------------

CONV_INFLATE_INLINE void copy_wide(uint16_t *out, size_t distance, size_t length)
{
    const uint16_t *from = out - distance;
    if (distance < 8) {
        for (size_t i = 0; i < length; i++)
            out[i] = from[i];
        return;
    }
    uint16_t *end = out + length;
    do {
        memcpy(out, from, 8 * sizeof *out);
        out += 8;
        from += 8;
    } while (out < end);
}

CONV_INFLATE_INLINE void put_wide(uint16_t *out, uint64_t entry)
{
    uint32_t bytes = (uint32_t)(entry >> 32);
    out[0] = bytes & 255;
    out[1] = bytes >> 8 & 255;
}

// As decode_symbols of inflate_symbols.c, with symbols of 16 bits and one step at a time. Matches
// cannot reach too far: the markers are as long as the largest distance.
CONV_INFLATE_INLINE enum conv_inflate_state decode_wide(const struct conv_inflate_tables *tables,
                                                        struct conv_inflate_reader *reader_io,
                                                        uint16_t **at, const uint16_t *stop,
                                                        bool inside)
{
    struct conv_inflate_reader reader = *reader_io;
    uint16_t *out = *at;
    enum conv_inflate_state state = CONV_INFLATE_WORKING;
    const uint64_t *litlen = tables->litlen, litlen_mask = (1 << LITLEN_BITS) - 1;
    const uint64_t distance_mask = (1 << DISTANCE_BITS) - 1;
    while (out <= stop &&
           (inside ? reader.end - reader.at >= INSIDE : reader.beyond * 8 <= reader.count)) {
        inside ? conv_inflate_refill_inside(&reader) : conv_inflate_refill(&reader);
        uint64_t entry = litlen[reader.bits & litlen_mask];
        for (int i = 0; i < 3 && LITERALS(entry); i++) {
            put_wide(out, entry);
            out += LITERALS(entry);
            conv_inflate_drop(&reader, DROP(entry));
            entry = litlen[reader.bits & litlen_mask];
        }
        inside ? conv_inflate_refill_inside(&reader) : conv_inflate_refill(&reader);
        if (KIND(entry) == CONV_INFLATE_LONG)
            entry = conv_inflate_code_find_litlen(litlen, entry, reader.bits);
        if (LITERALS(entry)) {
            put_wide(out, entry);
            out += LITERALS(entry);
            conv_inflate_drop(&reader, DROP(entry));
            continue;
        }
        if (KIND(entry) > CONV_INFLATE_LENGTH) {
            conv_inflate_drop(&reader, DROP(entry));
            state = KIND(entry) == CONV_INFLATE_END ? CONV_INFLATE_DONE : CONV_INFLATE_FAILED;
            break;
        }
        uint64_t both = reader.bits & (((uint64_t)1 << DROP(entry)) - 1);
        size_t length = KIND(entry), value = (entry >> 48) + (both >> (entry >> 16 & 63));
        conv_inflate_drop(&reader, DROP(entry));
        if (length == CONV_INFLATE_LENGTH) {
            length = value;
            inside ? conv_inflate_refill_inside(&reader) : conv_inflate_refill(&reader);
            uint32_t far = tables->distance[reader.bits & distance_mask];
            if ((far >> 8 & 255) == CONV_INFLATE_LONG)
                far = conv_inflate_code_find_distance(tables->distance, far, reader.bits);
            if ((far >> 8 & 255) > CONV_INFLATE_NEAR) {
                state = CONV_INFLATE_FAILED;
                break;
            }
            both = reader.bits & (((uint64_t)1 << DROP(far)) - 1);
            value = (far >> 16) + (both >> (far >> 8 & 63));
            conv_inflate_drop(&reader, DROP(far));
        }
        copy_wide(out, value, length);
        out += length;
    }
    *reader_io = reader;
    *at = out;
    return state;
}

static enum conv_inflate_state decode_symbols(const struct conv_inflate_tables *tables,
                                              struct conv_inflate_reader *reader, uint16_t **at,
                                              const uint16_t *stop)
{
    enum conv_inflate_state state = CONV_INFLATE_WORKING;
    if (reader->end - reader->at >= INSIDE)
        state = decode_wide(tables, reader, at, stop, true);
    if (state == CONV_INFLATE_WORKING && *at <= stop)
        state = decode_wide(tables, reader, at, stop, false);
    return state;
}

// --- blocks --------------------------------------------------------------------------------------

struct work {
    struct conv_inflate_ahead *ahead;
    struct conv_inflate_reader reader;
    uint16_t *at; // the next symbol
    bool narrow;  // bytes are written
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
        const uint16_t *stop = work->at + STRETCH;
        enum conv_inflate_state state = decode_symbols(tables, &work->reader, &work->at, stop);
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
    struct work work = {
        .ahead = ahead, .reader = {.end = ahead->data + ahead->size}, .at = first_symbol(ahead)};
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

uint8_t *conv_inflate_ahead_finish(struct conv_inflate_ahead *ahead, const uint8_t *before,
                                   uint32_t *adler)
{
    const uint16_t *symbols = first_symbol(ahead);
    uint8_t *out = first_byte(ahead, ahead->symbols) - ahead->symbols;
    size_t left = ahead->symbols;
    while (left >= 4) {
        uint64_t four;
        memcpy(&four, symbols + left - 4, sizeof four);
        if (four & 0xff00ff00ff00ff00) {
            left--;
            out[left] = resolve(symbols[left], before);
            continue;
        }
        left -= 4;
        four = (four | four >> 8) & 0x0000ffff0000ffff;
        uint32_t bytes = (uint32_t)(four | four >> 16);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        for (int i = 0; i < 4; i++)
            out[left + i] = (uint8_t)symbols[left + i];
        (void)bytes;
#else
        memcpy(out + left, &bytes, sizeof bytes);
#endif
    }
    while (left > 0) {
        left--;
        out[left] = resolve(symbols[left], before);
    }
    uint32_t sum = libdeflate_adler32(1, out, ahead->symbols);
    *adler = conv_adler_join(sum, ahead->bytes_sum, ahead->bytes);
    return out;
}
