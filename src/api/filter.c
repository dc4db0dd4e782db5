// SPDX-License-Identifier: MIT
// Filters: from a text or a matrix to an open chain, and from the caller's views to the device.
// Filter banks as weights of a layer.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "engine/view.h"
#include "filter/bank.h"
#include "filter/filter.h"
#include "kernels/stencil/stencil.h"

struct conv_filter_object {
    conv_context *context;
    struct conv_backend *opened;
    int count; // filters of the chain
    float border_value;
    bool floats, premultiplies, luma;
};

const char *conv_filter_name(int index, const char **summary)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    if (index < 0 || index >= count)
        return NULL;
    if (summary)
        *summary = rows[index].summary;
    return rows[index].name;
}

const char *conv_family_name(int banks, int index, const char **example, const char **summary)
{
    int count;
    const struct conv_filter_family *rows =
        banks ? conv_bank_families(&count) : conv_filter_families(&count);
    if (index < 0 || index >= count)
        return NULL;
    *example = rows[index].example;
    *summary = rows[index].summary;
    return rows[index].usage;
}

const char *conv_kernel_name(int index, const char **device)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    if (index < 0 || index >= count)
        return NULL;
    const struct conv_variant *variant = variants[count - 1 - index]; // the definition first
    if (device)
        *device = variant->place == CONV_ON_CPU ? "cpu" : "cuda";
    return variant->name;
}

// --- creation ------------------------------------------------------------------------------------

// Reads the options that do not concern the filters themselves.
static enum conv_status read_settings(struct conv_backend_config *config,
                                      const conv_context *context,
                                      const conv_filter_options *options, struct conv_err *err)
{
    config->floats = options->floats != 0;
    config->variant = options->variant;
    config->device = context->device->ordinal;
    int alpha = options->alpha
                    ? conv_suggest_choice("alpha mode", options->alpha, conv_alpha_names,
                                          sizeof conv_alpha_names[0], CONV_ALPHA_MODES, err)
                    : CONV_ALPHA_KEEP;
    if (alpha < 0)
        return CONV_ERR_USAGE;
    config->alpha = (enum conv_alpha_mode)alpha;
    enum conv_status status =
        conv_filter_parse_border(&config->border, &config->border_value,
                                 options->border ? options->border : "replicate", err);
    if (!status && config->floats && config->alpha == CONV_ALPHA_PREMULTIPLY)
        status = conv_err_usage(err, "float32 results and premultiplied alpha cannot be combined: "
                                     "results are divided by alpha as integers");
    if (!status && config->floats && options->luma)
        status = conv_err_usage(
            err,
            "float32 results and luma cannot be combined: the luminance of integers is replaced");
    return status;
}

enum conv_status conv_api_read_chain(struct conv_backend_config *config,
                                     struct conv_filter *filters, const conv_context *context,
                                     const char *text, const conv_filter_options *options,
                                     struct conv_err *err)
{
    struct conv_filter_settings settings = {.kernel = options->kernel,
                                            .size = options->side,
                                            .divisor = options->divisor,
                                            .bias = options->bias,
                                            .flip = options->flip != 0};
    if (options->side && options->side != 3 && options->side != 5)
        return conv_err_usage(err, "a side of %d; it must be 3 or 5", options->side);
    *config = (struct conv_backend_config){.filters = filters};
    enum conv_status status =
        conv_filter_parse_chain(filters, &config->filter_count, text, &settings, err);
    return status ? status : read_settings(config, context, options, err);
}

static enum conv_status open_chain(conv_filter **out, conv_context *context,
                                   struct conv_backend_config *config, struct conv_err *err)
{
    conv_filter *filter = calloc(1, sizeof *filter);
    if (!filter)
        return conv_err_memory(err, "out of memory");
    config->float_samples = true;
    config->context = context->device;
    enum conv_status status = context->device->ops->open(&filter->opened, config, err);
    if (status) {
        free(filter);
        return status;
    }
    filter->context = context;
    filter->count = config->filter_count;
    filter->border_value = config->border_value;
    filter->floats = config->floats;
    filter->premultiplies = config->alpha == CONV_ALPHA_PREMULTIPLY;
    *out = filter;
    return CONV_OK;
}

// What a filter is made from: a text, or a matrix.
struct definition {
    bool is_matrix;
    const char *text;
    const double *coefficients;
    int width, height;
    double scale, offset;
};

