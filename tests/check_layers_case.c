// SPDX-License-Identifier: MIT
// Cases for check_layers: layers of every kind, awkward sizes and strides, between unmapped pages.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_layers.h"
#include "support/layers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define PICK(random, ...)                                                                          \
    ((const int[]){__VA_ARGS__}[random_below(random, sizeof((int[]){__VA_ARGS__}) / sizeof(int))])

const uint8_t check_memory_pattern = 0xa5;

// --- memory --------------------------------------------------------------------------------------

// `align`: a power of two, at most a page.
void check_memory_init(struct check_memory *memory, size_t size, size_t align, bool at_end)
{
    memory->size = size;
    memory->pages = guard_alloc(size);
    memory->data = memory->pages.begin;
    if (at_end)
        memory->data += (size_t)(memory->pages.data - memory->pages.begin) / align * align;
    check_memory_clear(memory);
}

void check_memory_free(struct check_memory *memory)
{
    guard_free(&memory->pages);
    *memory = (struct check_memory){0};
}

void check_memory_clear(struct check_memory *memory)
{
    memset(memory->pages.begin, check_memory_pattern,
           (size_t)(memory->pages.end - memory->pages.begin));
}

bool check_memory_holds(const struct check_memory *memory)
{
    for (const uint8_t *p = memory->pages.begin; p < memory->pages.end; p++)
        if ((p < memory->data || p >= memory->data + memory->size) && *p != check_memory_pattern)
            return false;
    return true;
}

// --- numbers -------------------------------------------------------------------------------------

// 1 to below 2, all 24 bits random, of either sign.
static float random_mantissa(uint64_t *random)
{
    uint64_t bits = random_bits(random);
    float value = 1 + (float)(bits & 0x7fffff) * 0x1p-23f;
    return bits >> 32 & 1 ? -value : value;
}

static float random_special(uint64_t *random)
{
    static const float values[] = {
        NAN,        INFINITY,        -INFINITY,       0.0f, -0.0f, 0x1p-149f, 0x1p-130f,
        -0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f};
    return values[random_below(random, sizeof values / sizeof values[0])];
}

// `rare`: one special number in this many.
static float random_number(uint64_t *random, enum check_numbers numbers, int integers, int rare)
{
    switch (numbers) {
    case CHECK_INTEGERS:
        return (float)((int)random_below(random, 2 * (unsigned)integers + 1) - integers);
    case CHECK_WIDE:
        return ldexpf(random_mantissa(random), (int)random_below(random, 81) - 40);
    case CHECK_TINY:
        return ldexpf(random_mantissa(random), -64 - (int)random_below(random, 12));
    case CHECK_ZEROS:
        return -0.0f;
    default:
        if (numbers == CHECK_SPECIAL && random_below(random, (unsigned)rare) == 0)
            return random_special(random);
    }
    return ldexpf(random_mantissa(random), -1 - (int)random_below(random, 12));
}

static void fill(struct check_memory *memory, uint64_t *random, enum check_numbers numbers,
                 int integers, int rare)
{
    for (size_t i = 0; i < memory->size / sizeof(float); i++)
        ((float *)(void *)memory->data)[i] = random_number(random, numbers, integers, rare);
}

// --- layers --------------------------------------------------------------------------------------

static int random_side(uint64_t *random)
{
    return PICK(random, 1, 2, 3, 3, 4, 5, 5, 5, 6, 7, 7, 8, 9, 11, 15, 16, 17, 31, 32, 33, 49, 63);
}

