// SPDX-License-Identifier: MIT
// The expected result of a layer: the reference's, and that of a second implementation in float32
// and float64 which shares only the activation and the conversion to float16 with it; and the
// comparison.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_layers.h"
#include "kernels/layer/layer.h"
#include "support/border.h"
#include "tensor/element.h"

// --- the second definition -----------------------------------------------------------------------

// One padded plane as floats.
static void gather_plane(const struct check_case *c, const uint8_t *src, float *padded)
{
    const struct conv_layer *layer = &c->layer;
    for (int y = -layer->pad_top; y < c->shape.height + layer->pad_bottom; y++) {
        int from_y = step_inside(layer->border, y, c->shape.height);
        for (int x = -layer->pad_left; x < c->shape.width + layer->pad_right; x++) {
            int from_x = step_inside(layer->border, x, c->shape.width);
            const uint8_t *row = src + from_y * c->src_row;
            if (from_x < 0 || from_y < 0)
                *padded = layer->border_value;
            else if (layer->input == CONV_ELEMENT_U8)
                *padded = (float)row[from_x] / layer->input_divisor;
            else
                memcpy(padded, row + (size_t)from_x * sizeof(float), sizeof(float));
            padded++;
        }
    }
}

static double activate(enum conv_activation activation, double value)
{
    switch (activation) {
    case CONV_ACTIVATION_RELU:
        return value < 0 ? 0 : value;
    case CONV_ACTIVATION_TANH:
        return tanh(value);
    case CONV_ACTIVATION_ABS:
        return fabs(value);
    case CONV_ACTIVATION_NONE:
        break;
    }
    return value;
}

struct value {
    float rounded; // after each addition
    double exact, margin;
};

// Where the samples of an output's taps are, relative to the first of its window and of its group's
// channels. To be freed.
static size_t *tap_offsets(const struct conv_layer *layer, size_t width, size_t plane)
{
    int taps = (int)conv_layer_taps(layer), side = layer->kernel_height * layer->kernel_width;
    size_t *offsets = malloc((size_t)taps * sizeof *offsets);
    if (!offsets) {
        perror("check_layers: malloc");
        exit(1);
    }
    for (int k = 0; k < taps; k++) {
        int u = k % side / layer->kernel_width, v = k % layer->kernel_width;
        offsets[k] = (size_t)(k / side) * plane + (size_t)(u * layer->dilation_y) * width +
                     (size_t)(v * layer->dilation_x);
    }
    return offsets;
}

// Map m of the window that begins at `window`, in the first channel of the map's group.
static struct value define(const struct conv_layer *layer, const float *window,
                           const size_t *offsets, int m)
{
    int taps = (int)conv_layer_taps(layer);
    const float *weights = layer->weights + (size_t)m * (size_t)taps;
    float start = layer->bias ? layer->bias[m] : 0;
    struct value value = {start, start, fabs((double)start)};
    for (int k = 0; k < taps; k++) {
        float sample = window[offsets[k]];
        double product = (double)weights[k] * (double)sample;
        value.rounded = fmaf(weights[k], sample, value.rounded);
        value.exact += product;
        value.margin += fabs(product);
    }
    value.rounded = conv_layer_activate(layer->activation, value.rounded);
    value.exact = activate(layer->activation, value.exact);
    return value;
}

// --- values in memory ----------------------------------------------------------------------------

static float get(const struct check_case *c, const uint8_t *memory, size_t at)
{
    if (c->layer.output == CONV_ELEMENT_F16)
        return conv_half_to_float(((const uint16_t *)(const void *)memory)[at]);
    return ((const float *)(const void *)memory)[at];
}

static bool same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static void print_difference(const struct check_case *c, const char *variant, size_t at, float got,
                             double expected, double tolerance)
{
    size_t width = (size_t)conv_layer_out_width(&c->layer, c->shape.width);
    size_t height = (size_t)conv_layer_out_height(&c->layer, c->shape.height);
    size_t plane = at / width / height;
    printf("FAILED %s: image %zu, map %zu, row %zu of %zu, column %zu of %zu: %.9g (%a), "
           "expected %.9g (%a)",
           variant, plane / (size_t)c->layer.maps, plane % (size_t)c->layer.maps,
           at / width % height, height, at % width, width, (double)got, (double)got, expected,
           expected);
    if (tolerance > 0)
        printf(" +- %.3g", tolerance);
    printf("\n");
    check_case_print(c, variant);
}

