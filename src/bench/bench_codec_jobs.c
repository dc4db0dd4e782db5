// SPDX-License-Identifier: MIT
#include "bench/bench_codec.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "png/cpu/interleave.h"

#define ROUNDS 5
#define ROUND_NS (200000000u / CONV_BENCH_SHORTER)

enum work { DECODE, ENCODE, BOTH, WORKS };
static const char *const work_names[] = {"decode", "encode", "decode + encode"};

struct bench {
    const struct conv_bench_images *images;
    enum work work;
    atomic_uint next; // image
};

struct worker {
    struct bench *bench;
    struct conv_codec *codec;
    uint8_t *planes; // of any image
    pthread_t thread;
    double samples_per_ns, pixels_per_ns, images_per_ns;
    double samples, busy_ns; // busy: time of a core
    struct conv_err err;
};

// --- one thread ----------------------------------------------------------------------------------

static enum conv_status code(const struct worker *worker, const struct conv_bench_image *image,
                             struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (worker->bench->work != ENCODE) {
        struct conv_image decoded;
        conv_bench_images_place(&decoded, &image->header.shape, worker->planes);
        status = conv_png_format.decode(worker->codec, image->file.data, image->file.size,
                                        &image->header, &decoded, err);
    }
    struct conv_encoded bytes;
    if (!status && worker->bench->work != DECODE)
        status = conv_png_format.encode(worker->codec, &image->filtered, NULL, &bytes, err);
    return status;
}

// Takes images in turn until the time is over. The last image counts, and so does its time.
static void *work(void *argument)
{
    struct worker *worker = argument;
    struct bench *bench = worker->bench;
    uint64_t start = conv_clock_ns(), busy_start = conv_clock_thread_ns(), ns = 0;
    double samples = 0, pixels = 0, images = 0;
    while (ns < ROUND_NS) {
        unsigned number = atomic_fetch_add(&bench->next, 1);
        const struct conv_bench_image *image =
            &bench->images->images[number % (unsigned)bench->images->count];
        const struct conv_image *shape = &image->header.shape;
        if (code(worker, image, &worker->err))
            return NULL;
        samples += (double)(conv_interleave_bytes(shape) * (size_t)shape->height);
        pixels += (double)shape->width * shape->height;
        images++;
        ns = conv_clock_ns() - start;
    }
    worker->busy_ns = (double)(conv_clock_thread_ns() - busy_start);
    worker->samples = samples;
    worker->samples_per_ns = samples / (double)ns;
    worker->pixels_per_ns = pixels / (double)ns;
    worker->images_per_ns = images / (double)ns;
    return NULL;
}

// --- all of them ---------------------------------------------------------------------------------

struct rates {
    double mb, mpix, images; // per second
    double core_mb;          // per second of a core, which other work on the machine affects less
    double slowest, fastest; // MB/s; of one round unused
};

static enum conv_status run_round(struct worker *workers, int count, struct rates *rates,
                                  struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    int started = 0;
    double samples = 0, busy_ns = 0;
    *rates = (struct rates){0};
    while (started < count && !status) {
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
            status = conv_err_set(err, CONV_ERR_MEMORY, "cannot start %d threads", count);
        else
            started++;
    }
    for (int i = 0; i < started; i++) {
        const struct worker *worker = &workers[i];
        pthread_join(worker->thread, NULL);
        if (!status && worker->err.status)
            status = conv_err_set(err, worker->err.status, "%s", worker->err.text);
        rates->mb += worker->samples_per_ns * 1e3;
        rates->mpix += worker->pixels_per_ns * 1e3;
        rates->images += worker->images_per_ns * 1e9;
        samples += worker->samples;
        busy_ns += worker->busy_ns;
    }
    rates->core_mb = busy_ns > 0 ? samples / busy_ns * 1e3 : 0;
    return status;
}

