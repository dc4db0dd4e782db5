// SPDX-License-Identifier: MIT
// Convolution layers: batches in host memory pass through a stream of the layer's context in parts;
// those in device memory are queued as they are.
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "engine/operation.h"

// Blocks of scratch that a layer has outgrown, which queued work may still use. Each has at least
// twice the size of the one before.
#define MOST_BLOCKS 48

struct conv_layer_object {
    conv_context *context;
    struct conv_layer layer;
    float *weights, *bias;
    bool late; // weights come with each batch; in host memory those of the last one are kept
    char *variant;
    struct conv_operation opened;
    struct conv_tensor_stream *stream; // for host memory; opened at the first call
    // Of work in device memory.
    void *scratch[MOST_BLOCKS]; // the last one is in use
    int scratch_count;
    size_t scratch_bytes; // of the last one
    void *scratch_event;  // after the last work that uses it
    void *scratch_stream; // where that was queued
};

// --- options -------------------------------------------------------------------------------------

// The index of `text` among the names, or 0 without a text; -1 with *err.
static int choose(const char *text, const char *const *names, const char *what,
                  struct conv_err *err)
{
    size_t count = 0;
    while (names[count])
        count++;
    return text ? conv_suggest_choice(what, text, names, sizeof *names, count, err) : 0;
}

static bool read_element(enum conv_element *element, conv_sample sample)
{
    *element = sample == CONV_SAMPLE_U8     ? CONV_ELEMENT_U8
               : sample == CONV_SAMPLE_F16  ? CONV_ELEMENT_F16
               : sample == CONV_SAMPLE_BF16 ? CONV_ELEMENT_BF16
                                            : CONV_ELEMENT_F32;
    return *element != CONV_ELEMENT_F32 || sample == CONV_SAMPLE_F32;
}

static enum conv_status parse_elements(struct conv_layer *layer, const conv_layer_options *options,
                                       struct conv_err *err)
{
    conv_sample input = options->input ? options->input : CONV_SAMPLE_F32;
    conv_sample output = options->output ? options->output : CONV_SAMPLE_F32;
    if (!read_element(&layer->input, input))
        return conv_err_usage(err, "input samples must be float32, float16, bfloat16 or uint8");
    if (output == CONV_SAMPLE_U8 || !read_element(&layer->output, output))
        return conv_err_usage(err, "results must be float32, float16 or bfloat16");
    layer->input_divisor = options->input_divisor != 0 ? options->input_divisor : 1;
    bool by_255 = input == CONV_SAMPLE_U8 && layer->input_divisor == 255;
    return layer->input_divisor == 1 || by_255
               ? CONV_OK
               : conv_err_usage(err, "input_divisor must be 1, or 255 with uint8 samples");
}

// Of both axes, where 0 stands for 1, or for the same in a row.
static enum conv_status read_steps(int *y, int *x, int step, int in_row, const char *what, int most,
                                   struct conv_err *err)
{
    *y = step ? step : 1;
    *x = in_row ? in_row : *y;
    return *y > 0 && *x > 0 && *y <= most && *x <= most
               ? CONV_OK
               : conv_err_usage(err, "%s of %d x %d; it must be 1 to %d, or 0 for 1", what, *y, *x,
                                most);
}

