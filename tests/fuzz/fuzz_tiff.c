// SPDX-License-Identifier: MIT
// libFuzzer target: TIFF files as a worker reads them. Nothing may be written outside the planes;
// rows are the same as planes; metadata that are carried over are clean; an output has the same
// pixels when it is read, and what was carried over can be carried over again.
#include "fuzz/fuzz.h"
#include "support/test_image.h"
#include "tiff/tiff.h"

static const struct conv_format *const tiff = &conv_tiff_format;

static void take_and_put(const uint8_t *data, size_t size, const struct conv_image_header *header,
                         struct conv_common *common, struct conv_metadata *metadata)
{
    require(tiff->take_common(data, size, header, (struct conv_cleaning){0}, common));
    require(common->exif.size <= CONV_CLEAN_EXIF_MOST);
    require(tiff->put_common(common, &header->shape, metadata));
    tiff->keep(data, size, header, &metadata->kept);
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, struct conv_image *image)
{
    struct conv_err err;
    *image = header->shape;
    image_alloc(image, 0xa5);
    enum conv_status status = tiff->decode(codec, data, size, header, image, NULL, &err);
    require(image_padding_is(image, 0xa5));
    require(status == CONV_OK || status == CONV_ERR_FORMAT);
    return status;
}

static void put_row(void *context, int y, const struct conv_image *row)
{
    struct conv_image *image = context, part = *image;
    part.height = 1;
    for (int c = 0; c < image->channels; c++)
        part.plane[c].data += y * image->plane[c].stride;
    conv_image_copy(&part, row);
}

static void check_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                       const struct conv_image_header *header, enum conv_status status,
                       const struct conv_image *image)
{
    struct conv_image other = header->shape;
    struct conv_rows rows = {.put = put_row, .context = &other};
    struct conv_err err;
    image_alloc(&other, 0xa5);
    require(tiff->decode(codec, data, size, header, NULL, &rows, &err) == status);
    require(status || image_equal(image, &other));
    image_free(&other);
}

static void read_again(struct conv_codec *codec, const struct conv_image *image,
                       const struct conv_metadata *metadata, const struct conv_common *common)
{
    struct conv_encoded encoded;
    struct conv_image_header header;
    struct conv_image again;
    struct conv_metadata same = {0};
    struct conv_common second = {0};
    struct conv_err err;
    require(!tiff->encode(codec, image, metadata, 0, image->height, &encoded, &err));
    size_t size = encoded.size;
    uint8_t *file = join(&encoded);
    require(!tiff->probe(file, size, &header, &err));
    require(!tiff->check_size(file, size, &header, &err) && !tiff->is_animated(file, size));
    require(!decode(codec, file, size, &header, &again) && image_equal(image, &again));
    take_and_put(file, size, &header, &second, &same);
    require(second.xmp.size == common->xmp.size && second.photoshop.size == common->photoshop.size);
    conv_common_free(&second);
    conv_metadata_free(&same);
    image_free(&again);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct conv_codec_config config = {.level = -1};
    struct conv_image_header header;
    struct conv_err err;
    (void)tiff->is_animated(data, size);
    int orientation = tiff->orientation(data, size);
    require(orientation >= 1 && orientation <= 8);
    if (tiff->probe(data, size, &header, &err))
        return 0;
    struct conv_common common = {0};
    struct conv_metadata metadata = {0};
    take_and_put(data, size, &header, &common, &metadata);
    bool small = (int64_t)header.shape.width * header.shape.height <= MOST_PIXELS;
    if (small && !tiff->check_size(data, size, &header, &err)) {
        struct conv_codec *codec;
        struct conv_image image;
        require(!conv_codec_open(&codec, tiff, &config, &err));
        enum conv_status status = decode(codec, data, size, &header, &image);
        check_rows(codec, data, size, &header, status, &image);
        if (!status)
            read_again(codec, &image, &metadata, &common);
        image_free(&image);
        conv_codec_close(codec);
    }
    conv_common_free(&common);
    conv_metadata_free(&metadata);
    return 0;
}