// The median rates of each kind of work, with `count` threads.
static enum conv_status measure(struct bench *bench, struct worker *workers, int count,
                                struct rates rates[WORKS], struct conv_err *err)
{
    double mb[WORKS][ROUNDS], mpix[WORKS][ROUNDS], per_s[WORKS][ROUNDS], core[WORKS][ROUNDS];
    enum conv_status status = CONV_OK;
    for (int round = 0; round < ROUNDS; round++) {
        for (int w = 0; w < WORKS && !status; w++) {
            struct rates rates_of;
            bench->work = (enum work)w;
            status = run_round(workers, count, &rates_of, err);
            mb[w][round] = rates_of.mb;
            mpix[w][round] = rates_of.mpix;
            per_s[w][round] = rates_of.images;
            core[w][round] = rates_of.core_mb;
        }
    }
    for (int w = 0; w < WORKS && !status; w++) {
        struct conv_stat stat = conv_stat_sort(mb[w], ROUNDS);
        rates[w] = (struct rates){
            .mb = stat.median,
            .mpix = conv_stat_median(mpix[w], ROUNDS),
            .images = conv_stat_median(per_s[w], ROUNDS),
            .core_mb = conv_stat_median(core[w], ROUNDS),
            .slowest = stat.min,
            .fastest = stat.max,
        };
    }
    return status;
}

static void print(const struct conv_bench_options *options, const struct bench *bench,
                  const struct rates rates[WORKS], const struct rates one[WORKS])
{
    const struct conv_bench_images *images = bench->images;
    if (options->format != CONV_BENCH_JSON)
        printf("%d %s, %.1f Mpix, %.1f MB of samples; %d %s, encoded after %s; MB/s: median, "
               "slowest and fastest of %d runs; a core: per second of its time\n"
               "%-16s %9s %9s %9s %9s %9s %11s %10s\n",
               images->count, images->count == 1 ? "image" : "images", (double)images->pixels / 1e6,
               (double)images->samples / 1e6, options->jobs,
               options->jobs == 1 ? "thread" : "threads", options->filter_text, ROUNDS, "", "MB/s",
               "slowest", "fastest", "a core", "Mpix/s", "images/s", "one thread");
    for (int w = 0; w < WORKS; w++) {
        if (options->format == CONV_BENCH_JSON)
            printf("{\"type\":\"bench-codec-jobs\",\"work\":\"%s\",\"jobs\":%d,\"mb_s\":%.2f,"
                   "\"mb_s_min\":%.2f,\"mb_s_max\":%.2f,\"mb_s_core\":%.2f,\"rounds\":%d,"
                   "\"mpix_s\":%.3f,\"images_s\":%.2f,\"speed_up\":%.3f}\n",
                   work_names[w], options->jobs, rates[w].mb, rates[w].slowest, rates[w].fastest,
                   rates[w].core_mb, ROUNDS, rates[w].mpix, rates[w].images,
                   rates[w].mb / one[w].mb);
        else
            printf("%-16s %9.0f %9.0f %9.0f %9.0f %9.1f %11.0f %9.2fx\n", work_names[w],
                   rates[w].mb, rates[w].slowest, rates[w].fastest, rates[w].core_mb, rates[w].mpix,
                   rates[w].images, rates[w].mb / one[w].mb);
    }
}

enum conv_status conv_bench_codec_jobs(const struct conv_bench_options *options,
                                       const struct conv_bench_images *images, struct conv_err *err)
{
    struct bench bench = {.images = images};
    struct rates rates[WORKS], one[WORKS];
    struct worker *workers = calloc((size_t)options->jobs, sizeof *workers);
    enum conv_status status =
        workers ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    for (int i = 0; i < options->jobs && !status; i++) {
        workers[i].bench = &bench;
        workers[i].planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, images->most_bytes);
        status = workers[i].planes ? conv_png_format.open(&workers[i].codec, &options->png, err)
                                   : conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    }
    if (!status)
        status = measure(&bench, workers, 1, one, err);
    if (!status)
        status = measure(&bench, workers, options->jobs, rates, err);
    if (!status)
        print(options, &bench, rates, one);
    for (int i = 0; workers && i < options->jobs; i++) {
        conv_png_format.close(workers[i].codec);
        free(workers[i].planes);
    }
    free(workers);
    return status;
}
