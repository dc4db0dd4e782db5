// SPDX-License-Identifier: MIT
// The images on a page: a part of an input and the same part of its output, not scaled. Scaled
// down, a 3 x 3 filter would hardly be visible.
#include <stdlib.h>
#include <string.h>

#include "io/files/file_read.h"
#include "io/source.h"
#include "page/page.h"
#include "png/png.h"

// A sample is a pixel of the page on screens from 360 pixels on; on large ones, three crops side by
// side are as wide as the page.
#define PIECE_WIDTH 328
#define PIECE_HEIGHT 246
#define MOST_PIXELS (1 << 25) // larger images are not decoded again for this
#define MOST_BYTES ((size_t)1 << 28)
#define PLACES 5 // along each axis, of which the part with most detail is shown
#define LEVEL 6  // crops are small, so a high level costs no time

struct decoded {
    struct conv_image image;
    uint8_t *planes;
};

// Turns the image upright as its metadata say, since only one of two images may be stored so.
static bool turn(const struct conv_image_reader *reader, struct decoded *decoded)
{
    struct conv_image *image = &decoded->image, upright = *image;
    int orientation =
        conv_format_orientation(reader->format, reader->file.bytes, reader->file.size);
    if (orientation == 1)
        return true;
    if (orientation >= 5) {
        upright.width = image->height;
        upright.height = image->width;
    }
    uint8_t *planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, conv_image_bytes(&upright));
    if (planes) {
        conv_image_lay_out(&upright, &upright, planes);
        conv_image_turn(&upright, image, orientation);
        free(decoded->planes);
        *decoded = (struct decoded){upright, planes};
    }
    return planes != NULL;
}

// Regular files only: the content of a pipe cannot be read again, and opening one would block.
static bool decode(const char *path, struct decoded *decoded)
{
    struct conv_image_reader reader = {.file_limit = MOST_BYTES, .pixel_limit = MOST_PIXELS};
    struct conv_item *item = calloc(1, sizeof *item);
    struct stat info;
    struct conv_err err;
    bool good =
        item && strlen(path) < sizeof item->name && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (good) {
        item->ops = &conv_item_file;
        memcpy(item->name, path, strlen(path) + 1);
        good = conv_image_reader_read(&reader, item, &err) == CONV_OK;
    }
    if (good) {
        struct conv_image *image = &decoded->image;
        *image = reader.header.shape;
        decoded->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, conv_image_bytes(image));
        good = decoded->planes && image->depth < 32; // the range of float32 is unknown
        if (good)
            conv_image_lay_out(image, image, decoded->planes);
        good = good && conv_image_reader_decode(&reader, image, &err) == CONV_OK &&
               turn(&reader, decoded);
    }
    conv_image_reader_close(&reader);
    free(item);
    return good;
}

static int sample_at(const struct conv_image *image, int channel, int x, int y)
{
    const struct conv_plane *plane = &image->plane[channel];
    const uint8_t *row = plane->data + y * plane->stride;
    return image->depth == 8 ? row[x] : ((const uint16_t *)(const void *)row)[x] >> 8;
}

// How much neighbours differ in a part of the image, where it is not transparent.
static double measure_detail(const struct conv_image *image, int left, int top, int width,
                             int height)
{
    int colour = image->channels >= 3 ? 1 : 0; // green, or gray
    int alpha = image->channels % 2 == 0 ? image->channels - 1 : -1;
    double detail = 0;
    for (int y = top; y + 1 < top + height; y += 2)
        for (int x = left; x + 1 < left + width; x += 2)
            if (alpha < 0 || sample_at(image, alpha, x, y) > 0)
                detail += abs(sample_at(image, colour, x, y) - sample_at(image, colour, x + 1, y)) +
                          abs(sample_at(image, colour, x, y) - sample_at(image, colour, x, y + 1));
    return detail;
}

