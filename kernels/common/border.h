// SPDX-License-Identifier: MIT
// Samples beyond the edge of an image: shared by all families of kernels.
#pragma once

#include "filter/filter.h"
#include "kernels/common/place.h"

// The source index, 0 to n-1, of the sample at coordinate x (any value) of a line of n samples, or
// -1 for the constant border.
CONV_HOST_DEVICE static inline int conv_border_index(enum conv_border border, int x, int n)
{
    if (x >= 0 && x < n)
        return x;
    switch (border) {
    case CONV_BORDER_REPLICATE:
        return x < 0 ? 0 : n - 1;
    case CONV_BORDER_WRAP:
        x %= n;
        return x < 0 ? x + n : x;
    case CONV_BORDER_REFLECT: // period 2n, the edge sample is repeated
        x %= 2 * n;
        if (x < 0)
            x += 2 * n;
        return x < n ? x : 2 * n - 1 - x;
    case CONV_BORDER_REFLECT101: // period 2n - 2, the edge sample is not repeated
        if (n == 1)
            return 0;
        x %= 2 * n - 2;
        if (x < 0)
            x += 2 * n - 2;
        return x < n ? x : 2 * n - 2 - x;
    case CONV_BORDER_CONSTANT:
        break;
    }
    return -1;
}

// The same for rows of pixels of `channels` interleaved samples, n samples in total: the sample of
// the same channel as x in the pixel that the border leads to.
CONV_HOST_DEVICE static inline int conv_border_sample(enum conv_border border, int x, int n,
                                                      int channels)
{
    if (channels == 1 || (x >= 0 && x < n))
        return conv_border_index(border, x, n);
    int pixel = x / channels - (x % channels < 0);
    int from = conv_border_index(border, pixel, n / channels);
    return from < 0 ? -1 : from * channels + x - pixel * channels;
}
