// SPDX-License-Identifier: MIT
// Values of options: those with a syntax of their own, those that cannot be combined, and defaults
// that depend on the machine.
#include <math.h>
#include <string.h>

#include "cli/option_table.h"
#include "io/files/formats.h"
#include "io/walk/walk.h"
#include "png/png.h"
#include "run/budget.h"
#include "run/pipeline.h"

// More workers do not help, even if they wait for a device or a disk, since they share the memory
// limit.
#define JOBS_PER_CORE 4
#define LEAST_JOBS_LIMIT 64

int conv_options_streams(const struct conv_machine_options *machine, bool decodes)
{
    return machine->streams ? machine->streams : conv_pipeline_streams(decodes);
}

size_t conv_options_group_bytes(const struct conv_machine_options *machine, bool decodes)
{
    return machine->group_bytes ? machine->group_bytes : conv_pipeline_group_bytes(decodes);
}

size_t conv_options_mem_limit(const struct conv_machine_options *machine, bool async)
{
    return machine->mem_limit ? machine->mem_limit : conv_budget_staging(machine->limits, async);
}

static enum conv_status parse_border(struct conv_filter_choice *filter, struct conv_err *err)
{
    float value;
    enum conv_status status =
        conv_filter_parse_border(&filter->border, &value, filter->border_text, err);
    if (!status)
        status = conv_filter_check_border(value, err);
    filter->border_value = status ? 0 : (int)value;
    return status;
}

static enum conv_status parse_size(struct conv_options *options, struct conv_err *err)
{
    const char *text = options->filter.size_text;
    bool of_images = options->command == CONV_COMMAND_BENCH_KERNELS;
    if (strcmp(text, "3") == 0 || strcmp(text, "5") == 0)
        options->filter.settings.size = text[0] - '0';
    else
        return conv_err_usage(
            err, "--size takes 3 or 5%s, not '%s'",
            of_images ? " (--image-size: WIDTHxHEIGHT, mix, uniform or standard)" : "", text);
    return CONV_OK;
}

static enum conv_status parse_quality(struct conv_output_options *outputs, struct conv_err *err)
{
    const char *text = outputs->quality_text;
    int used = 0, quality = 0;
    if (strcmp(text, "keep") == 0)
        return CONV_OK;
    if (sscanf(text, "%3d%n", &quality, &used) != 1 || text[used] != '\0' || quality < 1 ||
        quality > 100)
        return conv_err_usage(
            err, "--quality takes keep (the input's) or a number from 1 to 100, such as 90, not %s",
            text);
    outputs->codec.quality = quality;
    return CONV_OK;
}

// True if the option of the rule was given, with the value that the rule is about.
static bool is_given(const struct conv_options *options, const struct conv_option_rule *rule)
{
    const struct conv_option *row = conv_option_find(rule->name);
    const char *field = (const char *)options + row->offset;
    return conv_options_given(options, rule->name) &&
           (!rule->choice ||
            strcmp(row->choices[*(const int *)(const void *)field], rule->choice) == 0);
}

static enum conv_status check_rules(const struct conv_options *options, struct conv_err *err)
{
    for (size_t i = 0; i < conv_option_rule_count; i++) {
        const struct conv_option_rule *rule = &conv_option_rules[i];
        bool needs = rule->relation == OPTION_ALLOWS;
        const char *const *other = rule->others;
        while (*other && !conv_options_given(options, *other))
            other++;
        if (!*other || (rule->commands && !(rule->commands & 1u << options->command)) ||
            is_given(options, rule) == needs)
            continue;
        if (needs)
            return conv_err_usage(err, "--%s needs --%s", *other, rule->name);
        return conv_err_usage(err, "--%s%s%s and --%s cannot be combined%s%s", rule->name,
                              rule->choice ? " " : "", rule->choice ? rule->choice : "", *other,
                              rule->reason ? ": " : "", rule->reason ? rule->reason : "");
    }
    return CONV_OK;
}

static enum conv_status check_globs(const struct conv_string_list *globs, const char *option,
                                    struct conv_err *err)
{
    struct conv_err reason = {0};
    for (int i = 0; i < globs->count; i++)
        if (conv_glob_check(globs->items[i], &reason))
            return conv_err_usage(err, "--%s: %s", option, reason.text);
    return CONV_OK;
}

