// SPDX-License-Identifier: MIT
// The plans of a context: made at the first use of a shape, and kept for a number of shapes.
#include "engine/layer_context.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define MOST_NAMES 128
// Plans that are kept. A folder of photographs has a few sizes; one of a thousand sizes makes a
// plan per image, which costs less than the image.
#define MOST_PLANS 64
// Shapes for which a library is timed, which takes 0.01 to 3 s each.
#define MOST_TIMED 64
#define PACKED_ALIGN 64
#define SCRATCH_ALIGN 256

// --- the choice of a kernel ----------------------------------------------------------------------

// CONV_ERR_USAGE if no kernel of that place has the name.
static enum conv_status check_name(const char *name, enum conv_place place, struct conv_err *err)
{
    const char *names[MOST_NAMES];
    char what[32];
    size_t count = 0;
    int variant_count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&variant_count);
    for (int i = 0; i < variant_count && count < MOST_NAMES - 1; i++)
        if (variants[i]->place == place)
            names[count++] = variants[i]->name;
    const struct conv_layer_variant *library = conv_engine_devices[place]->tensors->library;
    if (library)
        names[count++] = library->name;
    snprintf(what, sizeof what, "%s layer kernel", conv_place_word(place));
    return conv_suggest_choice(what, name, names, sizeof names[0], count, err) < 0
               ? conv_err_hint(err, CONV_HINT_VARIANT, 0, CONV_ERR_USAGE)
               : CONV_OK;
}

static enum conv_status no_variant(const struct conv_layer_context *context, struct conv_err *err)
{
    const char *device = conv_place_word(context->ops->place);
    if (!context->variant)
        return conv_err_usage(err, "no %s kernel can do this layer", device);
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_VARIANT,
                           "%s: cannot do this layer at this precision on this %s",
                           context->variant, device);
}

// --- plans ---------------------------------------------------------------------------------------

static void free_prepared(const struct conv_layer_context *context,
                          struct conv_layer_prepared *prepared)
{
    if (prepared->library)
        context->ops->tensors->library_close(context->device, prepared->library);
    if (prepared->d_packed)
        context->ops->tensors->release(context->device, prepared->d_packed);
    free(prepared->packed);
    free(prepared);
}

#define MARK 0x40000000u // of the second packing

// In place of the packed weights of a layer without weights, where each of them comes from (see
// conv_cuda_layer_gather): packs the numbers of all weights and biases, from 1 on, twice, of which
// the second time has a mark in each.
static enum conv_status find_places(struct conv_layer_plan *plan, uint32_t *packed,
                                    struct conv_err *err)
{
    size_t weights = conv_layer_taps(&plan->layer) * (size_t)plan->layer.maps;
    size_t count = weights + (size_t)plan->layer.maps, elements = plan->packed_bytes / 4;
    uint32_t *numbers = NULL,
             *marked =
                 aligned_alloc(PACKED_ALIGN, conv_image_align(plan->packed_bytes, PACKED_ALIGN));
    if (count < MARK)
        numbers = malloc(count * sizeof *numbers);
    if (!numbers || !marked) {
        free(marked);
        free(numbers);
        return conv_err_memory(err, "no memory for the places of the weights");
    }
    plan->layer.weights = (const float *)(const void *)numbers;
    plan->layer.bias = plan->layer.weights + weights;
    for (uint32_t mark = 0; mark <= MARK; mark += MARK) {
        for (uint32_t i = 0; i < count; i++)
            numbers[i] = (i + 1) | mark;
        conv_layer_plan_pack(plan, mark ? marked : packed);
    }
    plan->layer.weights = plan->layer.bias = NULL;
    bool moves = true; // and nothing else
    for (size_t i = 0; i < elements; i++) {
        bool zero = packed[i] == marked[i] && (packed[i] == 0 || packed[i] == 0x80000000u);
        moves = moves && (zero || (packed[i] | MARK) == marked[i]);
        packed[i] = !zero ? packed[i] - 1 : packed[i] ? (uint32_t)-2 : (uint32_t)-1;
    }
    plan->packed = packed;
    free(marked);
    free(numbers);
    return moves
               ? CONV_OK
               : conv_err_unsupported(err, "%s needs the weights in advance", plan->variant->name);
}

static bool is_library(const struct conv_layer_context *context)
{
    const struct conv_layer_variant *library = context->ops->tensors->library;
    return library && context->variant && strcmp(context->variant, library->name) == 0;
}

