// SPDX-License-Identifier: MIT
#include "support/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/features.h"
#include "png/chunk.h"
#include "png/png.h"
#include "support/png_make.h"
#include "support/reference.h"
#include "support/test_image.h"

#define FILL 0xa5

static void fail(const char *variant, const char *what)
{
    fprintf(stderr, "%s: %s\n", variant, what);
    abort();
}

static void compare(const struct conv_image *got, const struct conv_image *want,
                    const char *variant)
{
    for (int c = 0; c < want->channels; c++)
        for (int y = 0; y < want->height; y++)
            if (memcmp(got->plane[c].data + y * got->plane[c].stride,
                       want->plane[c].data + y * want->plane[c].stride,
                       (size_t)want->width * (size_t)(want->depth / 8)) != 0)
                fail(variant, "other pixels than libpng's");
}

// --- against libpng as other programs call it ----------------------------------------------------

static void compare_reference(const struct conv_image *got, const struct reference_image *want)
{
    if (got->width != want->width || got->height != want->height ||
        got->channels != want->channels || got->depth != want->depth)
        fail("shape", "another than plain libpng's");
    int bytes = want->depth / 8;
    for (int y = 0; y < want->height; y++) {
        const uint8_t *sample = want->rows + (size_t)y * want->row_size;
        for (int x = 0; x < want->width; x++)
            for (int c = 0; c < want->channels; c++, sample += bytes)
                if (image_sample(got, c, x, y) !=
                    (bytes == 2 ? (unsigned)(sample[0] << 8 | sample[1]) : sample[0]))
                    fail("libpng.c", "other pixels than plain libpng's");
    }
}

// png.h promises the verdict of libpng, with the exceptions that it lists: a damaged end of the
// zlib stream, a first chunk that is not IHDR, and excessive image data, which small files cannot
// hold.
static void check_verdict(bool good, enum reference_verdict reference, const uint8_t *data,
                          size_t size)
{
    if (reference == REFERENCE_TOO_LARGE)
        return;
    if (good && reference == REFERENCE_REFUSES)
        fail("verdict", "takes what plain libpng refuses");
    if (good && reference == REFERENCE_WARNS)
        fail("verdict", "takes a damaged zlib stream");
    bool listed = size > ORACLE_SMALL || (size >= 16 && memcmp(data + 12, "IHDR", 4) != 0);
    if (!good && reference == REFERENCE_TAKES && !listed)
        fail("verdict", "refuses what plain libpng takes");
}

// The GPU decodes a stream that is copied in one piece: a valid one may only come from a file that
// libpng accepts. It does not decode streams whose window is smaller than the image (see
// png/inflate.h): zlib refuses distances beyond the window, but only when it inflates row by row.
static void check_stream(const uint8_t *data, size_t size, const struct conv_image_header *header,
                         bool good)
{
    size_t stream_size, pixel = (size_t)header->shape.channels * (size_t)header->png.bit_depth / 8;
    size_t row = (size_t)header->shape.width * pixel + 1,
           raw_size = row * (size_t)header->shape.height;
    uint8_t *stream = malloc(size), *raw = malloc(raw_size + 1);
    if (!stream || !raw)
        abort();
    uLongf made = (uLongf)raw_size + 1; // one more would be too much
    uLong used = 0;
    if (conv_png_format.device->copy_stream(stream, &stream_size, data, size, header)) {
        used = (uLong)stream_size;
        bool whole = uncompress2(raw, &made, stream, &used) == Z_OK && made == raw_size &&
                     used == stream_size &&
                     (stream[0] >> 4 == 7 || raw_size <= (size_t)256 << (stream[0] >> 4));
        for (size_t y = 0; y < (size_t)header->shape.height && whole; y++)
            whole = raw[y * row] <= 4;
        if (whole && !good)
            fail("copy_stream", "takes what libpng refuses");
    }
    free(stream);
    free(raw);
}

// The carried chunks must not make the output a file that libpng refuses.
static void check_carried(const uint8_t *data, size_t size, const struct conv_image_header *header)
{
    static const int color_types[] = {0, 0, 4, 2, 6};
    static const uint8_t row[1 + 8]; // of one pixel
    static struct conv_metadata meta;
    struct reference_image image;
    if (!conv_png_format.collect(data, size, header, (struct conv_cleaning){0}, &meta) ||
        meta.front > meta.bytes.size)
        fail("conv_png_format.collect", "fails");
    if (meta.bytes.size == 0)
        return;
    const struct conv_image *shape = &header->shape;
    struct png_file out = {0};
    struct png_file stream =
        png_make_zlib(row, 1 + (size_t)shape->channels * (size_t)shape->depth / 8);
    png_make_head(&out, 1, 1, shape->depth, color_types[shape->channels]);
    png_make_bytes(&out, meta.bytes.data, meta.front);
    png_make_chunk(&out, "IDAT", stream.data, stream.size);
    png_make_bytes(&out, meta.bytes.data + meta.front, meta.bytes.size - meta.front);
    png_make_chunk(&out, "IEND", NULL, 0);
    if (reference_read(&image, out.data, out.size, 1) != REFERENCE_TAKES)
        fail("conv_png_format.collect", "spoils the output");
    if (conv_png_format.is_animated(out.data, out.size))
        fail("conv_png_format.collect", "carries an animation");
    free(image.rows);
    png_make_free(&stream);
    png_make_free(&out);
}

