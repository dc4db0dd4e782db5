// SPDX-License-Identifier: MIT
// libFuzzer target: the decoders against libpng, on the bytes as they are and with corrected
// checksums, since no fuzzer guesses a CRC. Verdict and pixels have to be libpng's
// (support/oracle.h). Inputs are changed chunk by chunk and code by code, three times in four. One
// input in eight is also read as blocks of a deflate stream, by several threads and by one.
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "png/cpu/decode_internal.h"
#include "support/oracle.h"
#include "support/parallel.h"
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

// --- several threads -----------------------------------------------------------------------------

#define FRONT ((size_t)40000) // bytes before the input: parts need a whole window before them
#define MOST_INPUT 4096
#define MOST_OUTPUT ((size_t)400000)

struct taken {
    uint8_t *out;
    size_t size;
};

static bool take_one(void *context, unsigned y, uint8_t *raw, size_t count)
{
    (void)y;
    const struct taken *taken = context;
    memcpy(taken->out, raw, count * taken->size);
    return true;
}

// As one row.
static bool read_row(uint8_t *out, size_t out_size, const uint8_t *stream, size_t size, bool shared)
{
    static struct conv_inflate inflate;
    struct conv_parallel parallel = {.most = 3, .run = parallel_run};
    struct conv_buffer memory = {0};
    struct taken taken = {out, out_size};
    const struct conv_decode_stream what = {.inflate = &inflate,
                                            .memory = &memory,
                                            .data = stream,
                                            .size = size,
                                            .pitch = out_size,
                                            .rows = 1,
                                            .take = take_one,
                                            .row_threads = 1,
                                            .context = &taken,
                                            .part_bits = 8 * 100};
    bool good =
        shared ? conv_decode_shared_run(&what, &parallel) : conv_decode_stream_run(&what, NULL);
    conv_buffer_free(&memory);
    return good;
}

// The input as blocks after a stored one.
static void compare_threads(const uint8_t *data, size_t size)
{
    static const uint8_t head[] = {
        0x78, 1, 0, FRONT & 255, FRONT >> 8, ~FRONT & 255, ~FRONT >> 8 & 255};
    static uint8_t stream[sizeof head + FRONT + MOST_INPUT + 4], out[3][MOST_OUTPUT];
    size_t made, used = sizeof head + FRONT + size;
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater)
        abort();
    memcpy(stream, head, sizeof head);
    memcpy(stream + sizeof head + FRONT, data, size);
    bool whole = libdeflate_deflate_decompress(inflater, stream + 2, used - 2, out[2], MOST_OUTPUT,
                                               &made) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(inflater);
    made = whole ? made : MOST_OUTPUT / 2;
    uint32_t adler = whole ? libdeflate_adler32(1, out[2], made) : 0;
    for (int i = 0; i < 4; i++)
        stream[used++] = (uint8_t)(adler >> (24 - 8 * i));
    bool good = read_row(out[0], made, stream, used, false);
    if (read_row(out[1], made, stream, used, true) != good ||
        (good && memcmp(out[0], out[1], made) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size % 8 == 0 && size <= MOST_INPUT)
        compare_threads(data, size);
    static uint8_t inflated[ROOM];
    oracle_file(data, size, MOST_PIXELS);
    // Of the exact size, so that a read beyond the end is detected.
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
