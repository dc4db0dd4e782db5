// SPDX-License-Identifier: MIT
// Reads the list of layers of networks.
#include "kernels/layer/layer.h"

#include <stdio.h>
#include <string.h>

#define NETWORKS(name, text) static const char name##_text[] = text;
#include "layer_networks.h"

// One line of the list.
static bool parse_line(struct conv_layer_network *found, const char *line)
{
    int channels, maps, rows, columns, stride, pad, groups = 1, dilation = 1;
    *found = (struct conv_layer_network){.names = ""};
    if (sscanf(line, "%63s %d %d %d %d %d %d %d %d %d %d", found->names, &channels, &found->height,
               &found->width, &maps, &rows, &columns, &stride, &pad, &groups, &dilation) < 9)
        return false;
    int pad_y = rows > 1 ? pad : 0, pad_x = columns > 1 ? pad : 0;
    found->layer = (struct conv_layer){
        .channels = channels,
        .maps = maps,
        .kernel_height = rows,
        .kernel_width = columns,
        .groups = groups,
        .stride_y = stride,
        .stride_x = stride,
        .dilation_y = dilation,
        .dilation_x = dilation,
        .pad_top = pad_y,
        .pad_bottom = pad_y,
        .pad_left = pad_x,
        .pad_right = pad_x,
        .border = CONV_BORDER_CONSTANT,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output = CONV_ELEMENT_F32,
    };
    return true;
}

const char *conv_layer_networks_next(const char *at, struct conv_layer_network *found)
{
    for (at = at ? at : networks_text; *at; at = strchr(at, '\n') + 1) // the last line has it, too
        if (*at != '#' && parse_line(found, at))
            return strchr(at, '\n') + 1;
    return NULL;
}

bool conv_layer_networks_has(const struct conv_layer_network *layer, const char *network)
{
    size_t length = strlen(network);
    for (const char *name = layer->names; *name; name += strspn(name, "+")) {
        size_t own = strcspn(name, "+");
        if (own == length && memcmp(name, network, own) == 0)
            return true;
        name += own;
    }
    return strcmp(network, "all") == 0;
}
