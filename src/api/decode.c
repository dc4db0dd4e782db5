// SPDX-License-Identifier: MIT
// Batches of files to views. All files are probed and all images are laid out first; then the
// device decodes what it can, and the context's threads decode the rest.
#include "api/api.h"

#include <string.h>

#include "engine/view.h"
#include "io/files/formats.h"

#define FILES_PER_THREAD 32 // that are probed in the time in which threads wake up

// --- a batch -------------------------------------------------------------------------------------

// One file. Where the samples go is `view` of its entry in `list`; data NULL: nothing is to be
// done, or it failed.
struct item {
    enum conv_status probed;
    conv_image shape; // of the decoded image
    conv_image host;  // of a view in device memory: what the host has decoded; data NULL: nothing
    bool allocated;   // the view's data is from the pool
};

struct decoding {
    struct conv_api_batch batch;
    conv_context *context;
    const struct conv_format *format; // NULL: by each file's first bytes
    conv_decode_options options;
    struct conv_device_decode *list;
    struct item *items;
    int count;
    uint64_t samples; // of what is to be decoded
};

static void fail(struct decoding *decoding, int index, enum conv_status status,
                 const struct conv_err *err)
{
    struct item *item = &decoding->items[index];
    conv_image *view = &decoding->list[index].view;
    struct conv_memory_pools *pools = decoding->context->device->pools;
    if (item->allocated)
        conv_memory_give(pools, view->memory, view->data);
    conv_memory_give(pools, CONV_HOST, item->host.data);
    view->data = item->host.data = NULL;
    item->allocated = false;
    conv_api_batch_fail(&decoding->batch, index, status, err);
}

static enum conv_status check_target(const conv_image *view, const conv_image *shape,
                                     struct conv_err *err)
{
    conv_sample most = shape->sample == CONV_SAMPLE_F32 ? CONV_SAMPLE_F32 : CONV_SAMPLE_U16;
    enum conv_status status = conv_api_check_view(view, most, true, "the image", err);
    if (status)
        return status;
    if (view->width != shape->width || view->height != shape->height)
        return conv_err_usage(err, "the file has %d x %d pixels, the image %d x %d", shape->width,
                              shape->height, view->width, view->height);
    if (view->channels != shape->channels)
        return conv_err_usage(err, "the file has %d channels, the image has %d", shape->channels,
                              view->channels);
    if (view->sample != shape->sample)
        return conv_err_usage(err, "the file has %d-bit samples, the image %d-bit ones",
                              8 * (int)conv_sample_bytes(shape->sample),
                              8 * (int)conv_sample_bytes(view->sample));
    return CONV_OK;
}

// Reads a header and finds out what decoding with the options gives: size, channels and samples of
// *shape. `file` has data and size, and the format unless its first bytes decide.
static enum conv_status probe_file(struct conv_device_decode *file,
                                   const conv_decode_options *options, conv_image *shape,
                                   struct conv_err *err)
{
    struct conv_image_header *header = &file->header;
    enum conv_status status =
        file->format ? CONV_OK
                     : conv_formats_check(&file->format, file->data, file->size, true, err);
    if (!status)
        status = file->format->probe(file->data, file->size, header, err);
    if (status)
        return status;
    bool floats = header->shape.depth == 32;
    if (floats && options->sample)
        return conv_err_unsupported(err, "float32 samples are not made integers");
    header->orientation =
        options->orient ? conv_format_orientation(file->format, file->data, file->size) : 1;
    *shape = (conv_image){
        .width = header->orientation < 5 ? header->shape.width : header->shape.height,
        .height = header->orientation < 5 ? header->shape.height : header->shape.width,
        .channels = options->channels ? options->channels : header->shape.channels,
        .sample = options->sample             ? options->sample
                  : floats                    ? CONV_SAMPLE_F32
                  : header->shape.depth == 16 ? CONV_SAMPLE_U16
                                              : CONV_SAMPLE_U8,
    };
    shape->has_alpha = shape->channels % 2 == 0;
    if (header->shape.channels < 3 || shape->channels >= 3)
        return CONV_OK;
    if (!options->gray)
        return conv_err_unsupported(err, "colours become gray only with `gray`");
    if (floats)
        return conv_err_unsupported(err, "float32 samples are not made gray");
    if (file->format->take_luma)
        file->format->take_luma(header);
    return CONV_OK;
}

