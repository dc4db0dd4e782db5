// SPDX-License-Identifier: MIT
// From the filters of a bank to steps, and from sums to features: what does not depend on the
// device.
#include "engine/bank_context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- pooling -------------------------------------------------------------------------------------

static const char *const kind_names[CONV_POOL_KINDS] = {
    [CONV_POOL_MEAN] = "mean",
    [CONV_POOL_STD] = "std",
    [CONV_POOL_MAX] = "max",
    [CONV_POOL_ENERGY] = "energy",
};

static bool add_kind(struct conv_pooling *pooling, const char *text, size_t length)
{
    for (int kind = 0; kind < CONV_POOL_KINDS; kind++) {
        if (strlen(kind_names[kind]) != length || memcmp(kind_names[kind], text, length) != 0)
            continue;
        for (int i = 0; i < pooling->count; i++) {
            if ((int)pooling->kinds[i] == kind)
                return false;
        }
        pooling->kinds[pooling->count++] = (enum conv_pool_kind)kind;
        return true;
    }
    return false;
}

enum conv_status conv_pooling_parse(struct conv_pooling *pooling, const char *text,
                                    struct conv_err *err)
{
    const char *at = text;
    bool good;
    *pooling = (struct conv_pooling){.grid = 1};
    do {
        at += at > text; // the comma
        at += strspn(at, " ");
        size_t length = strcspn(at, ",: ");
        good = add_kind(pooling, at, length);
        at += length + strspn(at + length, " ");
    } while (good && *at == ',');
    if (good && *at == ':') {
        char *end;
        long grid = strtol(at + 1, &end, 10);
        good = at[1] >= '1' && at[1] <= '9' && !*end && grid <= CONV_POOL_MAX_GRID;
        pooling->grid = (int)grid;
    }
    if (good)
        return CONV_OK;
    return conv_err_usage(err,
                          "unknown pooling '%s': write mean, std, max and energy, each at most "
                          "once, and a grid of 1 to %d cells per side, for example mean,std:4",
                          text, CONV_POOL_MAX_GRID);
}

// --- separable steps -----------------------------------------------------------------------------

#define ARRAY_ALIGN 256

// The arrays of a step while its maps are added; there is room for all of them.
struct builder {
    float *rows, *columns;
    int32_t *line_of;
};

// The number of a row among those of the step, which gets it if it is new.
static int32_t find_line(struct conv_separable *filters, float *rows, const double *row)
{
    float *last = rows + filters->lines * filters->width;
    for (int v = 0; v < filters->width; v++)
        last[v] = (float)row[v];
    for (int k = 0; k < filters->lines; k++) {
        if (memcmp(rows + k * filters->width, last, (size_t)filters->width * sizeof *last) == 0)
            return k;
    }
    return filters->lines++;
}

// The rows of one map's filters, each once. A filter that does not use one of them has a column of
// zeros there, which adds nothing.
static int count_terms(const struct conv_bank_filter *filters, int count, const double **rows)
{
    int terms = 0;
    size_t size = (size_t)filters->width * sizeof(double);
    for (int p = 0; p < count; p++) {
        for (int t = 0; t < filters[p].terms; t++) {
            const double *row = filters[p].rows + t * filters->width;
            int k = 0;
            while (k < terms && memcmp(rows[k], row, size) != 0)
                k++;
            if (k == terms)
                rows[terms++] = row;
        }
    }
    return terms;
}

#define MOST_ROWS (2 * CONV_BANK_MAX_TERMS)

// True if the map can be part of a separable step, whose terms are then set.
static bool is_separable(const struct conv_bank *bank, const struct conv_bank_map *map, int *terms)
{
    const struct conv_bank_filter *filters = &bank->filters[map->first];
    const double *rows[MOST_ROWS];
    if (map->combine == CONV_BANK_MAX || map->count > 2)
        return false;
    for (int p = 0; p < map->count; p++) {
        if (!filters[p].terms || filters[p].height != filters->height ||
            filters[p].width != filters->width)
            return false;
    }
    *terms = count_terms(filters, map->count, rows);
    return *terms <= CONV_SEPARABLE_MAX_TERMS;
}

