// SPDX-License-Identifier: MIT
// Times the decoder's kernels: many images at once, each with memory of its own, so that no cache
// knows the next one.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_codec.h"
#include "check_decode.h"
#include "png/cuda/cuda_decode.h"

#define MOST_RUNS 99
#define MOST_KERNELS 8

struct bench {
    struct check_stream *files;
    int count; // of the images
    struct conv_decode_image *images, *d_images;
    uint8_t *d_memory;
    uint32_t *d_status;
    double raw_bytes; // of all images' samples
    cudaEvent_t events[MOST_KERNELS + 1];
    const char *kernels[MOST_KERNELS];
    int kernel_count;
    float ms[MOST_KERNELS][MOST_RUNS];
};

static bool failed(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
    return error != cudaSuccess;
}

static size_t align(size_t bytes)
{
    return conv_image_align(bytes, CONV_IMAGE_PLANE_ALIGN);
}

// Fills the table but for addresses; returns the memory that streams, planes and rows take.
static size_t lay_out(struct bench *bench, int files, size_t *scratch)
{
    size_t bytes = 0;
    *scratch = 0;
    for (int i = 0; i < bench->count; i++) {
        const struct check_stream *file = &bench->files[i % files];
        bench->images[i] = (struct conv_decode_image){
            .stride = (int64_t)conv_image_stride(file->width, file->depth),
            .stream_bytes = (uint32_t)file->size,
            .width = file->width,
            .height = file->height,
            .channels = file->channels,
            .depth = file->depth,
        };
        size_t plane = conv_image_plane_bytes(file->width, file->height, file->depth);
        bytes += align(file->size) + (size_t)file->channels * plane;
        *scratch += conv_cuda_decode_scratch(&bench->images[i]);
        bench->raw_bytes += (double)file->width * file->height * file->channels * file->depth / 8;
    }
    return bytes;
}

// The first copy of a stream comes from the host, later ones from the first.
static bool place(struct bench *bench, int files, uint8_t *at)
{
    for (int i = 0; i < bench->count; i++) {
        const struct check_stream *file = &bench->files[i % files];
        struct conv_decode_image *image = &bench->images[i];
        size_t plane = conv_image_plane_bytes(file->width, file->height, file->depth);
        const uint8_t *from = i < files ? file->bytes : bench->images[i % files].d_stream;
        if (failed(cudaMemcpyAsync(at, from, file->size,
                                   i < files ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice,
                                   NULL),
                   "copy of a stream"))
            return false;
        image->d_stream = at;
        at += align(file->size);
        for (int c = 0; c < file->channels; c++, at += plane)
            image->d_plane[c] = at;
    }
    return !failed(cudaMemcpy(bench->d_images, bench->images,
                              (size_t)bench->count * sizeof *bench->images, cudaMemcpyHostToDevice),
                   "copy of the table");
}

static bool open_bench(struct bench *bench, int files)
{
    size_t scratch, table = (size_t)bench->count * sizeof *bench->images;
    bench->images = calloc((size_t)bench->count, sizeof *bench->images);
    if (!bench->images)
        abort();
    size_t bytes = lay_out(bench, files, &scratch);
    if (failed(cudaMalloc((void **)&bench->d_memory, align(bytes) + scratch), "cudaMalloc") ||
        failed(cudaMalloc((void **)&bench->d_images, table), "cudaMalloc") ||
        failed(cudaMalloc((void **)&bench->d_status, (size_t)bench->count * sizeof(uint32_t)),
               "cudaMalloc"))
        return false;
    for (int i = 0; i <= MOST_KERNELS; i++)
        if (failed(cudaEventCreate(&bench->events[i]), "cudaEventCreate"))
            return false;
    conv_cuda_decode_plan(bench->images, bench->count, bench->d_memory + align(bytes));
    return place(bench, files, bench->d_memory);
}

static void close_bench(struct bench *bench)
{
    for (int i = 0; i <= MOST_KERNELS; i++)
        if (bench->events[i])
            cudaEventDestroy(bench->events[i]);
    cudaFree(bench->d_memory);
    cudaFree(bench->d_images);
    cudaFree(bench->d_status);
    free(bench->images);
}

