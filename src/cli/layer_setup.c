// SPDX-License-Identifier: MIT
#include "cli/layer_command.h"

#include <limits.h>
#include <string.h>

#include "cli/device.h"
#include "report/report.h"

// --- values --------------------------------------------------------------------------------------

float conv_layer_setup_divisor(const struct conv_options *options, enum conv_element element,
                               bool is_image)
{
    bool is_given = conv_options_given(options, "range");
    if (!is_image && !is_given)
        return 1;
    bool to_255 = is_given && options->filter.layer.range == CONV_LAYER_RANGE_255;
    if (element == CONV_ELEMENT_U16)
        return to_255 ? 257 : 65535;
    return element == CONV_ELEMENT_U8 && !to_255 ? 255 : 1;
}

// --- weights -------------------------------------------------------------------------------------

// `groups`: at least 1. Kernels of (maps, channels, length) have a height of 1.
static enum conv_status check_weights(const struct conv_tensor_shape *shape, int groups,
                                      const char *name, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    if (shape->axes != 4 && shape->axes != 3)
        return conv_err_usage(err,
                              "%s: the weights have shape %s; expected (maps, channels, height, "
                              "width) or (maps, channels, length)",
                              name, conv_tensor_shape_text(text, shape));
    const int64_t *side = shape->side;
    bool fits = side[0] > 0 && side[1] > 0 && side[0] <= INT_MAX && side[1] <= INT_MAX / groups;
    for (int i = 2; i < shape->axes; i++)
        if (side[i] < 1 || side[i] > CONV_LAYER_MAX_SIDE)
            fits = false;
    if (fits && side[0] % groups)
        return conv_err_usage(err,
                              "%s: the weights have shape %s; %d groups do not divide the maps",
                              name, conv_tensor_shape_text(text, shape), groups);
    return fits ? CONV_OK
                : conv_err_usage(err,
                                 "%s: the weights have shape %s; there must be at least one map "
                                 "and channel, and kernels have 1 to %d samples per side",
                                 name, conv_tensor_shape_text(text, shape), CONV_LAYER_MAX_SIDE);
}

static enum conv_status check_bias(const struct conv_tensor_shape *shape, const char *name,
                                   int maps, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    if (shape->axes == 1 && shape->side[0] == maps)
        return CONV_OK;
    return conv_err_usage(err,
                          "--bias %s has shape %s; the weights have %d maps, so (%d,) is expected",
                          name, conv_tensor_shape_text(text, shape), maps, maps);
}

// A file of the command line that cannot be read is a usage error, as with filters.
static enum conv_status load(struct conv_tensor *tensor, const struct conv_machine_options *machine,
                             const char *name, struct conv_err *err)
{
    enum conv_status status =
        conv_tensor_load(tensor, name, conv_options_mem_limit(machine, false), err);
    if (status && status != CONV_ERR_MEMORY)
        status = err->status = CONV_ERR_USAGE;
    return status;
}

// A filter bank instead of weights. Its maps have the size of the image, float32 and the order of
// additions that the bank defines.
static enum conv_status open_bank(struct conv_layer_setup *setup,
                                  const struct conv_options *options, struct conv_err *err)
{
    static const char *const refused[] = {"bias",      "stride",      "padding",
                                          "dilation",  "groups",      "activation",
                                          "precision", "output-type", "variant"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (conv_options_given(options, refused[i]))
            return conv_err_usage(err, "--%s cannot be combined with a filter bank", refused[i]);
    }
    enum conv_status status =
        conv_layer_context_parse_border(&setup->layer, options->filter.border_text, err);
    if (!options->filter.border_text)
        setup->layer.border = CONV_BORDER_REPLICATE;
    setup->layer.output = CONV_ELEMENT_F32;
    if (!status && options->filter.layer.pool)
        status = conv_pooling_parse(&setup->pool, options->filter.layer.pool, err);
    return status ? status : conv_bank_parse(&setup->bank, options->operands[0], err);
}

