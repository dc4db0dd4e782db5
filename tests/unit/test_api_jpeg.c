// SPDX-License-Identifier: MIT
// JPEG files through the C interface: pixels of libjpeg-turbo in every layout, turned and gray; the
// same file from every layout; lists of several formats of which some are damaged.
#include "support/api_image.h"
#include "support/api_test.h"
#include "support/jpeg_make.h"
#include "support/random.h"

#define FILL 0x5a

static uint64_t noise = 9;

static const struct jpeg_spec kinds[] = {
    {.width = 37, .height = 21, .channels = 1},
    {.width = 64, .height = 33, .channels = 3},
    {.width = 47, .height = 30, .channels = 3, .sampling_h = 2, .sampling_v = 2, .restart = 1},
    {.width = 16, .height = 50, .channels = 3, .sampling_h = 2, .sampling_v = 1},
    {.width = 31,
     .height = 17,
     .channels = 3,
     .sampling_h = 2,
     .sampling_v = 2,
     .progressive = true},
    {.width = 9, .height = 8, .channels = 3, .colors = JPEG_RGB},
    {.width = 1, .height = 1, .channels = 3, .sampling_h = 2, .sampling_v = 2},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

// TIFF 6.0: where the first row and the first column of the stored image are in the shown one.
static const struct turn {
    bool transposed, right, bottom;
} turns[9] = {[2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true},
              [5] = {true, false, false}, [6] = {true, true, false}, [7] = {true, true, true},
              [8] = {true, false, true}};

// Compares with libjpeg's interleaved samples of the stored image.
static void compare(const conv_image *view, const uint8_t *plain, int stored, int orientation)
{
    struct turn turn = turns[orientation];
    int width = turn.transposed ? view->height : view->width;
    for (int y = 0; y < view->height; y++)
        for (int x = 0; x < view->width; x++)
            for (int c = 0; c < view->channels; c++) {
                int u = turn.right ? view->width - 1 - x : x;
                int v = turn.bottom ? view->height - 1 - y : y;
                int at = turn.transposed ? u * width + v : v * width + u;
                bool alpha = view->channels % 2 == 0 && c == view->channels - 1;
                uint32_t expected = alpha ? 255 : plain[at * stored + (stored == 1 ? 0 : c)];
                if (view->sample == CONV_SAMPLE_U16)
                    expected *= 257;
                if (api_image_get(view, c, x, y) != expected)
                    fail_msg("orientation %d, channel %d, x %d, y %d: %u, not %u", orientation, c,
                             x, y, api_image_get(view, c, x, y), expected);
            }
}

static void decode_one(conv_context *context, const struct png_file *file, int channels,
                       const conv_decode_options *options, enum api_layout layout, int orientation)
{
    conv_bytes bytes = {file->data, file->size};
    conv_image_info info;
    conv_item item = {0};
    struct api_image image;
    conv_image own = {0};
    bool refused =
        channels == 3 && (options->channels == 1 || options->channels == 2) && !options->gray;
    enum conv_status wanted = refused ? CONV_ERR_UNSUPPORTED : CONV_OK;
    assert_int_equal(conv_probe_image(file->data, file->size, options, &info, NULL), wanted);
    assert_int_equal(conv_decode_jpeg(context, &bytes, 1, options, &own, &item, NULL), wanted);
    if (refused) {
        assert_null(own.data);
        return;
    }
    int stored = info.channels < 3 ? 1 : channels;
    int w = turns[orientation].transposed ? info.height : info.width;
    uint8_t *plain = jpeg_decode_plain(file, w, info.width + info.height - w, stored);
    assert_non_null(plain);
    assert_int_equal(info.format, CONV_FILE_JPEG);
    assert_int_equal(own.channels, info.channels);
    assert_int_equal(own.sample, info.sample);
    assert_int_equal(own.has_alpha, info.has_alpha);
    compare(&own, plain, stored, orientation);
    conv_free(context, CONV_HOST, own.data);
    api_image_make(&image, layout, info.width, info.height, info.channels, info.sample, FILL);
    if (conv_decode_image(context, &bytes, 1, options, &image.view, &item, NULL))
        fail_msg("%s", item.message);
    compare(&image.view, plain, stored, orientation);
    assert_true(api_image_gaps_are(&image, FILL));
    api_image_free(&image);
    free(plain);
}

API_TEST(jpegs_are_decoded_into_every_layout, 1)
{
    struct png_file file = {0};
    for (int k = 0; k < KINDS; k++) {
        jpeg_make(&file, &kinds[k], (uint64_t)k);
        for (int layout = 0; layout < API_LAYOUTS; layout++)
            for (int channels = 0; channels <= 4; channels++) {
                conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
                options.channels = channels;
                options.planar = layout & 1;
                options.gray = (layout + k) % 2;
                options.sample = (conv_sample)random_below(&noise, 3);
                decode_one(context, &file, kinds[k].channels, &options, (enum api_layout)layout, 1);
            }
    }
    png_make_free(&file);
}

API_TEST(images_are_turned_as_their_exif_says, 1)
{
    struct png_file file = {0};
    conv_image_info info;
    for (int k = 0; k < KINDS; k++)
        for (int orientation = 1; orientation <= 8; orientation++) {
            jpeg_make(&file, &kinds[k], (uint64_t)k);
            jpeg_orient(&file, orientation);
            conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
            decode_one(context, &file, kinds[k].channels, &options, API_PADDED, 1);
            options.orient = 1;
            for (int layout = 0; layout < API_LAYOUTS; layout++) {
                options.planar = layout & 1;
                options.gray = options.channels = layout % 2;
                decode_one(context, &file, kinds[k].channels, &options, (enum api_layout)layout,
                           orientation);
            }
            assert_ok(conv_probe_image(file.data, file.size, NULL, &info, NULL));
            assert_int_equal(info.orientation, orientation);
            assert_int_equal(info.width, kinds[k].width);
            assert_int_equal(info.interlaced, kinds[k].progressive);
        }
    png_make_free(&file);
}

// A PNG of 3 x 2 pixels with an eXIf chunk before its image data.
static void make_turned_png(struct png_file *file, int orientation)
{
    const uint16_t samples[18] = {10, 20, 30, 1, 2, 3, 200, 100, 50, 0, 255, 7, 9, 9, 9, 90, 5, 2};
    const struct png_spec spec = {
        .width = 3, .height = 2, .color_type = 2, .depth = 8, .samples = samples};
    const uint8_t exif[] = {
        'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, (uint8_t)orientation,
        0,   0,   0,   0, 0, 0, 0};
    struct png_file chunk = {0};
    png_make_image(file, &spec);
    png_make_chunk(&chunk, "eXIf", exif, sizeof exif);
    png_make_insert(file, png_make_find(file, "IDAT", 0), &chunk);
    png_make_free(&chunk);
}

API_TEST(a_png_is_turned_and_made_gray, 1)
{
    struct png_file file = {0};
    make_turned_png(&file, 6);
    conv_bytes bytes = {file.data, file.size};
    conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
    conv_image image = {0};
    options.channels = options.gray = options.orient = 1;
    assert_ok(conv_decode_image(context, &bytes, 1, &options, &image, NULL, NULL));
    // (299 R + 587 G + 114 B) / 1000: 18.15 1.815 124.2 / 150.483 9 30.073
    const uint8_t shown[3][2] = {{150, 18}, {9, 2}, {30, 124}};
    assert_int_equal(image.width, 2);
    assert_int_equal(image.height, 3);
    assert_int_equal(image.channels, 1);
    assert_memory_equal(image.data, shown, sizeof shown);
    conv_free(context, CONV_HOST, image.data);
    png_make_free(&file);
}

static conv_bytes encode(conv_context *context, const conv_image *view,
                         const conv_jpeg_encode_options *options)
{
    conv_bytes file;
    conv_item item;
    if (conv_encode_jpeg(context, view, 1, options, &file, &item, NULL))
        fail_msg("%s", item.message);
    return file;
}

// What libjpeg makes of the file is near the image, and its sampling is `sampling`.
static void check_file(conv_bytes bytes, const conv_image *view, int sampling, bool progressive)
{
    struct png_file file = {(uint8_t *)(uintptr_t)bytes.data, bytes.size};
    conv_image_info info;
    int channels = view->channels < 3 ? 1 : 3, difference = 0;
    assert_ok(conv_probe_image(bytes.data, bytes.size, NULL, &info, NULL));
    assert_int_equal(info.channels, channels);
    assert_int_equal(info.interlaced, progressive);
    uint8_t *plain = jpeg_decode_plain(&file, view->width, view->height, channels);
    assert_non_null(plain);
    for (int y = 0; y < view->height; y++)
        for (int x = 0; x < view->width; x++)
            for (int c = 0; c < channels; c++)
                difference += abs((int)api_image_get(view, c, x, y) -
                                  plain[(y * view->width + x) * channels + c]);
    assert_true(difference < 4 * view->width * view->height * channels);
    free(plain);
    const uint8_t *frame = file.data;
    while (frame[0] != 0xFF || (frame[1] != 0xC0 && frame[1] != 0xC2))
        frame++;
    int factors = sampling == 420 ? 0x22 : sampling == 422 ? 0x21 : 0x11;
    assert_int_equal(frame[11], channels == 1 ? 0x11 : factors);
}

API_TEST(every_layout_gives_the_same_file, 2)
{
    static const int samplings[] = {0, 444, 422, 420};
    for (int i = 0; i < 48; i++) {
        int channels = 1 + i % 4, width = 1 + (int)random_below(&noise, 90), sampling = i / 4 % 4;
        conv_jpeg_encode_options options = CONV_JPEG_ENCODE_OPTIONS_INIT;
        options.quality = i % 3 ? 80 + i % 20 : 0;
        options.sampling = samplings[sampling];
        options.progressive = i % 5 == 1;
        options.optimize = i % 5 == 2;
        conv_bytes first = {0};
        for (int layout = 0; layout < API_LAYOUTS; layout++) {
            struct api_image image;
            api_image_make(&image, (enum api_layout)layout, width, 40, channels, CONV_SAMPLE_U8,
                           FILL);
            for (int c = 0; c < channels; c++)
                for (int y = 0; y < 40; y++)
                    for (int x = 0; x < width; x++)
                        api_image_set(&image.view, c, x, y,
                                      channels % 2 == 0 && c == channels - 1
                                          ? 255
                                          : (uint32_t)(x + 3 * y + 20 * c));
            conv_bytes file = encode(context, &image.view, &options);
            if (layout == 0) {
                first = file;
                int given = options.sampling                                ? options.sampling
                            : options.quality == 0 || options.quality >= 90 ? 444
                                                                            : 420;
                check_file(file, &image.view, given, options.progressive);
            } else {
                assert_int_equal(file.size, first.size);
                assert_memory_equal(file.data, first.data, file.size);
                conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
            }
            api_image_free(&image);
        }
        conv_free(context, CONV_HOST, (void *)(uintptr_t)first.data);
    }
}

API_TEST(what_jpeg_cannot_hold_is_refused, 1)
{
    uint8_t samples[64] = {0};
    conv_image image = conv_image_interleaved(samples, 4, 4, 4, CONV_SAMPLE_U8, CONV_HOST);
    conv_jpeg_encode_options options = CONV_JPEG_ENCODE_OPTIONS_INIT;
    conv_bytes file;
    conv_item item;
    REFUSE(CONV_ERR_UNSUPPORTED, conv_encode_jpeg(context, &image, 1, NULL, &file, &item, NULL));
    assert_string_equal(item.message, "JPEG cannot hold its transparent pixels");
    assert_null(file.data);
    image = conv_image_planar(samples, 4, 2, 1, CONV_SAMPLE_U16, CONV_HOST);
    REFUSE(CONV_ERR_UNSUPPORTED, conv_encode_jpeg(context, &image, 1, NULL, &file, &item, NULL));
    image = conv_image_planar(samples, 4, 2, 3, CONV_SAMPLE_U8, CONV_HOST);
    options.quality = 101;
    REFUSE(CONV_ERR_USAGE, conv_encode_jpeg(context, &image, 1, &options, &file, &item, NULL));
    options.quality = 100;
    options.sampling = 411;
    REFUSE(CONV_ERR_USAGE, conv_encode_jpeg(context, &image, 1, &options, &file, &item, NULL));
    options.sampling = 0;
    options.reserved[3] = 1;
    REFUSE(CONV_ERR_UNSUPPORTED,
           conv_encode_jpeg(context, &image, 1, &options, &file, &item, NULL));
}

// Files of both formats, and what is neither, in one list; each gets its own status.
API_TEST(lists_hold_files_of_several_formats, 4)
{
    enum { COUNT = 60 };
    struct png_file files[COUNT] = {{0}};
    conv_bytes bytes[COUNT];
    conv_image images[COUNT] = {0};
    conv_item items[COUNT];
    for (int i = 0; i < COUNT; i++) {
        jpeg_make(&files[i], &kinds[i % KINDS], (uint64_t)i);
        if (i % 4 == 1) {
            png_make_free(&files[i]);
            make_turned_png(&files[i], 1);
        }
        bytes[i] = (conv_bytes){files[i].data, i % 5 == 2 ? files[i].size / 2 : files[i].size};
    }
    bytes[16] = (conv_bytes){"GIF89a and more", 15};
    assert_int_equal(conv_decode_image(context, bytes, COUNT, NULL, images, items, NULL),
                     CONV_ERR_FORMAT);
    assert_memory_equal(conv_context_message(context), "item 2: ", 8);
    for (int i = 0; i < COUNT; i++) {
        bool bad = i % 5 == 2 || i == 16;
        assert_int_equal(items[i].status, bad ? CONV_ERR_FORMAT : CONV_OK);
        assert_int_equal(images[i].data == NULL, bad);
        conv_free(context, CONV_HOST, images[i].data);
    }
    assert_memory_equal(items[16].message, "a GIF; conv reads PNG, JPEG", 27);
    REFUSE(CONV_ERR_FORMAT, conv_decode_png(context, bytes, 1, NULL, images, items, NULL));
    assert_string_equal(items[0].message, "a JPEG, not a PNG");
    REFUSE(CONV_ERR_FORMAT, conv_decode_jpeg(context, bytes + 1, 1, NULL, images, items, NULL));
    assert_string_equal(items[0].message, "a PNG, not a JPEG");
    for (int i = 0; i < COUNT; i++)
        png_make_free(&files[i]);
}

UNIT_MAIN(NULL, NULL)
