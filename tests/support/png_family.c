// SPDX-License-Identifier: MIT
#include "support/png_family.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "support/deflate_make.h"
#include "support/random.h"

static const char *const code_names[] = {"stored", "fixed", "used", "flat", "long", "spread"};
static const char *const mix_names[] = {
    "one literal", "literals",      "3 at 1",      "3 from afar",
    "258 at 1",    "short matches", "any matches", "literals and matches"};
static const char *const flaw_names[] = {
    "",           "wrong sum",   "no last block", "excess",    "too few rows",
    "bad filter", "late filter", "bad CRC",       "truncated", "ignored blocks"};

static size_t raw_size(const struct png_family *f)
{
    static const int passes[][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                    {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    static const int whole[4] = {0, 0, 1, 1};
    int bits = png_make_channels(f->color_type) * f->depth;
    size_t total = 0;
    for (int i = 0; i < (f->interlaced ? 7 : 1); i++) {
        const int *p = f->interlaced ? passes[i] : whole;
        int width = (f->width - p[0] + p[2] - 1) / p[2],
            height = (f->height - p[1] + p[3] - 1) / p[3];
        if (width > 0 && height > 0)
            total += (size_t)height * (1 + (size_t)(width * bits + 7) / 8);
    }
    return total;
}

// Which symbols a mix needs: literals 0 to 4, all lengths, distances from these two ranges.
enum { LITERAL_COUNT = 5, FIRST_NEAR = 0, LAST_NEAR = 4, FIRST_FAR = 20 };

static void count_symbols(enum codes kind, uint32_t *litlens, uint32_t *distances, uint64_t *random)
{
    for (int s = 0; s < DEFLATE_LITLENS; s++) {
        bool used = s < LITERAL_COUNT || s >= DEFLATE_END;
        litlens[s] = kind == USED                         ? used
                     : kind == SPREAD                     ? 1u << random_below(random, 16)
                     : kind == LONG && s > 240 && s < 248 ? 1u << (s - 241 + 14)
                                                          : 1;
    }
    for (int s = 0; s < DEFLATE_DISTANCES; s++) {
        bool used = s <= LAST_NEAR || s >= FIRST_FAR;
        distances[s] = kind == USED     ? used
                       : kind == SPREAD ? 1u << random_below(random, 16)
                       : kind == LONG && s > LAST_NEAR && s < LAST_NEAR + 10
                           ? 1u << (s - LAST_NEAR + 8)
                           : 1;
    }
}

static void put_symbol(struct deflate_make *maker, const struct png_family *f, size_t left,
                       uint64_t *random)
{
    static const uint16_t far_bases[] = {1025, 2049, 4097, 8193, 16385, 24577};
    size_t length = 0, distance = 1;
    enum mix mix = f->mix == ALTERNATING ? random_below(random, 2) ? ANY : LITERALS : f->mix;
    switch (mix) {
    case NEAR:
        length = 3;
        break;
    case DISTANT:
        length = 3;
        distance = 24577 + random_below(random, 8192);
        break;
    case LONGEST:
        length = 258;
        break;
    case SHORT:
        length = 3 + random_below(random, 8);
        distance = 1 + random_below(random, 6);
        break;
    case ANY:
        length = 3 + random_below(random, random_below(random, 4) ? 20 : 256);
        distance = random_below(random, 3)
                       ? far_bases[random_below(random, 6)] + random_below(random, 1024)
                       : 1 + random_below(random, 6);
        break;
    default:
        break;
    }
    if (f->flaw == BAD_FILTER && maker->plain_size == 0) {
        deflate_make_literal(maker, 9);
        return;
    }
    if (distance > maker->plain_size)
        distance = 1;
    if (length == 0 || length > left || maker->plain_size == 0)
        deflate_make_literal(maker,
                             (uint8_t)(f->byte >= 0 ? f->byte : (int)random_below(random, 5)));
    else
        deflate_make_match(maker, length, distance);
}

static void start_block(struct deflate_make *maker, const struct png_family *f, enum codes kind,
                        bool last, uint64_t *random)
{
    // A few codes of each kind, so that no table can be recognised by the place of its block.
    static struct deflate_codes fixed, made[CODES][4];
    static bool ready;
    if (!ready) {
        deflate_make_fixed_codes(&fixed);
        for (int k = USED; k < CODES; k++) {
            for (int i = 0; i < 4; i++) {
                uint32_t litlens[DEFLATE_LITLENS], distances[DEFLATE_DISTANCES];
                count_symbols((enum codes)k, litlens, distances, random);
                deflate_make_codes(&made[k][i], litlens, distances);
            }
        }
        ready = true;
    }
    if (kind == FIXED)
        deflate_make_fixed(maker, &fixed, last);
    else
        deflate_make_dynamic(maker, &made[kind][random_below(random, 4)], f->plainly, last);
}

static void put_stored(struct deflate_make *maker, const struct png_family *f, size_t size,
                       bool last, uint64_t *random)
{
    static uint8_t bytes[65535];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(f->byte >= 0 ? f->byte : (int)random_below(random, 5));
    deflate_make_stored(maker, bytes, size, last);
}

static void put_block(struct deflate_make *maker, const struct png_family *f, enum codes kind,
                      size_t raw, uint64_t *random)
{
    for (int i = 0; i < f->empties; i++) {
        if (kind == STORED) {
            put_stored(maker, f, 0, false, random);
        } else {
            start_block(maker, f, kind, false, random);
            deflate_make_end_block(maker);
        }
    }
    size_t most = f->symbols > 0 ? (size_t)f->symbols : raw, left = raw - maker->plain_size;
    if (kind == STORED) {
        size_t size = most < left ? most : left;
        size = size < 65535 ? size : 65535;
        put_stored(maker, f, size, false, random);
        return;
    }
    start_block(maker, f, kind, false, random);
    for (size_t i = 0; i < most && maker->plain_size < raw; i++)
        put_symbol(maker, f, raw - maker->plain_size, random);
    deflate_make_end_block(maker);
}

// Half of the rows in stored blocks, which libpng reads fast, then a filter that does not exist.
// The blocks after it were inflated before it was looked at: 3.9 times libpng's time, found by
// tools/fuzz-cost.
static void put_late_filter(struct deflate_make *maker, const struct png_family *f, size_t raw,
                            uint64_t *random)
{
    size_t rows = (size_t)f->height, good = raw / rows * (rows / 2);
    const uint8_t wrong = 9;
    while (maker->plain_size < good) {
        size_t left = good - maker->plain_size;
        put_stored(maker, f, left < 65535 ? left : 65535, false, random);
    }
    deflate_make_stored(maker, &wrong, 1, false);
}

// libpng inflates what it has read of the chunk after the last row and ignores the others. conv
// inflated all of them, which tools/fuzz-cost found. conv_libpng_decode reads up to 64 KB at once,
// the libpng here 8, so chunks are shorter than that.
#define IGNORED_BLOCKS 1000
static void put_stream(struct deflate_make *maker, const struct png_family *f, uint64_t *random)
{
    size_t raw = raw_size(f) + (f->flaw == EXCESS ? 400 : 0);
    if (f->flaw == SHORT_STREAM) // decoded almost twice: found by tools/fuzz-cost
        raw = (raw + 1) / 2;
    deflate_make_start(maker, 15);
    if (f->flaw == LATE_FILTER)
        put_late_filter(maker, f, raw, random);
    for (int i = 0; maker->plain_size < raw; i++)
        put_block(maker, f, i % 2 ? f->other : f->codes, raw, random);
    for (int i = 0; i < IGNORED_BLOCKS && f->flaw == IGNORED; i++) {
        start_block(maker, f, f->codes, false, random);
        deflate_make_end_block(maker);
    }
    if (f->flaw != NO_END && f->codes == STORED) {
        deflate_make_stored(maker, NULL, 0, true);
    } else if (f->flaw != NO_END) {
        start_block(maker, f, f->codes, true, random);
        deflate_make_end_block(maker);
    }
    uint32_t adler = (uint32_t)adler32_z(1, maker->plain, maker->plain_size);
    deflate_make_end(maker, adler ^ (f->flaw == WRONG_SUM));
}

static void put_idats(struct png_file *file, const struct png_family *f, const uint8_t *stream,
                      size_t size)
{
    // By hand: png_make_chunk copies the whole file for each.
    size_t each = f->idat > 0 ? (size_t)f->idat : size, count = (size + each - 1) / each;
    size_t room = size + 12 * count * (size_t)(1 + f->empty_idats) + 12, used = 0;
    struct png_file chunks = {malloc(room), 0}, empty = {0}, one = {0};
    if (!chunks.data)
        abort();
    png_make_chunk(&empty, "IDAT", NULL, 0);
    for (size_t at = 0; at < size; at += each) {
        one.size = 0;
        png_make_chunk(&one, "IDAT", stream + at, each < size - at ? each : size - at);
        memcpy(chunks.data + used, one.data, one.size);
        used += one.size;
        for (int i = 0; i < f->empty_idats; i++, used += 12)
            memcpy(chunks.data + used, empty.data, 12);
    }
    chunks.size = used;
    if (f->flaw == BAD_CRC)
        chunks.data[used - 1] ^= 1;
    png_make_insert(file, file->size, &chunks);
    png_make_free(&chunks);
    png_make_free(&empty);
    png_make_free(&one);
}

static void put_palette(struct png_file *file, const struct png_family *f)
{
    uint8_t palette[768], alpha[256];
    int entries = f->depth >= 8 ? 256 : 1 << f->depth;
    for (int i = 0; i < 3 * entries; i++)
        palette[i] = (uint8_t)(i * 7);
    for (int i = 0; i < 256; i++)
        alpha[i] = (uint8_t)(i * 3);
    if (f->color_type == PNG_COLOR_TYPE_PALETTE)
        png_make_chunk(file, "PLTE", palette, 3 * (size_t)entries);
    if (f->transparency)
        png_make_chunk(file, "tRNS", f->color_type == PNG_COLOR_TYPE_PALETTE ? alpha : palette,
                       f->color_type == PNG_COLOR_TYPE_PALETTE ? (size_t)entries
                       : f->color_type == PNG_COLOR_TYPE_RGB   ? 6
                                                               : 2);
}

void png_family_make(struct png_file *file, const struct png_family *f, uint64_t *random)
{
    struct deflate_make maker = {.grows = true};
    *file = (struct png_file){0};
    png_make_head(file, f->width, f->height, f->depth, f->color_type);
    file->data[28] = f->interlaced;
    png_make_crc(file, 8);
    put_palette(file, f);
    uint8_t *text = calloc(1, (size_t)f->text_size + 1);
    struct png_file texts = {0}, chunk = {0};
    png_make_chunk(&chunk, "tEXt", text, (size_t)f->text_size);
    texts.data = malloc((size_t)f->texts * chunk.size + 1);
    for (int i = 0; i < f->texts; i++, texts.size += chunk.size)
        memcpy(texts.data + texts.size, chunk.data, chunk.size);
    png_make_insert(file, file->size, &texts);
    png_make_free(&texts);
    png_make_free(&chunk);
    free(text);
    put_stream(&maker, f, random);
    put_idats(file, f, maker.data, maker.size);
    deflate_make_free(&maker);
    if (f->flaw != TRUNCATED)
        png_make_chunk(file, "IEND", NULL, 0);
}

void png_family_describe(char *text, size_t size, const struct png_family *f)
{
    snprintf(text, size,
             "%dx%d type %d depth %d%s%s, %s/%s, %s, %d symbols, %d empty blocks, byte %d%s, idat "
             "%d+%d, %d texts of %d B, %s",
             f->width, f->height, f->color_type, f->depth, f->interlaced ? " interlaced" : "",
             f->transparency ? " tRNS" : "", code_names[f->codes], code_names[f->other],
             mix_names[f->mix], f->symbols, f->empties, f->byte, f->plainly ? " plainly" : "",
             f->idat, f->empty_idats, f->texts, f->text_size, flaw_names[f->flaw]);
}