enum conv_status conv_layer_setup_geometry(struct conv_layer *layer,
                                           const struct conv_options *options, struct conv_err *err)
{
    const struct conv_layer_options *how = &options->filter.layer;
    const struct conv_bench_layer *of = &options->bench.layer;
    *layer = (struct conv_layer){
        .kernel_height = of->kernel_height, // on which `same` depends
        .kernel_width = of->kernel_width,
        .groups = how->groups,
        .stride_y = how->stride_y,
        .stride_x = how->stride_x,
        .dilation_y = how->dilation_y,
        .dilation_x = how->dilation_x,
        .border = CONV_BORDER_CONSTANT,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output = CONV_ELEMENT_F32,
    };
    if (of->channels % how->groups || of->maps % how->groups)
        return conv_err_usage(err, "%d groups do not divide %d channels and %d maps", how->groups,
                              of->channels, of->maps);
    enum conv_status status = conv_layer_context_parse_padding(layer, how->padding, err);
    struct conv_layer sized = conv_layer_sized(layer, of->height, of->width);
    if (!status && of->channels &&
        (!conv_layer_out_height(&sized, of->height) || !conv_layer_out_width(&sized, of->width)))
        return conv_err_usage(err, "a kernel of %dx%d is larger than the planes of %dx%d samples",
                              of->kernel_height, of->kernel_width, of->height, of->width);
    return status;
}

enum conv_status conv_layer_setup_open(struct conv_layer_setup *setup,
                                       const struct conv_options *options, struct conv_err *err)
{
    const char *name = options->operands[0], *bias = options->filter.settings.bias;
    const struct conv_layer_options *how = &options->filter.layer;
    *setup = (struct conv_layer_setup){0};
    if (conv_bank_is_name(name))
        return open_bank(setup, options, err);
    if (how->pool)
        return conv_err_usage(err, "--pool is for filter banks (conv list banks), and %s is a file",
                              name);
    enum conv_status status = load(&setup->weights, &options->machine, name, err);
    if (!status)
        status = check_weights(&setup->weights.shape, how->groups, name, err);
    if (status)
        return status;
    const int64_t *side = setup->weights.shape.side;
    setup->layer = (struct conv_layer){
        .maps = (int)side[0],
        .channels = (int)side[1] * how->groups,
        .groups = how->groups,
        .kernel_height = setup->weights.shape.axes == 4 ? (int)side[2] : 1,
        .kernel_width = (int)side[setup->weights.shape.axes - 1],
        .stride_y = how->stride_y,
        .stride_x = how->stride_x,
        .dilation_y = how->dilation_y,
        .dilation_x = how->dilation_x,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output =
            options->outputs.type == CONV_OPTIONS_OUTPUT_F16 ? CONV_ELEMENT_F16 : CONV_ELEMENT_F32,
        .activation = how->activation,
        .precision = how->precision,
        .weights = setup->weights.values,
    };
    status = conv_layer_context_parse_padding(&setup->layer, how->padding, err);
    if (!status && setup->weights.shape.axes == 3) {
        if (how->padding && strchr(how->padding, 'x'))
            return conv_err_usage(
                err, "--padding %s: layers of weights (maps, channels, length) have one axis",
                how->padding);
        setup->layer.pad_top = setup->layer.pad_bottom = 0;
    }
    if (!status)
        status = conv_layer_context_parse_border(&setup->layer, options->filter.border_text, err);
    if (!status && bias)
        status = load(&setup->bias, &options->machine, bias, err);
    if (!status && bias)
        status = check_bias(&setup->bias.shape, bias, setup->layer.maps, err);
    setup->layer.bias = setup->bias.values;
    return status;
}

void conv_layer_setup_close(struct conv_layer_setup *setup)
{
    conv_tensor_free(&setup->weights);
    conv_tensor_free(&setup->bias);
    conv_bank_free(&setup->bank);
}

