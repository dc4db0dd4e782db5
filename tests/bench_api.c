// SPDX-License-Identifier: MIT
// Times the C interface on a device: PNG files in pageable memory to images in device memory and
// back, filters on images there, and the cost of a call.
//   bench_api [--device cuda:0] [--threads N] [--most 4000] FILE.png...
// Medians, after a run that is not counted. Files are repeated, each time in separate memory.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "conv.h"

#define ROUNDS 5

static conv_context *context;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_api: %s: %s\n", what, why);
    exit(1);
}

static void must(conv_status status, const char *what)
{
    if (status)
        die(what, conv_context_message(context));
}

static void *memory_for(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        die("host memory", "there is too little");
    return memory;
}

static double seconds(void)
{
    return (double)conv_clock_ns() * 1e-9;
}

// --- files ---------------------------------------------------------------------------------------

struct set {
    conv_bytes *files;
    conv_image *images;
    int count;
    size_t samples; // bytes
};

static conv_bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        die(path, "cannot be read");
    size_t size = (size_t)ftell(file);
    rewind(file);
    void *data = memory_for(size);
    if (fread(data, 1, size, file) != size)
        die(path, "cannot be read");
    fclose(file);
    return (conv_bytes){data, size};
}

// `count` files, each in memory of its own.
static void repeat_files(struct set *set, const conv_bytes *files, int file_count, int count)
{
    *set = (struct set){.count = count};
    set->files = memory_for((size_t)count * sizeof *set->files);
    set->images = memory_for((size_t)count * sizeof *set->images);
    for (int i = 0; i < count; i++) {
        const conv_bytes *file = &files[i % file_count];
        void *copy = memory_for(file->size);
        memcpy(copy, file->data, file->size);
        set->files[i] = (conv_bytes){copy, file->size};
    }
}

// Views of one block of device memory.
static void lay_out(struct set *set, bool planar, void **block)
{
    size_t at = 0;
    *block = NULL;
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            must(conv_allocate(context, CONV_DEVICE, at, block), "device memory");
        at = 0;
        for (int i = 0; i < set->count; i++) {
            conv_png_info info;
            if (conv_probe_png(set->files[i].data, set->files[i].size, &info, NULL))
                die("a file", "is no PNG");
            uint8_t *data = *block ? (uint8_t *)*block + at : NULL;
            set->images[i] = planar
                                 ? conv_image_planar(data, info.width, info.height, info.channels,
                                                     info.sample, CONV_DEVICE)
                                 : conv_image_interleaved(data, info.width, info.height,
                                                          info.channels, info.sample, CONV_DEVICE);
            at += (size_t)info.width * (size_t)info.height * (size_t)info.channels *
                  (size_t)conv_sample_bytes(info.sample);
        }
    }
    set->samples = at;
}

static void bench_set(struct set *set, bool planar)
{
    double decode[ROUNDS], encode[ROUNDS], first[2] = {0};
    conv_bytes *encoded = memory_for((size_t)set->count * sizeof *encoded);
    void *block;
    lay_out(set, planar, &block);
    for (int i = -1; i < ROUNDS; i++) {
        double start = seconds();
        must(conv_decode_png(context, set->files, set->count, NULL, set->images, NULL, NULL),
             "decode");
        double middle = seconds();
        must(conv_encode_png(context, set->images, set->count, NULL, encoded, NULL, NULL),
             "encode");
        double end = seconds();
        for (int k = 0; k < set->count; k++)
            conv_free(context, CONV_HOST, (void *)(uintptr_t)encoded[k].data);
        *(i < 0 ? &first[0] : &decode[i]) = middle - start;
        *(i < 0 ? &first[1] : &encode[i]) = end - middle;
    }
    double decoded = conv_stat_median(decode, ROUNDS), to_files = conv_stat_median(encode, ROUNDS);
    double bytes = (double)set->samples;
    printf(
        "%5d images, %s: decode %8.3f ms %6.2f GB/s (first %8.1f ms), encode %8.3f ms %6.2f GB/s "
        "(first %8.1f ms)\n",
        set->count, planar ? "CHW" : "HWC", decoded * 1e3, bytes / decoded * 1e-9, first[0] * 1e3,
        to_files * 1e3, bytes / to_files * 1e-9, first[1] * 1e3);
    fflush(stdout);
    conv_free(context, CONV_DEVICE, block);
    free(encoded);
}

// --- filters -------------------------------------------------------------------------------------

// Noise: kernels are faster on memory that holds zeros.
static void fill_with_noise(void *d_data, size_t bytes)
{
    uint64_t *noise = memory_for(bytes / 8 * 8 + 8), state = 1;
    for (size_t i = 0; i <= bytes / 8; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        noise[i] = state ^ state >> 29;
    }
    must(conv_copy(context, d_data, CONV_DEVICE, noise, CONV_HOST, bytes, NULL), "noise");
    free(noise);
}

