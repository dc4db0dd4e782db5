// SPDX-License-Identifier: MIT
// Filter banks against a second implementation of their definition, bit for bit: maps and sums of
// cells, on the CPU and with --cuda on a device (or the emulated one).
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/operation.h"
#include "kernels/common/border.h"
#include "support/device.h"
#include "support/options.h"
#include "support/random.h"

#ifndef CHECK_SHRINK
#define CHECK_SHRINK 1 // factor by which images are smaller: large banks have 49x49 taps
#endif

static const char *const names[] = {"gabor:1x3", "gabor:2x4", "laws:9",    "laws",  "sobel",
                                    "prewitt",   "log:0.7",   "dog:0.5,1", "log:3", "scharr"};
static const char *const large[] = {"schmid", "mr8", "lm", "gabor:6x2"};

// The parts of a case.
struct test {
    const char *name;
    struct conv_bank bank;
    struct conv_bank_config config;
    int height, width, images;
    void *src;
};

static void die(const char *what)
{
    fprintf(stderr, "check_banks: %s\n", what);
    exit(1);
}

static void *must(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    if (!memory)
        die("no memory");
    return memory;
}

// --- the definition ------------------------------------------------------------------------------

static float sample(const struct test *test, int64_t image, int y, int x)
{
    y = conv_border_index(test->config.border, y, test->height);
    x = conv_border_index(test->config.border, x, test->width);
    if (x < 0 || y < 0)
        return test->config.border_value;
    int64_t at = (image * test->height + y) * test->width + x;
    if (test->config.input == CONV_ELEMENT_U8)
        return (float)((const uint8_t *)test->src)[at] / test->config.input_divisor;
    return ((const float *)test->src)[at];
}

static float respond(const struct test *test, const struct conv_bank_filter *filter, int64_t image,
                     int y, int x)
{
    float sum = 0;
    y -= filter->height / 2;
    x -= filter->width / 2;
    for (int u = 0; u < filter->height; u++) {
        if (!filter->terms) {
            for (int v = 0; v < filter->width; v++)
                sum = fmaf((float)filter->coef[u * filter->width + v],
                           sample(test, image, y + u, x + v), sum);
            continue;
        }
        for (int t = 0; t < filter->terms; t++) {
            float line = 0;
            for (int v = 0; v < filter->width; v++)
                line = fmaf((float)filter->rows[t * filter->width + v],
                            sample(test, image, y + u, x + v), line);
            sum = fmaf((float)filter->columns[t * filter->height + u], line, sum);
        }
    }
    return sum;
}

static float map_value(const struct test *test, const struct conv_bank_map *map, int64_t image,
                       int y, int x)
{
    const struct conv_bank_filter *filters = &test->bank.filters[map->first];
    float value = respond(test, filters, image, y, x);
    for (int i = 1; i < map->count; i++) {
        float other = respond(test, &filters[i], image, y, x);
        if (map->combine == CONV_BANK_MAX)
            value = other > value ? other : value;
        else
            value = sqrtf(fmaf(other, other, value * value));
    }
    return value;
}

static float *expect_maps(const struct test *test)
{
    size_t plane = (size_t)test->height * (size_t)test->width;
    float *maps = must(plane * (size_t)(test->images * test->bank.map_count) * sizeof *maps);
    float *to = maps;
    for (int64_t image = 0; image < test->images; image++)
        for (int m = 0; m < test->bank.map_count; m++)
            for (int y = 0; y < test->height; y++)
                for (int x = 0; x < test->width; x++)
                    *to++ = map_value(test, &test->bank.maps[m], image, y, x);
    return maps;
}

