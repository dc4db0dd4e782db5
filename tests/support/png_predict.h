// SPDX-License-Identifier: MIT
// What PNG's filters predict for a byte (ISO/IEC 15948, 9.2 and 9.4), in the words of the standard.
#pragma once

#include <stdlib.h>

// a: to the left, b: above, c: above to the left. `filter`: 0 to 4.
static inline int png_predict(int filter, int a, int b, int c)
{
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    const int predicted[] = {0, a, b, (a + b) / 2, pa <= pb && pa <= pc ? a : pb <= pc ? b : c};
    return predicted[filter];
}