static enum conv_status check_file(const struct decoding *decoding, int index, struct conv_err *err)
{
    struct conv_device_decode *file = &decoding->list[index];
    const struct conv_image *shape = &file->header.shape;
    if (!file->data)
        return conv_err_usage(err, "the file is NULL");
    file->format = decoding->format;
    enum conv_status status =
        probe_file(file, &decoding->options, &decoding->items[index].shape, err);
    if (!status && (uint64_t)shape->width * (uint64_t)shape->height > decoding->context->max_pixels)
        return conv_err_limit(err, "%d x %d pixels are more than the limit of %llu", shape->width,
                              shape->height, (unsigned long long)decoding->context->max_pixels);
    return status ? status : file->format->check_size(file->data, file->size, &file->header, err);
}

// Chunks are spread over a file, most of which is in no cache, so all threads search for them.
static void probe_item(void *context, int, int index)
{
    struct decoding *decoding = context;
    struct conv_err err;
    decoding->items[index].probed = check_file(decoding, index, &err);
}

// Determines the destination of the samples of a probed file.
static enum conv_status plan_item(struct decoding *decoding, int index, const conv_image *image,
                                  struct conv_err *err)
{
    const conv_decode_options *options = &decoding->options;
    struct item *item = &decoding->items[index];
    conv_image *view = &decoding->list[index].view, shape = item->shape;
    enum conv_status status = item->probed;
    if (status) // once more, for the message
        status = check_file(decoding, index, err);
    if (status)
        return status;
    decoding->samples += (uint64_t)shape.width * (uint64_t)shape.height * (uint64_t)shape.channels;
    if (image->data) {
        shape = *image;
        status = check_target(image, &item->shape, err);
    } else {
        status =
            conv_api_take_image(decoding->context, &shape, options->memory, options->planar, err);
    }
    if (status)
        return status;
    *view = shape;
    item->allocated = !image->data;
    return CONV_OK;
}

// --- on the host ---------------------------------------------------------------------------------

// A view of the file's own planes is decoded in place; for other views, rows are converted as they
// come.

// Writes rows to a view that is not the file's planes.
struct row_writer {
    const conv_image *view;
    conv_image row;                 // of the file: one interleaved row of native samples
    struct conv_view_copier copier; // from `row`
    struct conv_view_copier planar; // from planes of a row; every row has the same strides
    bool started;                   // `planar` is ready
    uint16_t *native;               // of 16 bits: memory of a row
};

static void put_row(void *context, int y, const struct conv_image *row)
{
    struct row_writer *writer = context;
    const conv_image *view = writer->view;
    conv_image from = conv_view_of(row);
    if (!writer->started)
        conv_view_copier_init(&writer->planar, view, &from);
    writer->started = true;
    conv_view_copier_row(&writer->planar, view, (uint8_t *)view->data + y * view->row_stride, &from,
                         from.data);
}

static void put_interleaved(void *context, int y, const uint8_t *row)
{
    const struct row_writer *writer = context;
    const conv_image *view = writer->view;
    const void *from = row;
    if (writer->native) {
        size_t count = (size_t)writer->row.width * (size_t)writer->row.channels;
        const uint16_t *samples = (const uint16_t *)(const void *)row;
        for (size_t i = 0; i < count; i++)
            writer->native[i] = __builtin_bswap16(samples[i]); // a file has high bytes first
        from = writer->native;
    }
    conv_view_copier_row(&writer->copier, view, (uint8_t *)view->data + y * view->row_stride,
                         &writer->row, from);
}

static enum conv_status decode_rows(conv_context *context, struct conv_codec *codec,
                                    const struct conv_device_decode *file, const conv_image *view,
                                    struct conv_err *err)
{
    const struct conv_image_header *header = &file->header;
    bool wide = header->shape.depth == 16;
    struct row_writer writer = {
        .view = view,
        .row = conv_image_interleaved(NULL, header->shape.width, 1, header->shape.channels,
                                      wide ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8, CONV_HOST),
    };
    conv_view_copier_init(&writer.copier, view, &writer.row);
    struct conv_rows rows = {put_row, put_interleaved, &writer};
    void *memory = NULL;
    struct conv_memory_pools *pools = context->device->pools;
    enum conv_status status = CONV_OK;
    if (wide)
        status = conv_memory_take(pools, CONV_HOST, (size_t)writer.row.row_stride, &memory, err);
    writer.native = memory;
    if (!status)
        status = file->format->decode(codec, file->data, file->size, header, NULL, &rows, err);
    conv_memory_give(pools, CONV_HOST, memory);
    return status;
}