static void add_group(struct conv_separable *to, struct builder *builder,
                      const struct conv_bank_filter *filters)
{
    const double *rows[MOST_ROWS];
    int terms = count_terms(filters, to->parts, rows);
    size_t step = (size_t)(to->terms * to->parts);
    float *columns = builder->columns + (size_t)to->groups * (size_t)to->height * step;
    size_t size = (size_t)to->width * sizeof(double);
    for (int k = 0; k < terms; k++) {
        builder->line_of[to->groups * to->terms + k] = find_line(to, builder->rows, rows[k]);
        for (int p = 0; p < to->parts; p++) {
            for (int t = 0; t < filters[p].terms; t++) {
                if (memcmp(filters[p].rows + t * to->width, rows[k], size) != 0)
                    continue;
                for (int u = 0; u < to->height; u++)
                    columns[(size_t)u * step + (size_t)(k * to->parts + p)] +=
                        (float)filters[p].columns[t * to->height + u];
            }
        }
    }
    to->groups++;
}

// The maps from first_map on that have the same size, parts and terms as the first.
static int count_alike(const struct conv_bank *bank, int first_map)
{
    const struct conv_bank_map *first = &bank->maps[first_map];
    const struct conv_bank_filter *filter = &bank->filters[first->first];
    int terms, own, count = 1;
    (void)is_separable(bank, first, &terms);
    for (; first_map + count < bank->map_count; count++) {
        const struct conv_bank_map *map = &bank->maps[first_map + count];
        const struct conv_bank_filter *other = &bank->filters[map->first];
        if (!is_separable(bank, map, &own) || own != terms || map->combine != first->combine ||
            other->height != filter->height || other->width != filter->width)
            break;
    }
    return count;
}

static enum conv_status make_separable(struct conv_bank_step *step, const struct conv_bank *bank,
                                       int first_map, struct conv_err *err)
{
    const struct conv_bank_map *map = &bank->maps[first_map];
    const struct conv_bank_filter *filter = &bank->filters[map->first];
    struct conv_separable *to = &step->separable;
    step->kind = CONV_BANK_STEP_SEPARABLE;
    step->map_count = count_alike(bank, first_map);
    to->height = filter->height;
    to->width = filter->width;
    to->parts = map->count;
    (void)is_separable(bank, map, &to->terms);
    size_t slots = (size_t)step->map_count * (size_t)to->terms;
    size_t rows = conv_image_align((slots + 1) * (size_t)to->width * sizeof(float), ARRAY_ALIGN);
    size_t columns =
        conv_image_align(slots * (size_t)(to->height * to->parts) * sizeof(float), ARRAY_ALIGN);
    step->array_bytes = rows + columns + conv_image_align(slots * sizeof(int32_t), ARRAY_ALIGN);
    uint8_t *arrays = step->arrays = aligned_alloc(ARRAY_ALIGN, step->array_bytes);
    if (!arrays)
        return conv_err_memory(err, "no memory for a filter bank");
    memset(arrays, 0, step->array_bytes);
    struct builder builder = {
        .rows = (float *)arrays,
        .columns = (float *)(arrays + rows),
        .line_of = (int32_t *)(arrays + rows + columns),
    };
    to->rows = builder.rows;
    to->columns = builder.columns;
    to->line_of = builder.line_of;
    for (int m = 0; m < step->map_count; m++)
        add_group(to, &builder, &bank->filters[bank->maps[first_map + m].first]);
    return CONV_OK;
}

// --- dense steps ---------------------------------------------------------------------------------

// One map of one plane, with `height` and `width` more samples on each side.
static struct conv_layer layer_of(const struct conv_bank_config *config, int height, int width)
{
    return (struct conv_layer){
        .channels = 1,
        .maps = 1,
        .kernel_height = 1,
        .kernel_width = 1,
        CONV_LAYER_DENSE,
        .pad_top = height,
        .pad_bottom = height,
        .pad_left = width,
        .pad_right = width,
        .border = config->border,
        .border_value = config->border_value,
        .input = config->input,
        .input_divisor = config->input_divisor,
        .output = CONV_ELEMENT_F32,
    };
}