static enum conv_status check_names(const struct conv_options *options, struct conv_err *err)
{
    const char *suffix = options->outputs.suffix, *backup = options->outputs.backup;
    bool is_npy =
        options->command == CONV_COMMAND_LAYER || options->outputs.type == CONV_OUTPUT_F32;
    if (suffix && (!*suffix || strchr(suffix, '/')))
        return conv_err_usage(err, "--suffix takes a part of a file name, such as _sharp, not '%s'",
                              suffix);
    if (backup && (!*backup || strchr(backup, '/') || conv_formats_of_name(backup)))
        return conv_err_usage(
            err, "--backup takes an extension that no image has, such as .bak, not '%s'", backup);
    if (options->outputs.beside && !suffix && !is_npy)
        return conv_err_usage(err, "--beside needs a name for the results, such as --suffix _new "
                                   "(--in-place replaces the images)");
    return CONV_OK;
}

// Parses "40%" or "40", the share of the result, with at most two decimals.
static enum conv_status parse_mix(struct conv_filter_choice *filter, const char *text,
                                  struct conv_err *err)
{
    double percent = -1;
    size_t size = strlen(text);
    bool sign = size > 0 && text[size - 1] == '%';
    bool good = !conv_number_parse(&percent, 100, text, size - sign, NULL) && percent >= 0 &&
                (sign || percent == 0 || percent >= 1); // 0.4 may stand for 40 %
    double share = percent * (CONV_IMAGE_WHOLE / 100);
    if (!good || fabs(share - rint(share)) > 1e-6)
        return conv_err_usage(err,
                              "--mix takes a percentage from 0%% to 100%% with at most two "
                              "decimals, for example 40%%, not '%s'",
                              text);
    filter->blend.original = CONV_IMAGE_WHOLE - (int)rint(share);
    return CONV_OK;
}

static enum conv_status parse_roi(struct conv_filter_choice *filter, const char *text,
                                  struct conv_err *err)
{
    struct conv_blend *blend = &filter->blend;
    int used = 0;
    bool good = strspn(text, "0123456789x+") == strlen(text) &&
                sscanf(text, "%9dx%9d+%9d+%9d%n", &blend->width, &blend->height, &blend->x,
                       &blend->y, &used) == 4 &&
                text[used] == '\0' && blend->width > 0 && blend->height > 0 && blend->x >= 0 &&
                blend->y >= 0;
    return good
               ? CONV_OK
               : conv_err_usage(
                     err,
                     "--roi takes WIDTHxHEIGHT+X+Y in pixels, for example 640x480+100+50, not '%s'",
                     text);
}

static enum conv_status check_output_type(const struct conv_options *options, struct conv_err *err)
{
    int type = options->outputs.type;
    bool runs = options->command == CONV_COMMAND_RUN;
    if (!conv_options_given(options, "output-type"))
        return CONV_OK;
    if (runs ? type == CONV_OPTIONS_OUTPUT_F16 : type < CONV_OUTPUT_F32)
        return conv_err_usage(err, "--output-type takes %s, not '%s'",
                              runs ? "same, u8, u16 or f32" : "f32 or f16",
                              conv_option_find("output-type")->choices[type]);
    if (type == CONV_OUTPUT_F32 && runs && options->filter.alpha == CONV_ALPHA_PREMULTIPLY)
        return conv_err_usage(err, "--output-type f32 and --alpha premultiply cannot be combined: "
                                   "results are not divided by alpha");
    return CONV_OK;
}

static enum conv_status parse_to(struct conv_options *options, struct conv_err *err)
{
    char what[80], known[80] = "";
    options->outputs.to = conv_formats_of_extension(options->outputs.to_text);
    for (int i = 0; i < conv_format_count; i++)
        conv_text_add(known, sizeof known, i == conv_format_count - 1 ? " or " : ", ", "%s",
                      conv_formats[i]->extension + 1);
    if (!options->outputs.to)
        return conv_err_usage(err, "--to takes %s, not '%.64s'", known, options->outputs.to_text);
    snprintf(what, sizeof what, "--to %s", options->outputs.to_text);
    return conv_options_check_format(options, options->outputs.to, what, err);
}

