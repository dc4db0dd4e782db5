// SPDX-License-Identifier: MIT
// Decodes PNG files to the GPU (without one, to memory), filters them there and encodes them again:
//   decode_batch FILTER OUTPUT_FOLDER INPUT.png...
// Only compressed bytes cross the bus. Damaged files are reported; the others are done.
//   cc decode_batch.c $(pkg-config --cflags --libs conv) -o decode_batch
#include <conv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct batch {
    int count;
    conv_bytes *inputs, *outputs;
    conv_image *images, *results;
    conv_item *items;
};

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

// Removes the items that failed, reports them, and returns how many there were.
static int drop_failed(struct batch *batch, char **names)
{
    int kept = 0, failed = 0;
    for (int i = 0; i < batch->count; i++) {
        if (batch->items[i].status) {
            fprintf(stderr, "decode_batch: %s: %s\n", names[i], batch->items[i].message);
            failed++;
            continue;
        }
        batch->images[kept] = batch->images[i];
        names[kept++] = names[i];
    }
    batch->count = kept;
    return failed;
}

// Results like the images, in memory of the context.
static conv_status allocate_results(conv_context *context, struct batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        conv_image *result = &batch->results[i];
        *result = batch->images[i];
        size_t bytes = (size_t)result->channel_stride * (size_t)result->channels; // planar
        conv_status status = conv_allocate(context, CONV_DEVICE, bytes, &result->data);
        if (status) {
            result->data = NULL;
            return status;
        }
    }
    return CONV_OK;
}

static int save(const struct batch *batch, const char *folder, char **names)
{
    int failed = 0;
    for (int i = 0; i < batch->count; i++) {
        const char *slash = strrchr(names[i], '/');
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, slash ? slash + 1 : names[i]);
        FILE *file = fopen(path, "wb");
        size_t written = file ? fwrite(batch->outputs[i].data, 1, batch->outputs[i].size, file) : 0;
        if (!file || fclose(file) || written != batch->outputs[i].size) {
            fprintf(stderr, "decode_batch: cannot write %s\n", path);
            failed++;
        }
    }
    return failed;
}

// Returns the number of files that failed, or -1 with a message in the context.
static int run(conv_context *context, conv_filter *filter, struct batch *batch, const char *folder,
               char **names)
{
    conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
    options.planar = 1; // the kernels read and write planes as they are
    options.memory = CONV_DEVICE;
    conv_status status = conv_decode_png(context, batch->inputs, batch->count, &options,
                                         batch->images, batch->items, NULL);
    if (status == CONV_ERR_DEVICE || status == CONV_ERR_MEMORY)
        return -1;
    int failed = drop_failed(batch, names); // the others are fine
    if (allocate_results(context, batch))
        return -1;
    // Queued on the default stream; encoding comes after it on the same stream.
    if (conv_filter_run(filter, batch->images, batch->results, batch->count, NULL))
        return -1;
    if (conv_encode_png(context, batch->results, batch->count, NULL, batch->outputs, NULL, NULL))
        return -1;
    return failed + save(batch, folder, names);
}

static void *zeros(int count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    if (!memory)
        abort();
    return memory;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: decode_batch FILTER OUTPUT_FOLDER INPUT.png...\n");
        return 2;
    }
    int count = argc - 3;
    struct batch batch = {
        .count = count,
        .inputs = zeros(count, sizeof(conv_bytes)),
        .outputs = zeros(count, sizeof(conv_bytes)),
        .images = zeros(count, sizeof(conv_image)),
        .results = zeros(count, sizeof(conv_image)),
        .items = zeros(count, sizeof(conv_item)),
    };
    for (int i = 0; i < count; i++)
        batch.inputs[i] = read_file(argv[3 + i]); // an unreadable file counts as empty, and fails

    char message[CONV_MESSAGE_SIZE];
    conv_context *context;
    if (conv_context_create(&context, NULL, message)) {
        fprintf(stderr, "decode_batch: %s\n", message);
        return 1;
    }
    conv_filter *filter = NULL;
    int failed = -1;
    if (!conv_filter_create(&filter, context, argv[1], NULL))
        failed = run(context, filter, &batch, argv[2], argv + 3);
    if (failed < 0)
        fprintf(stderr, "decode_batch: %s\n", conv_context_message(context));
    else
        printf("%d files filtered on %s\n", batch.count, conv_context_device(context));

    for (int i = 0; i < count; i++) {
        conv_free(context, CONV_HOST, (void *)batch.outputs[i].data);
        conv_free(context, CONV_DEVICE, batch.results[i].data);
        free((void *)batch.inputs[i].data);
    }
    for (int i = 0; i < batch.count; i++)
        conv_free(context, CONV_DEVICE, batch.images[i].data);
    conv_filter_destroy(filter);
    conv_context_destroy(context);
    free(batch.inputs);
    free(batch.outputs);
    free(batch.images);
    free(batch.results);
    free(batch.items);
    return failed ? 1 : 0;
}
