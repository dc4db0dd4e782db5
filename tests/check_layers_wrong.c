// SPDX-License-Identifier: MIT
// Variants with one mistake each, which check_layers must catch, and right ones, which it must
// accept.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_layers.h"
#include "kernels/layer/layer.h"
#include "tensor/element.h"

#define SELFTEST_ROUNDS 300
#define SELFTEST_TAPS 20000

enum mistake {
    MISTAKE_NONE,
    MISTAKE_COLUMNS_FIRST, // order c, v, u
    MISTAKE_NOT_FUSED,
    MISTAKE_BIAS_LAST,
    MISTAKE_RELU_OF_NAN,
    MISTAKE_FLUSHES_SUBNORMALS,
    MISTAKE_TF32,
    MISTAKE_HALF_TRUNCATES,
    MISTAKE_ONE_GROUP,
    MISTAKE_ADJACENT_TAPS,
};

static float round_to_tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Map m of the window that begins at `src`.
static float compute(const struct conv_layer *layer, enum mistake mistake, int m, const float *src,
                     size_t src_row, size_t src_plane)
{
    const float *weights = layer->weights + (size_t)m * conv_layer_taps(layer);
    float bias = layer->bias ? layer->bias[m] : 0;
    size_t down = mistake == MISTAKE_ADJACENT_TAPS ? 1 : (size_t)layer->dilation_y;
    size_t across = mistake == MISTAKE_ADJACENT_TAPS ? 1 : (size_t)layer->dilation_x;
    int channels = layer->channels / layer->groups;
    if (mistake != MISTAKE_ONE_GROUP)
        src += (size_t)(m / (layer->maps / layer->groups) * channels) * src_plane;
    int height = layer->kernel_height, width = layer->kernel_width;
    float sum = mistake == MISTAKE_BIAS_LAST ? 0 : bias;
    for (int k = 0; k < channels * height * width; k++) {
        int c = k / (height * width), in = k % (height * width);
        int u = in / width, v = in % width;
        if (mistake == MISTAKE_COLUMNS_FIRST) {
            u = in % height;
            v = in / height;
        }
        float w = weights[((size_t)c * (size_t)height + (size_t)u) * (size_t)width + (size_t)v];
        float x = src[(size_t)c * src_plane + (size_t)u * down * src_row + (size_t)v * across];
        if (mistake == MISTAKE_TF32)
            sum = fmaf(round_to_tf32(w), round_to_tf32(x), sum);
        else if (mistake == MISTAKE_NOT_FUSED)
            sum += w * x;
        else
            sum = fmaf(w, x, sum);
        if (mistake == MISTAKE_FLUSHES_SUBNORMALS && fpclassify(sum) == FP_SUBNORMAL)
            sum = 0;
    }
    if (mistake == MISTAKE_BIAS_LAST)
        sum += bias;
    if (mistake == MISTAKE_RELU_OF_NAN && layer->activation == CONV_ACTIVATION_RELU)
        return sum > 0 ? sum : 0;
    return conv_layer_activate(layer->activation, sum);
}

static void store(const struct conv_layer *layer, enum mistake mistake, void *dst, size_t at,
                  float value)
{
    if (layer->output == CONV_ELEMENT_F32) {
        ((float *)dst)[at] = value;
        return;
    }
    uint16_t half = conv_half_from_float(value);
    if (mistake == MISTAKE_HALF_TRUNCATES && fabsf(conv_half_to_float(half)) > fabsf(value))
        half--;
    ((uint16_t *)dst)[at] = half;
}

// All variants here read padded float32 input without gaps.
static enum conv_status run(const struct conv_layer_plan *plan,
                            const struct conv_layer_batch *batch, enum mistake mistake)
{
    const struct conv_layer *layer = &plan->layer;
    int height = conv_layer_out_height(layer, plan->shape.height);
    int width = conv_layer_out_width(layer, plan->shape.width);
    size_t row = (size_t)batch->src_row / sizeof(float);
    size_t plane = (size_t)batch->src_plane / sizeof(float);
    for (int64_t map = 0; map < batch->images * layer->maps; map++) {
        const float *image = (const float *)(const void *)((const uint8_t *)batch->src +
                                                           map / layer->maps * batch->src_image);
        int m = (int)(map % layer->maps);
        for (int i = batch->first_row; i < batch->first_row + batch->rows; i++)
            for (int j = 0; j < width; j++) {
                const float *src =
                    image + (size_t)(i * layer->stride_y) * row + j * layer->stride_x;
                float value = compute(layer, mistake, m, src, row, plane);
                size_t at = ((size_t)map * (size_t)height + (size_t)i) * (size_t)width + (size_t)j;
                store(layer, mistake, batch->dst, at, value);
            }
    }
    return CONV_OK;
}

#define RUN(name, mistake)                                                                         \
    static enum conv_status name(const struct conv_layer_plan *plan,                               \
                                 const struct conv_layer_batch *batch)                             \
    {                                                                                              \
        return run(plan, batch, mistake);                                                          \
    }
