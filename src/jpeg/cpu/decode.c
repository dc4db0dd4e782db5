// SPDX-License-Identifier: MIT
// Decoding of a stream (jpeg/decoding.h): Huffman codes to the coefficients of a row of MCUs, these
// to the samples of the components, and those to the image (planes.c).
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "base/parallel.h"
#include "jpeg/cpu/cpu_jpeg.h"
#include "jpeg/decoding.h"
#include "jpeg/jpeg.h"

#define BLOCK CONV_JPEG_BLOCK
#define CODE_BITS 16 // of the longest codes

// --- tables --------------------------------------------------------------------------------------

#define LOOK_BITS 10
#define LOOK_SIZE (1 << LOOK_BITS)
#define JOIN_BYTES 2048

// What the next bits say, by the first LOOK_BITS of them: one symbol with its value, or two symbols
// of AC coefficients with theirs. From the lowest bit on:
//   bits        8 bits: of all of it; 0 if not even the first symbol fits with its value
//   both        8 bits: from the index of the coefficient before to the last one of them
//   first       8 bits: from the same index to the first one
//   first_bits  8 bits: of the first symbol and its value. If they do not fit, of its code; 0 if
//               not even that does
//   value       16 bits: of the first. If it does not fit, the symbol
//   second      16 bits: the value of the second, or of the first again
#define ENTRY(bits, both, first, first_bits, value, second)                                        \
    ((uint64_t)(bits) | (uint64_t)(both) << 8 | (uint64_t)(first) << 16 |                          \
     (uint64_t)(first_bits) << 24 | (uint64_t)(uint16_t)(value) << 32 |                            \
     (uint64_t)(uint16_t)(second) << 48)
#define ENTRY_BITS(entry) ((unsigned)((entry)&255))
#define ENTRY_BOTH(entry) ((unsigned)((entry) >> 8 & 255))
#define ENTRY_FIRST(entry) ((unsigned)((entry) >> 16 & 255))
#define ENTRY_FIRST_BITS(entry) ((unsigned)((entry) >> 24 & 255))
#define ENTRY_VALUE(entry) ((int16_t)((entry) >> 32))
#define ENTRY_SECOND(entry) ((int16_t)((entry) >> 48))
#define LONG_ENTRY(length, symbol) ENTRY(0, 0, 0, length, symbol, 0)

// Steps of the index of the coefficient, which is less than 256 after two of them.
#define STEP_ZEROS 16
#define STEP_END 128 // of end-of-block, whatever the index was

struct table {
    uint64_t look[LOOK_SIZE];
    // Of codes that do not fit.
    const uint8_t *symbols;
    uint32_t limit[CODE_BITS]; // 16 bits from here on begin a longer code
    int32_t offset[CODE_BITS]; // of the symbol, from the code
};

// The value of the first `size` bits (ITU-T T.81, annex F.2.2.1), without a branch.
static inline int extend(uint64_t bits, int size)
{
    int value = (int)(bits >> 1 >> (63 - size)), is_negative = (int)(bits >> 63) - 1;
    return value + (is_negative & (1 - (1 << size)));
}

// Fills the entries that begin with a code.
static void put_code(uint64_t *entries, int length, int symbol, bool ac, int most_size)
{
    int size = symbol & 15, run = symbol >> 4, bits = length + size;
    bool fits = bits <= LOOK_BITS && size <= most_size;
    int step = !ac || size ? run + 1 : run == 15 ? STEP_ZEROS : STEP_END;
    for (int i = 0; i < (fits ? 1 << size : 1); i++) {
        int value = extend(size ? (uint64_t)i << (64 - size) : 0, size);
        uint64_t entry =
            fits ? ENTRY(bits, step, step, bits, value, value) : LONG_ENTRY(length, symbol);
        for (int n = 1 << (LOOK_BITS - (fits ? bits : length)); n > 0; n--)
            *entries++ = entry;
    }
}

// Joins each first symbol with the one after it if that fits as well.
static void join_entries(uint64_t look[LOOK_SIZE])
{
    for (unsigned i = 0; i < LOOK_SIZE; i++) {
        uint64_t entry = look[i];
        unsigned first_bits = ENTRY_FIRST_BITS(entry), first = ENTRY_FIRST(entry);
        uint64_t after = look[i << first_bits & (LOOK_SIZE - 1)];
        unsigned bits = first_bits + ENTRY_FIRST_BITS(after);
        if (ENTRY_BITS(entry) > 0 && first != STEP_END && ENTRY_BITS(after) > 0 &&
            bits <= LOOK_BITS)
            look[i] = ENTRY(bits, first + ENTRY_FIRST(after), first, first_bits, ENTRY_VALUE(entry),
                            ENTRY_VALUE(after));
    }
}

