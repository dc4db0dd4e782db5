// SPDX-License-Identifier: MIT
#include "cli/bench_shapes.h"

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