static void random_layer(struct conv_layer *layer, uint64_t *random)
{
    layer->channels = PICK(random, 1, 1, 1, 2, 3, 3, 4, 5, 6, 8, 12, 13, 16, 17, 33);
    layer->maps = PICK(random, 1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 16, 17, 24, 25, 48, 50, 64, 65);
    layer->kernel_height = random_side(random);
    layer->kernel_width = random_below(random, 4) ? layer->kernel_height : random_side(random);
    layer->groups = 1;
    layer->stride_y = layer->stride_x = PICK(random, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 5, 70);
    layer->dilation_y = layer->dilation_x = 1;
    layer->input = random_below(random, 3) ? CONV_ELEMENT_F32 : CONV_ELEMENT_U8;
    layer->input_divisor = PICK(random, 1, 255);
    layer->output = random_below(random, 4) ? CONV_ELEMENT_F32 : CONV_ELEMENT_F16;
    layer->activation =
        (enum conv_activation)random_below(random, (unsigned)CONV_ACTIVATION_ABS + 1);
    if (random_below(random, 3) == 0) { // what the specialised kernels compute
        layer->kernel_height = layer->kernel_width = PICK(random, 1, 3, 3, 5, 5, 5, 7);
        layer->stride_y = layer->stride_x = 1;
        layer->input = CONV_ELEMENT_F32;
    }
    int form = (int)random_below(random, 24); // most variants refuse these
    if (form < 4) // up to a group for each channel, with one map or several
        layer->groups = layer->channels;
    if (form == 0)
        layer->channels *= PICK(random, 2, 3);
    if (form < 4)
        layer->maps = layer->groups * PICK(random, 1, 1, 1, 2, 3, 9);
    if (form == 3 || form == 4 || form == 5)
        layer->dilation_y = layer->dilation_x = PICK(random, 2, 2, 3, 4, 5, 12);
    if (form == 5 || form == 6)
        layer->stride_y = PICK(random, 1, 2, 3, 7);
    if (form == 6)
        layer->dilation_x = PICK(random, 1, 2, 3, 40);
    if (form == 7) // patches
        layer->kernel_width = layer->stride_x = layer->stride_y = PICK(random, 8, 16, 32);
}

// valid, same, and paddings that are larger than the kernel or than the image.
static void random_padding(struct conv_layer *layer, uint64_t *random)
{
    int *pads[] = {&layer->pad_top, &layer->pad_bottom, &layer->pad_left, &layer->pad_right};
    int kind = PICK(random, 0, 0, 0, 1, 1, 2, 3);
    for (int i = 0; i < 4; i++) {
        int side = i < 2 ? conv_layer_reach_y(layer) : conv_layer_reach_x(layer);
        *pads[i] = kind == 0   ? 0
                   : kind == 1 ? (side - 1 + i % 2) / 2
                   : kind == 2 ? PICK(random, 0, 1, 2, 3, 5)
                               : (int)random_below(random, (unsigned)side + 9);
    }
    layer->border = (enum conv_border)random_below(random, CONV_BORDER_CONSTANT + 1);
}

// As many outputs as samples, with zeros around these. Strip: 1 or 2 for one row or column of taps.
static void pad_half(struct conv_layer *layer, int side, int strip)
{
    layer->kernel_height = strip == 1 ? 1 : side;
    layer->kernel_width = strip == 2 ? 1 : side;
    layer->pad_top = layer->pad_bottom = conv_layer_reach_y(layer) / 2;
    layer->pad_left = layer->pad_right = conv_layer_reach_x(layer) / 2;
    layer->border = CONV_BORDER_CONSTANT;
}

static int64_t count_taps(const struct check_case *c)
{
    const struct conv_layer *layer = &c->layer;
    return c->images * layer->maps * (int64_t)conv_layer_taps(layer) *
           conv_layer_out_height(layer, c->shape.height) *
           conv_layer_out_width(layer, c->shape.width);
}

// An extent of the input for which `out` outputs need `pads` samples of padding.
static int extent(int out, int stride, int side, int pads, int more)
{
    int need = (out - 1) * stride + side - pads + more;
    return need > 1 ? need : 1;
}

// Changes the number of groups, which keep their size.
static void resize_groups(struct conv_layer *layer, int groups)
{
    layer->maps = layer->maps / layer->groups * groups;
    layer->channels = layer->channels / layer->groups * groups;
    layer->groups = groups;
}

