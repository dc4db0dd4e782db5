// SPDX-License-Identifier: MIT
// Batches of views to files: by the device where the images are in its memory, else by the
// context's threads.
#include <string.h>

#include "api/api.h"
#include "engine/view.h"

// One image. It is `view` of its entry in `list`; data NULL: nothing is to be done, or it failed.
struct item {
    conv_image host; // of a view in device memory: a copy for the host to encode
    bool done;       // the file is where the caller gets it
};

struct encoding {
    struct conv_api_batch batch;
    conv_context *context;
    const struct conv_format *format;
    struct conv_codec_config config;
    void *(*reserve)(void *user, int32_t index, size_t most); // of the options; may be NULL
    conv_bytes *files;
    struct conv_file_memory memory; // of the caller, if `allocate` is set
    struct conv_device_encode *list;
    struct item *items;
    int count;
    void *stream;
    uint64_t samples;
    bool alone; // the calling thread encodes without help
};

static void fail(struct encoding *encoding, int index, enum conv_status status,
                 const struct conv_err *err)
{
    struct item *item = &encoding->items[index];
    conv_memory_give(encoding->context->device->pools, CONV_HOST, item->host.data);
    item->host.data = encoding->list[index].view.data = NULL;
    conv_api_batch_fail(&encoding->batch, index, status, err);
}

// --- on the host ---------------------------------------------------------------------------------

// A view that is not planar.
struct row_reader {
    const conv_image *view;
    bool started; // `copier` is ready
    struct conv_view_copier copier;
};

static void get_row(void *context, int y, const struct conv_image *row)
{
    struct row_reader *reader = context;
    const conv_image *view = reader->view;
    conv_image to = conv_view_of(row);
    if (!reader->started)
        conv_view_copier_init(&reader->copier, &to, view);
    reader->started = true; // all rows have the same strides
    conv_view_copier_row(&reader->copier, &to, to.data, view,
                         (const uint8_t *)view->data + y * view->row_stride);
}

// Files that take less than 1/SPARSE of their memory are copied to a block of their size, which
// costs less than 1 % of the time.
#define SPARSE 4

// `memory` of `room` bytes holds a file, which the library's caller gets.
static enum conv_status hand_over(conv_context *context, conv_bytes *file, void *memory,
                                  size_t room, size_t size, struct conv_err *err)
{
    void *tight;
    *file = (conv_bytes){memory, size};
    if (size >= room / SPARSE)
        return CONV_OK;
    enum conv_status status =
        conv_memory_take(context->device->pools, CONV_HOST, size, &tight, err);
    if (!status)
        *file = (conv_bytes){memcpy(tight, memory, size), size};
    conv_memory_give(context->device->pools, CONV_HOST, memory);
    return status;
}

struct room { // for a file
    struct encoding *encoding;
    int index;
    void *memory;
    size_t bytes;
    bool of_caller;
};

static uint8_t *take_room(void *context, size_t bytes)
{
    struct room *room = context;
    const struct encoding *encoding = room->encoding;
    room->bytes = bytes;
    if (encoding->alone && encoding->memory.allocate && encoding->reserve)
        room->memory = encoding->reserve(encoding->memory.user, room->index, bytes);
    room->of_caller = room->memory != NULL;
    if (!room->of_caller)
        (void)conv_memory_take(encoding->context->device->pools, CONV_HOST, bytes, &room->memory,
                               NULL);
    return room->memory;
}

static enum conv_status encode_from(struct encoding *encoding, int worker, int index,
                                    const conv_image *view, struct conv_err *err)
{
    conv_context *context = encoding->context;
    const struct conv_format *format = encoding->format;
    conv_bytes *file = &encoding->files[index];
    struct conv_codec *codec;
    enum conv_status status =
        conv_api_coder_get(context, worker, format, &encoding->config, &codec, err);
    if (status)
        return status;
    struct conv_image planes = conv_view_planes(view);
    struct row_reader reader = {.view = view};
    struct conv_row_source source = {get_row, &reader};
    struct room room = {.encoding = encoding, .index = index};
    struct conv_file_room into = {take_room, &room};
    size_t size;
    status = format->encode_into(codec, &planes, conv_view_is_planar(view) ? NULL : &source, &into,
                                 &size, err);
    encoding->items[index].done = room.of_caller;
    if (!status && room.of_caller)
        *file = (conv_bytes){room.memory, size};
    else if (!status)
        status = hand_over(context, file, room.memory, room.bytes, size, err);
    else if (!room.of_caller)
        conv_memory_give(context->device->pools, CONV_HOST, room.memory);
    conv_codec_trim(codec);
    return status;
}

