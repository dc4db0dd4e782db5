// SPDX-License-Identifier: MIT
#include "engine/chain.h"

#include <stdio.h>

#include "base/err.h"

#define MOST_NAMES 64

// Reports why there is no kernel `name` (NULL: any) at `place`.
static enum conv_status no_variant(const char *name, enum conv_place place, struct conv_err *err)
{
    const char *device = conv_place_word(place);
    if (!name)
        return conv_err_usage(err, "no %s kernel can run this filter", device);
    const char *names[MOST_NAMES];
    char what[32];
    size_t count = 0;
    int variant_count;
    const struct conv_variant *const *variants = conv_stencil_variants(&variant_count);
    for (int i = 0; i < variant_count && count < MOST_NAMES; i++)
        if (variants[i]->place == place)
            names[count++] = variants[i]->name;
    snprintf(what, sizeof what, "%s kernel", device);
    return conv_suggest_choice(what, name, names, sizeof names[0], count, err) < 0
               ? CONV_ERR_USAGE
               : conv_err_usage(err, "kernel '%s' cannot run this filter on this %s", name, device);
}

// The plans of an op whose stencils are set.
static enum conv_status choose_kernels(struct conv_chain_op *op,
                                       const struct conv_backend_config *config,
                                       enum conv_place place, unsigned have, struct conv_err *err)
{
    const struct conv_variant *variant[CONV_CHAIN_DEPTHS];
    int depths = conv_chain_depths(config);
    bool any = false;
    for (int d = 0; d < depths; d++) {
        if (!config->kernel)
            variant[d] = conv_stencil_pick(&op->stencil[d], config->launch_bytes, place, have,
                                           config->variant);
        else
            variant[d] =
                conv_stencil_can(config->kernel, &op->stencil[d], have) ? config->kernel : NULL;
        any = any || variant[d];
    }
    if (!any)
        return config->kernel
                   ? conv_err_usage(err, "not for this filter or this %s", conv_place_word(place))
                   : no_variant(config->variant, place, err);
    for (int d = 0; d < depths; d++) {
        if (!variant[d])
            variant[d] =
                conv_stencil_pick(&op->stencil[d], config->launch_bytes, place, have, NULL);
        if (!variant[d])
            return no_variant(NULL, place, err);
        conv_stencil_plan_init(&op->plan[d], variant[d], &op->stencil[d]);
    }
    return CONV_OK;
}

enum conv_status conv_chain_prepare(struct conv_chain_op *ops,
                                    const struct conv_backend_config *config, enum conv_place place,
                                    unsigned have, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < config->filter_count && !status; i++) {
        for (int d = 0; d < conv_chain_depths(config); d++) {
            struct conv_stencil *stencil = &ops[i].stencil[d];
            // Images of 8 and 16 bits are refused where their border has no such value.
            bool fits = d == 2 || !conv_filter_check_border(config->border_value, NULL);
            conv_stencil_init(stencil, &config->filters[i], 8 << d, config->border,
                              fits ? config->border_value : 0);
            stencil->floats = stencil->floats || (config->floats && i == config->filter_count - 1);
        }
        status = choose_kernels(&ops[i], config, place, have, err);
    }
    return status;
}
