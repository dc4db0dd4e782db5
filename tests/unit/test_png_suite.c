// SPDX-License-Identifier: MIT
// PngSuite: each valid file gives the pixels that libpng's plain interface reads, each broken one
// (their names start with x) is refused. The environment's CONV_PNGSUITE names its folder.
#include <dirent.h>
#include <png.h>
#include <stdio.h>

#include "support/png_make.h"
#include "support/test_image.h"
#include "support/unit.h"

#define EXIT_SKIPPED 77 // what ctest shows as a skip

static const char *suite_folder(void)
{
    const char *folder = getenv("CONV_PNGSUITE");
    return folder && folder[0] ? folder : NULL;
}

static void compare_with_libpng(const struct conv_image *image, const char *folder,
                                const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png)))
        fail_msg("%s: libpng refuses it", name);
    png_init_io(png, stream);
    png_read_png(png, info, PNG_TRANSFORM_EXPAND, NULL);
    png_bytepp rows = png_get_rows(png, info);
    assert_int_equal(png_get_image_width(png, info), image->width);
    assert_int_equal(png_get_image_height(png, info), image->height);
    assert_int_equal(png_get_channels(png, info), image->channels);
    assert_int_equal(png_get_bit_depth(png, info), image->depth);
    for (int y = 0; y < image->height; y++) {
        const uint8_t *p = rows[y];
        for (int i = 0; i < image->width * image->channels; i++) {
            unsigned want = *p++;
            if (image->depth == 16)
                want = want << 8 | *p++;
            int x = i / image->channels, c = i % image->channels;
            if (image_sample(image, c, x, y) != want)
                fail_msg("%s: channel %d at %d,%d differs", name, c, x, y);
        }
    }
    png_destroy_read_struct(&png, &info, NULL);
    fclose(stream);
}

static void check_suite_file(const char *folder, const char *name)
{
    struct conv_image image;
    struct conv_err err = {0};
    char path[4096];
    struct png_file file = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(png_make_read(&file, path));
    enum conv_status status = image_decode(&image, file.data, file.size, &err);
    if (name[0] == 'x') {
        if (status != CONV_ERR_FORMAT || !err.text[0])
            fail_msg("%s: status %d, text '%s'", name, status, err.text);
    } else {
        if (status != CONV_OK)
            fail_msg("%s: %s", name, err.text);
        compare_with_libpng(&image, folder, name);
    }
    image_free(&image);
    png_make_free(&file);
}

UNIT_TEST(png_suite)
{
    const char *folder = suite_folder();
    if (!folder) {
        print_message("CONV_PNGSUITE does not name the folder of PngSuite\n");
        skip();
    }
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    int valid = 0, broken = 0;
    for (const struct dirent *entry; (entry = readdir(entries));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".png") != 0)
            continue;
        check_suite_file(folder, entry->d_name);
        *(entry->d_name[0] == 'x' ? &broken : &valid) += 1;
    }
    closedir(entries);
    print_message("%d valid files, %d broken ones\n", valid, broken);
    assert_true(valid >= 100 && broken >= 10);
}

int main(void)
{
    int failed = UNIT_RUN(NULL, NULL);
    return failed == 0 && !suite_folder() ? EXIT_SKIPPED : failed;
}