static void mark(void *context, const char *kernel)
{
    struct bench *bench = context;
    bench->kernels[bench->kernel_count++] = kernel;
    (void)cudaEventRecord(bench->events[bench->kernel_count], NULL);
}

static bool run_once(struct bench *bench, int threads, int run)
{
    struct conv_decode_batch batch = {
        .images = bench->images,
        .d_images = bench->d_images,
        .count = bench->count,
        .threads = threads,
        .d_status = bench->d_status,
        .mark = mark,
        .context = bench,
    };
    bench->kernel_count = 0;
    if (failed(cudaEventRecord(bench->events[0], NULL), "cudaEventRecord"))
        return false;
    if (conv_cuda_decode(&batch)) {
        (void)failed(cudaGetLastError(), "conv_cuda_decode");
        return false;
    }
    if (failed(cudaEventSynchronize(bench->events[bench->kernel_count]), "decoding"))
        return false;
    for (int k = 0; k < bench->kernel_count; k++)
        if (failed(cudaEventElapsedTime(&bench->ms[k][run], bench->events[k], bench->events[k + 1]),
                   "cudaEventElapsedTime"))
            return false;
    return true;
}

static bool all_decoded(const struct bench *bench)
{
    size_t bytes = (size_t)bench->count * sizeof(uint32_t);
    uint32_t *status = malloc(bytes), wrong = 0;
    if (!status)
        abort();
    bool ok = !failed(cudaMemcpy(status, bench->d_status, bytes, cudaMemcpyDeviceToHost), "copy");
    for (int i = 0; i < bench->count && ok; i++)
        wrong += status[i] != CONV_DECODE_DECODED;
    free(status);
    if (wrong > 0)
        printf("FAILED: %u of %d images are not decoded\n", wrong, bench->count);
    return ok && wrong == 0;
}

static int compare_times(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_line(const struct bench *bench, const char *name, double ms)
{
    printf("%7d images  %-14s %9.3f ms  %8.1f GB/s raw\n", bench->count, name, ms,
           bench->raw_bytes / (ms * 1e6));
}

static void print_times(struct bench *bench, int runs)
{
    double sum = 0;
    for (int k = 0; k < bench->kernel_count; k++) {
        qsort(bench->ms[k], (size_t)runs, sizeof bench->ms[k][0], compare_times);
        print_line(bench, bench->kernels[k], bench->ms[k][runs / 2]);
        sum += bench->ms[k][runs / 2];
    }
    print_line(bench, "all", sum);
    fflush(stdout);
}

// Decodes `images` at once, the files in turn, and prints what each kernel took.
static bool time_images(const struct check_options *options, int images)
{
    int count = options->file_count, runs = options->runs < MOST_RUNS ? options->runs : MOST_RUNS;
    struct bench bench = {.count = images};
    bench.files = calloc((size_t)count, sizeof *bench.files);
    bool ok = bench.files != NULL;
    for (int i = 0; i < count && ok; i++)
        if (!check_read_stream(&bench.files[i], options->files[i])) {
            printf("FAILED %s: no PNG file that the device decodes\n", options->files[i]);
            ok = false;
        }
    ok = ok && open_bench(&bench, count);
    for (int run = -1; run < runs && ok; run++) // -1: warm-up
        ok = run_once(&bench, options->threads, run < 0 ? 0 : run);
    if (ok && (ok = all_decoded(&bench)))
        print_times(&bench, runs);
    close_bench(&bench);
    for (int i = 0; i < count && bench.files; i++)
        free(bench.files[i].bytes);
    free(bench.files);
    return ok;
}

bool check_codec_decode_bench(const struct check_options *options)
{
    static const int images[] = {1, 132, 1000, 4000};
    if (options->copies)
        return time_images(options, options->copies * options->file_count);
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        if (!time_images(options, images[i]))
            return false;
    return true;
}