// Values of more than `most_size` bits do not fit. Joining entries takes about as long as decoding
// JOIN_BYTES without joined ones.
static void make_table(struct table *table, const struct conv_jpeg_code *code, bool ac,
                       int most_size, bool joined)
{
    uint32_t next = 0, symbols = 0, at = 0;
    table->symbols = code->symbols;
    for (int i = 0; i < CODE_BITS; i++) {
        int length = i + 1;
        for (uint32_t n = 0; n < code->counts[i] && length <= LOOK_BITS; n++) {
            put_code(table->look + at, length, code->symbols[symbols + n], ac, most_size);
            at += 1u << (LOOK_BITS - length);
        }
        next = 2 * next + code->counts[i];
        symbols += code->counts[i];
        table->limit[i] = next << (CODE_BITS - length);
        table->offset[i] = (int32_t)(symbols - next);
    }
    while (at < LOOK_SIZE)
        table->look[at++] = LONG_ENTRY(0, 0);
    if (joined)
        join_entries(table->look);
}

// The entry of the code of more than LOOK_BITS that begins these bits; a length of 0: it is unused.
static uint64_t find_long(const struct table *table, uint64_t bits)
{
    uint32_t first = (uint32_t)(bits >> (64 - CODE_BITS));
    int length = LOOK_BITS + 1;
    for (int i = LOOK_BITS; i < CODE_BITS; i++) // without a branch
        length += first >= table->limit[i];
    if (length > CODE_BITS)
        return LONG_ENTRY(0, 0);
    int at = (int)(first >> (CODE_BITS - length)) + table->offset[length - 1];
    return LONG_ENTRY(length, table->symbols[at & 255]);
}

// --- bits ----------------------------------------------------------------------------------------

// The next bits of the data, of which the first is the highest bit of `bits`.
struct reader {
    uint64_t bits;
    const uint8_t *next; // byte of which no bit is counted
    uint64_t count; // of bits before it, in the lowest 6 bits; those after it may be there, too
    unsigned shift; // 64 - LOOK_BITS
};

// Makes the count 56 to 63 without a branch.
static inline void refill(struct reader *reader)
{
    uint64_t word;
    memcpy(&word, reader->next, sizeof word);
    reader->bits |= __builtin_bswap64(word) >> (reader->count & 63);
    reader->next += ~reader->count >> 3 & 7;
    reader->count |= 56;
}

// Skips as many bits as the lowest 6 bits of `bits` say.
static inline void skip(struct reader *reader, uint64_t bits)
{
    reader->bits <<= bits & 63;
    reader->count -= bits;
}

static inline uint64_t look_up(const struct table *table, const struct reader *reader)
{
    return table->look[reader->bits >> reader->shift];
}

// --- a scan --------------------------------------------------------------------------------------

// Bytes after the data that may be read before the end of an MCU is checked: a block has at most 64
// codes of 16 bits and values of 15.
#define OVERRUN (CONV_JPEG_MCU_BLOCKS * (64 * (16 + 15) / 8) + 16)

struct component {
    const struct table *dc_table, *ac_table;
    const uint16_t *quant; // in zigzag order
    int16_t steps[BLOCK];  // the same row by row
    int dc;                // the last one
    int most_dc;           // for which `idct` is right
    int h, v;
    size_t across;   // blocks in a row of MCUs, rounded up to an even number
    int16_t *blocks; // [v][across]
    uint8_t *last;   // [v][across]: index of the last coefficient that may not be 0
};

struct scan {
    const struct conv_jpeg_stream *head;
    struct conv_jpeg_planes planes;
    struct component component[CONV_JPEG_COMPONENTS];
    size_t mcus, mcus_across;
    size_t blocks; // of a row of MCUs; those of the components follow each other
    // The blocks of an MCU.
    int mcu_blocks;
    struct {
        struct component *component;
        size_t first; // among those of the component
    } block[CONV_JPEG_MCU_BLOCKS];
    // The place of each coefficient in a block, by its index; the last one's for all indices after.
    uint8_t place[256];
};

// Decodes a symbol that no entry fits; 25 bits or more are there afterwards. False: libjpeg
// decides.
static inline bool read_long(struct reader *reader, const struct table *table, uint64_t entry,
                             int *symbol, int *value)
{
    refill(reader);
    if (ENTRY_FIRST_BITS(entry) == 0)
        entry = find_long(table, reader->bits);
    if (ENTRY_FIRST_BITS(entry) == 0)
        return false;
    *symbol = ENTRY_VALUE(entry);
    skip(reader, ENTRY_FIRST_BITS(entry));
    *value = extend(reader->bits, *symbol & 15);
    skip(reader, (unsigned)*symbol & 15);
    return true;
}