enum conv_status conv_options_check_format(const struct conv_options *options,
                                           const struct conv_format *format, const char *what,
                                           struct conv_err *err)
{
    static const struct {
        const char *option, *format; // that it is for
        const char *reason;          // why it is not for the other of PNG and JPEG
    } own[] = {
        {"quality", "JPEG and WebP", "PNG loses no detail; --compress N trades speed for size"},
        {"progressive", "JPEG", "PNG is written from top to bottom"},
        {"optimize", "JPEG", "--compress N trades speed for size"},
        {"compress", "PNG", "--quality N trades detail for size"},
        {"encoder", "PNG", "JPEG has one encoder"}};
    bool either = strcmp(format->name, "PNG") == 0 || strcmp(format->name, "JPEG") == 0;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!strstr(own[i].format, format->name) && conv_options_given(options, own[i].option))
            return conv_err_usage(err, "%s and --%s cannot be combined: %s%s", what, own[i].option,
                                  either ? own[i].reason : "it is for ",
                                  either ? "" : own[i].format);
    if (options->outputs.type == CONV_OUTPUT_U16 && format->most_depth < 16)
        return conv_err_usage(
            err, "%s and --output-type u16 cannot be combined: %s has %d bits per sample", what,
            format->name, format->most_depth);
    return CONV_OK;
}

// Limits the workers to a number that can help; the note informs the user.
static void limit_jobs(struct conv_options *options)
{
    int cores = options->machine.limits->cores;
    int limit = JOBS_PER_CORE * cores > LEAST_JOBS_LIMIT ? JOBS_PER_CORE * cores : LEAST_JOBS_LIMIT;
    options->machine.jobs_given = options->machine.jobs != 0;
    if (!options->machine.jobs_given)
        options->machine.jobs = cores;
    if (options->machine.jobs <= limit)
        return;
    snprintf(options->report.note, sizeof options->report.note,
             "--jobs %d: using %d worker threads, the most that help with %d core%s",
             options->machine.jobs, limit, cores, cores == 1 ? "" : "s");
    options->machine.jobs = limit;
}

// Colours of transparent pixels must not mix with others. A filter that does not keep flat areas,
// such as an edge filter, would make opaque images transparent, and so would a constant border.
static bool should_premultiply(const struct conv_filter *filter)
{
    double sum = conv_filter_sum(filter);
    bool mixes = filter->decimated.step > 0;
    for (int k = 0; k < filter->width * filter->height; k++)
        mixes |= filter->coef[k] != 0 && filter->coef[k] != sum;
    return mixes && !filter->magnitude && filter->offset == 0 &&
           fabs(sum - filter->scale) <= 1e-6 * fabs(sum);
}

void conv_options_choose_alpha(struct conv_filter_choice *choice,
                               const struct conv_options *options,
                               const struct conv_filter *filters, int count)
{
    unsigned kept = 0;
    if (options->command != CONV_COMMAND_RUN || conv_options_given(options, "alpha") ||
        options->outputs.type == CONV_OUTPUT_F32 || choice->border == CONV_BORDER_CONSTANT)
        return;
    for (int i = 0; i < count; i++)
        kept |= (unsigned)!should_premultiply(&filters[i]) << i;
    if (kept == (1u << count) - 1)
        return;
    choice->alpha = CONV_ALPHA_PREMULTIPLY;
    choice->alpha_kept = kept;
}

// --- conv bench ----------------------------------------------------------------------------------

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

// "5" or "3x5", each from 1 to `most`; `least_numbers`: how many of them there must be.
static bool parse_pair(int *first, int *second, const char *text, int most, int least_numbers)
{
    int used = 0, pair[2], count = sscanf(text, "%5dx%5d%n", &pair[0], &pair[1], &used);
    if (count == 1) {
        pair[1] = pair[0];
        used = (int)strspn(text, "0123456789");
    }
    if (count < least_numbers || text[used] || pair[0] < 1 || pair[1] < 1 || pair[0] > most ||
        pair[1] > most)
        return false;
    *first = pair[0];
    *second = pair[1];
    return true;
}

