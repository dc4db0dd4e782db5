// SPDX-License-Identifier: MIT
#include "io/files/file_read.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/buffer.h"
#include "base/parallel.h"
#include "io/files/formats.h"
#include "io/files/paths.h"

#define READ_CHUNK ((size_t)1 << 16)
#define SHARED_LEAST ((size_t)8 << 20)
#define READ_MOST ((size_t)16 << 20) // at once: a signal is noticed between two reads
#define HEAD_MOST ((size_t)1 << 18)  // bytes that should say how many pixels there are

// One byte more than the size lets a single read see the end of the file.
size_t conv_file_read_capacity(size_t size)
{
    return conv_image_align(size + 1, READ_CHUNK);
}

static enum conv_status reserve(const struct conv_file_read *how, struct conv_file *file,
                                size_t capacity, struct conv_err *err)
{
    if (capacity <= file->capacity)
        return CONV_OK;
    if (how->grow)
        how->grow(how->context, capacity);
    uint8_t *data = realloc(file->data, capacity);
    if (!data)
        return conv_err_memory(err, "no memory for a file of %zu bytes", capacity);
    if (file->size == 0) // what grows would be copied: the system does not move such memory
        conv_huge_use(data, capacity);
    file->data = data;
    file->capacity = capacity;
    return CONV_OK;
}

static enum conv_status refuse_size(struct conv_err *err)
{
    return conv_err_advise(err, CONV_ERR_LIMIT, CONV_HINT_MEM_LIMIT_FILE,
                           "the file is larger than the memory limit");
}

// False if the run is to stop.
static bool wait_readable(const struct conv_file_read *how, const struct conv_item *item,
                          const struct conv_input *input)
{
    if (item->ops->has_bytes && item->ops->has_bytes(input))
        return true;
    if (how->pause)
        how->pause(how->context);
    bool readable = conv_paths_wait_readable(input->fd, how->stop);
    if (how->resume)
        how->resume(how->context);
    return readable;
}

// Reads what is left of a large file, except for its end, by several threads.
static void read_by_many(const struct conv_file_read *how, const struct conv_item *item,
                         struct conv_input *input, struct conv_file *file)
{
    size_t all = (size_t)input->info.st_size;
    if (!item->ops->read_shared || !conv_input_is_file(input) || all > file->capacity ||
        file->size > all || all - file->size < SHARED_LEAST ||
        conv_parallel_most(how->parallel, 0) < 2)
        return;
    if (item->ops->read_shared(input, file->data + file->size, all - file->size, how->parallel,
                               how->stop))
        file->size = all;
}

static enum conv_status check_pixels(const struct conv_image *shape, uint64_t limit,
                                     struct conv_err *err)
{
    if ((uint64_t)shape->width * (uint64_t)shape->height <= limit)
        return CONV_OK;
    return conv_err_advise(err, CONV_ERR_LIMIT, CONV_HINT_MAX_PIXELS,
                           "%d x %d pixels are more than the limit of %" PRIu64, shape->width,
                           shape->height, limit);
}

enum conv_status conv_image_reader_check_head(const uint8_t *data, size_t size,
                                              uint64_t pixel_limit, struct conv_err *err)
{
    struct conv_image_header header = {0};
    struct conv_err ignored; // of what is not all there; else reading reports it again
    size = size < HEAD_MOST ? size : HEAD_MOST;
    (void)conv_formats_find(data, size)->probe(data, size, &header, &ignored);
    return header.shape.width > 0 && header.shape.height > 0
               ? check_pixels(&header.shape, pixel_limit, err)
               : CONV_OK;
}

static enum conv_status read_open(const struct conv_file_read *how, const struct conv_item *item,
                                  struct conv_input *input, struct conv_file *file,
                                  const struct conv_format **format, struct conv_err *err)
{
    bool regular = conv_input_is_file(input);
    size_t expected = regular ? (size_t)input->info.st_size : 0;
    if (expected > how->limit)
        return refuse_size(err);
    enum conv_status status = reserve(how, file, conv_file_read_capacity(expected), err);
    while (!status) {
        if (!regular && !wait_readable(how, item, input))
            return conv_err_set(err, CONV_ERR_CANCELLED, "stopped while waiting for input");
        if (conv_cancel_is_asked(how->stop))
            return conv_err_cancelled(err);
        // The first bytes are read alone: no memory is taken for what is no image, or too large.
        bool first = !*format;
        size_t room = file->capacity - file->size, most = first ? READ_CHUNK : READ_MOST;
        ssize_t got =
            item->ops->read(input, file->data + file->size, room < most ? room : most, err);
        if (got == CONV_INPUT_LATER)
            continue;
        if (got < 0)
            return err->status;
        if (got == 0)
            return item->ops->unchanged(input, err);
        file->size += (size_t)got;
        if (first)
            status = conv_formats_check(format, file->data, file->size, false, err);
        if (!status && *format && file->size <= HEAD_MOST && (!regular || file->size < expected))
            status = conv_image_reader_check_head(file->data, file->size, how->pixel_limit, err);
        if (!status && first && *format)
            read_by_many(how, item, input, file);
        if (!status && file->size > how->limit)
            return refuse_size(err);
        if (!status && file->size == file->capacity)
            status = reserve(how, file, 2 * file->capacity, err);
    }
    return status;
}

