// SPDX-License-Identifier: MIT
// Headers and samples of PBM, PGM, PPM and PAM, which lie in the file as they are:
// netpbm.sourceforge.net/doc/{pbm,pgm,ppm,pam}.html.
#include <ctype.h>
#include <string.h>

#include "png/cpu/interleave.h"
#include "pnm/pnm_internal.h"

#define HEADER_MOST 65536 // bytes, comments included

// --- the header ----------------------------------------------------------------------------------

// A position in a header or in samples that are text.
struct text {
    const uint8_t *data;
    size_t size, at;
};

static enum conv_status end_early(const struct text *text, struct conv_err *err)
{
    if (text->size >= HEADER_MOST)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: longer than %d bytes", HEADER_MOST);
    return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the header");
}

// Skips white space and comments.
static void skip_space(struct text *text)
{
    while (text->at < text->size) {
        int c = text->data[text->at];
        if (c == '#')
            while (text->at < text->size && text->data[text->at] != '\n')
                text->at++;
        else if (!isspace(c))
            return;
        else
            text->at++;
    }
}

// A decimal number up to `most`; NO_NUMBER: there is none, or it is larger; MORE: the text ends
// within it. `may_end`: with it as well.
enum { NO_NUMBER = -1, MORE = -2 };
static int64_t read_number(struct text *text, int64_t most, bool may_end)
{
    int64_t value = 0;
    skip_space(text);
    size_t from = text->at;
    for (; text->at < text->size && isdigit(text->data[text->at]); text->at++) {
        value = 10 * value + (text->data[text->at] - '0');
        if (value > most)
            return NO_NUMBER;
    }
    if (text->at == text->size && (from == text->at || !may_end))
        return MORE;
    return text->at == from ? NO_NUMBER : value;
}

static enum conv_status read_field(struct text *text, int64_t most, const char *name, int *value,
                                   struct conv_err *err)
{
    int64_t number = read_number(text, most, false);
    if (number == MORE)
        return end_early(text, err);
    if (number <= 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: the %s is not within 1 to %lld",
                            name, (long long)most);
    *value = (int)number;
    return CONV_OK;
}

// True if the text goes on with that word; moves after it.
static bool take_word(struct text *text, const char *word)
{
    size_t length = strlen(word);
    if (text->size - text->at <= length || memcmp(text->data + text->at, word, length) != 0 ||
        !isspace(text->data[text->at + length]))
        return false;
    text->at += length;
    return true;
}

static enum conv_status read_tuple(struct text *text, int *channels, struct conv_err *err)
{
    static const struct {
        const char *name;
        int channels;
    } types[] = {{"BLACKANDWHITE", 1},   {"GRAYSCALE", 1}, {"BLACKANDWHITE_ALPHA", 2},
                 {"GRAYSCALE_ALPHA", 2}, {"RGB", 3},       {"RGB_ALPHA", 4}};
    while (text->at < text->size && (text->data[text->at] == ' ' || text->data[text->at] == '\t'))
        text->at++;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (take_word(text, types[i].name)) {
            *channels = types[i].channels;
            return CONV_OK;
        }
    if (!memchr(text->data + text->at, '\n', text->size - text->at))
        return end_early(text, err);
    return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                        "a PAM whose samples are neither gray nor RGB (TUPLTYPE)");
}

static enum conv_status read_pam(struct text *text, struct conv_image *shape, int *maxval,
                                 struct conv_err *err)
{
    int tuple = 0;
    enum conv_status status = CONV_OK;
    *maxval = 0;
    for (;;) {
        skip_space(text);
        if (take_word(text, "WIDTH"))
            status = read_field(text, CONV_PNM_MOST_SIDE, "width", &shape->width, err);
        else if (take_word(text, "HEIGHT"))
            status = read_field(text, CONV_PNM_MOST_SIDE, "height", &shape->height, err);
        else if (take_word(text, "DEPTH"))
            status = read_field(text, CONV_IMAGE_MAX_CHANNELS, "depth", &shape->channels, err);
        else if (take_word(text, "MAXVAL"))
            status = read_field(text, CONV_PNM_MOST_VALUE, "maximum", maxval, err);
        else if (take_word(text, "TUPLTYPE"))
            status = read_tuple(text, &tuple, err);
        else if (take_word(text, "ENDHDR"))
            break;
        else if (!memchr(text->data + text->at, '\n', text->size - text->at))
            return end_early(text, err);
        else
            return conv_err_set(err, CONV_ERR_FORMAT, "bad header: an unknown line at byte %zu",
                                text->at);
        if (status)
            return status;
    }
    if (!shape->width || !shape->height || !shape->channels || !*maxval)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: a line is missing");
    if (tuple && tuple != shape->channels)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %d channels, but a type of %d",
                            shape->channels, tuple);
    return CONV_OK;
}

