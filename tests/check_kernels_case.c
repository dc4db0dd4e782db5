// SPDX-License-Identifier: MIT
// Cases for check_kernels: filters of every class of arithmetic on images of awkward sizes between
// unmapped pages.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_kernels.h"
#include "image/image.h"

#ifndef CHECK_TAPS
#define CHECK_TAPS 2000000 // of a random case, in total
#endif
#ifndef CONV_EMULATED
#define CONV_EMULATED 0
#endif

// --- memory --------------------------------------------------------------------------------------

static void allocate(struct check_memory *memory, size_t size, bool at_end)
{
    memory->size = size;
    memory->pages = guard_alloc(size);
    memory->data = at_end ? memory->pages.data : memory->pages.begin;
}

struct shape {
    int width, height;
    int src_pad, dst_pad; // samples after each row
};

static void random_pads(struct check_random *random, struct shape *shape)
{
    shape->src_pad = PICK(random, 0, 0, 1, 3, 16, 67);
    shape->dst_pad = PICK(random, 0, 1, 5, 16, 31, 64);
}

size_t check_case_result_bytes(const struct check_case *c)
{
    return c->stencil.floats ? sizeof(float) : (size_t)c->stencil.depth / 8;
}

static void add_plane(struct check_case *c, struct check_random *random, const struct shape *shape)
{
    int width = shape->width, height = shape->height, p = c->count++;
    size_t sample = (size_t)c->stencil.depth / 8, row = (size_t)width * sample;
    size_t src_stride = row + (size_t)shape->src_pad * sample;
    size_t result = (size_t)width * check_case_result_bytes(c);
    size_t dst_stride = result + (size_t)shape->dst_pad * check_case_result_bytes(c);
    // The last row of src has no padding, so that a read past it meets the unmapped page.
    allocate(&c->src[p], src_stride * (size_t)(height - 1) + row, check_random_below(random, 2));
    allocate(&c->dst[p], dst_stride * (size_t)height + 2 * CHECK_GUARD_BYTES, true);
    c->expected[p] = malloc(c->dst[p].size);
    if (!c->expected[p]) {
        perror("check_kernels: malloc");
        exit(1);
    }
    c->planes[p] = (struct conv_stencil_plane){
        .src = c->src[p].data,
        .dst = c->dst[p].data + CHECK_GUARD_BYTES,
        .src_stride = (int64_t)src_stride,
        .dst_stride = (int64_t)dst_stride,
        .width = width,
        .height = height,
        .dst_spare = check_random_below(random, 2) ? (uint32_t)(dst_stride - result) : 0,
    };
}

void check_case_free(struct check_case *c)
{
    for (int p = 0; p < c->count; p++) {
        guard_free(&c->src[p].pages);
        guard_free(&c->dst[p].pages);
        free(c->expected[p]);
    }
    c->count = 0;
}

void check_case_clear(struct check_case *c)
{
    for (int p = 0; p < c->count; p++)
        memset(c->dst[p].data, CHECK_GUARD, c->dst[p].size);
}

// --- sources -------------------------------------------------------------------------------------

// Numbers of every size and sign; in a third of the planes some are infinite, undefined or too
// small to be normal.
static void fill_floats(struct check_random *random, const struct check_memory *memory)
{
    static const float special[] = {INFINITY,  -INFINITY,    NAN,  -0.0f,
                                    0x1p-149f, -0x1.8p-130f, 3e38f};
    bool some = check_random_below(random, 3) == 0;
    int exponents = PICK(random, 1, 8, 60);
    float *samples = (float *)(void *)memory->data;
    for (size_t i = 0; i < memory->size / sizeof *samples; i++) {
        uint64_t noise = check_random_next(random);
        float value = ldexpf((float)(int32_t)noise, (int)(noise >> 32) % exponents - 24);
        bool usual = !some || (noise >> 40 & 63) != 0;
        samples[i] = usual ? value : special[(noise >> 48) % 7];
    }
}

