// SPDX-License-Identifier: MIT
#include "bench/bench_codec.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench_cuda.h"
#include "png/cpu/interleave.h"
#include "png/png.h"

#define REPEATS 5

static const int in_flight[] = {1, 132, 1000, 4000};
static const int thread_counts[] = {128, 256, 512}; // that may inflate an image

struct bench {
    const struct conv_bench_options *options;
    struct conv_codec *codec;         // makes files
    struct conv_coding_image *images; // those that the device decodes
    uint8_t **memory;                 // two per image: its stream and its planes
    int count;
    size_t libpng_bytes; // of all images, encoded by libpng at level 1
    int wrong;
    struct conv_buffer file, scratch, planes;
};

static size_t raw_bytes(const struct conv_image *image)
{
    return conv_interleave_bytes(image) * (size_t)image->height;
}

// --- images ------------------------------------------------------------------------------------

static enum conv_status measure_libpng(struct bench *bench, const struct conv_image *image,
                                       struct conv_err *err)
{
    enum conv_status status =
        conv_png_libpng.encode(&bench->scratch, &bench->file, image, 1, NULL, err);
    bench->libpng_bytes += bench->file.size;
    return status;
}

// Skips an image that the device does not decode.
static enum conv_status add_image(struct bench *bench, const struct conv_bench_image *from,
                                  struct conv_err *err)
{
    struct conv_coding_image *image = &bench->images[bench->count];
    uint8_t **memory = &bench->memory[2 * (size_t)bench->count];
    memory[0] = malloc(from->file.size);
    if (!memory[0])
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    if (!conv_png_format.device->copy_stream(memory[0], &image->stream_bytes, from->file.data,
                                             from->file.size, &from->header)) {
        free(memory[0]);
        memory[0] = NULL;
        return CONV_OK;
    }
    bench->count++;
    image->stream = memory[0];
    size_t bytes = conv_bench_images_place(&image->image, &from->header.shape, NULL);
    memory[1] = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, bytes);
    if (!memory[1])
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    conv_bench_images_place(&image->image, &from->header.shape, memory[1]);
    enum conv_status status = conv_libpng_decode(&bench->scratch, from->file.data, from->file.size,
                                                 &from->header, &image->image, NULL, NULL, err);
    return status ? status : measure_libpng(bench, &image->image, err);
}

// --- results -------------------------------------------------------------------------------------

// libpng decodes what the device has encoded.
static void check_chunks(void *context, int number, const uint8_t *data, size_t size)
{
    struct bench *bench = context;
    const struct conv_image *image = &bench->images[number].image;
    struct conv_encoded bytes;
    struct conv_image_header header;
    struct conv_image got;
    conv_png_format.device->frame(bench->codec, image, NULL, data, size, &bytes);
    bench->file.size = 0;
    bool right = true;
    for (int i = 0; i < CONV_ENCODED_PARTS && right; i++)
        right = conv_buffer_append(&bench->file, bytes.part[i].data, bytes.part[i].size);
    right = right && !conv_png_format.probe(bench->file.data, bench->file.size, &header, NULL) &&
            header.shape.width == image->width && header.shape.height == image->height &&
            header.shape.channels == image->channels && header.shape.depth == image->depth &&
            conv_buffer_reserve(&bench->planes, conv_bench_images_place(&got, image, NULL));
    if (right) {
        conv_bench_images_place(&got, image, bench->planes.data);
        right = !conv_libpng_decode(&bench->scratch, bench->file.data, bench->file.size, &header,
                                    &got, NULL, NULL, NULL) &&
                conv_bench_images_equal(image, &got);
    }
    bench->wrong += !right;
}

// --- the table -----------------------------------------------------------------------------------

static void print_row(const struct bench *bench, const struct conv_coding_test *test,
                      const char *name, double ms, double raw, double ratio, double libpng)
{
    const char *direction = test->decode ? "decode" : "encode";
    if (bench->options->format == CONV_BENCH_JSON) {
        printf("{\"type\":\"bench-codec-device\",\"direction\":\"%s\",\"kernel\":\"%s\",\"in_"
               "flight\":%d,\"threads\":%d,"
               "\"ms\":%.4f,\"gb_s\":%.3f",
               direction, name, test->in_flight, test->threads, ms, raw / ms / 1e6);
        if (ratio > 0)
            printf(",\"ratio\":%.6f,\"libpng_1\":%.6f", ratio, libpng);
        puts("}");
        return;
    }
    printf("%-7s %9d  %-20s %10.3f %10.2f", direction, test->in_flight, name, ms, raw / ms / 1e6);
    if (ratio > 0)
        printf(" %8.4f %9.4f", ratio, libpng);
    putchar('\n');
}