static enum conv_status fill_plan(const struct conv_layer_context *context,
                                  struct conv_layer_prepared *prepared,
                                  const struct conv_layer_shape *shape, struct conv_err *err)
{
    const struct conv_layer *layer = &prepared->outer;
    struct conv_layer_plan *plan = &prepared->plan;
    prepared->outer = conv_layer_sized(&context->layer, shape->height, shape->width);
    prepared->shape = *shape;
    bool by_library = context->ops->tensors->library && layer->precision != CONV_PRECISION_EXACT;
    if (!conv_layer_plan_best(plan, layer, shape, context->ops->place, context->have,
                              is_library(context) ? NULL : context->variant)) {
        *plan = (struct conv_layer_plan){0};
        return layer->channels_last && by_library ? CONV_OK : no_variant(context, err);
    }
    if (plan->pads) {
        size_t images = shape->images > 0 ? (size_t)shape->images : 1;
        prepared->pad_bytes =
            conv_image_align(images * (size_t)layer->channels * (size_t)plan->shape.height *
                                 (size_t)plan->shape.width * sizeof(float),
                             SCRATCH_ALIGN);
    }
    size_t packed = prepared->packed_bytes = plan->packed_bytes;
    if (packed > 0)
        prepared->packed = aligned_alloc(PACKED_ALIGN, conv_image_align(packed, PACKED_ALIGN));
    if (packed > 0 && !prepared->packed)
        return conv_err_memory(err, "no memory for the weights (%zu KiB)", packed >> 10);
    enum conv_status status = CONV_OK;
    if (layer->weights)
        conv_layer_plan_pack(plan, prepared->packed);
    else if (context->ops->tensors->upload)
        status = find_places(plan, prepared->packed, err);
    if (status)
        return status;
    if (plan->rounds)
        prepared->sum_bytes =
            conv_image_align((size_t)shape->images * (size_t)layer->maps * sizeof(float) *
                                 (size_t)conv_layer_out_height(&plan->layer, plan->shape.height) *
                                 (size_t)conv_layer_out_width(&plan->layer, plan->shape.width),
                             SCRATCH_ALIGN);
    prepared->scratch = prepared->pad_bytes + prepared->sum_bytes + plan->scratch;
    if (packed == 0 || !context->ops->tensors->upload)
        return CONV_OK;
    status = context->ops->tensors->upload(context->device, prepared->packed, packed,
                                           &prepared->d_packed, err);
    plan->d_packed = prepared->d_packed;
    return status;
}

// The plan, and the library instead where that is faster.
static enum conv_status fill_prepared(struct conv_layer_context *context,
                                      struct conv_layer_prepared *prepared,
                                      const struct conv_layer_shape *shape, struct conv_err *err)
{
    const struct conv_tensor_ops *tensors = context->ops->tensors;
    bool forced = is_library(context);
    enum conv_status status = fill_plan(context, prepared, shape, err);
    if (status || !tensors->library || context->layer.precision == CONV_PRECISION_EXACT ||
        (context->variant && !forced))
        return !status && forced ? no_variant(context, err) : status;
    struct conv_err reason = {0};
    if (!forced && prepared->plan.variant && context->timed++ >= MOST_TIMED) {
        snprintf(prepared->note, sizeof prepared->note, "%s is used for the first %d shapes only",
                 tensors->library->name, MOST_TIMED);
        return CONV_OK;
    }
    status = tensors->library_open(context->device, prepared, forced, &reason);
    if (status == CONV_ERR_UNSUPPORTED && forced)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_VARIANT, "%s: %s", context->variant,
                               reason.text);
    if (status == CONV_ERR_UNSUPPORTED) {
        snprintf(prepared->note, sizeof prepared->note, "%.199s", reason.text);
        return CONV_OK;
    }
    if (status)
        *err = reason;
    return status;
}

// Drops the plan that was used least recently of those without users.
static void drop_oldest(struct conv_layer_context *context)
{
    struct conv_layer_prepared **oldest = NULL;
    for (struct conv_layer_prepared **at = &context->plans; *at; at = &(*at)->next)
        if ((*at)->users == 0 && (!oldest || (*at)->last_use < (*oldest)->last_use))
            oldest = at;
    if (!oldest)
        return;
    struct conv_layer_prepared *dropped = *oldest;
    *oldest = dropped->next;
    context->plan_count--;
    free_prepared(context, dropped);
}