static void random_shape(struct check_case *c, uint64_t *random)
{
    struct conv_layer *layer = &c->layer;
    int near = PICK(random, 4, 8, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 256, 512) +
               (int)random_below(random, 3) - 1;
    int columns = PICK(random, 1, 2, 3, near, near, near, near, near);
    int rows = PICK(random, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 33);
    if (random_below(random, 6) == 0) {
        int swap = columns;
        columns = rows;
        rows = swap;
    }
    // Samples that no output reads.
    int below = (int)random_below(random, (unsigned)layer->stride_y);
    int beyond = (int)random_below(random, (unsigned)layer->stride_x);
    c->images = PICK(random, 1, 1, 1, 2, 3, 4, 5, 8, 17, 33);
    if (random_below(random, 12) == 0) { // one warp computes outputs of several images
        rows = PICK(random, 1, 1, 2, 3);
        columns = PICK(random, 4, 5, 6, 8, 10, 12, 15, 18, 20);
        c->images = PICK(random, 2, 3, 5, 17, 33);
    }
    if (random_below(random, 12) == 0) { // rows that one thread of cuda_layer_bulk computes
        layer->kernel_height = layer->kernel_width = 5;
        rows = PICK(random, 16, 17, 24, 29);
        columns = PICK(random, 17, 26, 27, 28, 29, 33);
    }
    if (random_below(random, 8) == 0) { // small planes of depthwise layers
        rows = columns = PICK(random, 7, 14);
        layer->groups = layer->maps = layer->channels;
        pad_half(layer, PICK(random, 3, 4, 5, 7, 9, 11, 15, 21, 31), PICK(random, 0, 0, 1, 2));
    }
    for (;;) {
        c->shape.height = extent(rows, layer->stride_y, conv_layer_reach_y(layer),
                                 layer->pad_top + layer->pad_bottom, below);
        c->shape.width = extent(columns, layer->stride_x, conv_layer_reach_x(layer),
                                layer->pad_left + layer->pad_right, beyond);
        if (count_taps(c) <= c->taps)
            break;
        // Reduce the sizes that exceed the limit, the least interesting ones first.
        if (c->images > 2)
            c->images = 2;
        else if (rows > 4)
            rows = rows * 3 / 4;
        else if (layer->maps / layer->groups > 8 && random_below(random, 2))
            layer->maps = layer->maps / layer->groups * 3 / 4 * layer->groups;
        else if (layer->groups > 4)
            resize_groups(layer, layer->groups * 3 / 4);
        else if (layer->groups == 1 && layer->channels > 4)
            layer->channels = layer->channels * 3 / 4;
        else if (columns > 20)
            columns = columns * 3 / 4;
        else if (c->images > 1)
            c->images = 1;
        else if (rows > 1)
            rows--;
        else if (layer->groups > 1)
            resize_groups(layer, layer->groups - 1);
        else if (layer->maps > 1)
            layer->maps--;
        else if (layer->channels > 1)
            layer->channels--;
        else if (columns > 1)
            columns--;
        else
            break;
    }
    c->shape.images = random_below(random, 3) ? c->images : PICK(random, 0, 100, 1 << 20);
}

// --- cases ---------------------------------------------------------------------------------------

// Strides of rows, planes and images, nested in any order, with gaps.
static void random_strides(struct check_case *c, uint64_t *random, int64_t element)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2},
                                    {0, 2, 1}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}};
    const int *order = orders[random_below(random, COUNT(orders))];
    int64_t *strides[] = {&c->src_row, &c->src_plane, &c->src_image};
    int64_t counts[] = {c->shape.height, c->layer.channels, c->images};
    int64_t stride = c->shape.width * element;
    bool gaps = random_below(random, 2);
    for (int i = 0; i < 3; i++) {
        if (gaps)
            stride += element * PICK(random, 0, 1, 3, 4, 16, 29);
        *strides[order[i]] = stride;
        stride *= counts[order[i]];
    }
    if (random_below(random, 16) == 0) // all images are one
        c->src_image = 0;
}