static enum conv_status fill_matrix(struct conv_filter *filter, const struct definition *matrix,
                                    struct conv_err *err)
{
    struct conv_err reason;
    int width = matrix->width, height = matrix->height;
    if (!matrix->coefficients)
        return conv_err_usage(err, "`coefficients` is NULL");
    if (width < 1 || height < 1 || width > CONV_FILTER_MAX_SIDE || height > CONV_FILTER_MAX_SIDE)
        return conv_err_usage(err, "a matrix of %d x %d; sides must be 1 to %d", width, height,
                              CONV_FILTER_MAX_SIDE);
    snprintf(filter->name, sizeof filter->name, "matrix");
    filter->width = width;
    filter->height = height;
    memcpy(filter->coef, matrix->coefficients,
           (size_t)width * (size_t)height * sizeof filter->coef[0]);
    filter->scale = matrix->scale;
    filter->offset = matrix->offset;
    for (int i = 0; i < width * height; i++)
        if (!isfinite(filter->coef[i]))
            return conv_err_usage(err, "a coefficient is not a finite number");
    if (!isfinite(matrix->scale) || !isfinite(matrix->offset))
        return conv_err_usage(err, "%s is not a finite number",
                              isfinite(matrix->scale) ? "the offset" : "the scale");
    return conv_filter_check(filter, &reason) ? conv_err_usage(err, "%s", reason.text) : CONV_OK;
}

static enum conv_status read_matrix(struct conv_backend_config *config, struct conv_filter *filter,
                                    const conv_context *context, const struct definition *matrix,
                                    const conv_filter_options *options, struct conv_err *err)
{
    if (options->kernel || options->divisor || options->bias || options->side)
        return conv_err_usage(err, "options.%s does not apply to a matrix",
                              options->kernel    ? "kernel"
                              : options->divisor ? "divisor"
                              : options->bias    ? "bias"
                                                 : "side");
    enum conv_status status = fill_matrix(filter, matrix, err);
    if (!status && options->flip)
        conv_filter_flip(filter);
    *config = (struct conv_backend_config){.filters = filter, .filter_count = 1};
    return status ? status : read_settings(config, context, options, err);
}

static conv_status create(conv_filter **filter, conv_context *context,
                          const struct definition *definition, const conv_filter_options *options)
{
    conv_filter_options own = CONV_FILTER_OPTIONS_INIT;
    if (filter)
        *filter = NULL;
    enum conv_status status = conv_api_begin(context);
    struct conv_err *err = status ? NULL : &context->err;
    if (!status && (!filter || !(definition->text || definition->is_matrix)))
        status = conv_err_usage(err, "`%s` is NULL", filter ? "text" : "filter");
    if (!status)
        status = CONV_API_READ_OPTIONS(&own, options, err);
    if (status)
        return conv_api_end(context, status);
    struct conv_backend_config config;
    struct conv_filter *filters = calloc(CONV_FILTER_MAX_CHAIN, sizeof *filters);
    if (!filters)
        status = conv_err_memory(err, "out of memory");
    else if (definition->is_matrix)
        status = read_matrix(&config, filters, context, definition, &own, err);
    else
        status = conv_api_read_chain(&config, filters, context, definition->text, &own, err);
    if (!status)
        status = open_chain(filter, context, &config, err);
    if (!status)
        (*filter)->luma = own.luma != 0;
    free(filters);
    return conv_api_end(context, status);
}

conv_status conv_filter_create(conv_filter **filter, conv_context *context, const char *text,
                               const conv_filter_options *options)
{
    return create(filter, context, &(struct definition){.text = text}, options);
}

conv_status conv_filter_create_matrix(conv_filter **filter, conv_context *context,
                                      const double *coefficients, int width, int height,
                                      double scale, double offset,
                                      const conv_filter_options *options)
{
    struct definition matrix = {true, NULL, coefficients, width, height, scale, offset};
    return create(filter, context, &matrix, options);
}

void conv_filter_destroy(conv_filter *filter)
{
    if (!filter)
        return;
    struct conv_device_context *device = filter->context->device;
    int previous;
    bool entered = !device->ops->enter(device, &previous, NULL);
    device->ops->close(filter->opened);
    if (entered)
        device->ops->leave(device, previous);
    free(filter);
}

const char *conv_filter_kernel(const conv_filter *filter, int index, conv_sample sample)
{
    if (!filter || index < 0 || index >= filter->count ||
        (sample != CONV_SAMPLE_U8 && sample != CONV_SAMPLE_U16 && sample != CONV_SAMPLE_F32))
        return NULL;
    return filter->context->device->ops->variant(filter->opened, index,
                                                 8 * (int)conv_sample_bytes(sample));
}