// --- device --------------------------------------------------------------------------------------

// Opening a GPU takes about 0.3 s. It pays off if this estimate of the CPU's time is more than
// twice as long.
#define CORE_FLOPS 40e9
#define WORTHWHILE_SECONDS 0.6

double conv_layer_setup_much(const struct conv_machine_options *machine)
{
    return WORTHWHILE_SECONDS * CORE_FLOPS * machine->limits->cores;
}

enum conv_status conv_layer_setup_choose(struct conv_layer_target *target,
                                         const struct conv_machine_options *machine, double flops,
                                         struct conv_err *err)
{
    struct conv_device_list list;
    enum conv_status status = conv_device_parse_one(machine, &list, err);
    if (status)
        return status;
    const char *variant = machine->variant ? machine->variant : "";
    bool of_cpu = strncmp(variant, "cpu_", 4) == 0;
    *target = (struct conv_layer_target){.place = CONV_ON_CPU};
    if (list.choice == CONV_DEVICE_CPU || (list.choice == CONV_DEVICE_AUTO && of_cpu))
        return CONV_OK;
    bool is_much = flops > conv_layer_setup_much(machine);
    if (list.choice == CONV_DEVICE_AUTO && !*variant && (!is_much || !list.gpu->has_driver()))
        return CONV_OK;
    conv_device_spread(&list);
    target->place = list.gpu->place;
    target->device = list.ordinals[0];
    target->may_fall_back = list.choice == CONV_DEVICE_AUTO && !*variant;
    return CONV_OK;
}

enum conv_status
conv_layer_setup_operation(struct conv_operation *operation, struct conv_layer_target *target,
                           const struct conv_options *options, const struct conv_layer_setup *setup,
                           enum conv_element input, float divisor, struct conv_err *err)
{
    struct conv_layer layer = setup->layer;
    layer.input = input;
    layer.input_divisor = divisor;
    for (;;) {
        struct conv_layer_config of_layer = {
            .layer = &layer,
            .place = target->place,
            .device = target->device,
            .variant = options->machine.variant,
        };
        struct conv_bank_config of_bank = {
            .bank = &setup->bank,
            .place = target->place,
            .device = target->device,
            .border = layer.border,
            .border_value = layer.border_value,
            .input = input,
            .input_divisor = divisor,
            .pool = setup->pool,
        };
        struct conv_err reason = {0};
        enum conv_status status =
            setup->bank.map_count ? conv_bank_context_open(&operation->bank, &of_bank, &reason)
                                  : conv_layer_context_open(&operation->layer, &of_layer, &reason);
        if (status)
            *err = reason;
        if (status != CONV_ERR_DEVICE || !target->may_fall_back)
            return status;
        if (!options->report.quiet)
            conv_report_say("%s; computing on the CPU", reason.text);
        *target = (struct conv_layer_target){.place = CONV_ON_CPU};
    }
}

// --- shapes --------------------------------------------------------------------------------------