static void bench_filter(const char *text, int size, int channels, bool planar, int calls)
{
    conv_filter *filter;
    void *memory[2];
    conv_image views[2];
    size_t bytes = (size_t)size * (size_t)size * (size_t)channels;
    double queued[ROUNDS], done[ROUNDS];
    must(conv_filter_create(&filter, context, text, NULL), text);
    for (int i = 0; i < 2; i++) {
        must(conv_allocate(context, CONV_DEVICE, bytes, &memory[i]), "device memory");
        fill_with_noise(memory[i], bytes);
        views[i] =
            planar ? conv_image_planar(memory[i], size, size, channels, CONV_SAMPLE_U8, CONV_DEVICE)
                   : conv_image_interleaved(memory[i], size, size, channels, CONV_SAMPLE_U8,
                                            CONV_DEVICE);
        views[i].has_alpha = 0;
    }
    for (int round = -1; round < ROUNDS; round++) {
        double start = seconds();
        for (int i = 0; i < calls; i++)
            must(conv_filter_run(filter, &views[0], &views[1], 1, NULL), text);
        double middle = seconds();
        must(conv_stream_wait(context, NULL), "wait");
        if (round >= 0) {
            queued[round] = (middle - start) / calls;
            done[round] = (seconds() - start) / calls;
        }
    }
    double each = conv_stat_median(done, ROUNDS);
    printf(
        "%-10s %5d x %d x %d %s, %s: call %7.2f us, done %9.2f us, %7.1f GB/s read and written\n",
        text, size, size, channels, planar ? "CHW" : "HWC",
        conv_filter_kernel(filter, 0, CONV_SAMPLE_U8), conv_stat_median(queued, ROUNDS) * 1e6,
        each * 1e6, 2 * (double)bytes / each * 1e-9);
    fflush(stdout);
    conv_filter_destroy(filter);
    for (int i = 0; i < 2; i++)
        conv_free(context, CONV_DEVICE, memory[i]);
}

// Copies within device memory, with which rearranging is compared.
static void bench_copy(size_t bytes)
{
    void *memory[2];
    double done[ROUNDS];
    for (int i = 0; i < 2; i++)
        must(conv_allocate(context, CONV_DEVICE, bytes, &memory[i]), "device memory");
    fill_with_noise(memory[0], bytes);
    for (int round = -1; round < ROUNDS; round++) {
        double start = seconds();
        for (int i = 0; i < 20; i++)
            must(conv_copy(context, memory[1], CONV_DEVICE, memory[0], CONV_DEVICE, bytes, NULL),
                 "copy");
        must(conv_stream_wait(context, NULL), "wait");
        if (round >= 0)
            done[round] = (seconds() - start) / 20;
    }
    double each = conv_stat_median(done, ROUNDS);
    printf("copy of %zu bytes: %9.2f us, %7.1f GB/s read and written\n", bytes, each * 1e6,
           2 * (double)bytes / each * 1e-9);
    for (int i = 0; i < 2; i++)
        conv_free(context, CONV_DEVICE, memory[i]);
}

static void bench_files(char **paths, int count, int most)
{
    static const int sizes[] = {1, 24, 256, 1024, 4000};
    conv_bytes *files = memory_for((size_t)count * sizeof *files);
    for (int i = 0; i < count; i++)
        files[i] = read_file(paths[i]);
    struct set all;
    repeat_files(&all, files, count, most);
    for (int i = 0; i < 5 && sizes[i] <= most; i++) {
        struct set set = all;
        set.count = sizes[i];
        bench_set(&set, true);
        bench_set(&set, false);
    }
}

int main(int argc, char **argv)
{
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    char message[CONV_MESSAGE_SIZE];
    int first = 1, most = 4000;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (strcmp(argv[first], "--device") == 0)
            options.device = argv[first + 1];
        else if (strcmp(argv[first], "--threads") == 0)
            options.threads = atoi(argv[first + 1]);
        else if (strcmp(argv[first], "--most") == 0)
            most = atoi(argv[first + 1]);
        else
            die(argv[first], "options are --device NAME, --threads N, --most N");
    }
    double start = seconds();
    if (conv_context_create(&context, &options, message))
        die("device", message);
    printf("%s, opened in %.3f s\n", conv_context_device(context), seconds() - start);
    bench_copy((size_t)8192 * 8192 * 3);
    bench_filter("emboss", 64, 3, true, 200);
    bench_filter("emboss", 64, 3, false, 200);
    bench_filter("emboss", 8192, 1, true, 64);
    bench_filter("gaussian5", 8192, 1, true, 64);
    bench_filter("emboss", 8192, 3, true, 64);
    bench_filter("gaussian5", 8192, 3, true, 64);
    bench_filter("emboss", 8192, 3, false, 20);
    bench_filter("gaussian5", 8192, 3, false, 20);
    bench_filter("emboss", 8191, 3, true, 20); // rows that are not aligned
    bench_filter("emboss", 8192, 4, false, 20);
    if (first < argc)
        bench_files(argv + first, argc - first, most);
    conv_context_destroy(context);
    return 0;
}