// --- running -------------------------------------------------------------------------------------

static enum conv_status check_pair(const conv_filter *filter, const conv_image *source,
                                   const conv_image *result, int index, struct conv_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "sources[%d]", index);
    enum conv_status status = conv_api_check_view(source, CONV_SAMPLE_F32, false, name, err);
    snprintf(name, sizeof name, "results[%d]", index);
    if (!status)
        status = conv_api_check_view(result, CONV_SAMPLE_F32, true, name, err);
    if (status)
        return status;
    if (source->width != result->width || source->height != result->height ||
        source->channels != result->channels)
        return conv_err_usage(err, "%s has %d x %d x %d samples, the source %d x %d x %d", name,
                              result->width, result->height, result->channels, source->width,
                              source->height, source->channels);
    if (source->sample != CONV_SAMPLE_F32 && conv_filter_check_border(filter->border_value, err))
        return err->status;
    if (source->sample == CONV_SAMPLE_F32 && filter->premultiplies && source->has_alpha)
        return conv_err_unsupported(err,
                                    "%s: float32 samples and premultiplied alpha cannot be "
                                    "combined: results are divided by alpha as integers",
                                    name);
    bool luma = filter->luma && source->channels >= 3;
    if (luma && (source->sample == CONV_SAMPLE_F32 ||
                 conv_api_is_on_device(filter->context, source->memory)))
        return conv_err_unsupported(
            err, "%s: luminance alone is filtered of 8 and 16 bits in host memory", name);
    if (result->sample != (filter->floats ? CONV_SAMPLE_F32 : source->sample))
        return conv_err_usage(err, "%s: the samples must be %s", name,
                              filter->floats ? "float32" : "of the source's type");
    if (source->memory != result->memory)
        return conv_err_usage(err, "%s is not in the same memory as the source", name);
    return CONV_OK;
}

static enum conv_status refuse_overlap(const struct conv_api_span *const clash[2],
                                       struct conv_err *err)
{
    if (clash[1]->written)
        return conv_err_usage(err, "results[%d] overlaps results[%d]", clash[0]->item,
                              clash[1]->item);
    return conv_err_usage(err, "results[%d] overlaps sources[%d], in device memory", clash[0]->item,
                          clash[1]->item);
}

// Replaces a view in host memory by a copy.
static enum conv_status copy_view(const conv_filter *filter, conv_image *view, void **copy,
                                  struct conv_err *err)
{
    conv_image own = *view;
    enum conv_status status = conv_api_take_image(filter->context, &own, CONV_HOST, false, err);
    if (status)
        return status;
    *copy = own.data;
    own.has_alpha = view->has_alpha;
    conv_view_copy(&own, view, 0, view->height);
    *view = own;
    return CONV_OK;
}

// The sources of a call, some of them copied. {0}: those of the caller.
struct separated {
    conv_image *sources;
    void **copies; // in the same memory
    int count;     // of copies
};

static enum conv_status copy_sources(const conv_filter *filter, struct separated *separated,
                                     const struct conv_api_span *spans, size_t used,
                                     const conv_image *sources, int count, struct conv_err *err)
{
    void *memory;
    enum conv_status status =
        conv_memory_take(filter->context->device->pools, CONV_HOST,
                         (size_t)count * (sizeof *sources + sizeof(void *)), &memory, err);
    if (status)
        return status;
    separated->sources = memory;
    separated->copies = (void **)(separated->sources + count);
    memcpy(separated->sources, sources, (size_t)count * sizeof *sources);
    for (size_t i = 0; i < used && !status; i++)
        if (spans[i].is_copied) {
            status = copy_view(filter, &separated->sources[spans[i].item],
                               &separated->copies[separated->count], err);
            separated->count += !status;
        }
    return status;
}

static void free_separated(const conv_filter *filter, struct separated *separated)
{
    struct conv_memory_pools *pools = filter->context->device->pools;
    for (int i = 0; i < separated->count; i++)
        conv_memory_give(pools, CONV_HOST, separated->copies[i]);
    conv_memory_give(pools, CONV_HOST, separated->sources);
}