// Checks the options and sets *layer, except its weights and bias.
static enum conv_status read_options(struct conv_layer *layer, const conv_layer_options *options,
                                     struct conv_err *err)
{
    if (options->maps < 1 || options->channels < 1)
        return conv_err_usage(err, "%d maps and %d channels; both must be at least 1",
                              options->maps, options->channels);
    if (options->kernel_height < 1 || options->kernel_width < 1 ||
        options->kernel_height > CONV_LAYER_MAX_SIDE || options->kernel_width > CONV_LAYER_MAX_SIDE)
        return conv_err_usage(err, "a kernel of %d x %d; sides must be 1 to %d",
                              options->kernel_height, options->kernel_width, CONV_LAYER_MAX_SIDE);
    int groups = options->groups ? options->groups : 1;
    if (groups < 0 || options->maps % groups || options->channels % groups)
        return conv_err_usage(err, "%d groups do not divide %d maps and %d channels", groups,
                              options->maps, options->channels);
    *layer = (struct conv_layer){
        .maps = options->maps,
        .channels = options->channels,
        .kernel_height = options->kernel_height,
        .kernel_width = options->kernel_width,
        .groups = groups,
        .channels_last = options->channels_last != 0,
    };
    enum conv_status status =
        read_steps(&layer->stride_y, &layer->stride_x, options->stride, options->stride_width,
                   "a stride", CONV_LAYER_MAX_STRIDE, err);
    if (!status)
        status = read_steps(&layer->dilation_y, &layer->dilation_x, options->dilation,
                            options->dilation_width, "a dilation", CONV_LAYER_MAX_DILATION, err);
    if (!status)
        status = parse_elements(layer, options, err);
    if (!status)
        status = conv_layer_context_parse_padding(layer, options->padding, err);
    if (!status)
        status = conv_layer_context_parse_border(layer, options->border, err);
    if (status)
        return status;
    int activation = choose(options->activation, conv_layer_activations, "activation", err);
    int precision = choose(options->precision, conv_layer_precisions, "precision", err);
    if (activation < 0 || precision < 0)
        return CONV_ERR_USAGE;
    layer->activation = (enum conv_activation)activation;
    layer->precision = (enum conv_precision)precision;
    return CONV_OK;
}

// --- creation ------------------------------------------------------------------------------------

// A copy of `count` numbers; NULL of NULL.
static enum conv_status copy_numbers(float **copy, const float *numbers, size_t count,
                                     struct conv_err *err)
{
    *copy = NULL;
    if (!numbers)
        return CONV_OK;
    *copy = count <= SIZE_MAX / sizeof **copy ? malloc(count * sizeof **copy) : NULL;
    if (!*copy)
        return conv_err_memory(err, "no memory for the weights");
    memcpy(*copy, numbers, count * sizeof **copy);
    return CONV_OK;
}

// What a call brings for a layer without weights.
struct late {
    const float *weights, *bias;
    uint8_t *workspace;
};

// Opens the layer with the weights that it has.
static enum conv_status open_layer(conv_layer *layer, struct conv_err *err)
{
    conv_context *context = layer->context;
    layer->layer.weights = layer->weights;
    layer->layer.bias = layer->bias;
    struct conv_layer_config config = {
        .layer = &layer->layer,
        .place = context->device->ops->place,
        .device = context->device->ordinal,
        .variant = layer->variant,
    };
    return conv_layer_context_open(&layer->opened.layer, &config, err);
}

static enum conv_status fill_layer(conv_layer *layer, const float *weights, const float *bias,
                                   const conv_layer_options *options, struct conv_err *err)
{
    enum conv_status status = read_options(&layer->layer, options, err);
    if (status)
        return status;
    size_t count;
    if (__builtin_mul_overflow(conv_layer_taps(&layer->layer), (size_t)options->maps, &count))
        return conv_err_memory(err, "no memory for the weights");
    status = copy_numbers(&layer->weights, weights, count, err);
    if (!status)
        status = copy_numbers(&layer->bias, bias, (size_t)options->maps, err);
    if (!status && options->variant && !(layer->variant = strdup(options->variant)))
        status = conv_err_memory(err, "out of memory");
    if (status)
        return status;
    layer->late = !weights;
    return open_layer(layer, err);
}

