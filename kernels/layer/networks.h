// SPDX-License-Identifier: MIT
// Layers as networks have them: the list networks.txt, which is part of the program. For the
// benchmark and for the sweep that counts what the choice takes.
#ifndef CONV_KERNELS_LAYER_NETWORKS_H
#define CONV_KERNELS_LAYER_NETWORKS_H

#include "kernels/layer/layer.h"

struct conv_layer_network {
    char names[64];          // of networks, with + between them
    struct conv_layer layer; // without weights
    int height, width;       // of the input
};

// The layer of the list that begins at `at`; NULL: at its first one. Returns where the next one
// begins, NULL at the end of the list.
const char *conv_layer_networks_next(const char *at, struct conv_layer_network *found);

// Whether the layer is one of a network: one of its names, or "all".
bool conv_layer_networks_has(const struct conv_layer_network *layer, const char *network);

#endif