// Makes sure that nothing is written to that is still to be read, or written twice. In host memory,
// results[i] may be the view sources[i], and other sources that results overlap are copied.
static enum conv_status separate(const conv_filter *filter, struct separated *separated,
                                 const conv_image *sources, const conv_image *results, int count,
                                 struct conv_err *err)
{
    const struct conv_api_span *clash[2];
    size_t most = 2 * (size_t)count, used = 0;
    bool copies = false;
    struct conv_api_span *spans;
    enum conv_status status = conv_api_apart_take(filter->context, most, &spans, err);
    if (status)
        return status;
    for (int i = 0; i < count; i++) {
        bool on_device = conv_api_is_on_device(filter->context, sources[i].memory);
        spans[used++] = conv_api_apart_view(&results[i], i, true);
        if (!on_device && conv_view_is(&sources[i], &results[i]))
            continue;
        spans[used] = conv_api_apart_view(&sources[i], i, false);
        spans[used++].may_copy = !on_device;
    }
    if (conv_api_apart_clash(spans, used, most, clash))
        status = refuse_overlap(clash, err);
    for (size_t i = 0; i < used; i++)
        copies |= spans[i].is_copied;
    if (!status && copies)
        status = copy_sources(filter, separated, spans, used, sources, count, err);
    conv_memory_give(filter->context->device->pools, CONV_HOST, spans);
    return status;
}

// Filters one image in host memory on a device, through device memory of the context.
static enum conv_status run_through(conv_filter *filter, const conv_image *source,
                                    const conv_image *result, void *stream, struct conv_err *err)
{
    conv_context *context = filter->context;
    conv_image staged[2] = {*source, *result};
    void *memory[2] = {NULL, NULL};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < 2 && !status; i++) {
        // Rows of kernels begin at multiples of CONV_IMAGE_ROW_ALIGN.
        struct conv_image shape = conv_view_planes(&staged[i]), planes;
        status = conv_memory_take(context->device->pools, CONV_DEVICE, conv_image_bytes(&shape),
                                  &memory[i], err);
        if (status)
            break;
        conv_image_lay_out(&planes, &shape, memory[i]);
        staged[i] = conv_view_of(&planes);
        staged[i].memory = CONV_DEVICE;
    }
    if (!status)
        status = context->device->ops->copy(context->device, &staged[0], source, 1, stream, err);
    if (!status)
        status = context->device->ops->filter_run(filter->opened, &staged[1], &staged[0], 1, stream,
                                                  err);
    if (!status)
        status = context->device->ops->copy(context->device, result, &staged[1], 1, stream, err);
    for (int i = 0; i < 2; i++)
        conv_memory_give(context->device->pools, CONV_DEVICE, memory[i]);
    return status;
}

// Filters sequences of images that the device takes as they are together, and others one by one.
static enum conv_status run_all(conv_filter *filter, const conv_image *sources,
                                const conv_image *results, int count, void *stream,
                                struct conv_err *err)
{
    conv_context *context = filter->context;
    enum conv_status status = CONV_OK;
    for (int first = 0, last; first < count && !status; first = last) {
        conv_memory memory = sources[first].memory;
        for (last = first + 1; last < count && sources[last].memory == memory;)
            last++;
        if (conv_api_is_cpu(context) || memory == CONV_DEVICE) {
            if (conv_api_is_cpu(context))
                last = count;
            status = context->device->ops->filter_run(filter->opened, results + first,
                                                      sources + first, last - first, stream, err);
            continue;
        }
        for (int i = first; i < last && !status; i++)
            status = run_through(filter, &sources[i], &results[i], stream, err);
    }
    return status;
}

// Filters the luminance of an image in host memory, and alpha as the filter does.
static enum conv_status run_luma(conv_filter *filter, const conv_image *source,
                                 const conv_image *result, void *stream, struct conv_err *err)
{
    struct conv_memory_pools *pools = filter->context->device->pools;
    struct conv_image shape = {.width = source->width,
                               .height = source->height,
                               .channels = source->channels,
                               .depth = 8 * (int)conv_sample_bytes(source->sample),
                               .alpha = source->channels == 4};
    struct conv_image gray_shape = shape, colours, gray, filtered;
    gray_shape.channels -= 2;
    size_t bytes = conv_image_bytes(&shape), gray_bytes = conv_image_bytes(&gray_shape);
    void *memory;
    enum conv_status status =
        conv_memory_take(pools, CONV_HOST, bytes + 2 * gray_bytes, &memory, err);
    if (status)
        return status;
    conv_image_lay_out(&colours, &shape, memory);
    conv_image_lay_out(&gray, &gray_shape, (uint8_t *)memory + bytes);
    conv_image_lay_out(&filtered, &gray_shape, (uint8_t *)memory + bytes + gray_bytes);
    if (shape.alpha)
        gray.plane[1] = colours.plane[3];
    conv_image to = conv_view_of(&colours);
    to.has_alpha = source->has_alpha;
    conv_view_copy(&to, source, 0, source->height);
    conv_image_weigh(&gray, &colours);
    conv_image in = conv_view_of(&gray), out = conv_view_of(&filtered);
    in.has_alpha = out.has_alpha = shape.alpha && source->has_alpha;
    status = run_all(filter, &in, &out, 1, stream, err);
    if (!status) {
        conv_image_replace_luma(&colours, &filtered);
        conv_image from = conv_view_of(&colours);
        from.has_alpha = result->has_alpha;
        conv_view_copy(result, &from, 0, result->height);
        if (shape.alpha) {
            conv_image alpha = *result;
            alpha.data = (uint8_t *)alpha.data + 3 * alpha.channel_stride;
            alpha.channels = out.channels = 1;
            alpha.has_alpha = out.has_alpha = 0;
            out.data = filtered.plane[1].data;
            conv_view_copy(&alpha, &out, 0, out.height);
        }
    }
    conv_memory_give(pools, CONV_HOST, memory);
    return status;
}