// Noise most of the time; otherwise patterns that reveal a wrong sign, clamp or position.
static void fill_plane(struct check_random *random, const struct check_memory *memory, int depth)
{
    if (depth == 32) {
        fill_floats(random, memory);
        return;
    }
    int kind = PICK(random, 0, 0, 0, 0, 0, 1, 2, 3, 4);
    size_t samples = memory->size / (size_t)(depth / 8);
    uint32_t max = depth == 16 ? 65535 : 255;
    for (size_t i = 0; i < samples; i++) {
        uint32_t noise = (uint32_t)check_random_next(random);
        uint32_t values[] = {noise & max,
                             noise % 17   ? noise & max
                             : noise & 32 ? 0
                                          : max,
                             (uint32_t)i & max, noise & 1 ? max : 0,
                             noise & 64 ? max : noise & max};
        if (depth == 16)
            ((uint16_t *)(void *)memory->data)[i] = (uint16_t)values[kind];
        else
            memory->data[i] = (uint8_t)values[kind];
    }
}

static void random_shape(struct check_random *random, struct shape *shape, int budget, int channels)
{
    int near = PICK(random, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) +
               check_random_below(random, 3) - 1;
    int width = PICK(random, 1, 2, 3, near, near, near);
    if (width == 3)
        width += check_random_below(random, 60);
    int height = PICK(random, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33);
    if (check_random_below(random, 6) == 0) {
        int swap = width;
        width = height;
        height = swap;
    }
    while ((int64_t)width * height > budget)
        *(width > height ? &width : &height) /= 2;
    shape->width = (width + channels - 1) / channels * channels;
    shape->height = height;
    random_pads(random, shape);
}

static double random_coef(struct check_random *random)
{
    return (double)(check_random_next(random) >> 20) / 0x1p42 - 1;
}

// Two products at most, and a centre, or taps only.
static void random_real(struct check_random *random, struct conv_real *real)
{
    real->side = 1 + 2 * check_random_below(random, CONV_REAL_MAX_SIDE / 2 + 1);
    real->lines = check_random_below(random, CONV_REAL_MOST_LINES + 1);
    for (int k = 0; k < real->lines; k++)
        for (int i = 0; i < real->side; i++) {
            real->column[k][i] = random_coef(random);
            real->row[k][i] = random_coef(random);
        }
    real->taps = real->lines ? check_random_below(random, 2)
                             : 1 + check_random_below(random, CONV_REAL_MOST_TAPS);
    for (int k = 0; k < real->taps; k++) {
        real->tap[k] = (struct conv_real_tap){.coef = random_coef(random)};
        if (!real->lines) {
            real->tap[k].x = check_random_below(random, real->side) - real->side / 2;
            real->tap[k].y = check_random_below(random, real->side) - real->side / 2;
        }
    }
}

void check_case_init(struct check_case *c, uint64_t seed)
{
    *c = (struct check_case){.seed = seed};
    struct check_random random = {seed};
    check_random_next(&random);
    c->kind = check_random_filter(&random, &c->filter);
    c->border = (enum conv_border)check_random_below(&random, CONV_BORDER_CONSTANT + 1);
    c->border_value = check_random_below(&random, 256);
    int depth = PICK(&random, 8, 8, 8, 16, 16, 32, 32);
    if (depth == 32)
        c->border_value = c->border_value / 8 - 10; // in units of the samples
    if (depth == 32 && !c->filter.decimated.step && !c->filter.magnitude &&
        check_random_below(&random, 2))
        random_real(&random, &c->filter.real);
    conv_stencil_init(&c->stencil, &c->filter, depth, c->border, c->border_value);
    c->stencil.floats = check_random_below(&random, 6) == 0 || c->stencil.depth == 32;
    conv_stencil_interleave(&c->stencil, PICK(&random, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4));
    // Every third case is an image; the others mix shapes, with some planes alike.
    bool image = check_random_below(&random, 3) == 0;
    int planes = image ? 3 : 1 + check_random_below(&random, CHECK_MAX_PLANES);
    // Bounds the reference's time for a case.
    int taps = c->stencil.decimated.step ? 20 : c->stencil.width * c->stencil.height;
    int budget = CHECK_TAPS / taps / planes;
    struct shape shape = {0};
    for (int p = 0; p < planes; p++) {
        if (p == 0 || (!image && check_random_below(&random, 2)))
            random_shape(&random, &shape, budget, c->stencil.channels);
        else if (!image && check_random_below(&random, 2))
            random_pads(&random, &shape);
        add_plane(c, &random, &shape);
        fill_plane(&random, &c->src[p], c->stencil.depth);
    }
}

