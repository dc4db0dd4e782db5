// SPDX-License-Identifier: MIT
// Values of the options of `conv bench`.
#include <string.h>

#include "cli/option_table.h"

// The limit for a layer's input or output: beyond the memory of any machine, and far from an
// overflow.
#define MOST_SAMPLES 1e13

#define SIDES(K) .kernel_height = (K), .kernel_width = (K)

// The first and second layers of small networks, and those that large ones begin with.
static const struct conv_bench_layer layers[] = {
    {"lenet-1", 0, 1, 28, 28, 6, SIDES(5)},    {"lenet-2", 0, 6, 12, 12, 16, SIDES(5)},
    {"net28-1", 0, 1, 28, 28, 50, SIDES(5)},   {"net64-1", 0, 1, 64, 64, 12, SIDES(5)},
    {"net70-1", 0, 1, 70, 70, 12, SIDES(5)},   {"net70-2", 0, 12, 33, 33, 24, SIDES(5)},
    {"vgg-1", 100, 3, 224, 224, 64, SIDES(3)}, {"resnet-1", 100, 3, 224, 224, 64, SIDES(7)},
};

const struct conv_bench_layer *conv_bench_shapes_list(int *count)
{
    *count = (int)(sizeof layers / sizeof layers[0]);
    return layers;
}

static bool parse_sides(struct conv_bench_choice *bench, const char *text)
{
    int width, height, used = 0;
    if (sscanf(text, "%5dx%5d%n", &width, &height, &used) == 2 && text[used] == '\0' && width > 0 &&
        height > 0) {
        bench->width = width;
        bench->height = height;
        return true;
    }
    static const char *const names[] = {"", "mix", "uniform", "standard"}; // conv_bench_sizes
    for (int i = 1; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            bench->sizes = i;
            return true;
        }
    }
    return false;
}

static enum conv_status parse_image_size(struct conv_bench_choice *bench, struct conv_err *err)
{
    if (parse_sides(bench, bench->image_size_text))
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--image-size takes WIDTHxHEIGHT, mix, uniform or standard, not '%s'",
                        bench->image_size_text);
}

// "5" or "3x5".
static bool parse_kernel_size(struct conv_bench_layer *layer, const char *text)
{
    int used = 0,
        count = sscanf(text, "%5dx%5d%n", &layer->kernel_height, &layer->kernel_width, &used);
    if (count == 1) {
        layer->kernel_width = layer->kernel_height;
        used = (int)strspn(text, "0123456789");
    }
    return count >= 1 && text[used] == '\0' && layer->kernel_height > 0 &&
           layer->kernel_width > 0 && layer->kernel_height <= CONV_LAYER_MAX_SIDE &&
           layer->kernel_width <= CONV_LAYER_MAX_SIDE;
}

static bool find_layer(struct conv_bench_layer *layer, const char *name)
{
    int count;
    const struct conv_bench_layer *list = conv_bench_shapes_list(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) {
            *layer = list[i];
            return true;
        }
    return false;
}

// The shape of conv bench layers: of a known layer, or four sides together with --maps and
// --kernel.
static enum conv_status parse_layer(struct conv_options *options, struct conv_err *err)
{
    const char *text = options->bench.shape_text, *kernel = options->filter.settings.kernel;
    struct conv_bench_layer *layer = &options->bench.layer;
    int used = 0, maps = layer->maps;
    if (find_layer(layer, text))
        return !maps && !kernel
                   ? CONV_OK
                   : conv_err_set(err, CONV_ERR_USAGE,
                                  "--shape %s and --%s cannot be combined: the layer has its own",
                                  text, maps ? "maps" : "kernel");
    if (sscanf(text, "%7dx%6dx%6dx%6d%n", &layer->batch, &layer->channels, &layer->height,
               &layer->width, &used) != 4 ||
        text[used] != '\0' || layer->batch < 1 || layer->channels < 1 || layer->height < 1 ||
        layer->width < 1)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shape takes BATCHxCHANNELSxHEIGHTxWIDTH or the name of a layer, not "
                            "'%s'",
                            text);
    if (!maps || !kernel)
        return conv_err_set(err, CONV_ERR_USAGE, "--shape %s needs --%s", text,
                            maps ? "kernel" : "maps");
    if (!parse_kernel_size(layer, kernel))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--kernel takes a size of 1 to %d, N or HEIGHTxWIDTH, not '%s'",
                            CONV_LAYER_MAX_SIDE, kernel);
    if (layer->kernel_height > layer->height || layer->kernel_width > layer->width)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--kernel %s is larger than the planes of %dx%d samples", kernel,
                            layer->height, layer->width);
    double plane = (double)layer->batch * layer->height * layer->width;
    if (plane * layer->channels > MOST_SAMPLES || plane * maps > MOST_SAMPLES)
        return conv_err_set(err, CONV_ERR_USAGE, "--shape %s with %d maps: more than %g samples",
                            text, maps, MOST_SAMPLES);
    return CONV_OK;
}

// On a GPU conv bench codec measures only the GPU's own coders.
static enum conv_status check_codec(const struct conv_options *options, struct conv_err *err)
{
    static const char *const ignored[] = {"jobs", "compress"};
    bool cuda =
        options->machine.device_text && strncmp(options->machine.device_text, "cuda", 4) == 0;
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        if (cuda && conv_options_given(options, ignored[i]))
            return conv_err_set(err, CONV_ERR_USAGE, "--%s and --device %s cannot be combined",
                                ignored[i], options->machine.device_text);
    if (!cuda && options->bench.images)
        return conv_err_set(err, CONV_ERR_USAGE, "--images needs --device cuda");
    return CONV_OK;
}

enum conv_status conv_option_check_bench(struct conv_options *options, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (options->bench.image_size_text)
        status = parse_image_size(&options->bench, err);
    if (!status && options->bench.shape_text && options->command == CONV_COMMAND_BENCH_LAYERS)
        status = parse_layer(options, err);
    if (!status && options->command == CONV_COMMAND_BENCH_CODEC)
        status = check_codec(options, err);
    return status;
}