// Of a file that does not store its luminance.
static enum conv_status decode_gray(conv_context *context, struct conv_codec *codec,
                                    const struct conv_device_decode *file, const conv_image *view,
                                    struct conv_err *err)
{
    const struct conv_image *shape = &file->header.shape;
    conv_image colours = {
        .width = shape->width,
        .height = shape->height,
        .channels = shape->channels,
        .sample = shape->depth == 16 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8,
    };
    enum conv_status status = conv_api_take_image(context, &colours, CONV_HOST, true, err);
    if (status)
        return status;
    struct conv_image planes = conv_view_planes(&colours);
    status = file->format->decode(codec, file->data, file->size, &file->header, &planes, NULL, err);
    if (!status) {
        conv_image_weigh(&planes, &planes);
        conv_image gray = colours;
        gray.channels = shape->channels == 4 ? 2 : 1;
        gray.channel_stride *= 3; // to alpha
        conv_view_copy(view, &gray, 0, shape->height);
    }
    conv_memory_give(context->device->pools, CONV_HOST, colours.data);
    return status;
}

// Decodes a probed file to a view, with the codec of that worker of the context. Each worker by one
// thread at a time. Errors of conv_format.decode; then the samples are undefined.
static enum conv_status decode_view(conv_context *context, int worker,
                                    const struct conv_device_decode *file, const conv_image *target,
                                    struct conv_err *err)
{
    const struct conv_image *shape = &file->header.shape;
    const conv_image view = conv_view_stored(target, file->header.orientation);
    struct conv_codec *codec;
    enum conv_status status = conv_api_coder_get(context, worker, file->format, NULL, &codec, err);
    if (status)
        return status;
    struct conv_image planes = conv_view_planes(&view);
    if (shape->channels >= 3 && view.channels < 3)
        status = decode_gray(context, codec, file, &view, err);
    else if (file->header.orientation == 1 && conv_view_is_planar(&view) &&
             view.channels == shape->channels && planes.depth == shape->depth)
        status =
            file->format->decode(codec, file->data, file->size, &file->header, &planes, NULL, err);
    else
        status = decode_rows(context, codec, file, &view, err);
    conv_codec_trim(codec);
    return status;
}

static void decode_item(void *context, int worker, int index)
{
    struct decoding *decoding = context;
    struct item *item = &decoding->items[index];
    struct conv_err err;
    enum conv_status status = CONV_OK;
    const struct conv_device_decode *file = &decoding->list[index];
    if (!file->view.data || file->done)
        return;
    conv_image target = file->view;
    if (conv_api_is_on_device(decoding->context, target.memory)) {
        bool planar = target.column_stride == conv_sample_bytes(target.sample);
        status = conv_api_take_image(decoding->context, &target, CONV_HOST, planar, &err);
        if (!status)
            item->host = target;
    }
    if (!status)
        status = decode_view(decoding->context, worker, file, &target, &err);
    if (status)
        fail(decoding, index, status, &err);
}

// --- on the device -------------------------------------------------------------------------------

static void fail_all(struct decoding *decoding, enum conv_status status, const struct conv_err *err)
{
    for (int i = 0; i < decoding->count; i++)
        if (decoding->list[i].view.data)
            fail(decoding, i, status, err);
}

static void decode_on_device(struct decoding *decoding, void *stream)
{
    conv_context *context = decoding->context;
    struct conv_device_decode *list = decoding->list;
    struct conv_err err;
    bool any = false;
    for (int i = 0; i < decoding->count; i++) {
        bool becomes_gray = list[i].header.shape.channels >= 3 && list[i].view.channels < 3;
        list[i].offered = list[i].view.data && list[i].header.device_stream && !becomes_gray &&
                          conv_api_is_on_device(context, list[i].view.memory);
        any |= list[i].offered;
    }
    enum conv_status status =
        any ? context->device->ops->decode(context->device, list, decoding->count, stream, &err)
            : CONV_OK;
    if (status == CONV_ERR_DEVICE)
        fail_all(decoding, status, &err);
    for (int i = 0; i < decoding->count && status; i++)
        list[i].done = false;
}

// Copies what the host has decoded for the device: `count` images of the lists, or all together,
// which takes less time.
static enum conv_status upload_images(struct decoding *decoding, const conv_image *views,
                                      const conv_image *hosts, int count, void *stream,
                                      struct conv_err *err)
{
    conv_context *context = decoding->context;
    if (context->lost)
        return conv_err_set(err, CONV_ERR_DEVICE, "the device was lost");
    enum conv_status status =
        context->device->ops->copy(context->device, views, hosts, count, stream, err);
    context->lost |= status == CONV_ERR_DEVICE;
    return status;
}