enum conv_status conv_pnm_check_head(const uint8_t *data, size_t size, struct conv_err *err)
{
    if (size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "empty file");
    if (size < CONV_PNM_HEAD)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the signature");
    const char *name = conv_format_of_bytes(data, size);
    if (!name || (strcmp(name, "PNM") != 0 && strcmp(name, "PAM") != 0))
        return conv_format_refuse("PNM", data, size, err);
    return CONV_OK;
}

enum conv_status conv_pnm_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                struct conv_err *err)
{
    struct conv_image *shape = &header->shape;
    struct text text = {data, size < HEADER_MOST ? size : HEADER_MOST, 2};
    int maxval = 1;
    *header = (struct conv_image_header){0};
    enum conv_status status = conv_pnm_check_head(data, size, err);
    if (status)
        return status;
    int kind = data[1] - '0';
    if (kind == 7) {
        status = read_pam(&text, shape, &maxval, err);
    } else {
        shape->channels = kind == 3 || kind == 6 ? 3 : 1;
        status = read_field(&text, CONV_PNM_MOST_SIDE, "width", &shape->width, err);
        if (!status)
            status = read_field(&text, CONV_PNM_MOST_SIDE, "height", &shape->height, err);
        if (!status && kind != 1 && kind != 4)
            status = read_field(&text, CONV_PNM_MOST_VALUE, "maximum", &maxval, err);
    }
    // A single character, which may be a comment's first in files of old programs, ends it.
    if (!status && text.at < text.size && !isspace(text.data[text.at]))
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: no white space after it");
    if (status)
        return status;
    shape->alpha = shape->channels % 2 == 0;
    shape->depth = maxval > 255 ? 16 : 8;
    header->pnm.kind = kind;
    header->pnm.maxval = maxval;
    header->pnm.at = text.at + 1;
    return CONV_OK;
}

static bool is_text(const struct conv_image_header *header)
{
    return header->pnm.kind <= 3;
}

static size_t samples_per_row(const struct conv_image_header *header)
{
    return (size_t)header->shape.width * (size_t)header->shape.channels;
}

static size_t row_bytes(const struct conv_image_header *header)
{
    return header->pnm.kind == 4 ? ((size_t)header->shape.width + 7) / 8
                                 : samples_per_row(header) * (size_t)(header->shape.depth / 8);
}

// Bytes of samples, of text at least.
static uint64_t data_bytes(const struct conv_image_header *header)
{
    uint64_t height = (uint64_t)header->shape.height, samples = height * samples_per_row(header);
    return header->pnm.kind == 1 ? samples
           : is_text(header)     ? 2 * samples - 1
                                 : height * row_bytes(header);
}

enum conv_status conv_pnm_check_size(const uint8_t *data, size_t size,
                                     const struct conv_image_header *header, struct conv_err *err)
{
    (void)data;
    size_t left = size > header->pnm.at ? size - header->pnm.at : 0;
    if (left >= data_bytes(header))
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_FORMAT,
                        "truncated: %zu bytes of samples cannot hold %d x %d pixels", left,
                        header->shape.width, header->shape.height);
}

// Files of text hold one image.
size_t conv_pnm_end(const uint8_t *data, size_t size)
{
    struct conv_image_header header;
    if (conv_pnm_probe(data, size, &header, NULL) || is_text(&header) ||
        conv_pnm_check_size(data, size, &header, NULL))
        return size;
    return header.pnm.at + (size_t)data_bytes(&header);
}

// --- decoding ------------------------------------------------------------------------------------

// Samples of a file are stored as in a PNG: pixel by pixel, the most significant byte first.

static unsigned sample_at(const uint8_t *row, size_t i, int depth)
{
    return depth == 8 ? row[i] : (unsigned)row[2 * i] << 8 | row[2 * i + 1];
}

// To the nearest of 0 to 255 or 65535. False if a sample is above the maximum.
static bool scale_row(uint8_t *to, const uint8_t *row, const struct conv_image_header *header)
{
    int depth = header->shape.depth;
    unsigned maxval = (unsigned)header->pnm.maxval, top = depth == 8 ? 255 : CONV_PNM_MOST_VALUE,
             most = 0;
    for (size_t i = 0, n = samples_per_row(header); i < n; i++) {
        unsigned sample = sample_at(row, i, depth);
        most = sample > most ? sample : most;
        unsigned scaled = (sample * top + maxval / 2) / maxval;
        if (depth == 16)
            to[2 * i] = (uint8_t)(scaled >> 8);
        to[depth == 8 ? i : 2 * i + 1] = (uint8_t)scaled;
    }
    return most <= maxval;
}