static inline bool decode_dc(struct reader *reader, struct component *component, int16_t *block)
{
    refill(reader);
    uint64_t entry = look_up(component->dc_table, reader);
    int value = ENTRY_VALUE(entry), symbol;
    skip(reader, entry);
    if (ENTRY_BITS(entry) == 0) {
        if (!read_long(reader, component->dc_table, entry, &symbol, &value))
            return false;
        refill(reader);
    }
    component->dc += value;
    *block = (int16_t)component->dc;
    return abs(component->dc) <= component->most_dc;
}

// Decodes an AC symbol that no entry fits. Returns the index after it, or 64 if libjpeg decides.
static inline unsigned read_long_ac(struct reader *reader, const struct component *component,
                                    const uint8_t *place, uint64_t entry, unsigned k,
                                    int16_t *block)
{
    int symbol, value;
    if (!read_long(reader, component->ac_table, entry, &symbol, &value))
        return BLOCK;
    if (!(symbol & 15))
        return k + (symbol == 0xF0 ? STEP_ZEROS : STEP_END);
    k += (unsigned)(symbol >> 4) + 1;
    if (k >= BLOCK || abs(value) * component->quant[k] > CONV_JPEG_ROW_MOST)
        return BLOCK;
    block[place[k]] = (int16_t)value;
    return k;
}

// Decodes the other coefficients of a block into zeros. Returns the index of the last one; 64 or
// more: libjpeg decides. At least 4 * LOOK_BITS bits are there.
static inline unsigned decode_ac(struct reader *reader, const struct component *component,
                                 const uint8_t *place, int16_t *block)
{
    const struct table *table = component->ac_table;
    const uint8_t *at = place, *end = place + BLOCK - 1;
    for (;;) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            uint64_t entry = look_up(table, reader);
            if (__builtin_expect(ENTRY_BITS(entry) == 0, 0)) {
                at = place +
                     read_long_ac(reader, component, place, entry, (unsigned)(at - place), block);
                if (at >= end)
                    return (unsigned)(at - place) % STEP_END;
                break;
            }
            const uint8_t *first = at + ENTRY_FIRST(entry);
            at += ENTRY_BOTH(entry);
            block[*first] = ENTRY_VALUE(entry);
            block[*at] = ENTRY_SECOND(entry);
            if (at < end) {
                skip(reader, entry);
                continue;
            }
            if (first == end) { // the second symbol is not one of this block
                block[*first] = ENTRY_VALUE(entry);
                skip(reader, ENTRY_FIRST_BITS(entry));
                return BLOCK - 1;
            }
            skip(reader, entry);
            return (unsigned)(at - place) % STEP_END;
        }
        refill(reader);
    }
}

// Decodes `count` MCUs from MCU x of a row on, whose coefficients are zeros before.
#ifdef __x86_64__
__attribute__((target("bmi2"))) // shifts that need no fixed register
#endif
static bool
decode_mcus(struct scan *scan, struct reader *from, const uint8_t *end, size_t x, size_t count)
{
    struct reader reader = *from;
    reader.shift = 64 - LOOK_BITS;
    __asm__("" : "+r"(reader.shift)); // in a register, a shift by it needs no copy
    for (size_t mcu = x; mcu < x + count; mcu++) {
        for (int i = 0; i < scan->mcu_blocks; i++) {
            struct component *component = scan->block[i].component;
            size_t number = scan->block[i].first + mcu * (size_t)component->h;
            int16_t *block = component->blocks + number * BLOCK;
            if (!decode_dc(&reader, component, block))
                return false;
            unsigned last = decode_ac(&reader, component, scan->place, block);
            component->last[number] = (uint8_t)last;
            if (last >= BLOCK)
                return false;
        }
        if (reader.next - (reader.count >> 3 & 7) > end)
            return false;
    }
    *from = reader;
    return true;
}

// Where decoding is.
struct position {
    struct reader reader;
    uint32_t segment;
    size_t left;        // MCUs in the segment
    const uint8_t *end; // of its data
};

