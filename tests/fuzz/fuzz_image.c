// SPDX-License-Identifier: MIT
// libFuzzer target: files of the formats that are not PNG or JPEG, each by its first bytes, as a
// worker reads them. Nothing is written outside the planes; metadata that are carried over can be
// read again; an output decodes to the same size; the end of an image does not depend on how many
// of its bytes are there.
#include "fuzz/fuzz.h"
#include "io/files/formats.h"
#include "support/test_image.h"

static void check_extent(const struct conv_format *format, const uint8_t *data, size_t size)
{
    size_t at = 0, whole = conv_format_end(format, data, size);
    uint64_t bytes = 1;
    bool found = false;
    for (size_t there = format->head_bytes; format->extent && there <= size && !found; there++)
        if (there >= bytes)
            found = format->extent(data, there, &at, &bytes);
    require(!found || whole == (bytes < size ? bytes : size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct conv_codec_config config = {.level = -1};
    const struct conv_format *format;
    struct conv_image_header header;
    struct conv_metadata metadata = {0};
    struct conv_common common = {0};
    struct conv_codec *codec;
    struct conv_err err;
    if (conv_formats_check(&format, data, size, true, &err) || format->device)
        return 0;
    check_extent(format, data, size);
    if (format->probe(data, size, &header, &err) || format->check_size(data, size, &header, &err) ||
        (int64_t)header.shape.width * header.shape.height > MOST_PIXELS)
        return 0;
    if (format->keep)
        format->keep(data, size, &header, &metadata.kept);
    if (format->take_common) {
        require(format->take_common(data, size, &header, (struct conv_cleaning){0}, &common));
        require(format->put_common(&common, &header.shape, &metadata));
    }
    struct conv_image image = header.shape;
    require(!conv_codec_open(&codec, format, &config, &err));
    image_alloc(&image, 0xa5);
    enum conv_status status = format->decode(codec, data, size, &header, &image, NULL, &err);
    require(image_padding_is(&image, 0xa5));
    if (!status && image.depth <= format->most_depth) {
        status = encode_again(format, codec, &image, &metadata);
        require(!status || status == CONV_ERR_UNSUPPORTED);
    }
    image_free(&image);
    conv_codec_close(codec);
    conv_common_free(&common);
    conv_metadata_free(&metadata);
    return 0;
}