static void print_test(const struct bench *bench, const struct conv_coding_test *test)
{
    double raw = 0, once = 0;
    for (int i = 0; i < test->in_flight; i++)
        raw += (double)raw_bytes(&bench->images[i % bench->count].image);
    for (int i = 0; i < bench->count; i++)
        once += (double)raw_bytes(&bench->images[i].image);
    for (int k = 0; k < test->kernel_count; k++)
        print_row(bench, test, test->kernels[k].name, test->kernels[k].ms, raw, 0, 0);
    // The ratio is that of chunks to pixels; whole rounds of images compare with libpng's files.
    double ratio = test->decode ? 0 : (double)test->chunk_bytes / raw;
    print_row(bench, test, "all", test->ms, raw, ratio, (double)bench->libpng_bytes / once);
    fflush(stdout);
}

// `threads` 0: as the decoder chooses.
static enum conv_status run_test(struct bench *bench, int count, bool decode, int threads,
                                 struct conv_err *err)
{
    struct conv_coding_test test = {
        .images = bench->images,
        .image_count = bench->count,
        .decode = decode,
        .threads = threads,
        .in_flight = count,
        .repeats = REPEATS,
        .take_chunks = check_chunks,
        .context = bench,
    };
    enum conv_status status =
        conv_bench_cuda()->time_coding(bench->options->devices.ordinals[0], &test, err);
    bench->wrong += test.wrong;
    if (!status)
        print_test(bench, &test);
    return status;
}

static enum conv_status run_tests(struct bench *bench, int count, struct conv_err *err)
{
    enum conv_status status = run_test(bench, count, true, 0, err);
    for (size_t i = 0;
         bench->options->in_flight && i < sizeof thread_counts / sizeof thread_counts[0]; i++)
        if (!status)
            status = run_test(bench, count, true, thread_counts[i], err);
    return status ? status : run_test(bench, count, false, 0, err);
}

static enum conv_status run_all(struct bench *bench, struct conv_err *err)
{
    if (bench->options->format != CONV_BENCH_JSON)
        printf("%d plain images, copied to reach the number in flight; %s, medians of "
               "%d runs\n%-7s %9s  %-20s %10s %10s %8s %9s\n",
               bench->count, bench->options->devices.name, REPEATS, "", "in flight", "kernel", "ms",
               "GB/s raw", "ratio", "libpng 1");
    if (bench->options->in_flight)
        return run_tests(bench, bench->options->in_flight, err);
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < sizeof in_flight / sizeof in_flight[0] && !status; i++) {
        status = run_tests(bench, in_flight[i], err);
        if (status == CONV_ERR_MEMORY && i > 0) {
            conv_report_say("%s; larger numbers are not measured", err->text);
            return CONV_OK;
        }
    }
    return status;
}

// --- all of it -----------------------------------------------------------------------------------

static enum conv_status open_bench(struct bench *bench, const struct conv_bench_images *images,
                                   struct conv_err *err)
{
    struct conv_codec_config png = {.level = -1};
    enum conv_status status = CONV_OK;
    if (!conv_bench_cuda())
        status = conv_err_set(err, CONV_ERR_USAGE, "%s does not decode or encode images",
                              bench->options->devices.name);
    if (!status)
        status = conv_png_format.open(&bench->codec, &png, err);
    bench->images = calloc((size_t)images->count, sizeof *bench->images);
    bench->memory = calloc(2 * (size_t)images->count, sizeof *bench->memory);
    if (!status && (!bench->images || !bench->memory))
        status = conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (int i = 0; i < images->count && !status; i++)
        status = add_image(bench, &images->images[i], err);
    if (!status && bench->count == 0)
        status = conv_err_set(err, CONV_ERR_USAGE, "no image that a device decodes");
    return status;
}

static void close_bench(struct bench *bench)
{
    for (int i = 0; i < 2 * bench->count; i++)
        free(bench->memory[i]);
    free(bench->memory);
    free(bench->images);
    conv_png_format.close(bench->codec);
    conv_buffer_free(&bench->file);
    conv_buffer_free(&bench->scratch);
    conv_buffer_free(&bench->planes);
}

enum conv_status conv_bench_codec_device(const struct conv_bench_options *options,
                                         const struct conv_bench_images *images,
                                         struct conv_err *err)
{
    struct bench bench = {.options = options};
    enum conv_status status = open_bench(&bench, images, err);
    if (!status)
        status = run_all(&bench, err);
    if (!status && bench.wrong)
        status = conv_err_set(err, CONV_ERR_FORMAT, "WRONG pixels: %d times", bench.wrong);
    close_bench(&bench);
    return status;
}
