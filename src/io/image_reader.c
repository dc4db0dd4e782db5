// SPDX-License-Identifier: MIT
#include "io/image_reader.h"

#include <inttypes.h>
#include <stdlib.h>

#include "io/formats.h"

#define READ_CHUNK ((size_t)1 << 16)

enum conv_status conv_image_reader_probe(const struct conv_format *format, const uint8_t *data,
                                         size_t size, uint64_t pixel_limit,
                                         struct conv_image_header *header, struct conv_err *err)
{
    enum conv_status status = format->probe(data, size, header, err);
    if (status)
        return status;
    const struct conv_image *shape = &header->shape;
    if ((uint64_t)shape->width * (uint64_t)shape->height > pixel_limit)
        return conv_err_hint(err, CONV_HINT_MAX_PIXELS, 0,
                             conv_err_set(err, CONV_ERR_LIMIT,
                                          "%d x %d pixels are more than the limit of %" PRIu64,
                                          shape->width, shape->height, pixel_limit));
    return format->check_size(data, size, header, err);
}

static enum conv_status refuse_size(struct conv_err *err)
{
    return conv_err_hint(
        err, CONV_HINT_MEM_LIMIT_FILE, 0,
        conv_err_set(err, CONV_ERR_LIMIT, "the file is larger than the memory limit"));
}

static enum conv_status reserve(struct conv_image_reader *reader, size_t size, struct conv_err *err)
{
    if (size <= reader->capacity)
        return CONV_OK;
    uint8_t *data = realloc(reader->data, size);
    if (!data)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a file of %zu bytes", size);
    reader->data = data;
    reader->capacity = size;
    return CONV_OK;
}

// The format's head is checked before more of the file is read than that.
static enum conv_status read_open(struct conv_image_reader *reader, const struct conv_item *item,
                                  struct conv_input *input, struct conv_err *err)
{
    // One byte more than the size lets the read after the last byte see the end of the file.
    bool regular = conv_input_is_file(input);
    size_t expected = regular ? (size_t)input->info.st_size + 1 : READ_CHUNK;
    if (expected - 1 > reader->file_limit)
        return refuse_size(err);
    enum conv_status status = reserve(reader, expected, err);
    bool checked = false;
    while (!status) {
        if (!regular)
            (void)conv_input_wait(input, NULL);
        size_t room = reader->capacity - reader->size;
        ssize_t got = item->ops->read(input, reader->data + reader->size,
                                      !checked && room > READ_CHUNK ? READ_CHUNK : room, err);
        if (got == CONV_INPUT_LATER)
            continue;
        if (got < 0)
            return err->status;
        if (got == 0)
            return item->ops->unchanged(input, err);
        reader->size += (size_t)got;
        const struct conv_format *format = conv_formats_find(reader->data, reader->size);
        if (!checked && reader->size >= format->head_bytes) {
            checked = true;
            status = format->check_head(reader->data, reader->size, err);
        }
        if (!status && reader->size > reader->file_limit)
            return refuse_size(err);
        if (!status && reader->size == reader->capacity)
            status = reserve(reader, 2 * reader->capacity, err);
    }
    return status;
}

enum conv_status conv_image_reader_read(struct conv_image_reader *reader,
                                        const struct conv_item *item, struct conv_err *err)
{
    struct conv_input input = {0};
    reader->size = 0;
    enum conv_status status = item->ops->open(item, &input, err);
    if (status)
        return status;
    if (!conv_input_is_file(&input))
        conv_input_keep(&input); // the writer of a pipe may take long
    status = read_open(reader, item, &input, err);
    reader->info = input.info;
    item->ops->close(&input);
    if (status)
        return status;
    reader->format = conv_formats_find(reader->data, reader->size);
    return conv_image_reader_probe(reader->format, reader->data, reader->size, reader->pixel_limit,
                                   &reader->header, err);
}

enum conv_status conv_image_reader_decode(struct conv_image_reader *reader,
                                          const struct conv_image *image, struct conv_err *err)
{
    struct conv_codec_config config = {.level = -1};
    if (reader->codec_format != reader->format) {
        if (reader->codec)
            reader->codec_format->close(reader->codec);
        reader->codec = NULL;
        reader->codec_format = NULL;
        enum conv_status status = reader->format->open(&reader->codec, &config, err);
        if (status)
            return status;
        reader->codec_format = reader->format;
    }
    return reader->format->decode(reader->codec, reader->data, reader->size, &reader->header, image,
                                  err);
}

void conv_image_reader_close(struct conv_image_reader *reader)
{
    if (reader->codec)
        reader->codec_format->close(reader->codec);
    free(reader->data);
    *reader = (struct conv_image_reader){0};
}
