// SPDX-License-Identifier: MIT
// Which kernel the program chooses for inputs as users have them: filters.txt, built-in and custom
// filters on all kinds of images, and the layers of `conv bench layers --network all`. The choice
// needs no device. Prints the share of each row on each architecture; fails if a row of the
// stencils' table gets less than 1 % of the inputs on the architectures that it is made for, or if
// an input has no row. Usage: sweep FOLDER, that of filters.txt.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "filter/filter.h"
#include "kernels/layer/layer.h"
#include "kernels/stencil/stencil.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define LEAST_SHARE 0.01
#define MOST_ROWS 64
#define MOST_ARCHITECTURES 16
#define MOST_WEIGHTS (12 << 20)

struct architecture {
    const char *name;
    enum conv_place place;
    unsigned offers;
};

static const struct architecture architectures[] = {
    {"7.5", CONV_ON_CUDA, 75},
    {"8.0", CONV_ON_CUDA, 80},
    {"8.6", CONV_ON_CUDA, 86},
    {"8.9", CONV_ON_CUDA, 89},
    {"9.0", CONV_ON_CUDA, 90},
    {"10.0", CONV_ON_CUDA, 100},
    {"12.0", CONV_ON_CUDA, 120},
    {"plain", CONV_ON_CPU, 0},
#ifdef __aarch64__
    {"neon", CONV_ON_CPU, CONV_CPU_NEON},
    {"dotprod", CONV_ON_CPU, CONV_CPU_NEON | CONV_CPU_DOTPROD},
#else
    {"sse4", CONV_ON_CPU, CONV_CPU_SSE41},
    {"avx2", CONV_ON_CPU, CONV_CPU_SSE41 | CONV_CPU_AVX2},
    {"avx512", CONV_ON_CPU, CONV_CPU_SSE41 | CONV_CPU_AVX2 | CONV_CPU_AVX512},
    {"vnni", CONV_ON_CPU, CONV_CPU_SSE41 | CONV_CPU_AVX2 | CONV_CPU_AVX512 | CONV_CPU_VNNI},
    {"vbmi", CONV_ON_CPU,
     CONV_CPU_SSE41 | CONV_CPU_AVX2 | CONV_CPU_AVX512 | CONV_CPU_VNNI | CONV_CPU_VBMI},
#endif
};
_Static_assert(COUNT(architectures) <= MOST_ARCHITECTURES, "room for them");

// How often each row of a table was chosen.
struct tally {
    long chosen[MOST_ROWS][MOST_ARCHITECTURES];
    long inputs[MOST_ARCHITECTURES];
    long without; // a row
};

struct row {
    const char *name;
    enum conv_place place;
    unsigned needs;
};

// Prints the shares. Returns how many rows have less than LEAST_SHARE, the definition excepted.
static int print_shares(const struct tally *tally, const struct row *rows, int count,
                        const char *definition)
{
    int rare = 0;
    for (int place = 0; place < 2; place++) {
        printf("\n%-32s", place == CONV_ON_CUDA ? "CUDA" : "CPU");
        for (int a = 0; a < COUNT(architectures); a++)
            if ((int)architectures[a].place == place)
                printf("%8s", architectures[a].name);
        printf("%8s\n", "all");
        for (int r = 0; r < count; r++) {
            if ((int)rows[r].place != place)
                continue;
            long chosen = 0, inputs = 0;
            printf("%-32s", rows[r].name);
            for (int a = 0; a < COUNT(architectures); a++) {
                const struct architecture *at = &architectures[a];
                if ((int)at->place != place)
                    continue;
                if (!conv_place_offers(at->place, at->offers, rows[r].needs)) {
                    printf("%8s", "");
                    continue;
                }
                chosen += tally->chosen[r][a];
                inputs += tally->inputs[a];
                printf("%7.1f%%", 100.0 * (double)tally->chosen[r][a] / (double)tally->inputs[a]);
            }
            bool few = (double)chosen < LEAST_SHARE * (double)inputs &&
                       strcmp(rows[r].name, definition) != 0;
            rare += few;
            printf("%7.2f%%%s\n", 100.0 * (double)chosen / (double)inputs,
                   few ? "  less than 1 %" : "");
        }
    }
    return rare;
}

