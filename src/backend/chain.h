// SPDX-License-Identifier: MIT
// A chain of filters made ready for the kernels of one place, the same for all backends.
#ifndef CONV_BACKEND_CHAIN_H
#define CONV_BACKEND_CHAIN_H

#include "backend/backend.h"

// One filter of the chain; [0] for samples of 8 bits, [1] for 16.
struct conv_chain_op {
    struct conv_stencil stencil[2];
    struct conv_stencil_plan plan[2]; // refers to `stencil`: the op must not move
};

// Analyses every filter of config and chooses its kernels: the forced one at the depths that it can
// do, else the best. `ops` has room for config->filter_count. `have`: what the device offers, see
// conv_place_offers. CONV_ERR_USAGE if the forced kernel is unknown (the text suggests the nearest
// name) or can do a filter at no depth on this device.
enum conv_status conv_chain_prepare(struct conv_chain_op *ops,
                                    const struct conv_backend_config *config, enum conv_place place,
                                    unsigned have, struct conv_err *err);

#endif