static void allocate(struct check_case *c, uint64_t *random)
{
    const struct conv_layer *layer = &c->layer;
    int64_t element = (int64_t)conv_element_size(layer->input);
    size_t taps = conv_layer_taps(layer);
    // Nothing after the last row, so that a read past it meets the unmapped page.
    int64_t size = (c->images - 1) * c->src_image + (layer->channels - 1) * c->src_plane +
                   (c->shape.height - 1) * c->src_row + c->shape.width * element;
    c->outputs = (size_t)c->images * (size_t)layer->maps *
                 (size_t)conv_layer_out_height(layer, c->shape.height) *
                 (size_t)conv_layer_out_width(layer, c->shape.width);
    size_t dst = c->outputs * conv_element_size(layer->output);
    check_memory_init(&c->src, (size_t)size, (size_t)element, random_below(random, 2));
    check_memory_init(&c->dst, dst, 16, random_below(random, 2));
    check_memory_init(&c->weights, (size_t)layer->maps * taps * sizeof(float), sizeof(float), true);
    check_memory_init(&c->bias, (size_t)layer->maps * sizeof(float), sizeof(float), true);
    c->expected = malloc(dst);
    c->exact = malloc(c->outputs * sizeof *c->exact);
    c->margin = malloc(c->outputs * sizeof *c->margin);
    if (!c->expected || !c->exact || !c->margin) {
        perror("check_layers: malloc");
        exit(1);
    }
}

static void fill_case(struct check_case *c, uint64_t *random)
{
    struct conv_layer *layer = &c->layer;
    size_t taps = c->weights.size / sizeof(float) / (size_t)layer->maps;
    size_t row = (size_t)layer->kernel_width, kernel = row * (size_t)layer->kernel_height;
    // For special numbers: one or two of them in a window of the input and in a map's weights.
    fill(&c->weights, random, c->numbers, 4, 2 * (int)taps + 2);
    fill(&c->bias, random, c->numbers, 100, 8);
    if (layer->input == CONV_ELEMENT_F32)
        fill(&c->src, random, c->numbers, 8, (int)(taps < 16 ? 16 : taps) * 4);
    else
        for (size_t i = 0; i < c->src.size; i++)
            c->src.data[i] = (uint8_t)random_bits(random);
    layer->border_value = random_below(random, 3) ? 0 : random_number(random, c->numbers, 8, 4);
    layer->weights = (const float *)(void *)c->weights.data;
    layer->bias = random_below(random, 3) ? (const float *)(void *)c->bias.data : NULL;
    if (c->numbers == CHECK_ZEROS) { // all products are -0, but those of the first row are 0
        memset(c->src.data, 0, c->src.size);
        for (size_t i = 0; i < c->weights.size / sizeof(float); i++)
            ((float *)(void *)c->weights.data)[i] = i % kernel < row ? 1 : -1;
    }
}

void check_case_init(struct check_case *c, uint64_t seed, int64_t taps)
{
    *c = (struct check_case){.seed = seed, .taps = taps};
    uint64_t random = seed;
    random_bits(&random);
    c->numbers = (enum check_numbers)PICK(
        &random, CHECK_MODERATE, CHECK_MODERATE, CHECK_MODERATE, CHECK_MODERATE, CHECK_INTEGERS,
        CHECK_INTEGERS, CHECK_WIDE, CHECK_TINY, CHECK_SPECIAL, CHECK_SPECIAL, CHECK_ZEROS);
    random_layer(&c->layer, &random);
    random_padding(&c->layer, &random);
    if (c->numbers == CHECK_ZEROS)
        pad_half(&c->layer, PICK(&random, 9, 15, 31), 0);
    if (c->numbers == CHECK_INTEGERS) // the quotient is none
        c->layer.input_divisor = 1;
    if (c->numbers == CHECK_WIDE || c->numbers == CHECK_TINY) // float16 has no such range
        c->layer.output = CONV_ELEMENT_F32;
    random_shape(c, &random);
    random_strides(c, &random, (int64_t)conv_element_size(c->layer.input));
    allocate(c, &random);
    fill_case(c, &random);
}