static bool upload_together(struct decoding *decoding, int count, void *stream)
{
    struct conv_memory_pools *pools = decoding->context->device->pools;
    void *memory;
    if (conv_memory_take(pools, CONV_HOST, 2 * (size_t)count * sizeof(conv_image), &memory, NULL))
        return false;
    conv_image *views = memory, *hosts = views + count;
    int at = 0;
    for (int i = 0; i < decoding->count; i++)
        if (decoding->items[i].host.data) {
            views[at] = decoding->list[i].view;
            hosts[at++] = decoding->items[i].host;
        }
    bool done = !upload_images(decoding, views, hosts, count, stream, NULL);
    conv_memory_give(pools, CONV_HOST, memory);
    return done;
}

static void upload(struct decoding *decoding, void *stream)
{
    int count = 0;
    for (int i = 0; i < decoding->count; i++)
        count += decoding->items[i].host.data != NULL;
    bool done = count > 0 && upload_together(decoding, count, stream);
    for (int i = 0; i < decoding->count; i++) {
        struct item *item = &decoding->items[i];
        struct conv_err err;
        if (!item->host.data)
            continue;
        enum conv_status status =
            done ? CONV_OK
                 : upload_images(decoding, &decoding->list[i].view, &item->host, 1, stream, &err);
        if (status) {
            fail(decoding, i, status, &err);
            continue;
        }
        conv_memory_give(decoding->context->device->pools, CONV_HOST, item->host.data);
        item->host.data = NULL;
    }
}

// --- memory of the caller ------------------------------------------------------------------------

// Fails all items if an image of the caller's shares memory with another one, or with a file.
static void check_apart(struct decoding *decoding)
{
    const struct conv_api_span *clash[2];
    size_t most = 2 * (size_t)decoding->count, used = 0;
    struct conv_err err;
    struct conv_api_span *spans;
    for (int i = 0; i < decoding->count; i++)
        used += decoding->list[i].view.data && !decoding->items[i].allocated;
    if (used == 0)
        return;
    enum conv_status status = conv_api_apart_take(decoding->context, most, &spans, &err);
    if (status) {
        fail_all(decoding, status, &err);
        return;
    }
    used = 0;
    for (int i = 0; i < decoding->count; i++) {
        const struct conv_device_decode *file = &decoding->list[i];
        if (file->view.data && !decoding->items[i].allocated)
            spans[used++] = conv_api_apart_view(&file->view, i, true);
        spans[used] = conv_api_apart_bytes(file->data, file->view.data ? file->size : 0, NULL);
        spans[used++].item = i;
    }
    if (conv_api_apart_clash(spans, used, most, clash)) {
        status = conv_err_usage(&err, "the memory of image %d overlaps %s %d", clash[0]->item,
                                clash[1]->written ? "that of image" : "file", clash[1]->item);
        fail_all(decoding, status, &err);
    }
    conv_memory_give(decoding->context->device->pools, CONV_HOST, spans);
}

// --- the call ------------------------------------------------------------------------------------

static enum conv_status read_options(conv_decode_options *own, const conv_decode_options *options,
                                     struct conv_err *err)
{
    enum conv_status status = CONV_API_READ_OPTIONS(own, options, err);
    if (status)
        return status;
    if (own->channels < 0 || own->channels > CONV_IMAGE_MAX_CHANNELS)
        return conv_err_usage(err, "%d channels; there must be 1 to 4, or 0", own->channels);
    if (own->sample && own->sample != CONV_SAMPLE_U8 && own->sample != CONV_SAMPLE_U16)
        return conv_err_usage(err, "files cannot be decoded to this sample type");
    if (own->memory != CONV_HOST && own->memory != CONV_DEVICE)
        return conv_err_usage(err, "`memory` is %d, not a kind of memory", (int)own->memory);
    return CONV_OK;
}

static void decode_all(struct decoding *decoding, conv_image *images, void *stream)
{
    conv_context *context = decoding->context;
    struct conv_err err;
    bool on_device = false;
    conv_workers_run(context->device->workers,
                     decoding->count < FILES_PER_THREAD ? 1 : context->device->threads, probe_item,
                     decoding, decoding->count);
    for (int i = 0; i < decoding->count; i++) {
        enum conv_status status = plan_item(decoding, i, &images[i], &err);
        if (status)
            fail(decoding, i, status, &err);
        on_device |= conv_api_is_on_device(context, decoding->list[i].view.memory);
    }
    check_apart(decoding);
    if (on_device)
        decode_on_device(decoding, stream);
    conv_workers_run(context->device->workers,
                     conv_workers_for(context->device->threads, decoding->samples), decode_item,
                     decoding, decoding->count);
    if (on_device)
        upload(decoding, stream);
    for (int i = 0; i < decoding->count; i++)
        if (decoding->list[i].view.data)
            images[i] = decoding->list[i].view;
}