static void encode_item(void *context, int worker, int index)
{
    struct encoding *encoding = context;
    struct item *item = &encoding->items[index];
    const conv_image *view = item->host.data ? &item->host : &encoding->list[index].view;
    struct conv_err err;
    if (!encoding->list[index].view.data || item->done)
        return;
    enum conv_status status = encode_from(encoding, worker, index, view, &err);
    if (status) {
        fail(encoding, index, status, &err);
        return;
    }
    conv_memory_give(encoding->context->device->pools, CONV_HOST, item->host.data);
    item->host.data = NULL;
}

// --- in the caller's memory ----------------------------------------------------------------------

// Copies a file made by the host's encoder from the pool's memory to the caller's.
static void move_file(void *context, int, int at)
{
    struct encoding *encoding = context;
    conv_bytes *file = &encoding->files[encoding->memory.indices[at]];
    void *memory = encoding->memory.memory[at];
    if (memory)
        memcpy(memory, file->data, file->size);
    conv_memory_give(encoding->context->device->pools, CONV_HOST, (void *)(uintptr_t)file->data);
    *file = memory ? (conv_bytes){memory, file->size} : (conv_bytes){NULL, 0};
}

static void move_files(struct encoding *encoding)
{
    struct conv_file_memory *memory = &encoding->memory;
    size_t bytes = 0;
    memory->count = 0;
    for (int i = 0; i < encoding->count; i++) {
        if (!encoding->files[i].data || encoding->items[i].done)
            continue;
        conv_file_memory_add(memory, i, encoding->files[i].size);
        bytes += encoding->files[i].size;
    }
    conv_file_memory_call(memory);
    conv_workers_run(encoding->context->device->workers,
                     conv_workers_for(encoding->context->device->threads, bytes), move_file,
                     encoding, memory->count);
    for (int k = 0; k < memory->count; k++) {
        struct conv_err err;
        if (!memory->memory[k])
            fail(encoding, memory->indices[k],
                 conv_err_memory(&err, "no memory for %zu bytes", memory->sizes[k]), &err);
    }
}

// --- on the device -------------------------------------------------------------------------------

// Makes a copy in host memory of an image that the device has not encoded.
static enum conv_status download(struct encoding *encoding, int index, void *stream,
                                 struct conv_err *err)
{
    conv_context *context = encoding->context;
    const conv_image *view = &encoding->list[index].view;
    conv_image *host = &encoding->items[index].host;
    conv_image image = *view;
    enum conv_status status = conv_api_take_image(context, &image, CONV_HOST, true, err);
    if (status)
        return status;
    *host = image;
    return context->device->ops->copy(context->device, host, view, 1, stream, err);
}

static void encode_on_device(struct encoding *encoding, void *stream)
{
    conv_context *context = encoding->context;
    struct conv_file_memory *files = encoding->memory.allocate ? &encoding->memory : NULL;
    struct conv_err err;
    enum conv_status status = context->device->ops->encode(context->device, encoding->list,
                                                           encoding->count, files, stream, &err);
    context->lost |= status == CONV_ERR_DEVICE;
    for (int i = 0; i < encoding->count; i++) {
        const struct conv_device_encode *image = &encoding->list[i];
        enum conv_status made = status == CONV_ERR_DEVICE ? status : CONV_OK;
        if (!image->offered)
            continue;
        if (!status && image->done) {
            encoding->files[i] = (conv_bytes){image->data, image->size};
            encoding->items[i].done = true;
        } else if (!made) {
            made = download(encoding, i, stream, &err);
        }
        if (made)
            fail(encoding, i, made, &err);
    }
}

// --- the call ------------------------------------------------------------------------------------