static enum conv_status run_each(conv_filter *filter, const conv_image *sources,
                                 const conv_image *results, int count, void *stream,
                                 struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (!filter->luma)
        return run_all(filter, sources, results, count, stream, err);
    for (int i = 0; i < count && !status; i++)
        status = sources[i].channels >= 3
                     ? run_luma(filter, &sources[i], &results[i], stream, err)
                     : run_all(filter, &sources[i], &results[i], 1, stream, err);
    return status;
}

conv_status conv_filter_run(conv_filter *filter, const conv_image *sources,
                            const conv_image *results, int count, void *stream)
{
    if (!filter)
        return CONV_ERR_USAGE;
    conv_context *context = filter->context;
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    if (!status && count < 0)
        status = conv_err_usage(err, "`count` is %d; it must not be negative", count);
    if (!status && count > 0 && (!sources || !results))
        status = conv_err_usage(err, "`%s` is NULL", sources ? "results" : "sources");
    for (int i = 0; i < count && !status; i++)
        status = check_pair(filter, &sources[i], &results[i], i, err);
    struct separated separated = {0};
    if (!status && count > 0)
        status = separate(filter, &separated, sources, results, count, err);
    if (!status && count > 0)
        status = run_each(filter, separated.sources ? separated.sources : sources, results, count,
                          stream, err);
    free_separated(filter, &separated);
    return conv_api_end(context, status);
}

// --- banks ---------------------------------------------------------------------------------------

static void copy_filter(float *weights, int height, int width,
                        const struct conv_bank_filter *filter)
{
    int top = (height - filter->height) / 2, left = (width - filter->width) / 2;
    for (int j = 0; j < filter->height; j++)
        for (int i = 0; i < filter->width; i++)
            weights[(top + j) * width + left + i] = (float)filter->coef[j * filter->width + i];
}

conv_status conv_bank_weights(const char *bank, int32_t *filters, int32_t *height, int32_t *width,
                              float *weights, size_t room, char *message)
{
    struct conv_bank parsed = {0};
    struct conv_err err = {0};
    enum conv_status status = CONV_OK;
    if (!bank || !filters || !height || !width)
        status = conv_err_usage(&err, "`%s` is NULL",
                                !bank      ? "bank"
                                : !filters ? "filters"
                                : !height  ? "height"
                                           : "width");
    if (!status)
        status = conv_bank_parse(&parsed, bank, &err);
    size_t rows = 0, columns = 0;
    for (int f = 0; f < parsed.filter_count; f++) {
        const struct conv_bank_filter *filter = &parsed.filters[f];
        rows = (size_t)filter->height > rows ? (size_t)filter->height : rows;
        columns = (size_t)filter->width > columns ? (size_t)filter->width : columns;
    }
    size_t count = (size_t)parsed.filter_count * rows * columns;
    if (!status && weights && room < count)
        status = conv_err_usage(&err, "`room` is %zu; the bank has %zu weights", room, count);
    if (!status) {
        *filters = parsed.filter_count;
        *height = (int32_t)rows;
        *width = (int32_t)columns;
    }
    if (!status && weights) {
        memset(weights, 0, count * sizeof *weights);
        for (int f = 0; f < parsed.filter_count; f++)
            copy_filter(weights + (size_t)f * rows * columns, (int)rows, (int)columns,
                        &parsed.filters[f]);
    }
    conv_bank_free(&parsed);
    if (status && message)
        conv_api_explain(message, CONV_MESSAGE_SIZE, &err);
    return status;
}