// --- stencils ------------------------------------------------------------------------------------

static struct tally stencils;
static const struct conv_variant *const *variants;
static int variant_count;

// `whole`: images that are filtered interleaved if a row can, else taken apart.
static void count_stencil(const struct conv_stencil *stencil, size_t launch_bytes,
                          enum conv_place place, bool whole)
{
    for (int a = 0; a < COUNT(architectures); a++) {
        if (architectures[a].place != place)
            continue;
        const struct conv_variant *best =
            conv_stencil_pick(stencil, launch_bytes, place, architectures[a].offers, NULL);
        if (!best && whole)
            continue;
        stencils.inputs[a]++;
        stencils.without += !best;
        for (int i = 0; i < variant_count && best; i++)
            stencils.chosen[i][a] += variants[i] == best;
    }
}

// A filter on all kinds of images, from icons to 100 megapixels, at all borders.
static void sweep_filter(const struct conv_filter *filter)
{
    static const struct {
        int depth, channels;
        bool floats;     // results
        int interleaved; // channels that the C library and Python leave interleaved on a device
    } kinds[] = {
        {8, 1, false, 1},  {8, 3, false, 1},  {8, 4, false, 1},  {16, 1, false, 1},
        {16, 3, false, 1}, {16, 4, false, 1}, {32, 1, false, 1}, {8, 3, true, 1},
        {16, 1, true, 1},  {8, 3, false, 3},  {8, 4, false, 4},
    };
    static const size_t pixels[] = {32 * 32, 256 * 256, 768 * 512, 24000000, 100000000};
    static struct conv_stencil stencil;
    for (int k = 0; k < COUNT(kinds); k++) {
        for (int border = CONV_BORDER_REPLICATE; border <= CONV_BORDER_CONSTANT; border++) {
            conv_stencil_init(&stencil, filter, kinds[k].depth, (enum conv_border)border, 0);
            stencil.floats = stencil.floats || kinds[k].floats;
            bool interleaved = kinds[k].interleaved > 1;
            if (interleaved && !conv_stencil_interleave(&stencil, kinds[k].interleaved))
                continue; // such images are taken apart
            for (int p = 0; p < COUNT(pixels); p++) {
                size_t bytes = pixels[p] * (size_t)(kinds[k].channels * kinds[k].depth / 8);
                count_stencil(&stencil, interleaved ? 0 : bytes, CONV_ON_CUDA, interleaved);
                if (!interleaved)
                    count_stencil(&stencil, bytes, CONV_ON_CPU, false);
            }
        }
    }
}

static bool sweep_chain(const char *text)
{
    struct conv_err err;
    static struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    static const struct conv_filter_settings settings;
    int count;
    if (conv_filter_parse_chain(filters, &count, text, &settings, &err)) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        return false;
    }
    for (int i = 0; i < count; i++)
        sweep_filter(&filters[i]);
    return true;
}

enum custom { TENT, DISC, MIXED, LARGE, TENT_DECIMALS, MIXED_DECIMALS, CUSTOM_KINDS };

// A coefficient of a filter from a matrix file: integers and decimals, with and without a column
// and a row as factors.
static double custom_tap(enum custom kind, int side, int i, int j)
{
    int radius = side / 2;
    double tent = (1 + radius - abs(i - radius)) * (1 + radius - abs(j - radius));
    double mixed = (i * 7 + j * 13) % 17 - 8;
    switch (kind) {
    case TENT:
        return tent;
    case DISC: // of a lens out of focus
        return (i - radius) * (i - radius) + (j - radius) * (j - radius) <=
               radius * radius + radius;
    case MIXED:
        return mixed;
    case LARGE:
        return mixed * 250;
    case TENT_DECIMALS:
        return tent / 8.3;
    default:
        return mixed / 9.7;
    }
}