static enum conv_status fit_layer(struct conv_layer_shapes *shapes,
                                  const struct conv_layer_setup *setup, const char *name,
                                  const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE], weights[CONV_TENSOR_TEXT_SIZE];
    const struct conv_layer *layer = &setup->layer;
    conv_tensor_shape_text(text, in);
    conv_tensor_shape_text(weights, &setup->weights.shape);
    bool is_flat = setup->weights.shape.axes == 3;
    const char *sides = is_flat ? "length" : "height, width";
    int axes = is_flat ? 2 : 3; // of an image
    const int64_t *side = in->side + in->axes - axes, *last = side + axes - 1;
    if (in->axes < axes || in->axes > axes + 1 || side[0] != layer->channels)
        return conv_err_usage(
            err,
            "%s: shape %s does not fit weights of shape %s; expected (images, %d, %s) or (%d, %s)",
            name, text, weights, layer->channels, sides, layer->channels, sides);
    int64_t height = is_flat ? 1 : side[1];
    size_t bytes_in, bytes_out;
    if (height < 1 || *last < 1 || height > INT_MAX || *last > INT_MAX ||
        !conv_layer_context_bytes(layer, (int)height, (int)*last, &bytes_in, &bytes_out))
        return conv_err_usage(err,
                              "%s: shape %s does not fit weights of shape %s; expected planes of "
                              "at least %d x %d samples, padding included",
                              name, text, weights, conv_layer_reach_y(layer),
                              conv_layer_reach_x(layer));
    shapes->images = in->axes > axes ? in->side[0] : 1;
    shapes->height = (int)height;
    shapes->width = (int)*last;
    int64_t *out = shapes->out.side + in->axes - axes;
    out[0] = layer->maps;
    out[1] = conv_layer_out_height(layer, shapes->height);
    out[axes - 1] = conv_layer_out_width(layer, shapes->width);
    shapes->flops = 2.0 * (double)shapes->images * layer->maps * (double)conv_layer_taps(layer) *
                    conv_layer_out_height(layer, shapes->height) * (double)out[axes - 1];
    return CONV_OK;
}

// The maps of a plane take its place among the channels; pooled, (kinds[, grid, grid]) takes the
// place of (height, width).
static enum conv_status fit_bank(struct conv_layer_shapes *shapes,
                                 const struct conv_layer_setup *setup, const char *name,
                                 const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    const struct conv_pooling *pool = &setup->pool;
    int axes = in->axes, grid = pool->count ? pool->grid : 1;
    const int64_t *plane = in->side + axes - 2;
    if (axes < 2 || axes > 4)
        return conv_err_usage(err,
                              "%s: shape %s; a filter bank takes (images, channels, height, "
                              "width), (channels, height, width) or (height, width)",
                              name, conv_tensor_shape_text(text, in));
    if (plane[0] < grid || plane[1] < grid || plane[0] > INT_MAX || plane[1] > INT_MAX)
        return conv_err_usage(err, "%s: shape %s; expected planes of %d x %d to %d x %d samples",
                              name, conv_tensor_shape_text(text, in), grid, grid, INT_MAX, INT_MAX);
    struct conv_tensor_shape *out = &shapes->out;
    int64_t channels = axes > 2 ? plane[-1] : 1;
    shapes->images = axes == 4 ? in->side[0] * channels : channels;
    shapes->height = (int)plane[0];
    shapes->width = (int)plane[1];
    shapes->flops = 2 * conv_bank_cost(&setup->bank) * (double)shapes->images * (double)plane[0] *
                    (double)plane[1];
    int at = axes == 4; // of the maps
    if (__builtin_mul_overflow(channels, (int64_t)setup->bank.map_count, &out->side[at++]))
        return conv_err_limit(err, "%s: shape %s has too many channels", name,
                              conv_tensor_shape_text(text, in));
    int64_t maps[] = {plane[0], plane[1]}, features[] = {pool->count, pool->grid, pool->grid};
    int sides = !pool->count ? 2 : pool->grid > 1 ? 3 : 1;
    for (int i = 0; i < sides; i++)
        out->side[at++] = pool->count ? features[i] : maps[i];
    out->axes = at;
    return CONV_OK;
}

enum conv_status conv_layer_shapes_fit(struct conv_layer_shapes *shapes,
                                       const struct conv_layer_setup *setup, const char *name,
                                       const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    uint64_t bytes;
    *shapes = (struct conv_layer_shapes){.out = *in};
    enum conv_status status = setup->bank.map_count ? fit_bank(shapes, setup, name, in, err)
                                                    : fit_layer(shapes, setup, name, in, err);
    if (status)
        return status;
    return conv_tensor_shape_bytes(&shapes->out, conv_element_size(setup->layer.output), &bytes)
               ? CONV_OK
               : conv_err_limit(err, "the result would have shape %s",
                                conv_tensor_shape_text(text, &shapes->out));
}