// --- the fast decoder ----------------------------------------------------------------------------

// Decodes with a new decoder, whose buffers are empty.
static bool decode_fresh(const uint8_t *data, size_t size, const struct conv_image_header *header,
                         const struct conv_image *got)
{
    struct conv_decoder fresh = {0};
    bool taken = conv_decode_fast(&fresh, data, size, header, got);
    conv_decoder_free(&fresh);
    return taken;
}

enum oracle_verdict oracle_file(const uint8_t *data, size_t size, size_t limit)
{
    // Reused, as by a worker: leftovers of the last image must not matter.
    static struct conv_decoder decoder;
    static struct conv_buffer rows;
    struct conv_image_header header = {0};
    struct reference_image reference;
    enum reference_verdict verdict = reference_read(&reference, data, size, limit);
    bool probed = !conv_png_format.probe(data, size, &header, NULL);
    if (!probed)
        check_verdict(false, verdict, data, size);
    if (!probed || (size_t)header.shape.width > limit / (size_t)header.shape.height) {
        free(reference.rows);
        return ORACLE_REFUSED;
    }
    struct conv_image want = header.shape, got = header.shape;
    image_alloc(&want, FILL);
    image_alloc(&got, FILL);
    bool good = !conv_libpng_decode(&rows, data, size, &header, &want, NULL, NULL, NULL);
    if (good && conv_png_format.check_size(data, size, &header, NULL))
        fail("check_size", "refuses what libpng takes");
    check_verdict(good, verdict, data, size);
    if (good)
        compare_reference(&want, &reference);
    check_stream(data, size, &header, good);
    check_carried(data, size, &header);
    free(reference.rows);
    enum oracle_verdict result = good ? ORACLE_LEFT : ORACLE_REFUSED;
    bool taken = decode_fresh(data, size, &header, &got);
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    for (int i = 0; i < count; i++) {
        const char *name = variants[i]->name;
        if (variants[i]->needs & ~conv_cpu_features())
            continue;
        decoder.unfilter = variants[i];
        if (conv_decode_fast(&decoder, data, size, &header, &got) != taken)
            fail(name, "the verdict depends on what was decoded before");
        if (taken) {
            if (!good)
                fail(name, "takes what libpng refuses");
            compare(&got, &want, name);
            result = ORACLE_FAST;
        }
        if (!image_padding_is(&got, FILL))
            fail(name, "writes beyond a row");
    }
    image_free(&want);
    image_free(&got);
    return result;
}

// --- repairing -----------------------------------------------------------------------------------

// Corrects the Adler-32 of a zlib stream if it can be inflated. False if nothing was changed.
static bool repair_adler(uint8_t *data, size_t size, uint8_t *inflated, size_t room)
{
    z_stream stream = {.next_in = data + 2, .avail_in = (uInt)size - 2};
    stream.next_out = inflated;
    stream.avail_out = (uInt)room;
    if (inflateInit2(&stream, -15) != Z_OK)
        abort();
    int status = inflate(&stream, Z_FINISH);
    bool whole = status == Z_STREAM_END && stream.avail_in >= 4;
    if (whole)
        conv_chunk_write_u32(data + size - stream.avail_in,
                             (uint32_t)adler32(1, inflated, (uInt)(room - stream.avail_out)));
    inflateEnd(&stream);
    return whole;
}

// The next whole chunk from *at on; false at the end.
static bool step_chunk(const uint8_t *data, size_t size, size_t *at, size_t *start, size_t *length)
{
    *start = *at;
    if (*at >= size || size - *at < 12)
        return false;
    *length = conv_chunk_read_u32(data + *at);
    if (*length > size - *at - 12)
        return false;
    *at += *length + 12;
    return true;
}

// Copies the image data of all IDAT chunks out of the file (`out`) or back into it.
static size_t copy_stream(uint8_t *stream, uint8_t *data, size_t size, bool out)
{
    size_t total = 0, start, length;
    for (size_t at = 8; step_chunk(data, size, &at, &start, &length); total += length) {
        if (memcmp(data + start + 4, "IDAT", 4) != 0)
            length = 0;
        if (length > 0)
            memcpy(out ? stream + total : data + start + 8, out ? data + start + 8 : stream + total,
                   length);
    }
    return total;
}

void oracle_repair(uint8_t *data, size_t size, uint8_t *inflated, size_t room)
{
    uint8_t *stream = malloc(size + 1);
    if (!stream)
        abort();
    size_t total = copy_stream(stream, data, size, true), start, length;
    if (total > 6 && repair_adler(stream, total, inflated, room))
        copy_stream(stream, data, size, false);
    free(stream);
    for (size_t at = 8; step_chunk(data, size, &at, &start, &length);)
        conv_chunk_write_u32(data + start + 8 + length,
                             (uint32_t)crc32(0, data + start + 4, (uInt)length + 4));
}