static void sweep_custom(void)
{
    static const int sides[] = {3, 5, 7, 9, 11, 15, 21, 31};
    static struct conv_filter filter;
    for (int s = 0; s < COUNT(sides); s++) {
        for (enum custom kind = 0; kind < CUSTOM_KINDS; kind++) {
            int side = sides[s];
            double sum = 0;
            filter = (struct conv_filter){.width = side, .height = side};
            for (int t = 0; t < side * side; t++)
                sum += filter.coef[t] = custom_tap(kind, side, t % side, t / side);
            filter.scale = sum > 0 ? sum : 1;
            sweep_filter(&filter);
        }
    }
}

// --- layers --------------------------------------------------------------------------------------

static struct tally layers;
static const struct conv_layer_variant *const *layer_variants;
static int layer_count;
static float weights[MOST_WEIGHTS]; // some rows look for those that are not finite

static void count_layer(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    for (int a = 0; a < COUNT(architectures); a++) {
        struct conv_layer_plan plan;
        const struct architecture *at = &architectures[a];
        bool some = conv_layer_plan_best(&plan, layer, shape, at->place, at->offers, NULL);
        layers.inputs[a]++;
        layers.without += !some;
        for (int i = 0; i < layer_count && some; i++)
            layers.chosen[i][a] += layer_variants[i] == plan.variant;
    }
}

static bool sweep_layer(const struct conv_layer_network *from)
{
    static const int batches[] = {1, 16, 64, 256, 10000};
    struct conv_layer layer = from->layer;
    if (conv_layer_taps(&layer) * (size_t)layer.maps > MOST_WEIGHTS) {
        fprintf(stderr, "too many weights: %s, %d->%d\n", from->names, layer.channels, layer.maps);
        return false;
    }
    layer.weights = weights;
    bool images = layer.channels == 1 || layer.channels == 3;
    for (int b = 0; b < COUNT(batches); b++) {
        struct conv_layer_shape shape = {batches[b], from->height, from->width};
        for (int bytes = 0; bytes < 1 + images; bytes++) {
            layer.input = bytes ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32;
            layer.input_divisor = bytes ? 255 : 1;
            count_layer(&layer, &shape);
        }
    }
    return true;
}

// --- all of them ---------------------------------------------------------------------------------

// Calls `sweep` for each line of a file that is no comment.
static bool sweep_lines(const char *folder, const char *name, bool (*sweep)(const char *line))
{
    char path[4096], line[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return false;
    }
    bool ok = true;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        ok &= line[0] == '#' || line[0] == '\0' || sweep(line);
    }
    fclose(file);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: sweep FOLDER\n");
        return 2;
    }
    struct row rows[MOST_ROWS];
    variants = conv_stencil_variants(&variant_count);
    layer_variants = conv_layer_variants(&layer_count);
    int builtin_count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&builtin_count);
    bool ok = true;
    for (int i = 0; i < builtin_count; i++)
        ok &= sweep_chain(builtins[i].name);
    ok &= sweep_lines(argv[1], "filters.txt", sweep_chain);
    sweep_custom();
    for (int i = 0; i < variant_count; i++)
        rows[i] = (struct row){variants[i]->name, variants[i]->place, variants[i]->needs};
    int rare = print_shares(&stencils, rows, variant_count, conv_cpu_reference.name);

    struct conv_layer_network layer;
    for (const char *at = NULL; (at = conv_layer_networks_next(at, &layer));)
        ok &= sweep_layer(&layer);
    for (int i = 0; i < layer_count; i++)
        rows[i] = (struct row){layer_variants[i]->name, layer_variants[i]->place,
                               layer_variants[i]->needs};
    (void)print_shares(&layers, rows, layer_count, conv_cpu_layer_reference.name);

    if (stencils.without + layers.without > 0)
        fprintf(stderr, "inputs without a kernel: %ld filters, %ld layers\n", stencils.without,
                layers.without);
    if (rare > 0)
        fprintf(stderr, "rows that less than 1 %% of the filters get: %d\n", rare);
    return ok && rare == 0 && stencils.without + layers.without == 0 ? 0 : 1;
}
