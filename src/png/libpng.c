// SPDX-License-Identifier: MIT
// The only file that uses libpng and its long jumps. A function that calls setjmp only calls its
// inner half, so no local variable lives across a jump; its caller owns and frees all memory.
#include "png/png.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "base/parallel.h"
#include "image/interleave.h"
#include "png/chunk.h"
#include "png/cpu/unfilter.h"

// Compressed bytes passed to zlib at a time, and size of a written IDAT.
#define IDAT_SIZE 65536

// Most image data after the last row that is accepted. libpng inflates all of it to find its end:
// 20 MB of compressed zeros took 40 s.
#define MAX_EXCESS IDAT_SIZE

static void on_error(png_structp png, png_const_charp message)
{
    struct conv_format_fault *fault = png_get_error_ptr(png);
    snprintf(fault->text, sizeof fault->text, "%s", message);
    png_longjmp(png, 1);
}

static void on_write_warning(png_structp, png_const_charp)
{
}

// After the last row libpng only warns about a damaged zlib stream, a wrong Adler-32 included: here
// that is an error. Its other warnings about IDAT say that there is more than the image needs,
// which is accepted.
static void on_read_warning(png_structp png, png_const_charp message)
{
    static const char *const harmless[] = {"Extra compressed data", "Too much image data",
                                           "Too many IDATs found", "chunk data is too large"};
    if (strncmp(message, "IDAT: ", 6) != 0)
        return;
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (strstr(message, harmless[i]))
            return;
    }
    on_error(png, message);
}

static png_voidp allocate(png_structp png, png_alloc_size_t size)
{
    struct conv_format_fault *fault = png_get_mem_ptr(png);
    void *memory = malloc(size);
    if (!memory)
        fault->no_memory = true;
    return memory;
}

static void release(png_structp, png_voidp memory)
{
    free(memory);
}

// Called for each row and each read; cancels by a long jump.
static void check_stop(png_structp png, const atomic_int *stop)
{
    if (conv_cancel_is_asked(stop)) {
        struct conv_format_fault *fault = png_get_error_ptr(png);
        fault->cancelled = true;
        png_error(png, CONV_CANCEL_TEXT);
    }
}

// --- decoding ------------------------------------------------------------------------------------

struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *at, *end;
    const struct conv_image_header *header;
    const struct conv_image *dst;     // NULL: to put_rows
    const struct conv_rows *put_rows; // NULL: to dst
    uint8_t *rows;
    size_t row_size;
    uint8_t *planes;                      // of one row, for put_rows
    const struct conv_unfilter *unfilter; // its split()
    size_t excess;                        // bytes of image data read after the last row
    const atomic_int *stop;
};

// libpng reads on to the end of the image data while it finishes the last row.
static bool is_after_rows(png_structp png, const struct conv_image_header *header)
{
    if (header->png.interlaced)
        return png_get_current_pass_number(png) >= PNG_INTERLACE_ADAM7_PASSES;
    return png_get_current_row_number(png) >= (png_uint_32)header->shape.height;
}

static void read_bytes(png_structp png, png_bytep bytes, size_t size)
{
    struct reader *reader = png_get_io_ptr(png);
    check_stop(png, reader->stop);
    if (size > (size_t)(reader->end - reader->at)) {
        struct conv_format_fault *fault = png_get_error_ptr(png);
        fault->truncated = true;
        png_error(png, "truncated");
    }
    if (png_get_io_chunk_type(png) == CONV_CHUNK_IDAT && is_after_rows(png, reader->header)) {
        reader->excess += size;
        if (reader->excess > MAX_EXCESS)
            png_error(png, "IDAT: far too much image data");
    }
    memcpy(bytes, reader->at, size);
    reader->at += size;
}

static void start_reading(struct reader *reader)
{
    png_structp png = reader->png;
    png_set_read_fn(png, reader, read_bytes);
    // Chunks that do not make pixels are skipped: metadata.c carries them uninterpreted, and libpng
    // would inflate a compressed text to any size.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    // The caller has checked the image's size.
    png_set_user_limits(png, (png_uint_32)reader->header->shape.width,
                        (png_uint_32)reader->header->shape.height);
    png_set_check_for_invalid_index(png, 0); // out of range is opaque black
    png_set_compression_buffer_size(png, IDAT_SIZE);
    png_read_info(png, reader->info);
}

