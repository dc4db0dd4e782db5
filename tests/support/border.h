// SPDX-License-Identifier: MIT
// A second definition of borders, for checks: it shares no code with kernels/.
#pragma once

#include "filter/filter.h"

// Steps back into 0..n-1 from any distance; -1 for the constant border.
static inline int step_inside(enum conv_border border, int x, int n)
{
    while (x < 0 || x >= n) {
        bool before = x < 0;
        switch (border) {
        case CONV_BORDER_REPLICATE:
            x = before ? 0 : n - 1;
            break;
        case CONV_BORDER_REFLECT:
            x = before ? -1 - x : 2 * n - 1 - x;
            break;
        case CONV_BORDER_REFLECT101:
            x = n == 1 ? 0 : before ? -x : 2 * n - 2 - x;
            break;
        case CONV_BORDER_WRAP:
            x = before ? x + n : x - n;
            break;
        case CONV_BORDER_CONSTANT:
            return -1;
        }
    }
    return x;
}