bool check_case_is_image(const struct check_case *c)
{
    bool equal = c->count == 3;
    for (int p = 1; p < c->count && equal; p++)
        equal =
            c->planes[p].width == c->planes[0].width && c->planes[p].height == c->planes[0].height;
    return equal;
}

// A bijection of 16 bits without a linear relation between neighbours.
static unsigned scramble(unsigned i)
{
    i ^= i >> 7;
    i = i * 40503 & 0xffff;
    return i ^ i >> 9;
}

void check_case_init_division(struct check_case *c, int depth, int coef, int divisor, int offset)
{
    *c = (struct check_case){.kind = "division"};
    struct check_random random = {1};
    c->filter = (struct conv_filter){
        .width = 1, .height = 3, .coef = {coef, 0, 1}, .scale = divisor, .offset = offset};
    conv_stencil_init(&c->stencil, &c->filter, depth, CONV_BORDER_REPLICATE, 0);
    // Each row but the first and the last holds sums of the rows above and below it.
    struct shape shape = {.width = 256, .height = 258};
    random_pads(&random, &shape);
    add_plane(c, &random, &shape);
    // Even and odd rows are two chains. Of 8 bits, the k-th row of a chain is a rotation of all
    // samples; from there to its next row the rotation grows by k, in the odd chain by k + 128:
    // together by every amount, which makes every pair.
    for (unsigned y = 0; y < 258; y++) {
        unsigned k = y / 2, rotation = k * (k - 1) / 2 + y % 2 * 128 * k;
        uint8_t *row = c->src[0].data + y * c->planes[0].src_stride;
        for (unsigned x = 0; x < 256; x++) {
            if (depth == 16)
                ((uint16_t *)(void *)row)[x] = (uint16_t)scramble((y * 256 + x) & 0xffff);
            else
                row[x] = (uint8_t)(x + rotation);
        }
    }
}

void check_case_init_tie(struct check_case *c, double tiny)
{
    *c = (struct check_case){.kind = "tie"};
    struct check_random random = {1};
    // -tiny + (3 + 3 * 2^-23) rounds to 3 + 2^-22; without the tiny number it is a tie and rounds
    // to 3 + 2^-21. The last tap brings the latter to 1.5 and the former to just below it.
    c->filter = (struct conv_filter){
        .width = 1, .height = 3, .coef = {-tiny, 1 + 0x1p-23, -1.5 - 0x1p-21}, .scale = 1};
    conv_stencil_init(&c->stencil, &c->filter, 16, CONV_BORDER_REPLICATE, 0);
    struct shape shape = {.width = 64, .height = 3};
    random_pads(&random, &shape);
    add_plane(c, &random, &shape);
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < shape.width; x++)
            ((uint16_t *)(void *)(c->src[0].data + y * c->planes[0].src_stride))[x] =
                y == 1 ? 3 : 1;
}

void check_case_init_large(struct check_case *c, int side)
{
    *c = (struct check_case){.kind = "large plane"};
    struct check_random random = {1};
    c->filter = (struct conv_filter){.width = 3, .height = 1, .coef = {2, 3, 2}, .scale = 7};
    if (side > 1)
        c->filter.width = c->filter.height = side;
    for (int i = 0; side > 1 && i < side * side; i++)
        c->filter.coef[i] = i % 4 - 1;
    conv_stencil_init(&c->stencil, &c->filter, 8, CONV_BORDER_REPLICATE, 0);
    int height = (side > 1 ? 1057 : 4097) / CHECK_LARGE_PART | 1;
    struct shape shape = {.width = 4032, .height = height, .dst_pad = 64};
    add_plane(c, &random, &shape);
    c->planes[0].dst_spare = 0;
    fill_plane(&random, &c->src[0], 8);
}