// The part of the image whose halves, left and right of the slider, both have detail: the middle if
// no other has more.
static void choose_part(const struct conv_image *image, struct conv_page_pair *pair)
{
    double best = -1;
    for (int i = 0; i < PLACES * PLACES; i++) {
        int place = (i + PLACES * PLACES / 2) % (PLACES * PLACES); // the middle is the first
        int left = (image->width - pair->crop_width) * (place % PLACES) / (PLACES - 1);
        int top = (image->height - pair->crop_height) * (place / PLACES) / (PLACES - 1);
        int half = pair->crop_width / 2;
        double a = measure_detail(image, left, top, half, pair->crop_height);
        double b = measure_detail(image, left + half, top, half, pair->crop_height);
        if ((a < b ? a : b) > best) {
            best = a < b ? a : b;
            pair->crop_x = left;
            pair->crop_y = top;
        }
    }
}

// Reduces *decoded to a part, at 8 bits.
static void crop(struct decoded *decoded, const struct conv_page_pair *pair)
{
    struct conv_image *image = &decoded->image;
    int width = pair->crop_width, height = pair->crop_height;
    int left = pair->crop_x, top = pair->crop_y;
    for (int c = 0; c < image->channels; c++) {
        struct conv_plane *plane = &image->plane[c];
        for (int y = 0; y < height; y++) {
            uint8_t *row = plane->data + (top + y) * plane->stride;
            uint8_t *dst = plane->data + y * plane->stride;
            if (image->depth == 8)
                memmove(dst, row + left, (size_t)width);
            else // dst never passes what is still to be read
                for (int x = 0; x < width; x++)
                    dst[x] =
                        (uint8_t)((((uint16_t *)(void *)row)[left + x] * 255u + 32767) / 65535);
        }
    }
    image->width = width;
    image->height = height;
    image->depth = 8;
}

static bool encode(struct conv_codec *codec, const struct decoded *decoded, uint8_t **data,
                   size_t *size)
{
    struct conv_encoded bytes;
    if (conv_png_format.encode(codec, &decoded->image, NULL, 0, decoded->image.height, &bytes,
                               NULL))
        return false;
    *size = 0;
    *data = malloc(bytes.size);
    for (int i = 0; *data && i < CONV_ENCODED_PARTS; i++) {
        if (bytes.part[i].size == 0)
            continue;
        memcpy(*data + *size, bytes.part[i].data, bytes.part[i].size);
        *size += bytes.part[i].size;
    }
    return *data;
}

static bool take_pair(struct conv_codec *codec, const struct conv_sample_pair *sample,
                      struct conv_page_pair *pair)
{
    struct decoded before = {0}, after = {0};
    bool good = decode(sample->input, &before) && decode(sample->output, &after) &&
                before.image.width == after.image.width &&
                before.image.height == after.image.height;
    if (good) {
        int width = before.image.width, height = before.image.height;
        *pair = (struct conv_page_pair){
            .name = sample->input,
            .width = width,
            .height = height,
            .crop_width = width < PIECE_WIDTH ? width : PIECE_WIDTH,
            .crop_height = height < PIECE_HEIGHT ? height : PIECE_HEIGHT,
        };
        choose_part(&before.image, pair);
        crop(&before, pair);
        crop(&after, pair);
        good = encode(codec, &before, &pair->before, &pair->before_size) &&
               encode(codec, &after, &pair->after, &pair->after_size);
        if (!good) {
            free(pair->before);
            free(pair->after);
        }
    }
    free(before.planes);
    free(after.planes);
    return good;
}

void conv_page_take_pairs(struct conv_page *page, const struct conv_samples *samples)
{
    struct conv_codec_config config = {.level = LEVEL};
    struct conv_codec *codec = NULL;
    if (conv_codec_open(&codec, &conv_png_format, &config, NULL))
        return;
    for (int i = 0; i < samples->pair_count; i++)
        page->pair_count += take_pair(codec, &samples->pairs[i], &page->pairs[page->pair_count]);
    conv_codec_close(codec);
}