// Takes the plan for a shape, and makes it if there is none. The lock is held meanwhile, since
// threads that start together usually need the same plan.
static enum conv_status take_plan(struct conv_layer_context *context,
                                  const struct conv_layer_shape *shape, bool gaps,
                                  struct conv_layer_prepared **out, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    gaps = gaps && context->layer.precision != CONV_PRECISION_EXACT; // plans do not depend on them
    conv_lock_acquire(&context->lock);
    struct conv_layer_prepared *prepared = context->plans;
    while (prepared &&
           (prepared->shape.height != shape->height || prepared->shape.width != shape->width ||
            prepared->shape.images != shape->images || prepared->gaps != gaps))
        prepared = prepared->next;
    if (!prepared) {
        if (context->plan_count >= MOST_PLANS)
            drop_oldest(context);
        prepared = calloc(1, sizeof *prepared);
        if (prepared)
            prepared->gaps = gaps;
        status = prepared ? fill_prepared(context, prepared, shape, err)
                          : conv_err_memory(err, "no memory for a plan");
        if (!status) {
            prepared->next = context->plans;
            context->plans = prepared;
            context->plan_count++;
        } else if (prepared) {
            free_prepared(context, prepared);
        }
    }
    if (!status) {
        prepared->users++;
        prepared->last_use = ++context->calls;
        *out = prepared;
    }
    conv_lock_release(&context->lock);
    return status;
}

static void give_plan(struct conv_layer_context *context, struct conv_layer_prepared *prepared)
{
    conv_lock_acquire(&context->lock);
    prepared->users--;
    conv_lock_release(&context->lock);
}

// --- the context ---------------------------------------------------------------------------------

enum conv_status conv_layer_context_open(struct conv_layer_context **out,
                                         const struct conv_layer_config *config,
                                         struct conv_err *err)
{
    const struct conv_device_ops *ops = conv_engine_devices[config->place];
    unsigned have = 0;
    enum conv_status status = ops->tensors->open(config->device, &have, err);
    if (!status && config->variant)
        status = check_name(config->variant, config->place, err);
    if (status)
        return status;
    struct conv_layer_context *context = calloc(1, sizeof *context);
    if (!context)
        return conv_err_memory(err, "no memory for a layer");
    conv_lock_init(&context->lock);
    context->layer = *config->layer;
    context->ops = ops;
    context->device = config->device;
    context->have = have;
    context->variant = config->variant;
    *out = context;
    return CONV_OK;
}

void conv_layer_context_close(struct conv_layer_context *context)
{
    if (!context)
        return;
    while (context->plans) {
        struct conv_layer_prepared *prepared = context->plans;
        context->plans = prepared->next;
        free_prepared(context, prepared);
    }
    conv_lock_destroy(&context->lock);
    free(context);
}

enum conv_status conv_layer_context_way(struct conv_layer_context *context,
                                        const struct conv_layer_shape *shape, bool gaps,
                                        struct conv_layer_way *way, struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(context, shape, gaps, &prepared, err);
    if (status)
        return status;
    *way = (struct conv_layer_way){
        .variant = prepared->library ? context->ops->tensors->library : prepared->plan.variant,
        .scratch = prepared->scratch,
        .packed = conv_image_align(prepared->packed_bytes, SCRATCH_ALIGN),
    };
    memcpy(way->note, prepared->note, sizeof way->note);
    give_plan(context, prepared);
    return CONV_OK;
}

bool conv_layer_context_bytes(const struct conv_layer *unsized, int height, int width, size_t *in,
                              size_t *out)
{
    const struct conv_layer sized = conv_layer_sized(unsized, height, width), *layer = &sized;
    int64_t tall = (int64_t)height + layer->pad_top + layer->pad_bottom;
    int64_t wide = (int64_t)width + layer->pad_left + layer->pad_right;
    if (tall > INT_MAX || wide > INT_MAX)
        return false;
    int rows = conv_layer_out_height(layer, height), columns = conv_layer_out_width(layer, width);
    // The padded input in float32, which lies between the two, has to fit as well.
    size_t padded, plane = (size_t)tall * (size_t)wide;
    return rows > 0 && columns > 0 &&
           !__builtin_mul_overflow(plane, sizeof(float) * (size_t)layer->channels, &padded) &&
           !__builtin_mul_overflow((size_t)rows * (size_t)columns,
                                   conv_element_size(layer->output) * (size_t)layer->maps, out) &&
           !__builtin_mul_overflow((size_t)height * (size_t)width,
                                   conv_element_size(layer->input) * (size_t)layer->channels, in);
}