// A sample of text; of bits, which are a digit each, 0 is white.
static int64_t read_sample(struct text *text, const struct conv_image_header *header)
{
    if (header->pnm.kind != 1)
        return read_number(text, header->pnm.maxval, true);
    skip_space(text);
    if (text->at == text->size)
        return MORE;
    int digit = text->data[text->at++];
    return digit == '0' ? 1 : digit == '1' ? 0 : NO_NUMBER;
}

// Reads a row of text as samples of a file.
static enum conv_status read_text(struct text *text, uint8_t *to,
                                  const struct conv_image_header *header, struct conv_err *err)
{
    bool deep = header->shape.depth == 16;
    for (size_t i = 0, n = samples_per_row(header); i < n; i++) {
        int64_t value = read_sample(text, header);
        if (value == MORE)
            return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the samples");
        if (value == NO_NUMBER)
            return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no sample up to %d at byte %zu",
                                header->pnm.maxval, text->at);
        if (deep)
            to[2 * i] = (uint8_t)(value >> 8);
        to[deep ? 2 * i + 1 : i] = (uint8_t)value;
    }
    return CONV_OK;
}

// Bits, of which 0 is white.
static void unpack(uint8_t *to, const uint8_t *bits, size_t width)
{
    for (size_t x = 0; x < width; x++)
        to[x] = bits[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
}

// Sets *row to the next row, aligned for uint16_t at 16 bits: where it lies in the file if it can
// be used as it is, else in codec->row.
static enum conv_status get_row(struct conv_codec *codec, struct text *text, const uint8_t **row,
                                const struct conv_image_header *header, struct conv_err *err)
{
    size_t bytes = row_bytes(header);
    uint8_t *own = codec->row.data;
    const uint8_t *from = own;
    int maxval = header->pnm.maxval;
    if (is_text(header)) {
        enum conv_status status = read_text(text, own, header, err);
        if (status)
            return status;
    } else {
        from = text->data + text->at;
        text->at += bytes;
    }
    *row = own;
    if (header->pnm.kind == 4)
        unpack(own, from, (size_t)header->shape.width);
    else if (maxval != 255 && maxval != CONV_PNM_MOST_VALUE)
        return scale_row(own, from, header)
                   ? CONV_OK
                   : conv_err_set(err, CONV_ERR_FORMAT, "damaged: a sample above the maximum of %d",
                                  maxval);
    else if (header->shape.depth == 8 || (uintptr_t)from % sizeof(uint16_t) == 0)
        *row = from;
    else
        memcpy(own, from, bytes);
    return CONV_OK;
}

static enum conv_status decode_to(struct conv_codec *codec, const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  const struct conv_image *dst, const struct conv_rows *rows,
                                  struct conv_err *err)
{
    struct text text = {data, size, header->pnm.at};
    size_t bytes = samples_per_row(header) * (size_t)(header->shape.depth / 8);
    const uint8_t *row, *end = data + size;
    if (!conv_buffer_reserve(&codec->row, bytes + CONV_UNFILTER_SLACK))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (int y = 0; y < header->shape.height; y++) {
        enum conv_status status = get_row(codec, &text, &row, header, err);
        if (status)
            return status;
        bool slack = row == codec->row.data || (size_t)(end - row) >= bytes + CONV_UNFILTER_SLACK;
        if (rows)
            rows->put_interleaved(rows->context, y, row);
        else if (slack)
            codec->splits->split(dst, y, row);
        else
            conv_interleave_split(dst, y, row);
        if (conv_pnm_is_to_stop(codec, y, bytes))
            return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    }
    return CONV_OK;
}

enum conv_status conv_pnm_decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                                 const struct conv_image_header *header,
                                 const struct conv_image *dst, struct conv_err *err)
{
    return decode_to(codec, data, size, header, dst, NULL, err);
}

enum conv_status conv_pnm_decode_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                                      const struct conv_image_header *header,
                                      const struct conv_rows *rows, struct conv_err *err)
{
    return decode_to(codec, data, size, header, NULL, rows, err);
}

size_t conv_pnm_decode_bytes(const struct conv_image_header *header, size_t size)
{
    (void)size;
    return samples_per_row(header) * (size_t)(header->shape.depth / 8);
}