// Takes over the weights of a call, unless they are those of the last one: memcmp is several times
// as fast as packing. Leaves none after a failure.
static enum conv_status keep_weights(conv_layer *layer, const struct late *late,
                                     struct conv_err *err)
{
    size_t maps = (size_t)layer->layer.maps, count = conv_layer_taps(&layer->layer) * maps;
    if (layer->weights && memcmp(layer->weights, late->weights, count * sizeof(float)) == 0 &&
        !layer->bias == !late->bias &&
        (!layer->bias || memcmp(layer->bias, late->bias, maps * sizeof(float)) == 0))
        return CONV_OK;
    conv_operation_stream_close(&layer->opened, layer->stream);
    conv_operation_close(&layer->opened);
    layer->stream = NULL;
    free(layer->weights);
    free(layer->bias);
    layer->bias = NULL;
    enum conv_status status = copy_numbers(&layer->weights, late->weights, count, err);
    if (!status)
        status = copy_numbers(&layer->bias, late->bias, maps, err);
    if (!status)
        status = open_layer(layer, err);
    if (status) {
        free(layer->weights);
        layer->weights = NULL;
    }
    return status;
}

conv_status conv_layer_create(conv_layer **out, conv_context *context, const float *weights,
                              const float *bias, const conv_layer_options *options)
{
    conv_layer_options own = CONV_LAYER_OPTIONS_INIT;
    if (out)
        *out = NULL;
    enum conv_status status = conv_api_begin(context);
    struct conv_err *err = status ? NULL : &context->err;
    if (!status && (!out || !options))
        status = conv_err_usage(err, "`%s` is NULL", out ? "options" : "layer");
    if (!status)
        status = CONV_API_READ_OPTIONS(&own, options, err);
    if (status)
        return conv_api_end(context, status);
    conv_layer *layer = calloc(1, sizeof *layer);
    if (!layer)
        return conv_api_end(context, conv_err_memory(err, "out of memory"));
    layer->context = context;
    status = fill_layer(layer, weights, bias, &own, err);
    if (status)
        conv_layer_destroy(layer);
    else
        *out = layer;
    return conv_api_end(context, status);
}

void conv_layer_destroy(conv_layer *layer)
{
    if (!layer)
        return;
    conv_context *context = layer->context;
    int previous;
    bool entered = !context->device->ops->enter(context->device, &previous, NULL);
    for (int i = 0; i < layer->scratch_count; i++)
        conv_memory_give(context->device->pools, CONV_DEVICE, layer->scratch[i]);
    if (layer->scratch_event)
        context->device->ops->event_destroy(context->device, layer->scratch_event);
    conv_operation_stream_close(&layer->opened, layer->stream);
    conv_operation_close(&layer->opened);
    if (entered)
        context->device->ops->leave(context->device, previous);
    free(layer->weights);
    free(layer->bias);
    free(layer->variant);
    free(layer);
}

// --- shapes --------------------------------------------------------------------------------------

// Bytes of an image in host memory, before and after.
static enum conv_status find_bytes(const conv_layer *layer, int height, int width, size_t *in,
                                   size_t *out, struct conv_err *err)
{
    if (height < 1 || width < 1)
        return conv_err_usage(err, "an input of %d x %d; both must be at least 1", height, width);
    if (!conv_layer_context_bytes(&layer->layer, height, width, in, out))
        return conv_err_usage(err, "the result of an input of %d x %d would be empty or too large",
                              height, width);
    return CONV_OK;
}

conv_status conv_layer_result_size(conv_layer *layer, int height, int width, int *result_height,
                                   int *result_width)
{
    size_t in, out;
    if (!layer)
        return CONV_ERR_USAGE;
    struct conv_err *err = &layer->context->err;
    enum conv_status status = find_bytes(layer, height, width, &in, &out, err);
    if (!status && (!result_height || !result_width))
        status =
            conv_err_usage(err, "`%s` is NULL", result_height ? "result_width" : "result_height");
    if (status)
        return status;
    *result_height = conv_layer_out_height(&layer->layer, height);
    *result_width = conv_layer_out_width(&layer->layer, width);
    return CONV_OK;
}