// Requests the samples that header->shape describes and checks that libpng returns these.
static void choose_samples(struct reader *reader)
{
    png_structp png = reader->png;
    png_infop info = reader->info;
    const struct conv_image *shape = &reader->header->shape;
    if (reader->header->png.color_type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    else if (reader->header->png.bit_depth < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (reader->header->png.transparency)
        png_set_tRNS_to_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_image_width(png, info) != (png_uint_32)shape->width ||
        png_get_image_height(png, info) != (png_uint_32)shape->height ||
        png_get_channels(png, info) != shape->channels ||
        png_get_bit_depth(png, info) != shape->depth ||
        png_get_rowbytes(png, info) != reader->row_size)
        png_error(png, "chunks contradict the header");
}

static void put_row(const struct reader *reader, int y, const uint8_t *row)
{
    const struct conv_rows *rows = reader->put_rows;
    if (reader->dst) {
        reader->unfilter->split(reader->dst, y, row);
    } else if (rows->put_interleaved) {
        rows->put_interleaved(rows->context, y, row);
    } else {
        struct conv_image planes = reader->header->shape;
        planes.height = 1;
        for (int c = 0; c < planes.channels; c++)
            planes.plane[c].data =
                reader->planes + (size_t)c * conv_image_stride(planes.width, planes.depth);
        reader->unfilter->split(&planes, 0, row);
        rows->put(rows->context, y, &planes);
    }
}

static void read_rows(struct reader *reader)
{
    bool interlaced = reader->header->png.interlaced;
    int last = interlaced ? PNG_INTERLACE_ADAM7_PASSES - 1 : 0;
    for (int pass = 0; pass <= last; pass++) {
        for (int y = 0; y < reader->header->shape.height; y++) {
            uint8_t *row = reader->rows + (interlaced ? (size_t)y * reader->row_size : 0);
            check_stop(reader->png, reader->stop);
            png_read_row(reader->png, row, NULL);
            if (pass == last)
                put_row(reader, y, row);
        }
    }
    // Only this reads the end of the zlib stream and IEND.
    png_read_end(reader->png, reader->info);
}

static bool read_guarded(struct reader *reader)
{
    if (setjmp(png_jmpbuf(reader->png)))
        return false;
    start_reading(reader);
    choose_samples(reader);
    read_rows(reader);
    return true;
}

// The rows that are held at once, and after them the planes of one.
static bool reserve_rows(struct conv_buffer *rows, struct reader *reader)
{
    const struct conv_image *shape = &reader->header->shape;
    size_t size, count = reader->header->png.interlaced ? (size_t)shape->height : 1;
    size_t planes = conv_image_stride(shape->width, shape->depth) * (size_t)shape->channels;
    if (__builtin_mul_overflow(reader->row_size, count, &size) || size > SIZE_MAX / 2)
        return false;
    size = conv_image_align(size + CONV_UNFILTER_SLACK, CONV_IMAGE_ROW_ALIGN);
    if (!conv_buffer_reserve(rows, size + (reader->dst ? 0 : planes)))
        return false;
    reader->rows = rows->data;
    reader->planes = rows->data + size;
    return true;
}

// libpng 1.6.39 refuses a wrong CRC of IEND, 1.6.58 does not.
static bool iend_is_right(const uint8_t *data, size_t size)
{
    struct conv_chunk chunk;
    size_t at = CONV_PNG_SIGNATURE_SIZE;
    while (conv_chunk_next(&chunk, data, size, &at)) {
        if (chunk.type == CONV_CHUNK_IEND)
            return conv_chunk_crc_is_right(&chunk);
    }
    return false;
}

enum conv_status conv_libpng_decode(struct conv_buffer *rows, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_image *dst, const struct conv_rows *put_rows,
                                    const atomic_int *stop, struct conv_err *err)
{
    struct conv_format_fault fault = {0};
    struct reader reader = {
        .at = data,
        .end = data + size,
        .header = header,
        .dst = dst,
        .put_rows = put_rows,
        .row_size = conv_interleave_bytes(&header->shape),
        .unfilter = conv_unfilter_choose(conv_cpu_features()),
        .stop = stop,
    };
    if (!reserve_rows(rows, &reader))
        return conv_err_memory(err, "out of memory");
    reader.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &fault, on_error, on_read_warning,
                                          &fault, allocate, release);
    reader.info = reader.png ? png_create_info_struct(reader.png) : NULL;
    enum conv_status status = CONV_OK;
    if (!reader.info)
        status = conv_err_memory(err, "out of memory");
    else if (!read_guarded(&reader))
        status = conv_format_read_failure(&fault, size, err);
    else if (!iend_is_right(data, size))
        status = conv_err_format(err, "damaged image: IEND: CRC error");
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    return status;
}

