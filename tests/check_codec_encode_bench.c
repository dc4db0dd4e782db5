// SPDX-License-Identifier: MIT
// Times the encoder's kernels on given images, and weighs what they make against libpng at level
// 1 with all filters. Under emulation there is no time, but the sizes are those of the device.
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_codec_encode.h"
#include "support/test_image.h"

#define MOST_MARKS 16
#define PNG_FRAME 45 // signature, IHDR and IEND

// --- images ------------------------------------------------------------------------------------

static bool read_file(const char *name, uint8_t **data, size_t *size)
{
    FILE *file = fopen(name, "rb");
    bool ok = file && fseek(file, 0, SEEK_END) == 0;
    long end = ok ? ftell(file) : -1;
    *data = end > 0 ? malloc((size_t)end) : NULL;
    *size = (size_t)end;
    ok = *data && fseek(file, 0, SEEK_SET) == 0 && fread(*data, 1, *size, file) == *size;
    if (file)
        fclose(file);
    if (!ok)
        perror(name);
    return ok;
}

// Decodes into planes of one stride.
static bool read_image(struct conv_image *image, const char *name)
{
    struct conv_image decoded = {0};
    struct conv_err err = {0};
    uint8_t *data = NULL;
    size_t size;
    bool ok = read_file(name, &data, &size);
    if (ok && image_decode(&decoded, data, size, &err)) {
        fprintf(stderr, "check_codec: %s: %s\n", name, err.text);
        ok = false;
    }
    *image = decoded;
    memset(image->plane, 0, sizeof image->plane);
    size_t stride = conv_image_stride(decoded.width, decoded.depth);
    for (int c = 0; c < decoded.channels && ok; c++) {
        image->plane[c].stride = (ptrdiff_t)stride;
        image->plane[c].data = calloc((size_t)decoded.height, stride);
        ok = image->plane[c].data;
        for (int y = 0; y < decoded.height && ok; y++)
            memcpy(image->plane[c].data + (size_t)y * stride,
                   decoded.plane[c].data + y * decoded.plane[c].stride,
                   (size_t)decoded.width * (size_t)(decoded.depth / 8));
    }
    image_free(&decoded);
    free(data);
    return ok;
}

static size_t raw_bytes(const struct conv_image *image)
{
    return (size_t)image->width * (size_t)image->height *
           (size_t)(image->channels * (image->depth / 8));
}

// --- libpng --------------------------------------------------------------------------------------