// Replaces strides of 0 and checks the others.
static enum conv_status check_input(const conv_layer *layer, conv_tensor *input, const void *result,
                                    struct conv_err *err)
{
    int64_t element = (int64_t)conv_element_size(layer->layer.input), extent, image, last;
    int64_t row = input->width * element, channels = layer->layer.channels;
    bool on_device = conv_api_is_on_device(layer->context, input->memory);
    if (!input->data || !result)
        return conv_err_usage(err, "%s is NULL", result ? "`data` of the input" : "`result`");
    if (input->memory != CONV_HOST && input->memory != CONV_DEVICE)
        return conv_err_usage(err, "`memory` of the input is %d, not a kind of memory",
                              (int)input->memory);
    if (input->reserved[0] || input->reserved[1])
        return conv_err_unsupported(err, "`reserved` of the input is not 0");
    if ((uintptr_t)result % 16 || (uintptr_t)input->data % (on_device ? 16u : (unsigned)element))
        return conv_err_usage(err, "%s does not begin at a multiple of %d bytes",
                              (uintptr_t)result % 16 ? "the result" : "the input",
                              on_device || (uintptr_t)result % 16 ? 16 : (int)element);
    bool strided = input->row_stride || input->channel_stride || input->image_stride;
    if (layer->layer.channels_last && strided)
        return conv_err_usage(err, "strides of an input with channels last; they must be 0");
    if (!input->row_stride)
        input->row_stride = row;
    if (input->row_stride < row || input->row_stride % element)
        return conv_err_usage(
            err, "a row stride of %lld bytes; it must be a multiple of %d, at least %lld",
            (long long)input->row_stride, (int)element, (long long)row);
    bool fits = !__builtin_mul_overflow(input->row_stride, input->height, &extent);
    if (fits && !input->channel_stride)
        input->channel_stride = extent;
    fits = fits && !__builtin_mul_overflow(input->channel_stride, channels, &image);
    if (fits && !input->image_stride)
        input->image_stride = image;
    for (int i = 0; i < 2 && fits; i++) {
        int64_t stride = i ? input->image_stride : input->channel_stride;
        if (stride < 0 || stride % element)
            return conv_err_usage(
                err, "%s stride of %lld bytes; it must be a multiple of %d, not negative",
                i ? "an image" : "a channel", (long long)stride, (int)element);
    }
    if (!fits || __builtin_mul_overflow(input->image_stride, input->images, &last) ||
        __builtin_add_overflow(last, image, &last) || __builtin_add_overflow(last, extent, &last) ||
        (uint64_t)last > UINTPTR_MAX - (uintptr_t)input->data)
        return conv_err_usage(err, "strides are too large");
    return CONV_OK;
}

// True if the `size` bytes of the result and a checked input have bytes in common.
static bool overlaps_input(const conv_layer *layer, const conv_tensor *input, const void *result,
                           size_t size)
{
    size_t element = conv_element_size(layer->layer.input);
    const int64_t axes[3][2] = {{input->images, input->image_stride},
                                {layer->layer.channels, input->channel_stride},
                                {input->height, input->row_stride}};
    struct conv_api_span read =
        conv_api_apart_bytes(input->data, (size_t)input->width * element, axes);
    struct conv_api_span written = conv_api_apart_bytes(result, size, NULL);
    return conv_api_apart_meet(&read, &written);
}

// --- host memory ---------------------------------------------------------------------------------

#define PART_BYTES ((size_t)64 << 20) // of input and padded input that pass through at a time

static bool has_gaps(const conv_layer *layer, const conv_tensor *input)
{
    int64_t row = input->width * (int64_t)conv_element_size(layer->layer.input);
    int64_t plane = row * input->height, image = plane * layer->layer.channels;
    return (input->height > 1 && input->row_stride != row) ||
           (layer->layer.channels > 1 && input->channel_stride != plane) ||
           (input->images > 1 && input->image_stride != image);
}

// Copies the rows of images [first, first + count) without gaps.
static void gather(const conv_layer *layer, const conv_tensor *input, int64_t first, int64_t count,
                   uint8_t *to)
{
    size_t row = (size_t)input->width * conv_element_size(layer->layer.input);
    for (int64_t b = first; b < first + count; b++)
        for (int c = 0; c < layer->layer.channels; c++)
            for (int y = 0; y < input->height; y++, to += row)
                memcpy(to,
                       (const uint8_t *)input->data + b * input->image_stride +
                           c * input->channel_stride + y * input->row_stride,
                       row);
}

