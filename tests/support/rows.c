// SPDX-License-Identifier: MIT
#include "support/rows.h"

#include "png/cpu/unfilter.h"
#include "support/random.h"

void rows_fill(uint64_t *seed, uint8_t *data, size_t size, size_t pitch, int kind)
{
    for (size_t i = 0; i < size; i++) {
        unsigned bits = random_below(seed, 1u << 16);
        if (kind == ROWS_NOISE)
            data[i] = (uint8_t)bits;
        else if (kind == ROWS_DELTAS)
            data[i] = (uint8_t)((bits & 3) + (bits >> 2 & 3) + (bits >> 4 & 7) - 6);
        else if (kind == ROWS_RUNS)
            data[i] = i > 20 && bits % 16 ? data[i - 1 - bits % 3 * 4] : (uint8_t)(bits >> 8);
        else
            data[i] = i >= 30000 && bits % 4000 ? data[i - 30000] : (uint8_t)(bits >> 8);
    }
    for (size_t at = 0; at < size; at += pitch)
        data[at] = (uint8_t)random_below(seed, CONV_UNFILTER_COUNT);
}
