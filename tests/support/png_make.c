// SPDX-License-Identifier: MIT
#include "support/png_make.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "png/chunk.h"

static void *checked(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

void png_make_free(struct png_file *file)
{
    free(file->data);
    *file = (struct png_file){0};
}

void png_make_insert(struct png_file *file, size_t offset, const struct png_file *other)
{
    uint8_t *data = checked(malloc(file->size + other->size + 1));
    if (offset > 0)
        memcpy(data, file->data, offset);
    if (other->size > 0)
        memcpy(data + offset, other->data, other->size);
    if (file->size > offset)
        memcpy(data + offset + other->size, file->data + offset, file->size - offset);
    free(file->data);
    file->size += other->size;
    file->data = checked(realloc(data, file->size > 0 ? file->size : 1));
}

void png_make_bytes(struct png_file *file, const void *data, size_t size)
{
    struct png_file other = {checked(malloc(size + 1)), size};
    if (size > 0)
        memcpy(other.data, data, size);
    png_make_insert(file, file->size, &other);
    free(other.data);
}

bool png_make_read(struct png_file *file, const char *path)
{
    uint8_t part[4096];
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return false;
    for (size_t got; (got = fread(part, 1, sizeof part, stream)) > 0;)
        png_make_bytes(file, part, got);
    bool failed = ferror(stream);
    return fclose(stream) == 0 && !failed;
}

void png_make_crc(struct png_file *file, size_t offset)
{
    uint32_t length = conv_chunk_read_u32(file->data + offset);
    uint8_t *type = file->data + offset + 4;
    conv_chunk_write_u32(type + 4 + length, (uint32_t)crc32(0, type, length + 4));
}

void png_make_chunk(struct png_file *file, const char *type, const void *data, size_t size)
{
    uint8_t field[4];
    size_t offset = file->size;
    conv_chunk_write_u32(field, (uint32_t)size);
    png_make_bytes(file, field, 4);
    png_make_bytes(file, type, 4);
    png_make_bytes(file, data, size);
    png_make_bytes(file, field, 4);
    png_make_crc(file, offset);
}

void png_make_head(struct png_file *file, int width, int height, int depth, int color_type)
{
    uint8_t fields[13] = {[8] = (uint8_t)depth, [9] = (uint8_t)color_type};
    conv_chunk_write_u32(fields, (uint32_t)width);
    conv_chunk_write_u32(fields + 4, (uint32_t)height);
    png_make_bytes(file, "\x89PNG\r\n\x1a\n", 8);
    png_make_chunk(file, "IHDR", fields, sizeof fields);
}

struct png_file png_make_zlib(const void *data, size_t size)
{
    uLongf room = compressBound((uLong)size);
    struct png_file stream = {checked(malloc(room)), 0};
    if (compress(stream.data, &room, data, (uLong)size) != Z_OK)
        abort();
    stream.size = room;
    return stream;
}

struct png_file png_make_zlib_as(const void *data, size_t size, int level, int strategy, int memory)
{
    // Not deflateBound: zlib 1.2.13's is too small for fixed codes.
    struct png_file stream = {checked(malloc(2 * size + 1000)), 0};
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)data,
        .avail_in = (uInt)size,
        .next_out = stream.data,
        .avail_out = (uInt)(2 * size + 1000),
    };
    if (deflateInit2(&z, level, Z_DEFLATED, 15, memory, strategy) != Z_OK ||
        deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    stream.size = z.total_out;
    deflateEnd(&z);
    return stream;
}

size_t png_make_find(const struct png_file *file, const char *type, int n)
{
    size_t size;
    for (size_t at = 8; at + 12 <= file->size; at += size) {
        size = 12 + (size_t)conv_chunk_read_u32(file->data + at);
        if (size > file->size - at)
            break;
        if (memcmp(file->data + at + 4, type, 4) == 0 && n-- == 0)
            return at;
    }
    return file->size;
}

// --- by libpng -----------------------------------------------------------------------------------

int png_make_channels(int color_type)
{
    return (color_type == 2 || color_type == 6 ? 3 : 1) + (color_type & 4 ? 1 : 0);
}

void png_make_palette(int i, uint8_t rgba[4])
{
    rgba[0] = (uint8_t)(11 + 37 * i);
    rgba[1] = (uint8_t)(5 + 91 * i);
    rgba[2] = (uint8_t)(255 - 13 * i);
    rgba[3] = (uint8_t)(3 + 53 * i);
}

static void take_bytes(png_structp png, png_bytep data, size_t size)
{
    png_make_bytes(png_get_io_ptr(png), data, size);
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static void stop(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
    abort();
}

static void pack_row(uint8_t *row, const struct png_spec *spec, int y)
{
    int n = spec->width * png_make_channels(spec->color_type);
    const uint16_t *samples = spec->samples + (size_t)y * (size_t)n;
    memset(row, 0, ((size_t)n * (size_t)spec->depth + 7) / 8);
    for (int i = 0; i < n; i++) {
        if (spec->depth == 16) {
            row[2 * i] = (uint8_t)(samples[i] >> 8);
            row[2 * i + 1] = (uint8_t)samples[i];
        } else {
            int bit = i * spec->depth;
            row[bit / 8] |= (uint8_t)(samples[i] << (8 - spec->depth - bit % 8));
        }
    }
}

static void describe_colors(png_structp png, png_infop info, const struct png_spec *spec)
{
    png_color colors[256];
    uint8_t alpha[256], rgba[4];
    for (int i = 0; i < spec->palette_size; i++) {
        png_make_palette(i, rgba);
        colors[i] = (png_color){rgba[0], rgba[1], rgba[2]};
        alpha[i] = rgba[3];
    }
    if (spec->palette_size > 0)
        png_set_PLTE(png, info, colors, spec->palette_size);
    const uint16_t *first = spec->samples;
    png_color_16 key = {.gray = first[0]};
    if (spec->color_type == PNG_COLOR_TYPE_RGB)
        key = (png_color_16){.red = first[0], .green = first[1], .blue = first[2]};
    if (spec->transparency)
        png_set_tRNS(png, info, alpha, (spec->palette_size + 1) / 2, &key);
}

void png_make_image(struct png_file *file, const struct png_spec *spec)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, stop, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t *row = checked(malloc((size_t)spec->width * 8)); // 4 channels of 16 bits
    *file = (struct png_file){0};
    png_set_write_fn(png, file, take_bytes, flush_nothing);
    png_set_check_for_invalid_index(png, 0);
    png_set_user_limits(png, (png_uint_32)spec->width, (png_uint_32)spec->height);
    png_set_IHDR(png, info, (png_uint_32)spec->width, (png_uint_32)spec->height, spec->depth,
                 spec->color_type, spec->interlaced, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    describe_colors(png, info, spec);
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++) {
        for (int y = 0; y < spec->height; y++) {
            pack_row(row, spec, y);
            png_write_row(png, row);
        }
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(row);
}