static enum conv_status run_on_host(conv_layer *layer, const conv_tensor *input, uint8_t *result,
                                    size_t in_bytes, size_t out_bytes, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (!layer->stream)
        status = conv_operation_stream_open(&layer->opened, layer->context->device->workers,
                                            layer->context->device->threads, &layer->stream, err);
    size_t each = in_bytes + in_bytes / conv_element_size(layer->layer.input) * sizeof(float) + 1;
    int64_t part = each < PART_BYTES ? (int64_t)(PART_BYTES / each) : 1;
    part = part < input->images ? part : input->images;
    struct conv_layer_shape shape = {part, input->height, input->width};
    bool gaps = has_gaps(layer, input), cpu = conv_api_is_cpu(layer->context);
    bool aligned = (size_t)part * out_bytes % 16 == 0 || part == input->images;
    for (int64_t done = 0; done < input->images && !status; done += part) {
        int64_t count = input->images - done < part ? input->images - done : part;
        void *h_in = (uint8_t *)input->data + done * input->image_stride;
        void *to = result + (size_t)done * out_bytes, *h_out = to;
        void *staged_in, *staged_out;
        bool copies_in = gaps || !cpu, copies_out = !aligned || !cpu;
        if (copies_in || copies_out)
            status = conv_operation_stream_staging(
                &layer->opened, layer->stream, copies_in ? (size_t)part * in_bytes : 0,
                copies_out ? (size_t)part * out_bytes : 0, &staged_in, &staged_out, err);
        if (status)
            break;
        if (copies_in)
            gather(layer, input, done, count, h_in = staged_in);
        if (copies_out)
            h_out = staged_out;
        status = conv_operation_run(&layer->opened, layer->stream, &shape, count, h_in, h_out, err);
        if (!status && copies_out)
            memcpy(to, h_out, (size_t)count * out_bytes);
    }
    return status;
}

// --- device memory -------------------------------------------------------------------------------

// Makes the scratch large enough, and `stream` wait for its last use.
static enum conv_status prepare_scratch(conv_layer *layer, size_t bytes, void *stream,
                                        struct conv_err *err)
{
    conv_context *context = layer->context;
    if (bytes > layer->scratch_bytes) {
        void *block;
        size_t more = bytes > 2 * layer->scratch_bytes ? bytes : 2 * layer->scratch_bytes;
        enum conv_status status =
            layer->scratch_count < MOST_BLOCKS
                ? conv_memory_take(context->device->pools, CONV_DEVICE, more, &block, err)
                : conv_err_memory(err, "too much scratch memory for the layer");
        if (status)
            return status;
        layer->scratch[layer->scratch_count++] = block;
        layer->scratch_bytes = more;
    } else if (layer->scratch_event && layer->scratch_stream != stream) {
        return context->device->ops->event_wait(context->device, layer->scratch_event, stream, err);
    }
    return CONV_OK;
}

// `late`: NULL if the layer has weights.
static enum conv_status run_on_device(conv_layer *layer, const conv_tensor *input, void *result,
                                      const struct late *late, void *stream, struct conv_err *err)
{
    conv_context *context = layer->context;
    struct conv_layer_shape shape = {input->images, input->height, input->width};
    struct conv_layer_way way = {0};
    bool gaps = has_gaps(layer, input);
    if (gaps && late && layer->layer.precision != CONV_PRECISION_EXACT)
        return conv_err_usage(err, "input with gaps, for a layer of less precision");
    enum conv_status status = conv_layer_context_way(layer->opened.layer, &shape, gaps, &way, err);
    bool needed = way.packed + way.scratch > 0;
    if (!status && late && needed && (!late->workspace || (uintptr_t)late->workspace % 256))
        status = conv_err_usage(err, "`workspace` is not at a multiple of 256 bytes");
    if (!status && way.scratch && !late)
        status = prepare_scratch(layer, way.scratch, stream, err);
    if (status)
        return status;
    struct conv_layer_batch batch = {
        .images = input->images,
        .src = input->data,
        .src_row = input->row_stride,
        .src_plane = input->channel_stride,
        .src_image = input->image_stride,
        .dst = result,
        .rows = conv_layer_out_height(&layer->layer, input->height),
        .scratch = way.scratch && !late ? layer->scratch[layer->scratch_count - 1] : NULL,
        .stream = stream,
    };
    if (late) {
        batch.weights = late->weights;
        batch.bias = late->bias;
        batch.packed = late->workspace;
        batch.scratch = late->workspace + way.packed;
    }
    status = conv_layer_context_enqueue(layer->opened.layer, &shape, &batch, err);
    if (status || late || !way.scratch)
        return status;
    layer->scratch_stream = stream;
    return context->device->ops->event_record(context->device, &layer->scratch_event, stream, err);
}

