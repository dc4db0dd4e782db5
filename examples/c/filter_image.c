// SPDX-License-Identifier: MIT
// Filters one PNG file: filter_image FILTER INPUT.png OUTPUT.png
//   cc filter_image.c $(pkg-config --cflags --libs conv) -o filter_image
#include <conv.h>
#include <stdio.h>
#include <stdlib.h>

// Reads a whole file into memory of malloc. data is NULL on failure.
static conv_bytes read_file(const char *path)
{
    conv_bytes bytes = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return bytes;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    unsigned char *data = size > 0 ? malloc((size_t)size) : NULL;
    if (data && fread(data, 1, (size_t)size, file) == (size_t)size)
        bytes = (conv_bytes){data, (size_t)size};
    else
        free(data);
    fclose(file);
    return bytes;
}

static int write_file(const char *path, conv_bytes bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return -1;
    size_t written = fwrite(bytes.data, 1, bytes.size, file);
    return fclose(file) || written != bytes.size ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: filter_image FILTER INPUT.png OUTPUT.png\n");
        return 2;
    }
    conv_bytes input = read_file(argv[2]);
    if (!input.data) {
        fprintf(stderr, "filter_image: cannot read %s\n", argv[2]);
        return 1;
    }
    char message[CONV_MESSAGE_SIZE];
    conv_context *context;
    if (conv_context_create(&context, NULL, message)) {
        fprintf(stderr, "filter_image: %s\n", message);
        return 1;
    }

    conv_filter *filter = NULL;
    conv_image image = {0}, result = {0}; // data is NULL: the library allocates
    conv_bytes output = {NULL, 0};
    conv_status status = conv_filter_create(&filter, context, argv[1], NULL);
    if (!status)
        status = conv_decode_png(context, &input, 1, NULL, &image, NULL, NULL);
    if (!status) {
        result = image;
        size_t bytes = (size_t)image.row_stride * (size_t)image.height;
        status = conv_allocate(context, CONV_HOST, bytes, &result.data);
    }
    if (!status)
        status = conv_filter_run(filter, &image, &result, 1, NULL);
    if (!status)
        status = conv_encode_png(context, &result, 1, NULL, &output, NULL, NULL);
    if (status)
        fprintf(stderr, "filter_image: %s: %s\n", argv[2], conv_context_message(context));
    else if (write_file(argv[3], output)) {
        fprintf(stderr, "filter_image: cannot write %s\n", argv[3]);
        status = CONV_ERR_IO;
    }

    conv_free(context, CONV_HOST, (void *)output.data);
    conv_free(context, CONV_HOST, result.data);
    conv_free(context, CONV_HOST, image.data);
    conv_filter_destroy(filter);
    conv_context_destroy(context);
    free((void *)input.data);
    return status ? 1 : 0;
}