static enum conv_status make_dense(struct conv_bank_step *step,
                                   const struct conv_bank_config *config, int first_map,
                                   struct conv_err *err)
{
    const struct conv_bank *bank = config->bank;
    const struct conv_bank_map *map = &bank->maps[first_map];
    const struct conv_bank_filter *filter = &bank->filters[map->first];
    int taps = filter->height * filter->width, filters = map->count, ignored;
    step->kind = CONV_BANK_STEP_LARGEST; // filters of magnitudes are sums of products
    step->map_count = 1;
    if (map->combine == CONV_BANK_ONLY) {
        step->kind = CONV_BANK_STEP_DENSE;
        for (; first_map + step->map_count < bank->map_count; step->map_count++) {
            const struct conv_bank_map *next = map + step->map_count;
            if (next->combine != CONV_BANK_ONLY || is_separable(bank, next, &ignored) ||
                bank->filters[next->first].height != filter->height ||
                bank->filters[next->first].width != filter->width)
                break;
        }
        filters = step->map_count;
    }
    float *weights = malloc((size_t)filters * (size_t)taps * sizeof *weights);
    step->weights = weights;
    if (!weights)
        return conv_err_memory(err, "no memory for a filter bank");
    for (int i = 0; i < filters; i++) {
        int from = step->kind == CONV_BANK_STEP_DENSE ? map[i].first : map->first + i;
        for (int k = 0; k < taps; k++)
            weights[i * taps + k] = (float)bank->filters[from].coef[k];
    }
    step->layer = layer_of(config, filter->height / 2, filter->width / 2);
    step->layer.maps = filters;
    step->layer.kernel_height = filter->height;
    step->layer.kernel_width = filter->width;
    step->layer.weights = weights;
    struct conv_layer_config layer_config = {
        .layer = &step->layer, .place = config->place, .device = config->device};
    return conv_layer_context_open(&step->dense, &layer_config, err);
}

// --- all steps -----------------------------------------------------------------------------------

static void count_step(struct conv_bank_steps *steps, const struct conv_bank_step *step)
{
    const struct conv_separable *filters = &step->separable;
    if (step->map_count > steps->most_maps)
        steps->most_maps = step->map_count;
    if (step->kind == CONV_BANK_STEP_LARGEST && step->layer.maps > steps->most_filters)
        steps->most_filters = step->layer.maps;
    if (step->kind != CONV_BANK_STEP_SEPARABLE)
        return;
    steps->has_separable = true;
    if (filters->height / 2 > steps->half_height)
        steps->half_height = filters->height / 2;
    if (filters->width / 2 > steps->half_width)
        steps->half_width = filters->width / 2;
}

static enum conv_status make_steps(struct conv_bank_steps *steps,
                                   const struct conv_bank_config *config, struct conv_err *err)
{
    const struct conv_bank *bank = config->bank;
    *steps = (struct conv_bank_steps){.maps = bank->map_count};
    steps->steps = calloc((size_t)bank->map_count, sizeof *steps->steps);
    if (!steps->steps)
        return conv_err_memory(err, "no memory for a filter bank");
    enum conv_status status = CONV_OK;
    for (int map = 0; map < bank->map_count && !status;) {
        struct conv_bank_step *step = &steps->steps[steps->count++];
        int terms;
        step->first_map = map;
        status = is_separable(bank, &bank->maps[map], &terms) ? make_separable(step, bank, map, err)
                                                              : make_dense(step, config, map, err);
        count_step(steps, step);
        map += step->map_count;
    }
    return status;
}

// Puts the arrays where the device reads them.
static enum conv_status upload(const struct conv_bank_context *context, struct conv_bank_step *step,
                               struct conv_err *err)
{
    const struct conv_separable *from = &step->separable;
    const uint8_t *arrays = step->arrays;
    step->device = *from;
    if (step->kind != CONV_BANK_STEP_SEPARABLE || !context->ops->tensors->upload)
        return CONV_OK;
    enum conv_status status = context->ops->tensors->upload(
        context->config.device, arrays, step->array_bytes, &step->d_arrays, err);
    const uint8_t *d_arrays = step->d_arrays;
    if (status)
        return status;
    step->device.rows = (const float *)d_arrays;
    step->device.columns = (const float *)(d_arrays + ((const uint8_t *)from->columns - arrays));
    step->device.line_of = (const int32_t *)(d_arrays + ((const uint8_t *)from->line_of - arrays));
    return CONV_OK;
}

// --- contexts ------------------------------------------------------------------------------------

enum conv_status conv_bank_context_open(struct conv_bank_context **out,
                                        const struct conv_bank_config *config, struct conv_err *err)
{
    struct conv_bank_context *context = calloc(1, sizeof *context);
    unsigned offers;
    if (!context)
        return conv_err_memory(err, "no memory for a filter bank");
    context->config = *config;
    context->config.bank = NULL;
    context->ops = conv_engine_devices[config->place];
    enum conv_status status = context->ops->tensors->open(config->device, &offers, err);
    if (!status)
        status = make_steps(&context->steps, config, err);
    for (int i = 0; i < context->steps.count && !status; i++)
        status = upload(context, &context->steps.steps[i], err);
    if (status)
        conv_bank_context_close(context);
    else
        *out = context;
    return status;
}

void conv_bank_context_close(struct conv_bank_context *context)
{
    if (!context)
        return;
    for (int i = 0; i < context->steps.count; i++) {
        struct conv_bank_step *step = &context->steps.steps[i];
        if (step->d_arrays)
            context->ops->tensors->release(context->config.device, step->d_arrays);
        free(step->arrays);
        conv_layer_context_close(step->dense);
        free(step->weights);
    }
    free(context->steps.steps);
    free(context);
}