// --- batches -------------------------------------------------------------------------------------

struct conv_layer_batch conv_layer_batch_of(const struct conv_layer *layer,
                                            const struct conv_layer_shape *shape, int64_t images,
                                            const void *src, void *dst)
{
    int64_t row = shape->width * (int64_t)conv_element_size(layer->input);
    return (struct conv_layer_batch){
        .images = images,
        .src = src,
        .src_row = row,
        .src_plane = row * shape->height,
        .src_image = row * shape->height * layer->channels,
        .dst = dst,
        .rows = conv_layer_out_height(layer, shape->height),
    };
}

enum conv_status conv_layer_context_run(struct conv_layer_context *context,
                                        struct conv_tensor_stream *stream,
                                        const struct conv_layer_shape *shape, int64_t images,
                                        const void *src, void *dst, struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    enum conv_status status = take_plan(context, shape, false, &prepared, err);
    if (status)
        return status;
    status = context->ops->tensors->layer_run(stream, prepared, images, src, dst, err);
    give_plan(context, prepared);
    return status;
}

enum conv_status conv_layer_context_enqueue(struct conv_layer_context *context,
                                            const struct conv_layer_shape *shape,
                                            const struct conv_layer_batch *batch,
                                            struct conv_err *err)
{
    struct conv_layer_prepared *prepared;
    int64_t row = shape->width * (int64_t)conv_element_size(context->layer.input);
    int64_t plane = row * shape->height, image = plane * context->layer.channels;
    bool gaps = !context->layer.channels_last &&
                ((shape->height > 1 && batch->src_row != row) ||
                 (context->layer.channels > 1 && batch->src_plane != plane) ||
                 (batch->images > 1 && batch->src_image != image));
    enum conv_status status = take_plan(context, shape, gaps, &prepared, err);
    if (status)
        return status;
    status = context->ops->tensors->layer_enqueue(prepared, batch, err);
    give_plan(context, prepared);
    return status;
}

// --- padding as texts ----------------------------------------------------------------------------

#define MOST_PADDING 65536

// "N" or "BEFORE:AFTER". Returns where it ends, or NULL if it is not that.
static const char *parse_axis_pads(int *before, int *after, const char *text)
{
    for (int i = 0; i < 2; i++) {
        char *end = NULL;
        long number = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
        if (number < 0 || number > MOST_PADDING)
            return NULL;
        *after = (int)number;
        if (i == 0)
            *before = (int)number;
        if (i == 1 || *end != ':')
            return end;
        text = end + 1;
    }
    return NULL;
}

enum conv_status conv_layer_context_parse_padding(struct conv_layer *layer, const char *text,
                                                  struct conv_err *err)
{
    if (!text || strcmp(text, "valid") == 0)
        return CONV_OK;
    if (strcmp(text, "same") == 0) {
        // As PyTorch: the extra sample of an even reach is at the bottom and right.
        layer->pad_top = (conv_layer_reach_y(layer) - 1) / 2;
        layer->pad_bottom = conv_layer_reach_y(layer) / 2;
        layer->pad_left = (conv_layer_reach_x(layer) - 1) / 2;
        layer->pad_right = conv_layer_reach_x(layer) / 2;
        return CONV_OK;
    }
    for (int lower = 0; lower < 2; lower++)
        if (strcmp(text, lower ? "same_lower" : "same_upper") == 0) {
            layer->same = lower ? CONV_LAYER_SAME_LOWER : CONV_LAYER_SAME_UPPER;
            return CONV_OK;
        }
    const char *at = parse_axis_pads(&layer->pad_top, &layer->pad_bottom, text);
    layer->pad_left = layer->pad_top;
    layer->pad_right = layer->pad_bottom;
    if (at && *at == 'x')
        at = parse_axis_pads(&layer->pad_left, &layer->pad_right, at + 1);
    if (at && !*at)
        return CONV_OK;
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_PADDING,
                           "takes valid, same, same_upper, same_lower or numbers from 0 to %d (1, "
                           "1x2, 0:1x2:3), not '%.32s'",
                           MOST_PADDING, text);
}

enum conv_status conv_layer_context_parse_border(struct conv_layer *layer, const char *text,
                                                 struct conv_err *err)
{
    return conv_filter_parse_border(&layer->border, &layer->border_value,
                                    text ? text : "constant:0", err);
}
