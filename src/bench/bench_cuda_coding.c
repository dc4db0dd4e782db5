// SPDX-License-Identifier: MIT
// The device's PNG coders alone, with all input in device memory: one time per kernel.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "bench/bench_cuda.h"
#include "engine/cuda_device.h"
#include "png/cuda/cuda_png.h"

#define ALIGN CONV_IMAGE_PLANE_ALIGN
#define MOST_REPEATS 32

struct coding {
    struct conv_coding_test *test;
    cudaStream_t stream;
    cudaEvent_t events[CONV_CODING_MOST_KERNELS + 1];
    int marked; // launches of the current run
    uint8_t *d_streams, *d_planes;
    uint8_t *d_scratch, *d_out; // d_out: chunks, or states
    void *d_table;
    struct conv_encode_result *d_results;
    void *h_table; // as many entries as images in flight
    double ms[CONV_CODING_MOST_KERNELS][MOST_REPEATS];
    cudaError_t code; // of the first call that failed
};

static const struct conv_bench_image *image_of(const struct coding *coding, int i)
{
    return &coding->test->images[i % coding->test->image_count];
}

static size_t plane_bytes(const struct conv_image *image)
{
    return conv_image_plane_bytes(image->width, image->height, image->depth);
}

static void note(struct coding *coding, cudaError_t code)
{
    if (!coding->code)
        coding->code = code;
}

static void *take(struct coding *coding, size_t bytes)
{
    void *memory = NULL;
    if (!coding->code)
        note(coding, cudaMalloc(&memory, bytes ? bytes : 1));
    return memory;
}

static void copy(struct coding *coding, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind)
{
    if (!coding->code && bytes)
        note(coding, cudaMemcpyAsync(to, from, bytes, kind, coding->stream));
}

// --- what is in device memory --------------------------------------------------------------------

// The first copy of each image comes from the host, later ones from the first.
static void fill(struct coding *coding, uint8_t *d_all, size_t at[], int i, const uint8_t *h_from,
                 size_t bytes)
{
    int n = coding->test->image_count;
    if (i < n)
        copy(coding, d_all + at[i], h_from, bytes, cudaMemcpyHostToDevice);
    else
        copy(coding, d_all + at[i], d_all + at[i % n], bytes, cudaMemcpyDeviceToDevice);
}

static bool make_streams(struct coding *coding, size_t at[])
{
    size_t bytes = 0;
    for (int i = 0; i < coding->test->in_flight; i++) {
        at[i] = bytes;
        bytes += conv_image_align(image_of(coding, i)->stream_bytes, ALIGN);
    }
    coding->d_streams = take(coding, bytes);
    for (int i = 0; i < coding->test->in_flight; i++)
        fill(coding, coding->d_streams, at, i, image_of(coding, i)->stream,
             image_of(coding, i)->stream_bytes);
    return !coding->code;
}

// Consecutive planes, filled if they are to be encoded.
static bool make_planes(struct coding *coding, size_t at[])
{
    size_t bytes = 0;
    for (int i = 0; i < coding->test->in_flight; i++) {
        const struct conv_image *image = &image_of(coding, i)->image;
        at[i] = bytes;
        bytes += conv_image_bytes(image);
    }
    coding->d_planes = take(coding, bytes);
    for (int i = 0; i < coding->test->in_flight && !coding->test->decode; i++) {
        const struct conv_image *image = &image_of(coding, i)->image;
        for (int c = 0; c < image->channels; c++) {
            size_t plane = (size_t)c * plane_bytes(image);
            size_t rows = (size_t)image->plane[c].stride * (size_t)image->height;
            fill(coding, coding->d_planes + plane, at, i, image->plane[c].data, rows);
        }
    }
    return !coding->code;
}

static bool prepare_decode(struct coding *coding, const size_t streams[], const size_t planes[])
{
    struct conv_decode_image *table = coding->h_table;
    int count = coding->test->in_flight;
    size_t scratch = 0;
    for (int i = 0; i < count; i++) {
        const struct conv_bench_image *source = image_of(coding, i);
        const struct conv_image *image = &source->image;
        table[i] = (struct conv_decode_image){
            .d_stream = coding->d_streams + streams[i],
            .stride = (int64_t)conv_image_stride(image->width, image->depth),
            .stream_bytes = (uint32_t)source->stream_bytes,
            .width = image->width,
            .height = image->height,
            .channels = image->channels,
            .depth = image->depth,
        };
        for (int c = 0; c < image->channels; c++)
            table[i].d_plane[c] = coding->d_planes + planes[i] + (size_t)c * plane_bytes(image);
        scratch += conv_cuda_decode_scratch(&table[i]);
    }
    coding->d_scratch = take(coding, scratch);
    coding->d_out = take(coding, (size_t)count * sizeof(uint32_t));
    coding->d_table = take(coding, (size_t)count * sizeof *table);
    conv_cuda_decode_plan(table, count, coding->d_scratch);
    copy(coding, coding->d_table, table, (size_t)count * sizeof *table, cudaMemcpyHostToDevice);
    return !coding->code;
}

