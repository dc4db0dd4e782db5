// SPDX-License-Identifier: MIT
#include "bench/bench_codec.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/memory.h"
#include "image/interleave.h"

#define ROUNDS 5
#define ROUND_NS (200000000u / CONV_BENCH_SHORTER)

enum work { DECODE, ENCODE, BOTH, WORKS };
static const char *const work_names[] = {"decode", "encode", "decode + encode"};

struct thread {
    struct conv_codec *codec;
    uint8_t *planes;                             // of any image
    double samples, pixels, images, ns, busy_ns; // of a round; busy: time of a core
    struct conv_err err;
};

struct bench {
    const struct conv_bench_images *images;
    struct conv_workers *workers;
    struct thread *threads;
    enum work work;
    atomic_uint next; // image
};

static enum conv_status code(struct thread *thread, const struct conv_bench_image *image,
                             enum work work)
{
    enum conv_status status = CONV_OK;
    if (work != ENCODE) {
        struct conv_image decoded;
        conv_image_lay_out(&decoded, &image->header.shape, thread->planes);
        status = conv_png_format.decode(thread->codec, image->file.data, image->file.size,
                                        &image->header, &decoded, NULL, &thread->err);
    }
    struct conv_encoded bytes;
    if (!status && work != DECODE)
        status = conv_png_format.encode(thread->codec, &image->image, NULL, 0, image->image.height,
                                        &bytes, &thread->err);
    return status;
}

// Takes images in turn until the time is over. The last image counts, and so does its time.
static void run_thread(void *context, int, int number)
{
    struct bench *bench = context;
    struct thread *thread = &bench->threads[number];
    uint64_t start = conv_clock_ns(), busy_start = conv_clock_thread_ns();
    thread->samples = thread->pixels = thread->images = thread->ns = 0;
    while (thread->ns < ROUND_NS) {
        unsigned next = atomic_fetch_add(&bench->next, 1);
        const struct conv_bench_image *image =
            &bench->images->images[next % (unsigned)bench->images->count];
        const struct conv_image *shape = &image->header.shape;
        if (code(thread, image, bench->work))
            return;
        thread->samples += (double)(conv_interleave_bytes(shape) * (size_t)shape->height);
        thread->pixels += (double)shape->width * shape->height;
        thread->images++;
        thread->ns = (double)(conv_clock_ns() - start);
    }
    thread->busy_ns = (double)(conv_clock_thread_ns() - busy_start);
}

// Per second, in each round; CORE_MB: of a core, which other work on the machine affects less.
enum { MB, MPIX, IMAGES, CORE_MB, RATES };

// Runs `count` threads for a round. The rates are 0 before.
static enum conv_status run_round(struct bench *bench, int count, double rates[RATES],
                                  struct conv_err *err)
{
    double samples = 0, busy_ns = 0;
    conv_workers_run(bench->workers, count, run_thread, bench, count);
    for (int i = 0; i < count; i++) {
        const struct thread *thread = &bench->threads[i];
        if (thread->err.status)
            return conv_err_set(err, thread->err.status, "%s", thread->err.text);
        rates[MB] += thread->samples / thread->ns * 1e3;
        rates[MPIX] += thread->pixels / thread->ns * 1e3;
        rates[IMAGES] += thread->images / thread->ns * 1e9;
        samples += thread->samples;
        busy_ns += thread->busy_ns;
    }
    rates[CORE_MB] = busy_ns > 0 ? samples / busy_ns * 1e3 : 0;
    return CONV_OK;
}

// The rates of each kind of work, with `count` threads.
static enum conv_status measure(struct bench *bench, int count,
                                struct conv_stat rates[WORKS][RATES], struct conv_err *err)
{
    double found[WORKS][RATES][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int w = 0; w < WORKS; w++) {
            double once[RATES] = {0};
            bench->work = (enum work)w;
            enum conv_status status = run_round(bench, count, once, err);
            if (status)
                return status;
            for (int r = 0; r < RATES; r++)
                found[w][r][round] = once[r];
        }
    for (int w = 0; w < WORKS; w++)
        for (int r = 0; r < RATES; r++)
            rates[w][r] = conv_stat_sort(found[w][r], ROUNDS);
    return CONV_OK;
}

static void print(const struct conv_bench_options *options, const struct conv_bench_images *images,
                  struct conv_stat rates[WORKS][RATES], struct conv_stat one[WORKS][RATES])
{
    if (options->format != CONV_BENCH_JSON)
        printf("%d %s, %.1f Mpix, %.1f MB of samples; %d %s, encoded after %s; MB/s: median, "
               "slowest and fastest of %d runs; a core: per second of its time\n"
               "%-16s %9s %9s %9s %9s %9s %11s %10s\n",
               images->count, images->count == 1 ? "image" : "images", (double)images->pixels / 1e6,
               (double)images->samples / 1e6, options->jobs,
               options->jobs == 1 ? "thread" : "threads", options->choice->bench.filter, ROUNDS, "",
               "MB/s", "slowest", "fastest", "a core", "Mpix/s", "images/s", "one thread");
    for (int w = 0; w < WORKS; w++) {
        const struct conv_stat *rate = rates[w];
        double speed_up = rate[MB].median / one[w][MB].median;
        if (options->format == CONV_BENCH_JSON)
            printf("{\"type\":\"bench-codec-jobs\",\"work\":\"%s\",\"jobs\":%d,\"mb_s\":%.2f,"
                   "\"mb_s_min\":%.2f,\"mb_s_max\":%.2f,\"mb_s_core\":%.2f,\"rounds\":%d,"
                   "\"mpix_s\":%.3f,\"images_s\":%.2f,\"speed_up\":%.3f}\n",
                   work_names[w], options->jobs, rate[MB].median, rate[MB].min, rate[MB].max,
                   rate[CORE_MB].median, ROUNDS, rate[MPIX].median, rate[IMAGES].median, speed_up);
        else
            printf("%-16s %9.0f %9.0f %9.0f %9.0f %9.1f %11.0f %9.2fx\n", work_names[w],
                   rate[MB].median, rate[MB].min, rate[MB].max, rate[CORE_MB].median,
                   rate[MPIX].median, rate[IMAGES].median, speed_up);
    }
}

enum conv_status conv_bench_codec_jobs(const struct conv_bench_options *options,
                                       const struct conv_bench_images *images, struct conv_err *err)
{
    struct conv_stat rates[WORKS][RATES], one[WORKS][RATES];
    struct bench bench = {.images = images};
    bench.threads = calloc((size_t)options->jobs, sizeof *bench.threads);
    enum conv_status status = bench.threads ? conv_workers_open(&bench.workers, options->jobs, err)
                                            : conv_err_memory(err, "out of memory");
    for (int i = 0; i < options->jobs && !status; i++) {
        struct thread *thread = &bench.threads[i];
        thread->planes = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, images->most_bytes);
        status = thread->planes ? conv_codec_open(&thread->codec, &conv_png_format,
                                                  &options->choice->outputs.codec, err)
                                : conv_err_memory(err, "out of memory");
    }
    if (!status)
        status = measure(&bench, 1, one, err);
    if (!status)
        status = measure(&bench, options->jobs, rates, err);
    if (!status)
        print(options, images, rates, one);
    conv_workers_close(bench.workers);
    for (int i = 0; bench.threads && i < options->jobs; i++) {
        conv_codec_close(bench.threads[i].codec);
        free(bench.threads[i].planes);
    }
    free(bench.threads);
    return status;
}