bool conv_bank_context_bytes(const struct conv_bank_context *context, int height, int width,
                             size_t *in, size_t *out)
{
    const struct conv_pooling *pool = &context->config.pool;
    size_t plane, per_map = (size_t)(pool->count * pool->grid * pool->grid);
    if (height <= 0 || width <= 0 ||
        __builtin_mul_overflow((size_t)height, (size_t)width, &plane) ||
        __builtin_mul_overflow(plane, conv_element_size(context->config.input), in))
        return false;
    if (!pool->count)
        per_map = plane;
    return !__builtin_mul_overflow(per_map, (size_t)context->steps.maps * sizeof(float), out);
}

size_t conv_bank_context_work(const struct conv_bank_context *context, int height, int width)
{
    const struct conv_bank_steps *steps = &context->steps;
    size_t maps = (size_t)(context->config.pool.count ? steps->most_maps : steps->maps);
    size_t rows = (size_t)height + 2 * (size_t)steps->half_height;
    size_t columns = (size_t)width + 2 * (size_t)steps->half_width;
    return rows * columns * sizeof(float) * (1 + maps + (size_t)steps->most_filters);
}

double conv_bank_cost(const struct conv_bank *bank)
{
    double cost = 0;
    for (int i = 0; i < bank->filter_count; i++) {
        const struct conv_bank_filter *filter = &bank->filters[i];
        cost += filter->terms ? (double)filter->terms * (filter->height + filter->width)
                              : (double)filter->height * filter->width;
    }
    return cost;
}

enum conv_status conv_bank_context_run(struct conv_bank_context *context,
                                       struct conv_tensor_stream *stream,
                                       const struct conv_layer_shape *shape, int64_t images,
                                       const void *src, float *dst, struct conv_err *err)
{
    int grid = context->config.pool.count ? context->config.pool.grid : 1;
    if (shape->height < grid || shape->width < grid)
        return conv_err_usage(err,
                              "the image of %dx%d pixels is smaller than the grid of %dx%d cells",
                              shape->width, shape->height, grid, grid);
    return context->ops->tensors->bank_run(stream, context, shape->height, shape->width, images,
                                           src, dst, err);
}

// --- for the devices -----------------------------------------------------------------------------

void conv_bank_context_padding(struct conv_layer *layer, const struct conv_bank_steps *steps,
                               const struct conv_bank_config *config)
{
    *layer = layer_of(config, steps->half_height, steps->half_width);
}

struct conv_separable_batch conv_bank_context_batch(const struct conv_bank_steps *steps,
                                                    const struct conv_separable *filters,
                                                    int height, int width, int64_t images,
                                                    const float *padded)
{
    int64_t row = width + 2 * steps->half_width;
    return (struct conv_separable_batch){
        .images = images,
        .src = padded + (steps->half_height - filters->height / 2) * row +
               (steps->half_width - filters->width / 2),
        .src_row = row,
        .src_image = row * (height + 2 * steps->half_height),
        .out_height = height,
        .out_width = width,
        .rows = height,
    };
}

static double feature(enum conv_pool_kind kind, const struct conv_pool_sums *cell, double count)
{
    double mean = cell->sum / count, energy = cell->squares / count;
    double variance = energy - mean * mean;
    switch (kind) {
    case CONV_POOL_MEAN:
        return mean;
    case CONV_POOL_STD:
        return variance < 0 ? 0 : sqrt(variance); // rounding can make it negative
    case CONV_POOL_MAX:
        return cell->max + 0.0; // -0 becomes 0: which zero comes first does not matter
    case CONV_POOL_ENERGY:
    case CONV_POOL_KINDS:
        break;
    }
    return energy;
}

void conv_bank_context_features(float *features, const struct conv_pooling *pool,
                                const struct conv_pool_sums *cells, int height, int width)
{
    for (int k = 0; k < pool->count; k++) {
        for (int i = 0; i < pool->grid; i++) {
            int rows =
                conv_pool_edge(height, pool->grid, i + 1) - conv_pool_edge(height, pool->grid, i);
            for (int j = 0; j < pool->grid; j++) {
                int columns =
                    conv_pool_edge(width, pool->grid, j + 1) - conv_pool_edge(width, pool->grid, j);
                *features++ = (float)feature(pool->kinds[k], &cells[i * pool->grid + j],
                                             (double)rows * columns);
            }
        }
    }
}
