// SPDX-License-Identifier: MIT
// PBM, PGM, PPM and PAM, whose samples lie in the file as they are, as rows of the table of
// formats: netpbm.sourceforge.net/doc/{pbm,pgm,ppm,pam}.html. All of them read each other's files;
// what they write differs. None holds metadata.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/features.h"
#include "image/format.h"
#include "image/interleave.h"
#include "png/cpu/filter_rows.h"
#include "png/cpu/unfilter.h"

#define HEAD_LEAST 3 // bytes that show the kind
#define MOST_VALUE 65535
#define MOST_SIDE (1 << 28) // pixels: the bytes of all samples fit into 64 bits
#define HEADER_MOST 65536   // bytes, comments included
#define HEAD_MOST 160       // bytes of a header that is written

// True after row y, of that many bytes, once in a while if the work is to stop.
static bool is_to_stop(const struct conv_codec *codec, int y, size_t row)
{
    const size_t between = (size_t)1 << 20; // bytes
    return (size_t)y % (between / (row < between ? row : between)) == 0 &&
           conv_cancel_is_asked(codec->config.stop);
}

// --- the header ----------------------------------------------------------------------------------

// A position in a header or in samples that are text.
struct text {
    const uint8_t *data;
    size_t size, at;
    bool is_cut; // it ended too early
};

static enum conv_status end_early(struct text *text, struct conv_err *err)
{
    text->is_cut = text->size < HEADER_MOST;
    if (text->size >= HEADER_MOST)
        return conv_err_format(err, "bad header: longer than %d bytes", HEADER_MOST);
    return conv_err_format(err, "truncated: ends inside the header");
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
        return conv_err_format(err, "bad header: the %s is not within 1 to %lld", name,
                               (long long)most);
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
    return conv_err_unsupported(err, "a PAM whose samples are neither gray nor RGB (TUPLTYPE)");
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
            status = read_field(text, MOST_SIDE, "width", &shape->width, err);
        else if (take_word(text, "HEIGHT"))
            status = read_field(text, MOST_SIDE, "height", &shape->height, err);
        else if (take_word(text, "DEPTH"))
            status = read_field(text, CONV_IMAGE_MAX_CHANNELS, "depth", &shape->channels, err);
        else if (take_word(text, "MAXVAL"))
            status = read_field(text, MOST_VALUE, "maximum", maxval, err);
        else if (take_word(text, "TUPLTYPE"))
            status = read_tuple(text, &tuple, err);
        else if (take_word(text, "ENDHDR"))
            break;
        else if (!memchr(text->data + text->at, '\n', text->size - text->at))
            return end_early(text, err);
        else
            return conv_err_format(err, "bad header: an unknown line at byte %zu", text->at);
        if (status)
            return status;
    }
    if (!shape->width || !shape->height || !shape->channels || !*maxval)
        return conv_err_format(err, "bad header: a line is missing");
    if (tuple && tuple != shape->channels)
        return conv_err_format(err, "bad header: %d channels, but a type of %d", shape->channels,
                               tuple);
    return CONV_OK;
}

static enum conv_status read_head(struct text *text, struct conv_image_header *header,
                                  struct conv_err *err)
{
    struct conv_image *shape = &header->shape;
    int maxval = 1;
    *header = (struct conv_image_header){0};
    enum conv_status status = conv_format_check_head(&conv_pnm_format, text->data, text->size, err);
    if (status)
        return status;
    int kind = text->data[1] - '0';
    text->at = 2;
    if (kind == 7) {
        status = read_pam(text, shape, &maxval, err);
    } else {
        shape->channels = kind == 3 || kind == 6 ? 3 : 1;
        status = read_field(text, MOST_SIDE, "width", &shape->width, err);
        if (!status)
            status = read_field(text, MOST_SIDE, "height", &shape->height, err);
        if (!status && kind != 1 && kind != 4)
            status = read_field(text, MOST_VALUE, "maximum", &maxval, err);
    }
    if (!status && text->at < text->size && !isspace(text->data[text->at]))
        return conv_err_format(err, "bad header: no white space after it");
    if (status)
        return status;
    shape->alpha = shape->channels % 2 == 0;
    shape->depth = maxval > 255 ? 16 : 8;
    header->pnm.kind = kind;
    header->pnm.maxval = maxval;
    header->pnm.at = text->at + 1;
    return CONV_OK;
}

