// SPDX-License-Identifier: MIT
// Damaged image data in sound chunks: the zlib stream, its sum, and the rows in it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "png_faults.h"

static void adler32_is_checked(void **state)
{
    (void)state;
    struct png_file stream = png_make_zlib(gray_rows, sizeof gray_rows);
    make_gray_file(stream.data, stream.size);
    accept_gray();
    for (size_t i = 1; i <= 4; i++) {
        stream.data[stream.size - i] ^= 1;
        make_gray_file(stream.data, stream.size);
        refuse("damaged image: IDAT: incorrect data check");
        stream.data[stream.size - i] ^= 1;
        make_gray_file(stream.data, stream.size - i); // cut off
        refuse("damaged image: Not enough image data");
    }
    png_make_free(&stream);
}

static void adler32_in_an_idat_of_its_own(void **state)
{
    (void)state;
    struct png_file stream = png_make_zlib(gray_rows, sizeof gray_rows);
    for (int wrong = 0; wrong < 2; wrong++) {
        stream.data[stream.size - 1] ^= (uint8_t)wrong;
        png_make_free(&file);
        png_make_head(&file, 4, 3, 8, 0);
        png_make_chunk(&file, "IDAT", stream.data, stream.size - 4);
        png_make_chunk(&file, "IDAT", "", 0);
        png_make_chunk(&file, "IDAT", stream.data + stream.size - 4, 4);
        png_make_chunk(&file, "IEND", "", 0);
        if (wrong)
            refuse("incorrect data check");
        else
            accept_gray();
    }
    png_make_free(&stream);
}

static void rows_missing_or_too_many(void **state)
{
    (void)state;
    uint8_t more[4000] = {0};
    memcpy(more, gray_rows, sizeof gray_rows);
    static const size_t sizes[] = {0, 1, 5, 14, 16, 20, 1000, 4000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct png_file stream = png_make_zlib(more, sizes[i]);
        make_gray_file(stream.data, stream.size);
        if (sizes[i] < sizeof gray_rows)
            refuse("damaged image: ");
        else
            accept_gray();
        png_make_free(&stream);
    }
}

static void bytes_after_the_zlib_stream(void **state)
{
    (void)state;
    struct png_file stream = png_make_zlib(gray_rows, sizeof gray_rows);
    png_make_bytes(&stream, "left over", 9);
    make_gray_file(stream.data, stream.size);
    accept_gray();
    png_make_free(&stream);
}

static void unknown_row_filter(void **state)
{
    (void)state;
    uint8_t rows[sizeof gray_rows];
    memcpy(rows, gray_rows, sizeof rows);
    rows[5] = 5;
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    make_gray_file(stream.data, stream.size);
    refuse("damaged image: ");
    png_make_free(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(adler32_is_checked),       TEST(adler32_in_an_idat_of_its_own),
        TEST(rows_missing_or_too_many), TEST(bytes_after_the_zlib_stream),
        TEST(unknown_row_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