// `extension`: of the format; NULL: each file's first bytes decide.
static enum conv_status decode_files(conv_context *context, const char *extension,
                                     const conv_bytes *files, int count,
                                     const conv_decode_options *options, conv_image *images,
                                     conv_item *items, void *stream)
{
    if (!context)
        return CONV_ERR_USAGE;
    struct decoding decoding = {
        .context = context, .options = CONV_DECODE_OPTIONS_INIT, .count = count};
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    if (!status)
        status = read_options(&decoding.options, options, err);
    if (!status && extension)
        status = conv_api_find_format(&decoding.format, extension, err);
    if (!conv_api_batch_open(&decoding.batch, context, files, images, items, count,
                             sizeof *decoding.list + sizeof *decoding.items, &status))
        return status;
    decoding.list = decoding.batch.memory;
    decoding.items = count > 0 ? (struct item *)(decoding.list + count) : NULL;
    for (int i = 0; i < count; i++) {
        decoding.list[i].data = files[i].data;
        decoding.list[i].size = files[i].size;
    }
    decode_all(&decoding, images, stream);
    return conv_api_batch_end(&decoding.batch);
}

conv_status conv_decode_png(conv_context *context, const conv_bytes *files, int count,
                            const conv_decode_options *options, conv_image *images,
                            conv_item *items, void *stream)
{
    return decode_files(context, "png", files, count, options, images, items, stream);
}

conv_status conv_decode_jpeg(conv_context *context, const conv_bytes *files, int count,
                             const conv_decode_options *options, conv_image *images,
                             conv_item *items, void *stream)
{
    return decode_files(context, "jpg", files, count, options, images, items, stream);
}

conv_status conv_decode_image(conv_context *context, const conv_bytes *files, int count,
                              const conv_decode_options *options, conv_image *images,
                              conv_item *items, void *stream)
{
    return decode_files(context, NULL, files, count, options, images, items, stream);
}

// --- headers -------------------------------------------------------------------------------------

// The call's result, with its reason in `message`, which may be NULL.
static enum conv_status explain(enum conv_status status, const struct conv_err *err, char *message)
{
    if (status && message)
        conv_api_explain(message, CONV_MESSAGE_SIZE, err);
    return status;
}

conv_status conv_probe_image(const void *data, size_t size, const conv_decode_options *options,
                             conv_image_info *info, char *message)
{
    conv_decode_options own = CONV_DECODE_OPTIONS_INIT;
    struct conv_device_decode file = {.data = data, .size = size};
    struct conv_err err;
    conv_image shape = {0};
    enum conv_status status = data && info
                                  ? read_options(&own, options, &err)
                                  : conv_err_usage(&err, "%s is NULL", data ? "`info`" : "`data`");
    if (!status)
        status = probe_file(&file, &own, &shape, &err);
    if (status)
        return explain(status, &err, message);
    static const char *const names[] = {[CONV_FILE_PNG] = "PNG",
                                        [CONV_FILE_JPEG] = "JPEG",
                                        [CONV_FILE_TIFF] = "TIFF",
                                        [CONV_FILE_WEBP] = "WebP"};
    conv_file_format format = CONV_FILE_PNM;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i] && strcmp(names[i], file.format->name) == 0)
            format = (conv_file_format)i;
    *info = (conv_image_info){
        .width = shape.width,
        .height = shape.height,
        .channels = shape.channels,
        .sample = shape.sample,
        .has_alpha = shape.has_alpha,
        .format = format,
        .orientation = conv_format_orientation(file.format, data, size),
        .interlaced = format == CONV_FILE_PNG    ? file.header.png.interlaced
                      : format == CONV_FILE_JPEG ? file.header.jpeg.progressive
                                                 : false,
        .animated = conv_format_is_animated(file.format, data, size),
    };
    return CONV_OK;
}

conv_status conv_probe_png(const void *data, size_t size, conv_png_info *info, char *message)
{
    struct conv_image_header header;
    struct conv_err err;
    enum conv_status status = data && info
                                  ? conv_png_format.probe(data, size, &header, &err)
                                  : conv_err_usage(&err, "%s is NULL", data ? "`info`" : "`data`");
    if (status)
        return explain(status, &err, message);
    *info = (conv_png_info){
        .width = header.shape.width,
        .height = header.shape.height,
        .channels = header.shape.channels,
        .sample = header.shape.depth == 16 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8,
        .has_alpha = header.shape.alpha,
        .bit_depth = header.png.bit_depth,
        .color_type = header.png.color_type,
        .interlaced = header.png.interlaced,
        .animated = conv_png_format.is_animated(data, size),
    };
    return CONV_OK;
}