static enum conv_status probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err)
{
    struct text text = {.data = data, .size = size < HEADER_MOST ? size : HEADER_MOST};
    return read_head(&text, header, err);
}

static bool is_text(const struct conv_image_header *header)
{
    return header->pnm.kind <= 3;
}

static size_t samples_per_row(const struct conv_image_header *header)
{
    return (size_t)header->shape.width * (size_t)header->shape.channels;
}

static size_t decode_bytes(const struct conv_image_header *header, size_t)
{
    return samples_per_row(header) * (size_t)(header->shape.depth / 8);
}

static size_t row_bytes(const struct conv_image_header *header)
{
    return header->pnm.kind == 4 ? ((size_t)header->shape.width + 7) / 8 : decode_bytes(header, 0);
}

// Bytes of samples, of text at least.
static uint64_t data_bytes(const struct conv_image_header *header)
{
    uint64_t height = (uint64_t)header->shape.height, samples = height * samples_per_row(header);
    return header->pnm.kind == 1 ? samples
           : is_text(header)     ? 2 * samples - 1
                                 : height * row_bytes(header);
}

static enum conv_status check_size(const uint8_t *, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err)
{
    size_t left = size > header->pnm.at ? size - header->pnm.at : 0;
    if (left >= data_bytes(header))
        return CONV_OK;
    return conv_err_format(err, "truncated: %zu bytes of samples cannot hold %d x %d pixels", left,
                           header->shape.width, header->shape.height);
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
    unsigned maxval = (unsigned)header->pnm.maxval, top = depth == 8 ? 255 : MOST_VALUE, most = 0;
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
            return conv_err_format(err, "truncated: ends inside the samples");
        if (value == NO_NUMBER)
            return conv_err_format(err, "damaged: no sample up to %d at byte %zu",
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
// be used as it is, else in codec->scratch.
static enum conv_status get_row(struct conv_codec *codec, struct text *text, const uint8_t **row,
                                const struct conv_image_header *header, struct conv_err *err)
{
    size_t bytes = row_bytes(header);
    uint8_t *own = codec->scratch.data;
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
    else if (maxval != 255 && maxval != MOST_VALUE)
        return scale_row(own, from, header)
                   ? CONV_OK
                   : conv_err_format(err, "damaged: a sample above the maximum of %d", maxval);
    else if (header->shape.depth == 8 || (uintptr_t)from % sizeof(uint16_t) == 0)
        *row = from;
    else
        memcpy(own, from, bytes);
    return CONV_OK;
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               const struct conv_rows *rows, struct conv_err *err)
{
    struct text text = {.data = data, .size = size, .at = header->pnm.at};
    size_t bytes = decode_bytes(header, size);
    const struct conv_unfilter *splits = conv_unfilter_choose(conv_cpu_features());
    const uint8_t *row, *end = data + size;
    bool puts_planes = rows && !rows->put_interleaved;
    struct conv_image one = header->shape;
    one.height = 1;
    if (!conv_buffer_reserve(&codec->scratch, bytes + CONV_UNFILTER_SLACK) ||
        !conv_buffer_reserve(&codec->row, puts_planes ? conv_image_bytes(&one) : 1))
        return conv_err_memory(err, "out of memory");
    if (puts_planes) {
        conv_image_lay_out(&one, &one, codec->row.data);
        dst = &one;
    }
    for (int y = 0; y < header->shape.height; y++) {
        enum conv_status status = get_row(codec, &text, &row, header, err);
        if (status)
            return status;
        bool slack =
            row == codec->scratch.data || (size_t)(end - row) >= bytes + CONV_UNFILTER_SLACK;
        if (rows && !puts_planes)
            rows->put_interleaved(rows->context, y, row);
        else if (slack)
            splits->split(dst, puts_planes ? 0 : y, row);
        else
            conv_interleave_split(dst, puts_planes ? 0 : y, row);
        if (puts_planes)
            rows->put(rows->context, y, dst);
        if (is_to_stop(codec, y, bytes))
            return conv_err_cancelled(err);
    }
    return CONV_OK;
}

// Moves after the samples of text. MORE, NO_NUMBER: the last of them was read as that. A digit may
// follow where the text ends.
static int64_t skip_samples(struct text *text, const struct conv_image_header *header)
{
    int64_t value = 0;
    uint64_t count = (uint64_t)header->shape.height * samples_per_row(header);
    text->at = header->pnm.at;
    for (; count > 0 && value >= 0; count--)
        value = read_sample(text, header);
    return value >= 0 && header->pnm.kind != 1 && text->at == text->size ? MORE : value;
}

static bool extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes)
{
    struct conv_image_header header;
    struct text text = {.data = data, .size = size < HEADER_MOST ? size : HEADER_MOST};
    enum conv_status status = read_head(&text, &header, NULL);
    *at = text.at;
    *bytes = status ? text.is_cut ? size + 1 : 0 : header.pnm.at + data_bytes(&header);
    if (status || !is_text(&header))
        return !status;
    text.size = size;
    int64_t last = skip_samples(&text, &header);
    *at = text.at;
    // Each call reads the text from its start again: asking for a quarter more limits their number.
    *bytes = last >= 0 ? text.at : last == MORE ? size + size / 4 + 1 : 0;
    return last >= 0;
}

// --- encoding ------------------------------------------------------------------------------------

// The header of an output, without the samples of alpha unless it is a PAM: an even number of
// bytes, so that samples of 16 bits are aligned.
static size_t write_head(char head[HEAD_MOST], int kind, const struct conv_image *image)
{
    static const char *const types[] = {"GRAYSCALE", "GRAYSCALE_ALPHA", "RGB", "RGB_ALPHA"};
    const char *space = "";
    int length = 0, top = image->depth == 8 ? 255 : MOST_VALUE;
    for (int i = 0; i < 2 && (i == 0 || length % 2); i++, space = " ")
        length = kind == 7
                     ? snprintf(head, HEAD_MOST,
                                "P7\nWIDTH %s%d\nHEIGHT %d\nDEPTH %d\nMAXVAL %d\nTUPLTYPE %s\n"
                                "ENDHDR\n",
                                space, image->width, image->height, image->channels, top,
                                types[image->channels - 1])
                     : snprintf(head, HEAD_MOST, "P%d\n%d %s%d\n%d\n", kind, image->width, space,
                                image->height, top);
    return (size_t)length;
}

// 5, 6 or 7 for an output of the codec's format; 0, with the reason: it has no room for colours.
static int kind_of(const struct conv_codec *codec, const struct conv_image *image,
                   struct conv_err *err)
{
    const struct conv_format *format = codec->format;
    bool color = image->channels >= 3;
    if (color && format == &conv_pgm_format)
        conv_err_advise(err, CONV_ERR_UNSUPPORTED, CONV_HINT_GRAY, "PGM cannot hold colours");
    return format == &conv_pam_format   ? 7
           : format == &conv_ppm_format ? 6
           : !color                     ? 5
           : format == &conv_pnm_format ? 6
                                        : 0;
}

// What of the planes is written: gray three times where the file has colours.
static struct conv_image written(const struct conv_image *image, int kind)
{
    struct conv_image part = *image;
    if (kind == 7)
        return part;
    part.channels = kind == 6 ? 3 : 1;
    part.alpha = false;
    for (int c = 0; c < part.channels && image->channels < 3; c++)
        part.plane[c] = image->plane[0];
    return part;
}

static bool is_opaque(const struct conv_image *image, int y)
{
    const uint8_t *alpha = conv_image_row(image, image->channels - 1, y);
    unsigned most = image->depth == 8 ? 255 : MOST_VALUE, least = most;
    for (int x = 0; x < image->width; x++)
        least &= conv_image_get(alpha, image->depth, x);
    return least == most;
}

static void join(const struct conv_filter_rows *joins, uint8_t *to, const struct conv_image *image,
                 int y)
{
    const uint8_t *planes[CONV_IMAGE_MAX_CHANNELS];
    for (int c = 0; c < image->channels; c++)
        planes[c] = conv_image_row(image, c, y);
    if (image->depth == 8)
        joins->join(to, planes, image->channels, (size_t)image->width);
    else
        conv_interleave_join(to, image, y);
}

// Rows `from` to `end` - 1 as a file has them.
static enum conv_status join_rows(struct conv_codec *codec, const struct conv_image *src, int kind,
                                  int from, int end, uint8_t *to, struct conv_err *err)
{
    const struct conv_filter_rows *joins = conv_filter_rows_choose(conv_cpu_features());
    const struct conv_image part = written(src, kind);
    size_t bytes = conv_interleave_bytes(&part);
    for (int y = from; y < end; y++, to += bytes) {
        if (kind != 7 && src->channels % 2 == 0 && !is_opaque(src, y))
            return conv_err_advise(err, CONV_ERR_UNSUPPORTED, CONV_HINT_OTHER_FORMAT,
                                   "%s cannot hold its transparent pixels", codec->format->name);
        join(joins, to, &part, y);
        if (is_to_stop(codec, y, bytes))
            return conv_err_cancelled(err);
    }
    return CONV_OK;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *, int from, int to,
                               struct conv_encoded *file, struct conv_err *err)
{
    int kind = kind_of(codec, src, err);
    if (kind == 0)
        return CONV_ERR_UNSUPPORTED;
    struct conv_image part = written(src, kind);
    size_t rows = conv_interleave_bytes(&part) * (size_t)(to - from);
    if (!conv_buffer_reserve(&codec->file, HEAD_MOST + rows))
        return conv_err_memory(err, "out of memory");
    uint8_t *data = codec->file.data;
    size_t head = from == 0 ? write_head((char *)data, kind, src) : 0;
    *file = (struct conv_encoded){.part = {{data, head + rows}}, .size = head + rows};
    return join_rows(codec, src, kind, from, to, data + head, err);
}

static size_t encode_bytes(const struct conv_codec_config *, const struct conv_image *shape,
                           const struct conv_metadata *)
{
    struct conv_image most = *shape;
    most.channels = shape->channels < 3 ? 3 : shape->channels;
    return conv_interleave_bytes(&most) * (size_t)shape->height;
}

static void decodes_bands(struct conv_image_header *header, size_t size, struct conv_bands *bands)
{
    *bands = (struct conv_bands){.bytes = 2 * decode_bytes(header, size)}; // a row, and its planes
}

static void encodes_bands(const struct conv_codec *codec, const struct conv_image *shape,
                          const struct conv_metadata *metadata, int rows, struct conv_bands *bands)
{
    struct conv_image part = *shape;
    part.height = rows;
    *bands = (struct conv_bands){.unit = 1, .bytes = encode_bytes(&codec->config, &part, metadata)};
}

// --- rows ----------------------------------------------------------------------------------------

#define FORMAT(id, title, ...)                                                                     \
    const struct conv_format conv_##id##_format = {                                                \
        .name = title,                                                                             \
        .patterns = {__VA_ARGS__},                                                                 \
        .extension = "." #id,                                                                      \
        .most_depth = 16,                                                                          \
        .most_side = MOST_SIDE,                                                                    \
        .head_bytes = HEAD_LEAST,                                                                  \
        .kinds = {"PNM", "PAM"},                                                                   \
        .probe = probe,                                                                            \
        .check_size = check_size,                                                                  \
        .extent = extent,                                                                          \
        .codec_bytes = sizeof(struct conv_codec),                                                  \
        .decode_bytes = decode_bytes,                                                              \
        .encode_bytes = encode_bytes,                                                              \
        .decode = decode,                                                                          \
        .encode = encode,                                                                          \
        .decodes_bands = decodes_bands,                                                            \
        .encodes_bands = encodes_bands,                                                            \
    }

FORMAT(pnm, "PNM", "*.pnm");
FORMAT(ppm, "PPM", "*.ppm");
FORMAT(pgm, "PGM", "*.pgm");
FORMAT(pam, "PAM", "*.pam");