// One cell of one map: lanes by column, added pairwise; rows from top to bottom.
static void expect_cell(float *features, size_t step, const struct conv_pooling *pool,
                        const float *map, int width, const int top_bottom[2],
                        const int left_right[2])
{
    double sum = 0, squares = 0, max = -INFINITY;
    for (int y = top_bottom[0]; y < top_bottom[1]; y++) {
        double lane[2][32] = {{0}};
        for (int x = left_right[0]; x < left_right[1]; x++) {
            double value = map[(int64_t)y * width + x];
            lane[0][(x - left_right[0]) % 32] += value;
            lane[1][(x - left_right[0]) % 32] += value * value;
            max = value > max ? value : max;
        }
        for (int k = 0; k < 2; k++)
            for (int distance = 16; distance; distance /= 2)
                for (int i = 0; i < distance; i++)
                    lane[k][i] += lane[k][i + distance];
        sum += lane[0][0];
        squares += lane[1][0];
    }
    double count = (double)(top_bottom[1] - top_bottom[0]) * (left_right[1] - left_right[0]);
    double mean = sum / count, energy = squares / count, variance = energy - mean * mean;
    double values[CONV_POOL_KINDS] = {
        [CONV_POOL_MEAN] = mean,
        [CONV_POOL_STD] = variance > 0 ? sqrt(variance) : 0,
        [CONV_POOL_MAX] = max + 0.0,
        [CONV_POOL_ENERGY] = energy,
    };
    for (int k = 0; k < pool->count; k++)
        features[(size_t)k * step] = (float)values[pool->kinds[k]];
}

static float *expect_features(const struct test *test, const float *maps)
{
    const struct conv_pooling *pool = &test->config.pool;
    int grid = pool->grid, planes = test->images * test->bank.map_count;
    size_t cells = (size_t)(grid * grid);
    float *features = must((size_t)(planes * pool->count) * cells * sizeof *features);
    for (int p = 0; p < planes; p++) {
        const float *map = maps + (int64_t)p * test->height * test->width;
        for (int i = 0; i < grid; i++) {
            int rows[2] = {test->height * i / grid, test->height * (i + 1) / grid};
            for (int j = 0; j < grid; j++) {
                int columns[2] = {test->width * j / grid, test->width * (j + 1) / grid};
                expect_cell(features + (size_t)(p * pool->count) * cells + (size_t)(i * grid + j),
                            cells, pool, map, test->width, rows, columns);
            }
        }
    }
    return features;
}

// --- cases ---------------------------------------------------------------------------------------

static bool equal(const struct test *test, const float *expected, const float *got, size_t count,
                  const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&expected[i], &got[i], sizeof *got) == 0 ||
            (isnan(expected[i]) && isnan(got[i])))
            continue;
        printf("FAILED %s: %s, %d images of %dx%d, border %s, %s: value %zu is %a, not %a\n", what,
               test->name, test->images, test->width, test->height,
               conv_filter_border_name(test->config.border),
               test->config.input == CONV_ELEMENT_U8 ? "bytes" : "floats", i, (double)got[i],
               (double)expected[i]);
        return false;
    }
    return true;
}

// True if most values are equal, so that the case could not tell right from wrong. A few equal
// pixels are accepted: pixels repeated by a border have no edges.
static bool is_vacuous(const struct test *test, const float *values, size_t count)
{
    if (test->height * test->width < 8)
        return false;
    size_t same = 0;
    for (size_t i = 1; i < count; i++)
        same += values[i] == values[0];
    return count > 8 && same > count / 2;
}

static float *run_bank(struct test *test, const struct conv_pooling *pool, size_t *count)
{
    struct conv_operation operation = {0};
    struct conv_tensor_stream *stream = NULL;
    struct conv_layer_shape shape = {test->images, test->height, test->width};
    struct conv_err err = {0};
    size_t in, out;
    void *h_in, *h_out;
    test->config.pool = *pool;
    if (conv_bank_context_open(&operation.bank, &test->config, &err) ||
        conv_operation_stream_open(&operation, NULL, 1, &stream, &err))
        die(err.text);
    if (!conv_operation_bytes(&operation, test->height, test->width, &in, &out))
        die("conv_operation_bytes");
    in *= (size_t)test->images;
    out *= (size_t)test->images;
    if (conv_operation_stream_staging(&operation, stream, in, out, &h_in, &h_out, &err))
        die(err.text);
    memcpy(h_in, test->src, in);
    memset(h_out, 0xa5, out);
    if (conv_operation_run(&operation, stream, &shape, test->images, h_in, h_out, &err))
        die(err.text);
    float *result = must(out);
    memcpy(result, h_out, out);
    *count = out / sizeof *result;
    conv_operation_stream_close(&operation, stream);
    conv_operation_close(&operation);
    return result;
}