static bool prepare_encode(struct coding *coding, struct conv_encode_plan *plan,
                           const size_t planes[])
{
    struct conv_encode_image *table = coding->h_table;
    int count = coding->test->in_flight;
    for (int i = 0; i < count; i++) {
        const struct conv_image *image = &image_of(coding, i)->image;
        table[i] = (struct conv_encode_image){
            .stride = (int64_t)conv_image_stride(image->width, image->depth),
            .width = image->width,
            .height = image->height,
            .channels = image->channels,
            .depth = image->depth,
        };
        for (int c = 0; c < image->channels; c++)
            table[i].plane[c] = coding->d_planes + planes[i] + (size_t)c * plane_bytes(image);
    }
    if (conv_cuda_encode_plan(plan, table, count))
        return false;
    coding->d_scratch = take(coding, plan->scratch_bytes);
    coding->d_out = take(coding, plan->output_bytes);
    coding->d_results = take(coding, (size_t)count * sizeof *coding->d_results);
    coding->d_table = take(coding, (size_t)count * sizeof *table);
    copy(coding, coding->d_table, table, (size_t)count * sizeof *table, cudaMemcpyHostToDevice);
    return !coding->code;
}

// --- time ----------------------------------------------------------------------------------------

static void mark(void *context, const char *kernel)
{
    struct coding *coding = context;
    struct conv_coding_test *test = coding->test;
    if (coding->marked == CONV_CODING_MOST_KERNELS) // more are not timed
        return;
    char *name = test->kernels[coding->marked].name;
    snprintf(name, sizeof test->kernels[0].name, "%s", kernel);
    note(coding, cudaEventRecord(coding->events[++coding->marked], coding->stream));
}

static bool run_once(struct coding *coding, const struct conv_encode_plan *plan, int run)
{
    const struct conv_coding_test *test = coding->test;
    struct conv_decode_batch decode = {
        .images = coding->h_table,
        .d_images = coding->d_table,
        .count = test->in_flight,
        .at_once = test->in_flight,
        .threads = test->threads,
        .d_status = (uint32_t *)(void *)coding->d_out,
        .stream = coding->stream,
        .mark = mark,
        .context = coding,
    };
    struct conv_encode_batch encode = {
        .plan = *plan,
        .d_images = coding->d_table,
        .d_scratch = coding->d_scratch,
        .output = coding->d_out,
        .results = coding->d_results,
        .stream = coding->stream,
        .mark = mark,
        .context = coding,
    };
    coding->marked = 0;
    note(coding, cudaEventRecord(coding->events[0], coding->stream));
    if (test->decode ? conv_cuda_decode(&decode) : conv_cuda_encode(&encode))
        note(coding, cudaGetLastError());
    if (!coding->code)
        note(coding, cudaStreamSynchronize(coding->stream));
    for (int k = 0; k < coding->marked && !coding->code; k++) {
        float ms = 0;
        note(coding, cudaEventElapsedTime(&ms, coding->events[k], coding->events[k + 1]));
        coding->ms[k][run] = (double)ms;
    }
    return !coding->code;
}

static void find_medians(struct coding *coding)
{
    struct conv_coding_test *test = coding->test;
    test->kernel_count = coding->marked;
    test->ms = 0;
    for (int k = 0; k < coding->marked; k++) {
        test->kernels[k].ms = conv_stat_median(coding->ms[k], test->repeats);
        test->ms += test->kernels[k].ms;
    }
}

// --- results -------------------------------------------------------------------------------------

// Checks the last copy of each image, which shared the device with all the others.
static void check_decoded(struct coding *coding, const size_t planes[])
{
    struct conv_coding_test *test = coding->test;
    int first = test->in_flight - test->image_count;
    for (int i = first < 0 ? 0 : first; i < test->in_flight && !coding->code; i++) {
        const struct conv_image *image = &image_of(coding, i)->image;
        size_t bytes = conv_image_bytes(image);
        uint8_t *memory = malloc(bytes);
        uint32_t state = CONV_DECODE_RESULTS;
        struct conv_image got;
        struct conv_image_difference where;
        if (!memory)
            return note(coding, cudaErrorMemoryAllocation);
        conv_image_lay_out(&got, image, memory);
        copy(coding, memory, coding->d_planes + planes[i], bytes, cudaMemcpyDeviceToHost);
        copy(coding, &state, coding->d_out + (size_t)i * sizeof state, sizeof state,
             cudaMemcpyDeviceToHost);
        if (!coding->code)
            note(coding, cudaStreamSynchronize(coding->stream));
        test->wrong += state != CONV_DECODE_DECODED || conv_image_differ(image, &got, &where);
        free(memory);
    }
}