void check_case_init_height(struct check_case *c, int height)
{
    *c = (struct check_case){.kind = "height", .seed = 3};
    struct check_random random = {1};
    c->filter = (struct conv_filter){
        .width = 3, .height = 3, .scale = 9, .coef = {1, 2, 1, 0, 3, 1, 2, -2, 1}};
    conv_stencil_init(&c->stencil, &c->filter, 8, CONV_BORDER_REPLICATE, 0);
    struct shape shape = {.width = 16, .height = height};
    add_plane(c, &random, &shape);
    fill_plane(&random, &c->src[0], 8);
}

void check_case_init_layout(struct check_case *c, int side, bool separable, enum conv_border border)
{
    *c = (struct check_case){.kind = "layout", .border = border};
    struct check_random random = {1};
    c->filter = (struct conv_filter){.width = side, .height = side, .scale = side * side * 3};
    for (int i = 0; i < side * side; i++)
        c->filter.coef[i] = separable ? (i / side % 3 + 1) * (i % side % 4) : i * i % 11 - 1;
    conv_stencil_init(&c->stencil, &c->filter, 8, border, 0);
    // Between the rows of the first there is room for 15 columns: a border of 7 on each side fits.
    static const struct {
        int width, height;
    } sizes[] = {{289, CONV_EMULATED ? 34 : 66}, {36, CONV_EMULATED ? 20 : 40}, {531, 18}};
    for (int p = 0; p < (int)(sizeof sizes / sizeof sizes[0]); p++) {
        struct shape shape = {.width = sizes[p].width, .height = sizes[p].height};
        shape.src_pad = shape.dst_pad =
            (int)conv_image_stride(shape.width, 8) - shape.width; // samples of a byte
        add_plane(c, &random, &shape);
        c->planes[p].dst_spare = (uint32_t)shape.dst_pad;
        fill_plane(&random, &c->src[p], 8);
    }
}

void check_case_init_column(struct check_case *c, int side, int depth, bool sharpens, bool two,
                            enum conv_border border)
{
    *c = (struct check_case){
        .kind = "column", .only = "cuda_tma_mma_wide", .border = border, .border_value = 200};
    struct check_random random = {1};
    int taps[CONV_FILTER_MAX_SIDE], sum = 0, slope = side > 7 ? 1 : 3;
    for (int i = 0; i < side; i++)
        sum += taps[i] = 1 + (i <= side / 2 ? i : side - 1 - i) * slope;
    c->filter = (struct conv_filter){.width = side, .height = side, .scale = sum * sum};
    for (int i = 0; i < side * side; i++)
        c->filter.coef[i] = taps[i / side] * taps[i % side] * (sharpens ? -1 : 1);
    c->filter.coef[side * side / 2] += sharpens ? 2 * sum * sum : 0;
    conv_stencil_init(&c->stencil, &c->filter, depth, border, c->border_value);
    int times = CONV_EMULATED ? 1 : 26;
    // The last tile has fewer rows than the filter reads below them.
    struct shape shape = {.width = two ? 702 : 380, .height = (two ? 192 : 384) * times + 5};
    shape.src_pad = shape.dst_pad = two ? 2 : 4;
    add_plane(c, &random, &shape);
    fill_plane(&random, &c->src[0], depth);
}

void check_case_init_interleaved(struct check_case *c, const struct check_case *image)
{
    *c = *image;
    c->count = 0;
    struct check_random random = {1};
    size_t sample = (size_t)c->stencil.depth / 8;
    struct shape shape = {.width = 3 * image->planes[0].width, .height = image->planes[0].height};
    shape.src_pad = shape.dst_pad = 10 / (int)sample;
    add_plane(c, &random, &shape);
    const struct conv_stencil_plane *pixels = &c->planes[0];
    for (int p = 0; p < 3; p++)
        for (int y = 0; y < shape.height; y++)
            for (size_t x = 0; x < (size_t)image->planes[p].width; x++) {
                const struct conv_stencil_plane *plane = &image->planes[p];
                size_t to = (3 * x + (size_t)p) * sample;
                memcpy(c->src[0].data + y * pixels->src_stride + to,
                       plane->src + y * plane->src_stride + x * sample, sample);
                memcpy(c->expected[0] + CHECK_GUARD_BYTES + y * pixels->dst_stride + to,
                       image->expected[p] + CHECK_GUARD_BYTES + y * plane->dst_stride + x * sample,
                       sample);
            }
}
