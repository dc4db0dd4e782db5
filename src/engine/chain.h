// SPDX-License-Identifier: MIT
// A chain of filters made ready for the kernels of one place, the same for all backends.
#pragma once

#include "engine/engine.h"

#define CONV_CHAIN_DEPTHS 3

// The index of the stencil and the plan for samples of `depth` bits: 0 for 8, 1 for 16, 2 for 32
// (float32).
static inline int conv_chain_at(int depth)
{
    return depth / 16;
}

// One filter of the chain. [2] is set only with config->float_samples.
struct conv_chain_op {
    struct conv_stencil stencil[CONV_CHAIN_DEPTHS];
    struct conv_stencil_plan plan[CONV_CHAIN_DEPTHS]; // refers to `stencil`: the op must not move
};

// The depths that ops of this configuration are made ready for.
static inline int conv_chain_depths(const struct conv_backend_config *config)
{
    return config->float_samples ? CONV_CHAIN_DEPTHS : CONV_CHAIN_DEPTHS - 1;
}

// Analyses every filter of config and chooses its kernels: the forced one at the depths that it can
// do, else the best. `ops` has room for config->filter_count. `have`: what the device offers, see
// conv_place_offers. CONV_ERR_USAGE if the forced kernel is unknown (the text suggests the nearest
// name) or can do a filter at no depth on this device.
enum conv_status conv_chain_prepare(struct conv_chain_op *ops,
                                    const struct conv_backend_config *config, enum conv_place place,
                                    unsigned have, struct conv_err *err);
