// SPDX-License-Identifier: MIT
// libFuzzer target: the fast decoder against libpng, on the bytes as they are and with their sums
// made right, since no fuzzer guesses a CRC.
#include <stdlib.h>
#include <string.h>

#include "support/judge.h"

#define MOST_PIXELS 4096
#define ROOM ((size_t)1 << 16) // their bytes, and something to be too much

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t inflated[ROOM];
    judge_file(data, size, MOST_PIXELS);
    // To the byte, so that a read beyond the end is seen.
    uint8_t *repaired = malloc(size + (size == 0));
    if (!repaired)
        abort();
    if (size > 0)
        memcpy(repaired, data, size);
    judge_repair(repaired, size, inflated, ROOM);
    judge_file(repaired, size, MOST_PIXELS);
    free(repaired);
    return 0;
}
