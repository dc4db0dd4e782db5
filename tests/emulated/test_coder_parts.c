// SPDX-License-Identifier: MIT
// Which groups the CUDA backend has decoded in parts: those of few images, unless that would load
// kernels for less work than loading them takes. The decoder is replaced by a function that notes
// what it was asked for (-Wl,--wrap).
#include "engine/cuda_internal.h"
#include "png/cuda/cuda_png.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define MOST_IMAGES 8

static enum conv_decode_split asked;

enum conv_status __wrap_conv_cuda_decode(const struct conv_decode_batch *batch);

enum conv_status __wrap_conv_cuda_decode(const struct conv_decode_batch *batch)
{
    asked = batch->split;
    return CONV_OK;
}

// Has a group decoded whose longest stream has `longest` bytes; true if in parts.
static bool is_in_parts(struct conv_backend *backend, int images, size_t longest)
{
    struct conv_decode_image table[MOST_IMAGES] = {{.width = 0}};
    for (int i = 0; i < images; i++)
        table[i].stream_bytes = (uint32_t)(i == images / 2 ? longest : longest / 2);
    struct conv_stream stream = {.backend = backend};
    stream.coder.decode[CONV_DEVICE_PNG] =
        (struct conv_cuda_batch){.count = images, .h_entries = (void *)table};
    assert_ok(conv_cuda_coder_decode(&stream, NULL));
    return asked == CONV_DECODE_SPLIT_AUTO;
}

UNIT_TEST(test_the_first_group_decides_what_is_loaded)
{
    struct conv_backend *backend = calloc(1, sizeof *backend);
    assert_non_null(backend);
    assert_true(is_in_parts(backend, 4, 1));
    assert_false(is_in_parts(backend, 5, 100 * MIB));
    assert_true(is_in_parts(backend, 1, 1)); // its kernels are loaded
    free(backend);
}

// The last group of a run, which has few images, loads nothing.
UNIT_TEST(test_few_bytes_load_nothing)
{
    struct conv_backend *backend = calloc(1, sizeof *backend);
    assert_non_null(backend);
    assert_false(is_in_parts(backend, 8, 100 * MIB));
    assert_false(is_in_parts(backend, 4, 4 * MIB - 1));
    assert_true(is_in_parts(backend, 4, 1)); // 4 MiB by now
    assert_true(is_in_parts(backend, 1, 1));
    assert_false(is_in_parts(backend, 5, 100 * MIB));
    free(backend);
}

UNIT_TEST(test_a_long_stream_is_worth_it)
{
    for (int images = 1; images <= 4; images++) {
        struct conv_backend *backend = calloc(1, sizeof *backend);
        assert_non_null(backend);
        assert_false(is_in_parts(backend, 5, 1));
        assert_false(is_in_parts(backend, 5, 100 * MIB)); // does not count: it has many images
        assert_false(is_in_parts(backend, images, MIB));
        assert_true(is_in_parts(backend, images, 3 * MIB));
        free(backend);
    }
}

UNIT_MAIN(NULL, NULL)