static void enter_segment(struct scan *scan, struct position *position, uint32_t segment)
{
    const struct conv_jpeg_stream *head = scan->head;
    const uint8_t *stream = (const uint8_t *)head, *data = stream + head->data_at;
    const uint32_t *offsets = (const uint32_t *)(const void *)(stream + head->offsets_at);
    size_t left = scan->mcus - (size_t)segment * head->segment_mcus;
    *position = (struct position){.reader.next = data + offsets[segment],
                                  .segment = segment,
                                  .left = left < head->segment_mcus ? left : head->segment_mcus,
                                  .end = data + offsets[segment + 1]};
    for (int c = 0; c < head->components; c++)
        scan->component[c].dc = 0;
}

// Less than a byte may be left of a segment.
static bool is_at_end(const struct position *position)
{
    const struct reader *reader = &position->reader;
    ptrdiff_t left = 8 * (position->end - reader->next) + (ptrdiff_t)(reader->count & 63);
    return left >= 0 && left < 8;
}

static bool decode_row(struct scan *scan, struct position *position)
{
    memset(scan->component[0].blocks, 0, scan->blocks * BLOCK * sizeof(int16_t));
    for (size_t x = 0, count; x < scan->mcus_across; x += count) {
        count = scan->mcus_across - x;
        count = count < position->left ? count : position->left;
        if (!decode_mcus(scan, &position->reader, position->end, x, count))
            return false;
        position->left -= count;
        if (position->left > 0)
            continue;
        if (!is_at_end(position))
            return false;
        if (position->segment + 1 < scan->head->segments)
            enter_segment(scan, position, position->segment + 1);
    }
    return true;
}

// --- samples -------------------------------------------------------------------------------------

// Two blocks without other coefficients than the first. False if a sample is out of range.
static bool fill_pair(uint8_t *samples, ptrdiff_t pitch, const int16_t *blocks, int step)
{
    uint64_t rows[2];
    bool in_range = true;
    for (int i = 0; i < 2; i++) {
        int sample = (blocks[BLOCK * i] * step + 4) >> 3, clamped = sample + 128;
        in_range = in_range && sample >= -512 && sample <= 511;
        clamped = clamped < 0 ? 0 : clamped > 255 ? 255 : clamped;
        rows[i] = (uint64_t)clamped * 0x0101010101010101;
    }
    for (int y = 0; y < 8; y++)
        memcpy(samples + y * pitch, rows, sizeof rows);
    return in_range;
}

static bool transform_row(const struct scan *scan, int mcu_row)
{
    const struct conv_jpeg_planes *planes = &scan->planes;
    bool in_range = true;
    for (int c = 0; c < (planes->luma ? 1 : planes->components); c++) {
        const struct component *component = &scan->component[c];
        const struct conv_jpeg_component *plane = &planes->component[c];
        uint8_t *rows[CONV_JPEG_PLANES_MOST_ROWS];
        conv_jpeg_planes_rows(planes, c, mcu_row, rows);
        for (int v = 0; v < component->v; v++) {
            const uint8_t *last = component->last + (size_t)v * component->across;
            const int16_t *blocks = component->blocks + (size_t)v * component->across * BLOCK;
            if ((mcu_row * component->v + v) * 8 >= plane->height)
                break;
            for (size_t x = 0; x < plane->padded; x += 16, last += 2, blocks += 2 * BLOCK) {
                uint8_t *samples = rows[8 * v] + x;
                bool flat = !(last[0] | last[1]);
                in_range =
                    (flat ? fill_pair(samples, plane->pitch, blocks, component->steps[0])
                          : planes->rows->idct(samples, plane->pitch, blocks, component->steps)) &&
                    in_range;
            }
        }
    }
    return in_range;
}

// --- a file --------------------------------------------------------------------------------------

#define ALIGN 64

// Sets the counts of blocks from the planes.
static void count_blocks(struct scan *scan)
{
    const struct conv_jpeg_planes *planes = &scan->planes;
    int most_h = 1;
    for (int c = 0; c < planes->components; c++)
        most_h = planes->h[c] > most_h ? planes->h[c] : most_h;
    scan->mcus_across = ((size_t)planes->width + 8 * (size_t)most_h - 1) / (8 * (size_t)most_h);
    scan->blocks = 0;
    for (int c = 0; c < planes->components; c++) {
        struct component *component = &scan->component[c];
        component->h = planes->h[c];
        component->v = planes->v[c];
        component->across = conv_image_align(scan->mcus_across * planes->h[c], 2);
        scan->blocks += component->across * planes->v[c];
    }
}

