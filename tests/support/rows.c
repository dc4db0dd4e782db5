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
        else if (kind == ROWS_RARE)
            data[i] = (uint8_t)(__builtin_ctz(bits | 1u << 15) * 16 + (bits >> 12 & 1));
        else if (kind == ROWS_PIECES)
            data[i] = (uint8_t)(bits & 15);
        else
            data[i] = i >= 30000 && bits % 4000 ? data[i - 30000] : (uint8_t)(bits >> 8);
        if (kind == ROWS_PIECES && i > 300 && bits % 8 == 0)
            for (size_t from = random_below(seed, (unsigned)(i - 300)),
                        end = i + 3 + random_below(seed, 290);
                 i + 1 < size && i < end; i++)
                data[i + 1] = data[from++];
    }
    for (size_t at = 0; at < size; at += pitch)
        data[at] = (uint8_t)random_below(seed, CONV_UNFILTER_COUNT);
}