void check_case_init_network(struct check_case *c, const struct check_network_layer *network)
{
    *c = (struct check_case){.numbers = CHECK_MODERATE, .images = network->images};
    uint64_t random = (uint64_t)(network->maps + network->height);
    c->layer = layer_of(network->channels, network->maps, network->kernel, NULL);
    c->shape = (struct conv_layer_shape){network->planned, network->height, network->width};
    c->src_row = network->width * (int64_t)sizeof(float);
    c->src_plane = c->src_row * network->height;
    c->src_image = c->src_plane * network->channels;
    allocate(c, &random);
    fill_case(c, &random);
    // Numbers for which variants on tensor cores compute a part of the outputs in another way.
    for (size_t i = 0; network->kernel == 1 && i < c->src.size / sizeof(float); i += 997)
        ((float *)(void *)c->src.data)[i] = 0x1p-70f;
}

uint64_t check_case_order(const struct check_case *c)
{
    return c->seed ? c->seed : c->shape.images > 1 ? 3 : 0; // of 9.0; of 12.0: less shared memory
}

void check_case_free(struct check_case *c)
{
    check_memory_free(&c->src);
    check_memory_free(&c->dst);
    check_memory_free(&c->weights);
    check_memory_free(&c->bias);
    free(c->expected);
    free(c->exact);
    free(c->margin);
    *c = (struct check_case){0};
}

struct conv_layer_batch check_case_batch(const struct check_case *c)
{
    return (struct conv_layer_batch){
        .images = c->images,
        .src = c->src.data,
        .src_row = c->src_row,
        .src_plane = c->src_plane,
        .src_image = c->src_image,
        .dst = c->dst.data,
        .rows = conv_layer_out_height(&c->layer, c->shape.height),
    };
}

void check_case_print(const struct check_case *c, const char *variant)
{
    static const char *const kinds[] = {"moderate", "integers", "wide", "tiny", "special", "zeros"};
    static const char *const activations[] = {"none", "relu", "tanh", "abs"};
    static const char *const borders[] = {"replicate", "reflect", "reflect101", "wrap", "constant"};
    _Static_assert(CONV_BORDER_CONSTANT == 4 && CONV_BORDER_REPLICATE == 0, "borders");
    const struct conv_layer *layer = &c->layer;
    printf("  %" PRId64 "x%dx%dx%d (%s, divisor %g) -> %d maps (%s), %d groups, kernel %dx%d,\n"
           "  stride %dx%d, dilation %dx%d\n",
           c->images, layer->channels, c->shape.height, c->shape.width,
           layer->input == CONV_ELEMENT_U8 ? "u8" : "f32", (double)layer->input_divisor,
           layer->maps, layer->output == CONV_ELEMENT_F16 ? "f16" : "f32", layer->groups,
           layer->kernel_height, layer->kernel_width, layer->stride_y, layer->stride_x,
           layer->dilation_y, layer->dilation_x);
    printf("  pads: top %d, bottom %d, left %d, right %d; border %s (value %g); bias %s; "
           "activation %s; %s numbers\n",
           layer->pad_top, layer->pad_bottom, layer->pad_left, layer->pad_right,
           borders[layer->border], (double)layer->border_value, layer->bias ? "yes" : "no",
           activations[layer->activation], kinds[c->numbers]);
    printf("  src strides: row %" PRId64 ", plane %" PRId64 ", image %" PRId64
           "; planned for %" PRId64 " images\n",
           c->src_row, c->src_plane, c->src_image, c->shape.images);
    if (c->seed)
        printf("  again: --seed %" PRIu64 " --rounds 1 --taps %" PRId64 " --variant %s\n", c->seed,
               c->taps, variant);
}