static bool check(struct test *test, uint64_t *random)
{
    static const char *const poolings[] = {"mean,std", "max", "energy,mean:2", "std,max,mean:3"};
    const char *text = poolings[random_below(random, 4)];
    struct conv_pooling pool, none = {0};
    struct conv_err err = {0};
    size_t count;
    if (conv_pooling_parse(&pool, text, &err))
        die(err.text);
    if (test->height < pool.grid || test->width < pool.grid)
        pool.grid = 1;
    float *maps = expect_maps(test);
    float *got = run_bank(test, &none, &count);
    bool good = equal(test, maps, got, count, "maps");
    if (is_vacuous(test, maps, count)) {
        printf("FAILED: %s: most values are equal\n", test->name);
        good = false;
    }
    free(got);
    got = run_bank(test, &pool, &count);
    float *features = expect_features(test, maps);
    good = equal(test, features, got, count, text) && good;
    if (good && count > 0) { // the comparison finds a wrong bit
        got[count - 1] = nextafterf(got[count - 1], 1e30f);
        good = memcmp(features, got, count * sizeof *got) != 0;
    }
    free(got);
    free(features);
    free(maps);
    return good;
}

static bool run_case(const char *name, enum conv_place place, int most, uint64_t *random)
{
    struct conv_err err = {0};
    struct test test = {
        .name = name,
        .height = 1 + (int)random_below(random, (unsigned)most),
        .width = 1 + (int)random_below(random, 2 * (unsigned)most),
        .images = 1 + (int)random_below(random, 3),
    };
    if (conv_bank_parse(&test.bank, name, &err))
        die(err.text);
    size_t samples = (size_t)(test.height * test.width * test.images);
    test.config = (struct conv_bank_config){
        .bank = &test.bank,
        .place = place,
        .border = (enum conv_border)random_below(random, 5),
        .border_value = 0.25f,
        .input = random_below(random, 2) ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32,
        .input_divisor = random_below(random, 2) ? 255 : 1,
    };
    test.src = must(samples * sizeof(float));
    for (size_t i = 0; i < samples; i++) {
        uint64_t bits = random_bits(random);
        if (test.config.input == CONV_ELEMENT_U8)
            ((uint8_t *)test.src)[i] = (uint8_t)bits;
        else
            ((float *)test.src)[i] = (float)(bits >> 40) * 0x1p-22f - 2;
    }
    bool good = check(&test, random);
    free(test.src);
    conv_bank_free(&test.bank);
    return good;
}

int main(int argc, char **argv)
{
    bool on_cpu = true;
    uint64_t seed = (uint64_t)time(NULL);
    int rounds = 20;
    const struct option_row rows[] = {
        {"--cuda", .off = &on_cpu}, {"--rounds", .number = &rounds}, {"--seed", .seed = &seed}};
    if (!options_parse(rows, sizeof rows / sizeof rows[0], argc, argv))
        return 2;
    enum conv_place place = on_cpu ? CONV_ON_CPU : CONV_ON_CUDA;
    const char *reason;
    if (place == CONV_ON_CUDA && device_capability(&reason) == 0)
        return device_missing("check_banks", reason);
    printf("seed %llu, %d rounds\n", (unsigned long long)seed, rounds);
    uint64_t random = seed;
    bool good = true;
    for (int i = 0; i < rounds && good; i++)
        good = run_case(names[random_below(&random, sizeof names / sizeof names[0])], place,
                        (i % 4 ? 30 : 80) / CHECK_SHRINK, &random);
    for (size_t i = 0; i < sizeof large / sizeof large[0] && good; i++)
        good = run_case(large[i], place, 12 / CHECK_SHRINK, &random);
    puts(good ? "filter banks: equal" : "filter banks: FAILED");
    return good ? 0 : 1;
}