// --- the expected result -------------------------------------------------------------------------

static bool compare_definition(struct check_case *c)
{
    const struct conv_layer *layer = &c->layer;
    int height = conv_layer_out_height(layer, c->shape.height);
    int width = conv_layer_out_width(layer, c->shape.width);
    size_t row = (size_t)(c->shape.width + layer->pad_left + layer->pad_right);
    size_t plane = row * (size_t)(c->shape.height + layer->pad_top + layer->pad_bottom);
    size_t group = plane * (size_t)(layer->channels / layer->groups);
    float *padded = malloc((size_t)layer->channels * plane * sizeof *padded);
    if (!padded) {
        perror("check_layers: malloc");
        exit(1);
    }
    size_t *offsets = tap_offsets(layer, row, plane);
    bool ok = true;
    for (size_t at = 0; at < c->outputs && ok; at++) {
        int j = (int)(at % (size_t)width), i = (int)(at / (size_t)width % (size_t)height);
        int64_t map = (int64_t)(at / (size_t)width / (size_t)height);
        int m = (int)(map % layer->maps);
        if (m == 0 && i == 0 && j == 0)
            for (int p = 0; p < layer->channels; p++)
                gather_plane(c, c->src.data + map / layer->maps * c->src_image + p * c->src_plane,
                             padded + (size_t)p * plane);
        const float *window = padded + (size_t)(m / (layer->maps / layer->groups)) * group +
                              (size_t)(i * layer->stride_y) * row + (size_t)(j * layer->stride_x);
        struct value value = define(layer, window, offsets, m);
        c->exact[at] = value.exact;
        c->margin[at] = value.margin;
        float got = get(c, c->dst.data, at), expected = value.rounded;
        if (layer->output == CONV_ELEMENT_F16)
            expected = conv_half_to_float(conv_half_from_float(expected));
        ok = same_bits(got, expected);
        if (!ok)
            print_difference(c, "cpu_layer_reference, compared with the definition", at, got,
                             (double)expected, 0);
    }
    free(offsets);
    free(padded);
    return ok;
}

static size_t count_zeros(const struct check_case *c)
{
    size_t zeros = 0;
    for (size_t at = 0; at < c->outputs; at++)
        zeros += get(c, c->dst.data, at) == 0;
    return zeros;
}

static void run_reference(struct check_case *c)
{
    struct conv_layer_plan plan;
    struct conv_layer_batch batch = check_case_batch(c);
    check_memory_clear(&c->dst);
    conv_layer_plan_find(&plan, &conv_cpu_layer_reference, &c->layer, &c->shape, 0);
    conv_cpu_layer_reference.run(&plan, &batch);
}

static void negate(struct check_memory *memory)
{
    for (size_t i = 0; i < memory->size / sizeof(float); i++)
        ((float *)(void *)memory->data)[i] *= -1;
}

static size_t count_good(const struct check_case *c)
{
    size_t good = 0;
    for (size_t at = 0; at < c->outputs; at++)
        good += isfinite(get(c, c->dst.data, at)) && get(c, c->dst.data, at) != 0;
    return good;
}

// Integers can add up to 0 in every output, and outputs can have padding of 0 alone: then first a
// sample and the padding, and then the weights are replaced.
static void avoid_zeros(struct check_case *c)
{
    size_t taps = c->weights.size / sizeof(float) / (size_t)c->layer.maps;
    c->layer.border_value = 3;
    if (c->layer.input == CONV_ELEMENT_F32)
        *(float *)(void *)c->src.data = 3;
    else
        *c->src.data = 3;
    run_reference(c);
    // Sums that are far below 0 need more than 1 to have a result after ReLU.
    for (float more = 1; more < 4096 && count_good(c) == 0; more *= 2) {
        for (int m = 0; m < c->layer.maps; m++)
            ((float *)(void *)c->weights.data)[(size_t)m * taps] += more;
        run_reference(c);
    }
}