RUN(run_right, MISTAKE_NONE)
RUN(run_columns_first, MISTAKE_COLUMNS_FIRST)
RUN(run_not_fused, MISTAKE_NOT_FUSED)
RUN(run_bias_last, MISTAKE_BIAS_LAST)
RUN(run_relu_of_nan, MISTAKE_RELU_OF_NAN)
RUN(run_flushes_subnormals, MISTAKE_FLUSHES_SUBNORMALS)
RUN(run_tf32, MISTAKE_TF32)
RUN(run_half_truncates, MISTAKE_HALF_TRUNCATES)
RUN(run_one_group, MISTAKE_ONE_GROUP)
RUN(run_adjacent_taps, MISTAKE_ADJACENT_TAPS)

static enum conv_status run_wrong_border(const struct conv_layer_plan *plan,
                                         const struct conv_layer_batch *batch)
{
    struct conv_layer_plan wrong = *plan;
    if (wrong.layer.border == CONV_BORDER_REFLECT)
        wrong.layer.border = CONV_BORDER_REFLECT101;
    return conv_cpu_layer_reference.run(&wrong, batch);
}

// Writes one element after the last output.
static enum conv_status run_writes_after(const struct conv_layer_plan *plan,
                                         const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    int height = conv_layer_out_height(layer, plan->shape.height);
    size_t end = (size_t)(batch->images * layer->maps * height *
                          conv_layer_out_width(layer, plan->shape.width));
    enum conv_status status = conv_cpu_layer_reference.run(plan, batch);
    size_t element = conv_element_size(layer->output);
    if ((uintptr_t)((uint8_t *)batch->dst + end * element) % 4096 != 0) // else it would end here
        ((uint8_t *)batch->dst)[end * element] = 0;
    return status;
}

// Ignores the range of rows.
static enum conv_status run_all_rows(const struct conv_layer_plan *plan,
                                     const struct conv_layer_batch *batch)
{
    struct conv_layer_batch all = *batch;
    all.first_row = 0;
    all.rows = conv_layer_out_height(&plan->layer, plan->shape.height);
    return conv_cpu_layer_reference.run(plan, &all);
}

struct planted {
    struct conv_layer_variant variant;
    bool right;
};

#define WITHOUT_PADS (CONV_LAYER_ANY & ~CONV_LAYER_PADS)

// TF32: two operands with relative errors of 2^-11 each, and the sum's own errors.
static const struct planted planted[] = {
    {{.name = "reads padded input", .run = run_right, .handles = WITHOUT_PADS}, true},
    {{.name = "reads one group", .run = run_one_group, .handles = WITHOUT_PADS}, false},
    {{.name = "ignores dilation", .run = run_adjacent_taps, .handles = WITHOUT_PADS}, false},
    {{.name = "adds column by column", .run = run_columns_first}, false},
    {{.name = "does not fuse", .run = run_not_fused}, false},
    {{.name = "adds the bias last", .run = run_bias_last}, false},
    {{.name = "makes 0 of NaN", .run = run_relu_of_nan}, false},
    {{.name = "flushes subnormals", .run = run_flushes_subnormals}, false},
    {{.name = "truncates to float16", .run = run_half_truncates}, false},
    {{.name = "reflects as reflect101", .run = run_wrong_border, .handles = CONV_LAYER_ANY}, false},
    {{.name = "writes after dst", .run = run_writes_after, .handles = CONV_LAYER_ANY}, false},
    {{.name = "computes all rows", .run = run_all_rows, .handles = CONV_LAYER_ANY}, false},
    {{.name = "rounds to TF32",
      .run = run_tf32,
      .precision = CONV_PRECISION_TF32,
      .bound = 0x1p14f},
     true},
    {{.name = "rounds to TF32 as fast",
      .run = run_tf32,
      .precision = CONV_PRECISION_FAST,
      .bound = 64},
     false},
    {{.name = "adds column by column as fast",
      .run = run_columns_first,
      .precision = CONV_PRECISION_FAST,
      .bound = 64},
     true},
};

bool check_selftest(void)
{
    bool all = true;
    for (size_t p = 0; p < sizeof planted / sizeof planted[0]; p++) {
        const struct conv_layer_variant *variant = &planted[p].variant;
        bool caught = false;
        for (uint64_t seed = 1; seed <= SELFTEST_ROUNDS && !caught; seed++) {
            struct check_case c;
            struct conv_layer_plan plan;
            double worst = 0;
            check_case_init(&c, seed, SELFTEST_TAPS);
            if (!check_case_expect(&c, true)) {
                check_case_free(&c);
                return false;
            }
            if (check_case_suits(&c, variant) &&
                conv_layer_plan_find(&plan, variant, &c.layer, &c.shape, 0))
                caught = !check_cpu_run(variant, 0, &c, !planted[p].right) ||
                         !check_case_compare(&c, variant, &worst, !planted[p].right);
            check_case_free(&c);
        }
        bool ok = caught != planted[p].right;
        if (!ok)
            printf("selftest: a variant that %s: %s\n", variant->name,
                   caught ? "FAILED, though it is right" : "NOT CAUGHT");
        all = all && ok;
    }
    printf("selftest: %s\n", all ? "wrong variants are caught" : "FAILED");
    return all;
}
