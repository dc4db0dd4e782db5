// SPDX-License-Identifier: MIT
#include "support/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cpu.h"
#include "png/libpng.h"
#include "support/picture.h"

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

enum judgement judge_file(const uint8_t *data, size_t size, size_t limit)
{
    // Kept, as a worker keeps them: a picture must not be helped by what the last one left.
    static struct conv_decoder decoder;
    static struct conv_buffer rows;
    struct conv_png_header header = {0};
    if (conv_png_probe(data, size, &header, NULL) ||
        (size_t)header.width > limit / (size_t)header.height)
        return JUDGE_REFUSED;
    struct conv_image want = header.shape, got = header.shape;
    picture_alloc(&want, FILL);
    picture_alloc(&got, FILL);
    bool good = !conv_libpng_decode(&rows, data, size, &header, &want, NULL);
    if (good && conv_png_check_promise(data, size, &header, NULL))
        fail("conv_png_check_promise", "refuses what libpng takes");
    enum judgement judgement = good ? JUDGE_LEFT : JUDGE_REFUSED;
    int count;
    const struct conv_unfilter *const *variants = conv_unfilter_variants(&count);
    for (int i = 0; i < count; i++) {
        const char *name = variants[i]->name;
        if (variants[i]->needs & ~conv_cpu_features())
            continue;
        decoder.unfilter = variants[i];
        if (conv_decode_fast(&decoder, data, size, &header, &got)) {
            if (!good)
                fail(name, "takes what libpng refuses");
            compare(&got, &want, name);
            judgement = JUDGE_FAST;
        }
        if (!picture_padding_is(&got, FILL))
            fail(name, "writes beyond a row");
    }
    picture_free(&want);
    picture_free(&got);
    return judgement;
}

// --- repairing -----------------------------------------------------------------------------------

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

// Sums up what a stream in one chunk holds, where it can be inflated at all.
static void repair_adler(uint8_t *data, size_t size, uint8_t *inflated, size_t room)
{
    z_stream stream = {.next_in = data + 2, .avail_in = (uInt)size - 2};
    stream.next_out = inflated;
    stream.avail_out = (uInt)room;
    if (inflateInit2(&stream, -15) != Z_OK)
        abort();
    int status = inflate(&stream, Z_FINISH);
    if (status == Z_STREAM_END && stream.avail_in >= 4)
        put_u32(data + size - stream.avail_in,
                (uint32_t)adler32(1, inflated, (uInt)(room - stream.avail_out)));
    inflateEnd(&stream);
}

void judge_repair(uint8_t *data, size_t size, uint8_t *inflated, size_t room)
{
    for (size_t at = 8; at < size && size - at >= 12;) {
        size_t length = get_u32(data + at);
        if (length > size - at - 12)
            break;
        if (memcmp(data + at + 4, "IDAT", 4) == 0 && length > 6)
            repair_adler(data + at + 8, length, inflated, room);
        put_u32(data + at + 8 + length, (uint32_t)crc32(0, data + at + 4, (uInt)length + 4));
        at += length + 12;
    }
}
