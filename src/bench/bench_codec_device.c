// SPDX-License-Identifier: MIT
#include "bench/bench_codec.h"

#include <stdlib.h>

#include "bench/bench_cuda.h"
#include "image/interleave.h"

#define REPEATS 5

static const int in_flight[] = {1, 132, 1000, 4000};
static const int thread_counts[] = {128, 256, 512}; // that may inflate an image

struct bench {
    const struct conv_bench_options *options;
    struct conv_codec *codec; // makes files
    const struct conv_bench_image *images;
    int count;
    double bytes;        // of all samples
    double libpng_bytes; // of all images, encoded by libpng at level 1
    int wrong;
    struct conv_bench_reader reader;
};

static double raw_bytes(const struct conv_image *image)
{
    return (double)(conv_interleave_bytes(image) * (size_t)image->height);
}

// --- images --------------------------------------------------------------------------------------

// Makes what the device decodes and encodes. CONV_ERR_UNSUPPORTED if it does not decode the image.
static enum conv_status prepare(struct bench *bench, struct conv_bench_image *image,
                                struct conv_err *err)
{
    const struct conv_file *file = &image->file;
    struct conv_buffer *scratch = &bench->reader.scratch, *made = &bench->reader.file;
    image->stream = malloc(file->size);
    if (!image->stream)
        return conv_err_memory(err, "out of memory");
    if (!conv_png_format.device->copy_stream(image->stream, &image->stream_bytes, file->data,
                                             file->size, &image->header))
        return CONV_ERR_UNSUPPORTED;
    enum conv_status status = conv_bench_images_take(image, err);
    if (!status)
        status = conv_libpng_decode(scratch, file->data, file->size, &image->header, &image->image,
                                    NULL, NULL, err);
    if (!status)
        status = conv_png_libpng.encode(scratch, made, &image->image, 1, NULL, err);
    bench->libpng_bytes += (double)made->size;
    bench->bytes += raw_bytes(&image->image);
    return status;
}

// Those that the device decodes become the first ones.
static enum conv_status prepare_all(struct bench *bench, struct conv_bench_images *all,
                                    struct conv_err *err)
{
    for (int i = 0; i < all->count; i++) {
        struct conv_bench_image image = all->images[i];
        enum conv_status status = prepare(bench, &image, err);
        all->images[i] = all->images[bench->count];
        all->images[bench->count] = image;
        if (status && status != CONV_ERR_UNSUPPORTED)
            return status;
        bench->count += !status;
    }
    bench->images = all->images;
    return bench->count ? CONV_OK : conv_err_usage(err, "no image that a device decodes");
}

// libpng decodes what the device has encoded.
static void check_chunks(void *context, int number, const uint8_t *data, size_t size)
{
    struct bench *bench = context;
    const struct conv_image *image = &bench->images[number].image;
    struct conv_encoded bytes;
    conv_png_format.device->frame(bench->codec, image, NULL, NULL, data, size, &bytes);
    bench->wrong += conv_bench_read_back(&bench->reader, &bytes, image, NULL) != CONV_OK;
}

// --- the table -----------------------------------------------------------------------------------

// `ratio` 0: none.
static void print_row(const struct bench *bench, const struct conv_coding_test *test,
                      const char *name, double ms, double raw, double ratio)
{
    const char *direction = test->decode ? "decode" : "encode";
    double libpng = bench->libpng_bytes / bench->bytes;
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
    double raw = 0;
    enum conv_status status =
        conv_bench_cuda()->time_coding(bench->options->device->ordinals[0], &test, err);
    bench->wrong += test.wrong;
    if (status)
        return status;
    for (int i = 0; i < count; i++)
        raw += raw_bytes(&bench->images[i % bench->count].image);
    for (int k = 0; k < test.kernel_count; k++)
        print_row(bench, &test, test.kernels[k].name, test.kernels[k].ms, raw, 0);
    // The ratio is that of chunks to pixels; whole rounds of images compare with libpng's files.
    print_row(bench, &test, "all", test.ms, raw, decode ? 0 : (double)test.chunk_bytes / raw);
    fflush(stdout);
    return CONV_OK;
}

static enum conv_status run_tests(struct bench *bench, int count, struct conv_err *err)
{
    enum conv_status status = run_test(bench, count, true, 0, err);
    for (size_t i = 0;
         bench->options->choice->bench.images && i < sizeof thread_counts / sizeof thread_counts[0];
         i++)
        if (!status)
            status = run_test(bench, count, true, thread_counts[i], err);
    return status ? status : run_test(bench, count, false, 0, err);
}

static enum conv_status run_all(struct bench *bench, struct conv_err *err)
{
    if (bench->options->format != CONV_BENCH_JSON)
        printf("%d plain images, copied to reach the number in flight; %s, medians of "
               "%d runs\n%-7s %9s  %-20s %10s %10s %8s %9s\n",
               bench->count, bench->options->device->name, REPEATS, "", "in flight", "kernel", "ms",
               "GB/s raw", "ratio", "libpng 1");
    if (bench->options->choice->bench.images)
        return run_tests(bench, bench->options->choice->bench.images, err);
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

enum conv_status conv_bench_codec_device(const struct conv_bench_options *options,
                                         struct conv_bench_images *images, struct conv_err *err)
{
    struct bench bench = {.options = options};
    struct conv_codec_config png = {.level = -1};
    if (!conv_bench_cuda())
        return conv_err_usage(err, "%s does not decode or encode images", options->device->name);
    enum conv_status status = conv_codec_open(&bench.codec, &conv_png_format, &png, err);
    if (!status)
        status = prepare_all(&bench, images, err);
    if (!status)
        status = run_all(&bench, err);
    if (!status && bench.wrong)
        status = conv_err_format(err, "WRONG pixels: %d times", bench.wrong);
    conv_codec_close(bench.codec);
    conv_bench_reader_free(&bench.reader);
    return status;
}