static void count_bytes(png_structp png, png_bytep data, png_size_t size)
{
    (void)data;
    *(size_t *)png_get_io_ptr(png) += size;
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static void put_row(png_structp png, const struct conv_image *image, int y, uint8_t *row)
{
    size_t bytes = (size_t)image->depth / 8, pixel = bytes * (size_t)image->channels;
    for (int c = 0; c < image->channels; c++) {
        const uint8_t *p = image->plane[c].data + y * image->plane[c].stride;
        for (int x = 0; x < image->width; x++)
            memcpy(row + (size_t)x * pixel + (size_t)c * bytes, p + (size_t)x * bytes, bytes);
    }
    png_write_row(png, row);
}

// The size of libpng's file at level 1 with all filters, 0 if it fails.
static size_t libpng_bytes(const struct conv_image *image)
{
    static const int color_types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                      PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA};
    size_t size = 0;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    uint8_t *row = malloc(raw_bytes(image));
    if (!info || !row || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        free(row);
        return 0;
    }
    png_set_write_fn(png, &size, count_bytes, flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, image->depth,
                 color_types[image->channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 1);
    png_set_filter(png, 0, PNG_ALL_FILTERS);
    png_write_info(png, info);
    if (image->depth == 16)
        png_set_swap(png);
    for (int y = 0; y < image->height; y++)
        put_row(png, image, y, row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(row);
    return size;
}

// --- time ----------------------------------------------------------------------------------------

struct marks {
    int count;
    const char *kernel[MOST_MARKS];
    cudaEvent_t event[MOST_MARKS + 1]; // [0]: the start
    float *ms[MOST_MARKS];             // a run
    bool failed;
};

static void put_mark(void *context, const char *kernel)
{
    struct marks *marks = context;
    if (marks->count == MOST_MARKS)
        return;
    marks->kernel[marks->count++] = kernel;
    if (cudaEventRecord(marks->event[marks->count], NULL) != cudaSuccess)
        marks->failed = true;
}

static bool run_once(struct check_encode *run, struct marks *marks, int number)
{
    marks->count = 0;
    if (check_cuda_failed(cudaEventRecord(marks->event[0], NULL), "event") ||
        conv_cuda_encode(&run->batch) || marks->failed ||
        check_cuda_failed(cudaDeviceSynchronize(), "encode"))
        return false;
    for (int i = 0; i < marks->count && number >= 0; i++)
        if (check_cuda_failed(
                cudaEventElapsedTime(&marks->ms[i][number], marks->event[i], marks->event[i + 1]),
                "event"))
            return false;
    return true;
}

static int compare_times(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_time(const char *kernel, double ms, size_t raw)
{
    printf("%-10s %9.3f ms", kernel, ms);
    if (ms > 0)
        printf(" %8.1f GB/s", (double)raw / ms / 1e6);
    printf("\n");
}

static bool time_batch(struct check_encode *run, int runs, size_t raw)
{
    struct marks marks = {0};
    bool ok = true;
    for (int i = 0; i <= MOST_MARKS && ok; i++)
        ok = !check_cuda_failed(cudaEventCreate(&marks.event[i]), "event");
    for (int i = 0; i < MOST_MARKS && ok; i++)
        ok = (marks.ms[i] = calloc((size_t)runs, sizeof *marks.ms[i])) != NULL;
    run->batch.mark = put_mark;
    run->batch.mark_context = &marks;
    for (int i = -1; i < runs && ok; i++) // -1: warm-up
        ok = run_once(run, &marks, i);
    double all = 0;
    for (int i = 0; i < marks.count && ok; i++) {
        qsort(marks.ms[i], (size_t)runs, sizeof *marks.ms[i], compare_times);
        print_time(marks.kernel[i], marks.ms[i][runs / 2], raw);
        all += marks.ms[i][runs / 2];
    }
    if (ok)
        print_time("all", all, raw);
    for (int i = 0; i < MOST_MARKS; i++)
        free(marks.ms[i]);
    for (int i = 0; i <= MOST_MARKS; i++)
        if (marks.event[i])
            (void)cudaEventDestroy(marks.event[i]);
    return ok;
}

// --- all of it -----------------------------------------------------------------------------------

// What was made, beside the raw samples and libpng.
static bool print_sizes(const struct check_encode *run, const struct conv_image *images, int files,
                        int copies, size_t raw)
{
    struct check_encoded encoded = {0};
    bool ok = check_encode_fetch(run, &encoded);
    size_t ours = 0, theirs = 0;
    for (int i = 0; i < run->count && ok; i++)
        ours += encoded.results[i].size + PNG_FRAME;
    for (int i = 0; i < files && ok; i++)
        theirs += libpng_bytes(&images[i]) * (size_t)copies;
    if (ok)
        printf("%d images in flight, %.1f MB of samples, size %.4f of them, %.4f of libpng level "
               "1\n",
               run->count, (double)raw / 1e6, (double)ours / (double)raw,
               (double)ours / (double)theirs);
    check_encoded_free(&encoded);
    return ok;
}

bool check_codec_encode_bench(const struct check_options *options)
{
    size_t raw = 0;
    int files = options->file_count, copies = options->copies ? options->copies : 1;
    int count = files * copies;
    struct conv_image *images = calloc((size_t)count, sizeof *images);
    bool ok = images;
    for (int i = 0; i < count && ok; i++) {
        if (i < files)
            ok = read_image(&images[i], options->files[i]);
        else
            images[i] = images[i % files]; // the same planes, copied to the device once more
        raw += raw_bytes(&images[i]);
    }
    struct check_encode run = {0};
    ok = ok && check_encode_open(&run, images, count) && time_batch(&run, options->runs, raw) &&
         print_sizes(&run, images, files, copies, raw);
    check_encode_free(&run);
    for (int i = 0; images && i < files; i++)
        check_free_image(&images[i]);
    free(images);
    return ok;
}
