// SPDX-License-Identifier: MIT
// libFuzzer target: the decoders against libpng, on the bytes as they are and with corrected
// checksums, since no fuzzer guesses a CRC. Verdict and pixels have to be libpng's
// (support/oracle.h). Inputs are changed chunk by chunk and code by code, three times in four.
#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/png_mutate.h"

#define MOST_PIXELS 4096
#define ROOM ((size_t)1 << 16) // their bytes, and something to be too much

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (seed % 4 == 0)
        return LLVMFuzzerMutate(data, size, room);
    return png_mutate(data, size, room, seed, LLVMFuzzerMutate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t inflated[ROOM];
    oracle_file(data, size, MOST_PIXELS);
    // To the byte, so that a read beyond the end is seen.
    uint8_t *repaired = malloc(size + (size == 0));
    if (!repaired)
        abort();
    if (size > 0)
        memcpy(repaired, data, size);
    oracle_repair(repaired, size, inflated, ROOM);
    if (size > 0 && memcmp(repaired, data, size) != 0)
        oracle_file(repaired, size, MOST_PIXELS);
    free(repaired);
    return 0;
}