// --- encoding ------------------------------------------------------------------------------------

struct writer {
    png_structp png;
    png_infop info;
    const struct conv_image *src;
    int level;
    uint8_t *row;
    struct conv_buffer *file;
    const atomic_int *stop;
};

static void write_bytes(png_structp png, png_bytep bytes, size_t size)
{
    struct writer *writer = png_get_io_ptr(png);
    if (!conv_buffer_append(writer->file, bytes, size)) {
        struct conv_format_fault *fault = png_get_error_ptr(png);
        fault->no_memory = true;
        png_error(png, "out of memory");
    }
}

static void flush_nothing(png_structp)
{
}

static void start_writing(struct writer *writer)
{
    static const int types[] = {0, CONV_COLOR_GRAY, CONV_COLOR_GRAY_ALPHA, CONV_COLOR_RGB,
                                CONV_COLOR_RGB_ALPHA};
    png_structp png = writer->png;
    const struct conv_image *src = writer->src;
    png_set_write_fn(png, writer, write_bytes, flush_nothing);
    png_set_user_limits(png, (png_uint_32)src->width, (png_uint_32)src->height);
    png_set_IHDR(png, writer->info, (png_uint_32)src->width, (png_uint_32)src->height, src->depth,
                 types[src->channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_buffer_size(png, IDAT_SIZE);
    // Filters and strategy are libpng's defaults: this encoder is the reference for the others.
    png_set_compression_level(png, writer->level);
    png_write_info(png, writer->info);
}

static void write_rows(struct writer *writer)
{
    for (int y = 0; y < writer->src->height; y++) {
        check_stop(writer->png, writer->stop);
        conv_interleave_join(writer->row, writer->src, y);
        png_write_row(writer->png, writer->row);
    }
    png_write_end(writer->png, NULL);
}

static bool write_guarded(struct writer *writer)
{
    if (setjmp(png_jmpbuf(writer->png)))
        return false;
    start_writing(writer);
    write_rows(writer);
    return true;
}

// The file, if the rows are incompressible, and five rows: libpng has four of its own.
static size_t encode_bytes(const struct conv_image *shape)
{
    size_t bytes;
    size_t row = conv_interleave_bytes(shape) + 1, rows = (size_t)shape->height + 5;
    return __builtin_mul_overflow(row, rows, &bytes) ? SIZE_MAX : bytes;
}

static enum conv_status encode(struct conv_buffer *row, struct conv_buffer *file,
                               const struct conv_image *src, int level, const atomic_int *stop,
                               struct conv_err *err)
{
    file->size = 0;
    if (!conv_buffer_reserve(row, conv_interleave_bytes(src)))
        return conv_err_memory(err, "out of memory");
    struct conv_format_fault fault = {0};
    struct writer writer = {
        .src = src, .level = level, .row = row->data, .file = file, .stop = stop};
    writer.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &fault, on_error,
                                           on_write_warning, &fault, allocate, release);
    writer.info = writer.png ? png_create_info_struct(writer.png) : NULL;
    enum conv_status status = CONV_OK;
    if (!writer.info)
        status = conv_err_memory(err, "out of memory");
    else if (!write_guarded(&writer))
        status = conv_format_write_failure(&fault, err);
    png_destroy_write_struct(&writer.png, &writer.info);
    return status;
}

const struct conv_png_encoder conv_png_libpng = {
    .name = "libpng",
    .standard_level = 1,
    .most_level = 9,
    .bytes = encode_bytes,
    .encode = encode,
};
