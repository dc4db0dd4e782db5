// SPDX-License-Identifier: MIT
// A program as it was compiled against version 1.0 (the headers in the folder 1.0 never change): it
// has to work with every later library of the same SONAME.
#include <conv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "caller.c:%d: %s\n", __LINE__, #condition);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Structs that go in arrays cannot grow.
_Static_assert(sizeof(conv_image) == 72, "conv_image");
_Static_assert(sizeof(conv_item) == 256, "conv_item");
_Static_assert(sizeof(conv_bytes) == 16, "conv_bytes");
_Static_assert(sizeof(conv_png_info) == 72, "conv_png_info");
_Static_assert(sizeof(conv_device_description) == 160, "conv_device_description");

static conv_bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(size);
    CHECK(data && fread(data, 1, size, file) == size);
    fclose(file);
    return (conv_bytes){data, size};
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(conv_version()[0] == '0' + CONV_VERSION_MAJOR);
    conv_bytes file = read_file(argv[1]);
    conv_png_info info;
    CHECK(!conv_probe_png(file.data, file.size, &info, NULL));

    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.threads = 2;
    conv_context *context;
    CHECK(!conv_context_create(&context, &options, NULL));
    CHECK(!strcmp(conv_context_device(context), "cpu"));

    conv_image image;
    memset(&image, 0, sizeof image);
    conv_item item;
    // A program compiled against a later header has more options: fine as long as they are unset.
    struct {
        conv_decode_options known;
        uint64_t later;
    } decode = {CONV_DECODE_OPTIONS_INIT, 1};
    decode.known.size = sizeof decode;
    CHECK(conv_decode_png(context, &file, 1, &decode.known, &image, &item, NULL) ==
          CONV_ERR_UNSUPPORTED);
    decode.later = 0;
    CHECK(!conv_decode_png(context, &file, 1, &decode.known, &image, &item, NULL));
    CHECK(item.status == CONV_OK && image.width == info.width && image.height == info.height);
    CHECK(image.column_stride == image.channels * image.channel_stride); // interleaved

    conv_image planar =
        conv_image_planar(NULL, image.width, image.height, image.channels, image.sample, CONV_HOST);
    planar.has_alpha = image.has_alpha;
    CHECK(!conv_allocate(context, CONV_HOST, (size_t)(planar.channel_stride * planar.channels),
                         &planar.data));
    conv_filter *filter;
    CHECK(!conv_filter_create(&filter, context, "gaussian5,sharpen", NULL));
    CHECK(!conv_filter_run(filter, &image, &planar, 1, NULL));
    CHECK(conv_filter_kernel(filter, 0, CONV_SAMPLE_U8));
    conv_bytes encoded;
    CHECK(!conv_encode_png(context, &planar, 1, NULL, &encoded, NULL, NULL));
    CHECK(!memcmp(encoded.data, "\211PNG", 4));
    conv_filter_destroy(filter);

    CHECK(conv_filter_create(&filter, context, "embos", NULL) == CONV_ERR_USAGE && !filter);
    CHECK(strstr(conv_context_message(context), "emboss"));

    conv_free(context, CONV_HOST, (void *)encoded.data);
    conv_free(context, CONV_HOST, planar.data);
    conv_free(context, CONV_HOST, image.data);
    conv_context_destroy(context);
    free((void *)file.data);
    printf("a program of version 1.0 works with %s\n", conv_version());
    return 0;
}