static bool parse_sides(struct conv_bench_choice *bench, const char *text)
{
    if (parse_pair(&bench->width, &bench->height, text, 99999, 2))
        return true;
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
    return conv_err_usage(err,
                          "--image-size takes WIDTHxHEIGHT, mix, uniform or standard, not '%s'",
                          bench->image_size_text);
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
                   : conv_err_usage(err,
                                    "--shape %s and --%s cannot be combined: the layer has its own",
                                    text, maps ? "maps" : "kernel");
    if (sscanf(text, "%7dx%6dx%6dx%6d%n", &layer->batch, &layer->channels, &layer->height,
               &layer->width, &used) != 4 ||
        text[used] != '\0' || layer->batch < 1 || layer->channels < 1 || layer->height < 1 ||
        layer->width < 1)
        return conv_err_usage(
            err, "--shape takes BATCHxCHANNELSxHEIGHTxWIDTH or the name of a layer, not '%s'",
            text);
    if (!maps || !kernel)
        return conv_err_usage(err, "--shape %s needs --%s", text, maps ? "kernel" : "maps");
    if (!parse_pair(&layer->kernel_height, &layer->kernel_width, kernel, CONV_LAYER_MAX_SIDE, 1))
        return conv_err_usage(err, "--kernel takes a size of 1 to %d, N or HEIGHTxWIDTH, not '%s'",
                              CONV_LAYER_MAX_SIDE, kernel);
    double plane = (double)layer->batch * layer->height * layer->width;
    if (plane * layer->channels > MOST_SAMPLES || plane * maps > MOST_SAMPLES)
        return conv_err_usage(err, "--shape %s with %d maps: more than %g samples", text, maps,
                              MOST_SAMPLES);
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
            return conv_err_usage(err, "--%s and --device %s cannot be combined", ignored[i],
                                  options->machine.device_text);
    if (!cuda && options->bench.images)
        return conv_err_usage(err, "--images needs --device cuda");
    return CONV_OK;
}

static enum conv_status parse_steps(struct conv_layer_options *layer, struct conv_err *err)
{
    const struct {
        const char *name, *text;
        int *y, *x, most;
    } steps[] = {
        {"stride", layer->stride_text, &layer->stride_y, &layer->stride_x, CONV_LAYER_MAX_STRIDE},
        {"dilation", layer->dilation_text, &layer->dilation_y, &layer->dilation_x,
         CONV_LAYER_MAX_DILATION},
    };
    for (int i = 0; i < 2; i++)
        if (steps[i].text && !parse_pair(steps[i].y, steps[i].x, steps[i].text, steps[i].most, 1))
            return conv_err_usage(err, "--%s takes N or HEIGHTxWIDTH, from 1 to %d, not '%s'",
                                  steps[i].name, steps[i].most, steps[i].text);
    return CONV_OK;
}

static enum conv_status check_bench(struct conv_options *options, struct conv_err *err)
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

// -------------------------------------------------------------------------------------------------

enum conv_status conv_option_check(struct conv_options *options, struct conv_err *err)
{
    enum conv_status status = check_rules(options, err);
    if (!status)
        status = check_globs(&options->inputs.include, "include", err);
    if (!status)
        status = check_globs(&options->inputs.exclude, "exclude", err);
    if (!status && options->filter.size_text)
        status = parse_size(options, err);
    if (!status)
        status = check_bench(options, err);
    if (!status)
        status = parse_steps(&options->filter.layer, err);
    if (!status && options->filter.border_text && options->command != CONV_COMMAND_LAYER)
        status = parse_border(&options->filter, err);
    if (!status && options->outputs.encoder_text)
        status = conv_png_parse_encoder(&options->outputs.codec.encoder,
                                        options->outputs.encoder_text, err);
    if (!status)
        status = conv_png_check_level(&options->outputs.codec, err);
    if (!status && options->outputs.quality_text)
        status = parse_quality(&options->outputs, err);
    if (!status && options->outputs.to_text)
        status = parse_to(options, err);
    if (!status)
        status = check_output_type(options, err);
    if (!status)
        status = check_names(options, err);
    if (!status)
        status = conv_option_check_shard(options, err);
    if (!status && options->filter.mix_text)
        status = parse_mix(&options->filter, options->filter.mix_text, err);
    if (!status && options->filter.roi_text)
        status = parse_roi(&options->filter, options->filter.roi_text, err);
    limit_jobs(options);
    return status;
}