size_t conv_jpeg_decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct scan scan = {.planes = conv_jpeg_planes_of(header)};
    count_blocks(&scan);
    size_t tables = 2 * CONV_JPEG_COMPONENTS * sizeof(struct table);
    size_t stream = conv_jpeg_stream_bytes(header, size) + OVERRUN;
    return 4 * ALIGN + tables + scan.blocks * (BLOCK * sizeof(int16_t) + 1) + stream +
           conv_jpeg_planes_bytes(&scan.planes);
}

static uint8_t *take(uint8_t **memory, size_t size)
{
    uint8_t *taken = *memory;
    *memory += conv_image_align(size, ALIGN);
    return taken;
}

// The most bits of a value that no step of quantisation makes larger than CONV_JPEG_ROW_MOST.
static int find_most_size(const struct conv_jpeg_stream *head)
{
    int most = 1, size = 0;
    for (int c = 0; c < head->components; c++)
        for (int k = 1; k < BLOCK; k++)
            most = head->quant[c][k] > most ? head->quant[c][k] : most;
    while (size < 15 && ((2 << size) - 1) * most <= CONV_JPEG_ROW_MOST)
        size++;
    return size;
}

static void set_up(struct scan *scan, const struct conv_jpeg_stream *head, uint8_t *memory)
{
    int most_size = find_most_size(head);
    int16_t *blocks = (int16_t *)(void *)take(&memory, scan->blocks * BLOCK * sizeof(int16_t));
    uint8_t *last = take(&memory, scan->blocks);
    struct table(*tables)[2] =
        (struct table(*)[2])(void *)take(&memory, CONV_JPEG_COMPONENTS * sizeof *tables);
    scan->head = head;
    conv_jpeg_planes_place(&scan->planes, memory);
    for (int k = 0; k < 256; k++)
        scan->place[k] = conv_jpeg_zigzag[k < BLOCK ? k : BLOCK - 1];
    memset(last, 0, scan->blocks);
    for (int c = 0; c < head->components; c++) {
        struct component *component = &scan->component[c];
        component->dc_table = &tables[head->tables[c]][0];
        component->ac_table = &tables[head->tables[c]][1];
        component->quant = head->quant[c];
        component->most_dc = CONV_JPEG_ROW_MOST / head->quant[c][0];
        for (int k = 0; k < BLOCK; k++)
            component->steps[conv_jpeg_zigzag[k]] = (int16_t)head->quant[c][k];
        component->blocks = blocks;
        component->last = last;
        blocks += component->across * head->v[c] * BLOCK;
        last += component->across * head->v[c];
        if (head->tables[c] == c) {
            make_table(&tables[c][0], &head->dc[c], false, CODE_BITS, false);
            make_table(&tables[c][1], &head->ac[c], true, most_size,
                       head->data_bytes >= JOIN_BYTES);
        }
        for (size_t i = 0; i < (size_t)(component->h * component->v); i++) {
            scan->block[scan->mcu_blocks].component = component;
            scan->block[scan->mcu_blocks++].first =
                i / head->h[c] * component->across + i % head->h[c];
        }
    }
}

bool conv_jpeg_decode(struct conv_buffer *scratch, const uint8_t *data, size_t size,
                      const struct conv_image_header *header, const struct conv_image *dst,
                      const struct conv_rows *rows, const atomic_int *stop)
{
    struct scan scan = {.planes = conv_jpeg_planes_of(header)};
    size_t stream_bytes;
#ifdef __x86_64__ // without AVX2, libjpeg-turbo's vectors are faster
    if (!(conv_cpu_features() & CONV_CPU_AVX2))
        return false;
#endif
    if (!header->jpeg.streamed ||
        !conv_buffer_reserve(scratch, conv_jpeg_decode_bytes(header, size)))
        return false;
    uint8_t *memory = scratch->data + (-(uintptr_t)scratch->data & (ALIGN - 1));
    uint8_t *stream = take(&memory, conv_jpeg_stream_bytes(header, size) + OVERRUN);
    if (!conv_jpeg_copy_stream(stream, &stream_bytes, data, size, header))
        return false;
    memset(stream + stream_bytes, 0, OVERRUN);
    count_blocks(&scan);
    scan.mcus = header->jpeg.mcus;
    scan.planes.put = rows;
    set_up(&scan, (const struct conv_jpeg_stream *)(const void *)stream, memory);
    struct position position;
    enter_segment(&scan, &position, 0);
    for (int i = 0; i < (int)(scan.mcus / scan.mcus_across); i++) {
        if (conv_cancel_is_asked(stop) || !decode_row(&scan, &position) || !transform_row(&scan, i))
            return false;
        conv_jpeg_planes_put(&scan.planes, i, dst);
    }
    return true;
}
