// SPDX-License-Identifier: MIT
// Options are printed from their field, except those that were parsed further.
#include "cli/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/option_table.h"
#include "png/png.h"

// A member that is added to one of these decides results: print it below.
_Static_assert(sizeof(struct conv_filter) ==
                   64 + 2 * sizeof(int) + (CONV_FILTER_MAX_TAPS + 5) * sizeof(double) +
                       sizeof(struct conv_real) + sizeof(struct conv_decimated),
               "every member of a filter is printed");
_Static_assert(sizeof(struct conv_blend) == 6 * sizeof(int), "every member of a blend is printed");
_Static_assert(sizeof(struct conv_pooling) == (CONV_POOL_KINDS + 2) * sizeof(int),
               "every member of a pooling is printed");
_Static_assert(sizeof(struct conv_layer) == 22 * sizeof(int) + 2 * sizeof(float *),
               "every member of a layer is printed");

// --- filters and layers --------------------------------------------------------------------------

// The values are represented by their hash: there may be millions of them.
static void print_values(FILE *out, const char *name, const void *values, size_t bytes)
{
    struct conv_digest digest = {0};
    if (bytes)
        conv_hash_add(&digest, values, bytes);
    fprintf(out, "%s %016" PRIx64 "%016" PRIx64 "\n", name, digest.word[0], digest.word[1]);
}

// 17 digits identify a double, 9 a float.
static void print_filters(FILE *out, const struct conv_settings *settings)
{
    for (int i = 0; i < settings->filter_count; i++) {
        const struct conv_filter *filter = &settings->filters[i];
        int taps = filter->width * filter->height;
        fprintf(out, "filter %dx%d:", filter->width, filter->height);
        for (int k = 0; k < taps; k++)
            fprintf(out, " %.17g", filter->coef[k]);
        fprintf(out, " / %.17g + %.17g", filter->scale, filter->offset);
        if (filter->magnitude)
            fputs(" magnitude", out);
        if (filter->threshold > 0)
            fprintf(out, " threshold %.17g", filter->threshold);
        if (filter->real.side)
            print_values(out, " real", &filter->real, sizeof filter->real);
        else if (filter->decimated.step)
            print_values(out, " decimated", &filter->decimated, sizeof filter->decimated);
        else
            fputc('\n', out);
    }
}

static void print_tensor(FILE *out, const char *name, const struct conv_tensor *tensor)
{
    char shape[CONV_TENSOR_TEXT_SIZE];
    uint64_t bytes = 0;
    if (!tensor->values)
        return;
    (void)conv_tensor_shape_bytes(&tensor->shape, sizeof(float), &bytes); // it is in memory
    fprintf(out, "%s %s:", name, conv_tensor_shape_text(shape, &tensor->shape));
    print_values(out, "", tensor->values, (size_t)bytes);
}

static void print_bank(FILE *out, const struct conv_bank *bank, const struct conv_pooling *pool)
{
    for (int i = 0; i < bank->filter_count; i++) {
        const struct conv_bank_filter *filter = &bank->filters[i];
        size_t taps = (size_t)filter->width * (size_t)filter->height;
        fprintf(out, "bank filter %dx%d, %d terms:", filter->width, filter->height, filter->terms);
        print_values(out, "", filter->coef, taps * sizeof filter->coef[0]);
    }
    for (int m = 0; m < bank->map_count; m++) {
        const struct conv_bank_map *map = &bank->maps[m];
        fprintf(out, "bank map %d of %d from %d\n", map->combine, map->count, map->first);
    }
    for (int i = 0; i < pool->count; i++)
        fprintf(out, "pool %d, grid %d\n", pool->kinds[i], pool->grid);
}

// Without `input` and `input_divisor`, which follow from the file and --range.
static void print_layer(FILE *out, const struct conv_layer_setup *setup)
{
    const struct conv_layer *layer = &setup->layer;
    fprintf(out,
            "layer %d maps, %d channels, groups %d, kernel %dx%d, stride %d %d, "
            "dilation %d %d, pads %d %d %d %d %d, border %s",
            layer->maps, layer->channels, layer->groups, layer->kernel_height, layer->kernel_width,
            layer->stride_y, layer->stride_x, layer->dilation_y, layer->dilation_x, layer->pad_top,
            layer->pad_bottom, layer->pad_left, layer->pad_right, layer->same,
            conv_filter_border_name(layer->border));
    fprintf(out, ":%.9g, output %d, activation %d, precision %d\n", (double)layer->border_value,
            layer->output, layer->activation, layer->precision);
    print_tensor(out, "weights", &setup->weights);
    print_tensor(out, "bias", &setup->bias);
    print_bank(out, &setup->bank, &setup->pool);
}

// --- options -------------------------------------------------------------------------------------

