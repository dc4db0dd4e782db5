// SPDX-License-Identifier: MIT
// libFuzzer target: JPEG files as a worker reads them. Pixels and verdicts are libjpeg-turbo's;
// nothing may be written outside the planes, metadata that are carried over can be read again and
// are clean, and an output of the pixels decodes to the same size.
#include "fuzz/fuzz.h"
#include "jpeg/jpeg.h"
#include "png/png.h"
#include "support/test_image.h"

// Segments of the metadata follow each other to the end.
static void check_metadata(const struct conv_metadata *metadata)
{
    struct conv_marker marker;
    size_t at = 0;
    while (at < metadata->bytes.size)
        require(conv_marker_next(&marker, metadata->bytes.data, metadata->bytes.size, &at));
}

// Cleaning again changes nothing.
static void check_clean(const struct conv_buffer *buffer, bool (*clean)(struct conv_buffer *))
{
    struct conv_buffer again = {0};
    require(conv_buffer_append(&again, buffer->data, buffer->size) && clean(&again));
    require(again.size == buffer->size);
    require(again.size == 0 || memcmp(again.data, buffer->data, again.size) == 0);
    conv_buffer_free(&again);
}

static bool clean_exif(struct conv_buffer *exif)
{
    return conv_clean_exif(exif, exif->data, exif->size, (struct conv_cleaning){0});
}

static bool clean_xmp(struct conv_buffer *xmp)
{
    return conv_clean_xmp(xmp, false);
}

static void carry_metadata(const uint8_t *data, size_t size, const struct conv_image_header *header)
{
    struct conv_metadata metadata = {0};
    struct conv_common common = {0};
    require(conv_jpeg_format.take_common(data, size, header, (struct conv_cleaning){0}, &common));
    require(common.exif.size <= CONV_CLEAN_EXIF_MOST);
    check_clean(&common.exif, clean_exif);
    check_clean(&common.xmp, clean_xmp);
    check_clean(&common.photoshop, conv_clean_photoshop);
    require(conv_png_format.put_common(&common, &header->shape, &metadata));
    require(conv_jpeg_format.put_common(&common, &header->shape, &metadata));
    check_metadata(&metadata);
    conv_common_free(&common);
    conv_metadata_free(&metadata);
}

static void check_verdict(const uint8_t *data, size_t size, const struct conv_image_header *header,
                          enum conv_status status, const struct conv_image *image)
{
    struct conv_buffer scratch = {0};
    struct conv_image other = header->shape;
    struct conv_err err;
    image_alloc(&other, 0xa5);
    require(conv_libjpeg_decode(&scratch, data, size, header, &other, NULL, NULL, &err) == status);
    require(status || image_equal(image, &other));
    image_free(&other);
    conv_buffer_free(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct conv_codec_config config = {.level = -1};
    struct conv_image_header header;
    struct conv_err err;
    if (size == 0 || conv_jpeg_format.probe(data, size, &header, &err))
        return 0;
    struct conv_metadata metadata = {0};
    conv_jpeg_format.keep(data, size, &header, &metadata.kept);
    carry_metadata(data, size, &header);
    if (conv_jpeg_format.check_size(data, size, &header, &err) ||
        (int64_t)header.shape.width * header.shape.height > MOST_PIXELS)
        return 0;
    struct conv_codec *codec;
    struct conv_image image = header.shape;
    require(!conv_codec_open(&codec, &conv_jpeg_format, &config, &err));
    image_alloc(&image, 0xa5);
    enum conv_status status =
        conv_jpeg_format.decode(codec, data, size, &header, &image, NULL, &err);
    require(image_padding_is(&image, 0xa5));
    require(status == CONV_OK || status == CONV_ERR_FORMAT);
    check_verdict(data, size, &header, status, &image);
    if (!status)
        require(!encode_again(&conv_jpeg_format, codec, &image, &metadata));
    image_free(&image);
    conv_codec_close(codec);
    return 0;
}