static void take_encoded(struct coding *coding)
{
    struct conv_coding_test *test = coding->test;
    size_t count = (size_t)test->in_flight;
    struct conv_encode_result *results = calloc(count, sizeof *results);
    if (!results)
        return note(coding, cudaErrorMemoryAllocation);
    copy(coding, results, coding->d_results, count * sizeof *results, cudaMemcpyDeviceToHost);
    if (!coding->code)
        note(coding, cudaStreamSynchronize(coding->stream));
    test->chunk_bytes = 0;
    for (size_t i = 0; i < count; i++)
        test->chunk_bytes += results[i].size;
    int first = test->in_flight - test->image_count;
    for (int i = first < 0 ? 0 : first; i < test->in_flight && !coding->code; i++) {
        uint8_t *chunks = malloc(results[i].size);
        if (!chunks) {
            note(coding, cudaErrorMemoryAllocation);
            break;
        }
        copy(coding, chunks, coding->d_out + results[i].offset, results[i].size,
             cudaMemcpyDeviceToHost);
        if (!coding->code)
            note(coding, cudaStreamSynchronize(coding->stream));
        if (!coding->code && test->take_chunks)
            test->take_chunks(test->context, i % test->image_count, chunks, results[i].size);
        free(chunks);
    }
    free(results);
}

// --- all of it -----------------------------------------------------------------------------------

static void close_coding(struct coding *coding)
{
    void *memory[] = {coding->d_streams, coding->d_planes, coding->d_scratch,
                      coding->d_out,     coding->d_table,  coding->d_results};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i])
            (void)cudaFree(memory[i]);
    for (int i = 0; i <= CONV_CODING_MOST_KERNELS; i++)
        if (coding->events[i])
            (void)cudaEventDestroy(coding->events[i]);
    if (coding->stream)
        (void)cudaStreamDestroy(coding->stream);
    free(coding->h_table);
}

static void run_test(struct coding *coding, size_t streams[], size_t planes[])
{
    const struct conv_coding_test *test = coding->test;
    struct conv_encode_plan plan = {0};
    bool ready = (!test->decode || make_streams(coding, streams)) && make_planes(coding, planes);
    ready = ready && (test->decode ? prepare_decode(coding, streams, planes)
                                   : prepare_encode(coding, &plan, planes));
    if (!ready)
        return note(coding, cudaErrorInvalidValue);
    for (int r = -1; r < test->repeats; r++) // -1: warms up
        if (!run_once(coding, &plan, r < 0 ? 0 : r))
            return;
    find_medians(coding);
    if (test->decode)
        check_decoded(coding, planes);
    else
        take_encoded(coding);
}

enum conv_status conv_bench_cuda_time_coding(int ordinal, struct conv_coding_test *test,
                                             struct conv_err *err)
{
    struct coding coding = {.test = test};
    size_t count = (size_t)test->in_flight;
    size_t entry = sizeof(struct conv_decode_image) > sizeof(struct conv_encode_image)
                       ? sizeof(struct conv_decode_image)
                       : sizeof(struct conv_encode_image);
    enum conv_status status = CONV_OK;
    if (test->repeats > MOST_REPEATS)
        test->repeats = MOST_REPEATS;
    size_t *places = calloc(2 * count, sizeof *places);
    coding.h_table = calloc(count, entry);
    test->wrong = 0;
    note(&coding, cudaSetDevice(ordinal));
    if (!coding.code)
        note(&coding, cudaStreamCreateWithFlags(&coding.stream, cudaStreamNonBlocking));
    for (int i = 0; i <= CONV_CODING_MOST_KERNELS && !coding.code; i++)
        note(&coding, cudaEventCreate(&coding.events[i]));
    if (!places || !coding.h_table)
        status = conv_err_memory(err, "no memory for %d images", test->in_flight);
    else if (!coding.code)
        run_test(&coding, places, places + count);
    if (!status && coding.code)
        status = conv_cuda_device_report(err, coding.code, "time its coders");
    close_coding(&coding);
    free(places);
    return status;
}