static enum conv_status view_file(const struct conv_file_read *how, const struct conv_item *item,
                                  struct conv_input *input, struct conv_file *file,
                                  const struct conv_format **format, struct conv_err *err)
{
    enum conv_status status = item->ops->view(item, input, &file->bytes, &file->size, err);
    if (!status && file->size > how->limit)
        status = refuse_size(err);
    return status ? status : conv_formats_check(format, file->bytes, file->size, true, err);
}

static enum conv_status map_file(struct conv_input *input, struct conv_file *file,
                                 const struct conv_format **format, struct conv_err *err)
{
    size_t size = (size_t)input->info.st_size;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, input->fd, 0);
    if (map == MAP_FAILED)
        return conv_err_errno(err, errno, "cannot read");
    (void)madvise(map, size, MADV_SEQUENTIAL);
    conv_input_keep(input); // as long as the image takes
    file->bytes = map;
    file->size = size;
    file->is_mapped = true;
    return conv_formats_check(format, file->bytes, size, true, err);
}

void conv_file_unmap(struct conv_file *file, const struct conv_item *item, struct conv_input *input)
{
    if (!file->is_mapped)
        return;
    munmap((void *)(uintptr_t)file->bytes, file->size);
    file->is_mapped = false;
    item->ops->close(input);
}

enum conv_status conv_file_read(const struct conv_file_read *how, const struct conv_item *item,
                                struct conv_input *input, struct conv_file *file,
                                const struct conv_format **format, struct conv_err *err)
{
    *format = NULL;
    file->size = 0;
    if (item->ops->view)
        return view_file(how, item, input, file, format, err);
    enum conv_status status = item->ops->open(item, input, err);
    if (status)
        return status;
    if (how->map_from > 0 && item->ops->is_file && conv_input_is_file(input) &&
        (uint64_t)input->info.st_size >= how->map_from) {
        status = map_file(input, file, format, err);
        if (!file->is_mapped)
            item->ops->close(input);
        return status;
    }
    if (!conv_input_is_file(input))
        conv_input_keep(input); // the writer of a pipe may take long
    status = read_open(how, item, input, file, format, err);
    item->ops->close(input);
    file->bytes = file->data;
    if (!status && !*format)
        status = conv_formats_check(format, file->data, file->size, true, err);
    return status;
}

// --- images one at a time ------------------------------------------------------------------------

enum conv_status conv_image_reader_probe(const struct conv_format *format, const uint8_t *data,
                                         size_t size, uint64_t pixel_limit,
                                         struct conv_image_header *header, struct conv_err *err)
{
    enum conv_status status = format->probe(data, size, header, err);
    if (status)
        return status;
    status = check_pixels(&header->shape, pixel_limit, err);
    return status ? status : format->check_size(data, size, header, err);
}

// Images that follow the first one, directly or after blanks, line ends and NUL bytes.
static unsigned count_following(const struct conv_format *format, const uint8_t *data, size_t size)
{
    unsigned count = 0;
    for (;;) {
        size_t end = conv_format_end(format, data, size);
        while (end < size && (data[end] == 0 || isspace(data[end])))
            end++;
        data += end;
        size -= end;
        format = conv_formats_find(data, size);
        if (size < format->head_bytes || conv_format_check_head(format, data, size, NULL))
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
    if (conv_format_is_animated(format, file->bytes, file->size))
        status = conv_err_unsupported(err,
                                      format->has_pages
                                          ? "%s of several pages: all but one would be lost"
                                          : "animated %s: all frames but one would be lost",
                                      format->name);
    else if (stream || !format->has_trailers)
        following = count_following(format, file->bytes, file->size);
    if (following)
        status =
            conv_err_unsupported(err, "%u more %s: all images but the first would be lost",
                                 following, following == 1 ? "image follows" : "images follow");
    return status ? conv_err_hint(err,
                                  item->in_place ? CONV_HINT_TAKE_FIRST_COPY : CONV_HINT_TAKE_FIRST,
                                  0, status)
                  : CONV_OK;
}

enum conv_status conv_image_reader_read(struct conv_image_reader *reader,
                                        const struct conv_item *item, struct conv_err *err)
{
    const struct conv_file_read how = {.limit = reader->file_limit,
                                       .pixel_limit = reader->pixel_limit};
    struct conv_input input = {0};
    struct conv_file *file = &reader->file;
    enum conv_status status = conv_file_read(&how, item, &input, file, &reader->format, err);
    if (status)
        return status;
    return conv_image_reader_probe(reader->format, file->bytes, file->size, reader->pixel_limit,
                                   &reader->header, err);
}

enum conv_status conv_image_reader_decode(struct conv_image_reader *reader,
                                          const struct conv_image *image, struct conv_err *err)
{
    struct conv_codec_config config = {.level = -1};
    if (!reader->codec || reader->codec->format != reader->format) {
        conv_codec_close(reader->codec);
        enum conv_status status = conv_codec_open(&reader->codec, reader->format, &config, err);
        if (status)
            return status;
    }
    return reader->format->decode(reader->codec, reader->file.bytes, reader->file.size,
                                  &reader->header, image, NULL, err);
}

void conv_image_reader_close(struct conv_image_reader *reader)
{
    conv_codec_close(reader->codec);
    free(reader->file.data);
    *reader = (struct conv_image_reader){0};
}