// The values of options whose rows are PARSED.
static void print_parsed(FILE *out, const struct conv_settings *settings)
{
    const struct conv_options *options = settings->options;
    const struct conv_output_options *outputs = &options->outputs;
    const struct conv_shard *shard = &options->inputs.shard;
    struct conv_filter_choice choice = options->filter;
    const struct conv_blend *blend = &choice.blend;
    if (settings->layer) {
        print_layer(out, settings->layer);
    } else {
        print_filters(out, settings);
        conv_options_choose_alpha(&choice, options, settings->filters, settings->filter_count);
        if (choice.border != CONV_BORDER_REPLICATE)
            fprintf(out, "border=%s:%d\n", conv_filter_border_name(choice.border),
                    choice.border_value);
        if (choice.alpha != CONV_ALPHA_KEEP)
            fprintf(out, "alpha=%d:%x\n", choice.alpha, choice.alpha_kept);
        if (outputs->type != CONV_OUTPUT_SAME)
            fprintf(out, "output-type=%d\n", outputs->type);
    }
    if (blend->original)
        fprintf(out, "mix=%d\n", CONV_IMAGE_WHOLE - blend->original);
    if (blend->width)
        fprintf(out, "roi=%dx%d+%d+%d\n", blend->width, blend->height, blend->x, blend->y);
    if (outputs->to)
        fprintf(out, "to=%s\n", outputs->to->name);
    if (outputs->codec.encoder)
        fprintf(out, "encoder=%s\n", outputs->codec.encoder->name);
    if (outputs->codec.quality)
        fprintf(out, "quality=%d\n", outputs->codec.quality);
    if (shard->count && settings->members)
        fprintf(out, "shard=%d/%d\n", shard->index, shard->count);
}

static void print_string(FILE *out, const char *name, const char *text)
{
    fprintf(out, "%s=", name);
    for (const unsigned char *s = (const unsigned char *)text; *s; s++)
        fprintf(out, *s < 0x20 || *s == 0x7F || *s == '\\' ? "\\x%02x" : "%c", *s);
    fputc('\n', out);
}

// Prints the option's field if it differs from the default.
static void print_field(FILE *out, const struct conv_option *row, const void *field,
                        const void *usual)
{
    static const size_t sizes[] = {
        [KIND_FLAG] = sizeof(bool),
        [KIND_INT] = sizeof(int),
        [KIND_SIZE] = sizeof(uint64_t),
        [KIND_COUNT] = sizeof(uint64_t),
        [KIND_CHOICE] = sizeof(int),
        [KIND_STRING] = sizeof(char *),
        [KIND_LIST] = 0,
    };
    const struct conv_string_list *list = field;
    if (row->kind == KIND_LIST)
        for (int i = 0; i < list->count; i++)
            print_string(out, row->name, list->items[i]);
    else if (memcmp(field, usual, sizes[row->kind]) == 0)
        return;
    else if (row->kind == KIND_STRING)
        print_string(out, row->name, *(const char *const *)field);
    else if (row->kind == KIND_FLAG)
        fprintf(out, "%s\n", row->name);
    else if (row->kind == KIND_CHOICE)
        fprintf(out, "%s=%s\n", row->name, row->choices[*(const int *)field]);
    else if (row->kind == KIND_INT)
        fprintf(out, "%s=%d\n", row->name, *(const int *)field);
    else
        fprintf(out, "%s=%" PRIu64 "\n", row->name, *(const uint64_t *)field);
}

enum conv_status conv_settings_text(char **text, const struct conv_settings *settings,
                                    struct conv_err *err)
{
    size_t size;
    struct conv_options usual;
    FILE *out = open_memstream(text, &size);
    if (!out)
        return conv_err_memory(err, "no memory for the settings");
    conv_options_set_defaults(&usual);
    print_parsed(out, settings);
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
        if (row->effect == CONV_OPTION_DECIDES ||
            (row->effect == CONV_OPTION_MEMBERS && settings->members))
            print_field(out, row, (const char *)settings->options + row->offset,
                        (const char *)&usual + row->offset);
    }
    for (int i = 0; i < settings->input_count && settings->members; i++)
        print_string(out, "input", settings->inputs[i]);
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed && *text) // closing needs memory, too
        return CONV_OK;
    free(*text);
    return conv_err_memory(err, "no memory for the settings");
}

// --- the journal ---------------------------------------------------------------------------------

enum conv_status conv_settings_open_journal(struct conv_journal **journal,
                                            const struct conv_settings *settings, atomic_int *stop,
                                            struct conv_err *err)
{
    const struct conv_options *options = settings->options;
    struct conv_journal_config config = {
        .path = settings->journal,
        .in_place = options->outputs.in_place,
        .preserve = options->outputs.preserve,
        .read_only = options->outputs.dry_run || options->outputs.no_save,
        .fsync = options->outputs.fsync,
        .stop = stop,
    };
    char *text;
    enum conv_status status = conv_settings_text(&text, settings, err);
    if (status)
        return status;
    conv_hash_add(&config.settings, text, strlen(text));
    free(text);
    status = conv_journal_open(journal, &config, err);
    if (status)
        return status;
    size_t damaged = conv_journal_damaged(*journal);
    if (damaged && !options->report.quiet)
        fprintf(stderr,
                "conv: the journal has %zu damaged line%s; those images are processed again\n",
                damaged, damaged == 1 ? "" : "s");
    return CONV_OK;
}