conv_status conv_layer_workspace(conv_layer *layer, int64_t images, int height, int width,
                                 size_t *bytes)
{
    size_t in, out;
    if (!layer)
        return CONV_ERR_USAGE;
    conv_context *context = layer->context;
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    if (!status && (!bytes || images < 0 || !layer->late))
        status = conv_err_usage(err, !bytes        ? "`bytes` is NULL"
                                     : layer->late ? "a negative number of images"
                                                   : "the layer has weights of its own");
    if (!status)
        status = find_bytes(layer, height, width, &in, &out, err);
    struct conv_layer_way way = {0};
    if (!status && images > 0 && !conv_api_is_cpu(context))
        status = conv_layer_context_way(layer->opened.layer,
                                        &(struct conv_layer_shape){images, height, width}, false,
                                        &way, err);
    if (!status)
        *bytes = way.packed + way.scratch;
    return conv_api_end(context, status);
}

static conv_status run_layer(conv_layer *layer, const conv_tensor *input, const struct late *late,
                             void *result, void *stream)
{
    size_t in_bytes, out_bytes;
    if (!layer)
        return CONV_ERR_USAGE;
    conv_context *context = layer->context;
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    if (!status && !input)
        status = conv_err_usage(err, "`input` is NULL");
    if (!status && layer->late != (late != NULL))
        status = conv_err_usage(err, "the layer was created with%s weights", late ? "" : "out");
    if (!status && late && !late->weights)
        status = conv_err_usage(err, "`weights` is NULL");
    if (!status && input->images < 0)
        status = conv_err_usage(err, "%lld images; the number must not be negative",
                                (long long)input->images);
    if (status || input->images == 0)
        return conv_api_end(context, status);
    conv_tensor own = *input;
    status = find_bytes(layer, own.height, own.width, &in_bytes, &out_bytes, err);
    if (!status)
        status = check_input(layer, &own, result, err);
    size_t all;
    if (!status && (__builtin_mul_overflow(out_bytes, (size_t)own.images, &all) ||
                    all > UINTPTR_MAX - (uintptr_t)result))
        status = conv_err_usage(err, "the result is too large");
    if (!status && overlaps_input(layer, &own, result, all))
        status = conv_err_usage(err, "the result overlaps the input");
    if (status)
        return conv_api_end(context, status);
    if (conv_api_is_on_device(context, own.memory)) {
        status = run_on_device(layer, &own, result, late, stream, err);
    } else {
        if (late && !conv_api_is_cpu(context))
            status = conv_err_usage(err, "a layer without weights is for device memory");
        else if (late)
            status = keep_weights(layer, late, err);
        if (!status)
            status = run_on_host(layer, &own, result, in_bytes, out_bytes, err);
    }
    return conv_api_end(context, status);
}

conv_status conv_layer_run(conv_layer *layer, const conv_tensor *input, void *result, void *stream)
{
    return run_layer(layer, input, NULL, result, stream);
}

conv_status conv_layer_run_with(conv_layer *layer, const conv_tensor *input, const float *weights,
                                const float *bias, void *workspace, void *result, void *stream)
{
    const struct late late = {weights, bias, workspace};
    return run_layer(layer, input, &late, result, stream);
}
