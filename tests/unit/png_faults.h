// SPDX-License-Identifier: MIT
// One damaged file at a time, for test_png_faults*.c: how it is made, refused or accepted.
#ifndef CONV_TESTS_PNG_FAULTS_H
#define CONV_TESTS_PNG_FAULTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/png_make.h"
#include "support/test_image.h"

static struct png_file file;

static int forget_file(void **state)
{
    (void)state;
    png_make_free(&file);
    return 0;
}

// 4 x 3 gray pixels from any bytes as the zlib stream.
static void make_gray_file(const void *stream, size_t size)
{
    png_make_free(&file);
    png_make_head(&file, 4, 3, 8, 0);
    png_make_chunk(&file, "IDAT", stream, size);
    png_make_chunk(&file, "IEND", "", 0);
}

static const uint8_t gray_rows[3 * 5] = {0, 1, 2, 3, 4, 0, 5, 6, 7, 8, 0, 9, 10, 11, 12};

// Decodes the first `size` bytes of `file` from memory that ends there.
static enum conv_status decode(size_t size, struct conv_image *image, struct conv_err *err)
{
    struct png_file part = {0};
    *err = (struct conv_err){0};
    png_make_bytes(&part, file.data, size);
    enum conv_status status = image_decode(image, part.data, part.size, err);
    png_make_free(&part);
    return status;
}

static void refuse_part(size_t size, const char *reason)
{
    struct conv_image image;
    struct conv_err err;
    enum conv_status status = decode(size, &image, &err);
    if (status != CONV_ERR_FORMAT || err.status != CONV_ERR_FORMAT || !strstr(err.text, reason))
        fail_msg("status %d, '%s' does not say '%s'", status, err.text, reason);
    image_free(&image);
}

static void refuse(const char *reason)
{
    refuse_part(file.size, reason);
}

static void accept_gray(void)
{
    struct conv_image image;
    struct conv_err err;
    if (decode(file.size, &image, &err) != CONV_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 12; i++)
        assert_int_equal(image_sample(&image, 0, i % 4, i / 4), i + 1);
    image_free(&image);
}

#define TEST(f) cmocka_unit_test_teardown(f, forget_file)

#endif