static void encode_all(struct encoding *encoding, const conv_image *images, void *stream)
{
    conv_context *context = encoding->context;
    bool on_device = false;
    for (int i = 0; i < encoding->count; i++) {
        struct conv_err err;
        encoding->list[i].format = encoding->format;
        encoding->list[i].config = &encoding->config;
        enum conv_status status =
            conv_api_check_view(&images[i], CONV_SAMPLE_U16, false, "the image", &err);
        if (status) {
            fail(encoding, i, status, &err);
            continue;
        }
        encoding->list[i].view = images[i];
        encoding->list[i].offered = conv_api_is_on_device(context, images[i].memory);
        encoding->samples +=
            (uint64_t)images[i].width * (uint64_t)images[i].height * (uint64_t)images[i].channels;
        on_device |= encoding->list[i].offered;
    }
    if (on_device)
        encode_on_device(encoding, stream);
    int threads = conv_workers_for(context->device->threads, encoding->samples);
    encoding->alone = threads == 1 || encoding->count == 1;
    conv_workers_run(context->device->workers, threads, encode_item, encoding, encoding->count);
    if (encoding->memory.allocate)
        move_files(encoding);
}

// `status`: of the call so far, which has begun; `encoding` has the settings.
static enum conv_status encode_images(struct encoding *encoding, enum conv_status status,
                                      const conv_image *images, conv_item *items)
{
    int count = encoding->count;
    struct conv_file_memory *memory = &encoding->memory;
    size_t each = sizeof *encoding->list + sizeof *encoding->items + sizeof *memory->memory +
                  sizeof *memory->sizes + sizeof *memory->indices;
    for (int i = 0; encoding->files && i < count; i++)
        encoding->files[i] = (conv_bytes){NULL, 0};
    if (!conv_api_batch_open(&encoding->batch, encoding->context, encoding->files, images, items,
                             count, each, &status))
        return status;
    encoding->list = encoding->batch.memory;
    if (count > 0) {
        encoding->items = (struct item *)(encoding->list + count);
        memory->memory = (void **)(encoding->items + count);
        memory->sizes = (size_t *)(memory->memory + count);
        memory->indices = (int32_t *)(memory->sizes + count);
    }
    encode_all(encoding, images, encoding->stream);
    return conv_api_batch_end(&encoding->batch);
}

conv_status conv_encode_png(conv_context *context, const conv_image *images, int count,
                            const conv_encode_options *options, conv_bytes *files, conv_item *items,
                            void *stream)
{
    conv_encode_options own = CONV_ENCODE_OPTIONS_INIT;
    if (!context)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_api_begin(context);
    if (!status)
        status = CONV_API_READ_OPTIONS(&own, options, &context->err);
    struct encoding encoding = {
        .context = context,
        .format = &conv_png_format,
        .config = {.level = own.level},
        .reserve = own.reserve,
        .files = files,
        .memory = {.allocate = own.allocate, .user = own.user},
        .count = count,
        .stream = stream,
    };
    if (!status)
        status = conv_png_check_level(&encoding.config, &context->err);
    return encode_images(&encoding, status, images, items);
}

static enum conv_status read_jpeg_options(struct encoding *encoding,
                                          const conv_jpeg_encode_options *options,
                                          struct conv_err *err)
{
    struct conv_codec_config *config = &encoding->config;
    int sampling = options->sampling;
    if (options->quality < 0 || options->quality > 100)
        return conv_err_usage(err, "quality %d is not within 1 to 100", options->quality);
    if (sampling != 0 && sampling != 444 && sampling != 422 && sampling != 420)
        return conv_err_usage(err, "sampling %d is none of 444, 422 and 420", sampling);
    config->quality = options->quality;
    config->sampling_h = sampling == 0 ? 0 : sampling == 444 ? 1 : 2;
    config->sampling_v = sampling == 0 ? 0 : sampling == 420 ? 2 : 1;
    config->progressive = options->progressive != 0;
    config->optimize = options->optimize != 0;
    encoding->reserve = options->reserve;
    encoding->memory.allocate = options->allocate;
    encoding->memory.user = options->user;
    return conv_api_find_format(&encoding->format, "jpg", err);
}

conv_status conv_encode_jpeg(conv_context *context, const conv_image *images, int count,
                             const conv_jpeg_encode_options *options, conv_bytes *files,
                             conv_item *items, void *stream)
{
    conv_jpeg_encode_options own = CONV_JPEG_ENCODE_OPTIONS_INIT;
    if (!context)
        return CONV_ERR_USAGE;
    struct encoding encoding = {
        .context = context, .files = files, .count = count, .stream = stream};
    enum conv_status status = conv_api_begin(context);
    if (!status)
        status = CONV_API_READ_OPTIONS(&own, options, &context->err);
    if (!status)
        status = read_jpeg_options(&encoding, &own, &context->err);
    return encode_images(&encoding, status, images, items);
}
