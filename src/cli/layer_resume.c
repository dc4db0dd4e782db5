// SPDX-License-Identifier: MIT
#include "cli/layer_resume.h"

static void hash_floats(struct conv_digest *digest, const struct conv_tensor *tensor)
{
    uint64_t bytes = 0;
    (void)conv_tensor_shape_bytes(&tensor->shape, sizeof(float), &bytes); // it is in memory
    for (int i = 0; i < tensor->shape.axes; i++)
        conv_run_journal_hash(digest, tensor->shape.side[i]);
    if (tensor->values)
        conv_hash_add(digest, tensor->values, (size_t)bytes);
}

static void hash_bank(struct conv_digest *digest, const struct conv_bank *bank)
{
    for (int i = 0; i < bank->filter_count; i++) {
        const struct conv_bank_filter *filter = &bank->filters[i];
        size_t taps = (size_t)filter->width * (size_t)filter->height;
        conv_run_journal_hash(digest, filter->width);
        conv_hash_add(digest, filter->coef, taps * sizeof filter->coef[0]);
    }
    for (int m = 0; m < bank->map_count; m++) {
        const struct conv_bank_map *map = &bank->maps[m];
        conv_run_journal_hash(digest, map->combine);
        conv_run_journal_hash(digest, map->first);
        conv_run_journal_hash(digest, map->count);
    }
}

// Devices, variants and threads do not change results of the same precision.
static struct conv_digest digest_settings(const struct conv_options *options,
                                          const struct conv_layer_setup *setup)
{
    struct conv_digest digest = {0};
    const struct conv_layer *layer = &setup->layer;
    hash_floats(&digest, &setup->weights);
    hash_floats(&digest, &setup->bias);
    hash_bank(&digest, &setup->bank);
    conv_hash_add(&digest, &layer->border_value, sizeof layer->border_value);
    const int settings[] = {
        layer->stride,
        layer->pad_top,
        layer->pad_bottom,
        layer->pad_left,
        layer->pad_right,
        (int)layer->border,
        (int)layer->output,
        (int)layer->activation,
        (int)layer->precision,
        setup->pool.count,
        setup->pool.grid,
        options->gray,
        conv_options_given(options, "range"),
        (int)options->layer.range,
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        conv_run_journal_hash(&digest, settings[i]);
    for (int i = 0; i < setup->pool.count; i++)
        conv_run_journal_hash(&digest, setup->pool.kinds[i]);
    return digest;
}

enum conv_status conv_layer_resume_open(struct conv_journal **journal,
                                        const struct conv_options *options,
                                        const struct conv_layer_setup *setup, atomic_int *stop,
                                        struct conv_err *err)
{
    struct conv_digest settings = digest_settings(options, setup);
    return conv_run_journal_open(journal, options, &settings, stop, err);
}
