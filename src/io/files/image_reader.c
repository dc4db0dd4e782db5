// SPDX-License-Identifier: MIT
#include "io/files/image_reader.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "io/files/formats.h"

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

// Images that follow the first one, directly or after blanks, line ends and NUL bytes.
static unsigned count_following(const struct conv_format *format, const uint8_t *data, size_t size)
{
    unsigned count = 0;
    for (;;) {
        size_t end = format->end(data, size);
        while (end < size && (data[end] == 0 || isspace(data[end])))
            end++;
        data += end;
        size -= end;
        format = conv_formats_find(data, size);
        if (size < format->head_bytes || format->check_head(data, size, NULL))
            return count;
        count++;
    }
}

enum conv_status conv_image_reader_check_single(const struct conv_format *format,
                                                const struct conv_file *file,
                                                const struct conv_item *item,
                                                const struct conv_input *input,
                                                struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    bool stream = item->ops->title || !conv_input_is_file(input);
    unsigned following = 0;
    if (format->is_animated(file->bytes, file->size))
        status = conv_err_set(err, CONV_ERR_UNSUPPORTED,
                              "animated %s: all frames but one would be lost", format->name);
    else if (stream || !format->has_trailers)
        following = count_following(format, file->bytes, file->size);
    if (following)
        status = conv_err_set(err, CONV_ERR_UNSUPPORTED,
                              "%u more %s: all images but the first would be lost", following,
                              following == 1 ? "image follows" : "images follow");
    return status ? conv_err_hint(err,
                                  item->in_place ? CONV_HINT_TAKE_FIRST_COPY : CONV_HINT_TAKE_FIRST,
                                  0, status)
                  : CONV_OK;
}

enum conv_status conv_image_reader_read(struct conv_image_reader *reader,
                                        const struct conv_item *item, struct conv_err *err)
{
    const struct conv_file_read how = {.limit = reader->file_limit};
    struct conv_input input = {0};
    struct conv_file *file = &reader->file;
    enum conv_status status = conv_file_read(&how, item, &input, file, &reader->format, err);
    reader->info = input.info;
    if (status)
        return status;
    return conv_image_reader_probe(reader->format, file->bytes, file->size, reader->pixel_limit,
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
    return reader->format->decode(reader->codec, reader->file.bytes, reader->file.size,
                                  &reader->header, image, err);
}

void conv_image_reader_close(struct conv_image_reader *reader)
{
    if (reader->codec)
        reader->codec_format->close(reader->codec);
    free(reader->file.data);
    *reader = (struct conv_image_reader){0};
}