bool check_case_expect(struct check_case *c, bool define)
{
    run_reference(c);
    if (c->layer.activation == CONV_ACTIVATION_RELU && count_zeros(c) > c->outputs / 2) {
        negate(&c->weights); // so that most sums are positive
        negate(&c->bias);
        run_reference(c);
    }
    if (c->numbers < CHECK_TINY && c->outputs >= 16 && count_good(c) == 0)
        avoid_zeros(c);
    size_t good = count_good(c);
    c->useful = good >= (c->outputs + 3) / 4;
    memcpy(c->expected, c->dst.data, c->dst.size);
    if (!check_memory_holds(&c->dst)) {
        printf("FAILED cpu_layer_reference: wrote beside dst\n");
        check_case_print(c, "cpu_layer_reference");
        return false;
    }
    if (good == 0 && c->outputs >= 16 && c->numbers < CHECK_TINY) {
        printf("FAILED: a case without a result other than 0\n");
        check_case_print(c, "cpu_layer_reference");
        return false;
    }
    // Without a definition no variant is within its bound.
    memset(c->exact, 0xff, c->outputs * sizeof *c->exact);
    return !define || compare_definition(c);
}

// --- comparison ----------------------------------------------------------------------------------

bool check_case_suits(const struct check_case *c, const struct conv_layer_variant *variant)
{
    if (variant->precision == CONV_PRECISION_EXACT)
        return true;
    return c->numbers != CHECK_TINY &&
           (variant->precision != CONV_PRECISION_FP16 || c->numbers != CHECK_WIDE);
}

// How far an inexact variant may be from the value in float64. No activation enlarges an error, but
// tanh adds an error of its own.
static double tolerance_of(const struct check_case *c, const struct conv_layer_variant *variant,
                           size_t at)
{
    double tolerance = (double)variant->bound * 0x1p-24 * c->margin[at] + 0x1p-149;
    if (c->layer.activation == CONV_ACTIVATION_TANH)
        tolerance += 3 * 0x1p-24 * fabs(c->exact[at]);
    if (c->layer.output == CONV_ELEMENT_F16)
        tolerance += 0x1p-11 * (fabs(c->exact[at]) + tolerance) + 0x1p-25;
    return tolerance;
}

static bool is_within(const struct check_case *c, const struct conv_layer_variant *variant,
                      size_t at, float got, double *worst)
{
    double exact = c->exact[at], tolerance = tolerance_of(c, variant, at);
    if (c->numbers == CHECK_SPECIAL) // the rest is up to the variant
        return !isnan(exact) || isnan(got);
    if (c->layer.output == CONV_ELEMENT_F16 && isinf(got))
        return fabs(exact) + tolerance >= 65520 && (got < 0) == (exact < 0);
    double error = fabs((double)got - exact);
    if (error / tolerance > *worst)
        *worst = error / tolerance;
    return error <= tolerance; // false for NaN
}

bool check_case_compare(const struct check_case *c, const struct conv_layer_variant *variant,
                        double *worst, bool quiet)
{
    if (!check_memory_holds(&c->dst)) {
        if (!quiet) {
            printf("FAILED %s: wrote beside dst\n", variant->name);
            check_case_print(c, variant->name);
        }
        return false;
    }
    bool exact = variant->precision == CONV_PRECISION_EXACT;
    if (exact && memcmp(c->dst.data, c->expected, c->dst.size) == 0)
        return true;
    for (size_t at = 0; at < c->outputs; at++) {
        float got = get(c, c->dst.data, at), expected = get(c, c->expected, at);
        if (exact ? same_bits(got, expected) : is_within(c, variant, at, got, worst))
            continue;
        if (!quiet)
            print_difference(c, variant->name, at, got, exact ? (double)expected : c->exact[at],
                             exact ? 0 : tolerance_of(c, variant, at));
        return false;
    }
    return true;
}
