// SPDX-License-Identifier: MIT
// Layers on one core or on several, as threads that share the images of a launch.
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/clock.h"
#include "bench/bench_layers.h"
#include "bench/bench_time.h"
#include "engine/memory.h"

#define TASKS_PER_THREAD 8
#define FMA_FLOPS (4e9 / CONV_BENCH_SHORTER) // of each thread: some tens of milliseconds
#define SCRATCH_ALIGN 64

struct worker {
    struct conv_bench_layers_place *place;
    pthread_t thread; // of all but the first, which is the caller's
    sem_t begin;
    void *scratch;
    double flops; // of fma_task
};

// What all threads do together: tasks, numbered from 0.
typedef void (*task_fn)(struct worker *worker, int64_t task);

struct conv_bench_layers_place {
    const struct conv_bench_layers_data *data;
    struct conv_layer_plan *plan;
    uint8_t *in, *out;
    size_t in_bytes, out_bytes;
    struct worker *workers;
    int count;     // of threads
    void *scratch; // of all threads
    sem_t done;

    task_fn task; // NULL: the threads end
    int64_t tasks;
    _Atomic int64_t next;
    atomic_int failed;
    int64_t images; // of this run
    int bands;      // parts of an image
    size_t bytes;   // of this copy
};

// --- threads -------------------------------------------------------------------------------------

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) { // a signal interrupted it
    }
}

static void do_tasks(struct worker *worker)
{
    struct conv_bench_layers_place *place = worker->place;
    int64_t task;
    while ((task = atomic_fetch_add(&place->next, 1)) < place->tasks)
        place->task(worker, task);
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct conv_bench_layers_place *place = worker->place;
    for (wait_for(&worker->begin); place->task; wait_for(&worker->begin)) {
        do_tasks(worker);
        sem_post(&place->done);
    }
    return NULL;
}

// Returns the time that all threads together take.
static uint64_t do_all(struct conv_bench_layers_place *place, task_fn task, int64_t tasks)
{
    place->task = task;
    place->tasks = tasks;
    place->next = 0;
    uint64_t start = conv_clock_ns();
    for (int i = 1; i < place->count; i++)
        sem_post(&place->workers[i].begin);
    do_tasks(&place->workers[0]);
    for (int i = 1; i < place->count; i++)
        wait_for(&place->done);
    return conv_clock_ns() - start;
}

static enum conv_status start_threads(struct conv_bench_layers_place *place, int wanted,
                                      struct conv_err *err)
{
    place->workers = calloc((size_t)wanted, sizeof *place->workers);
    if (!place->workers)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d threads", wanted);
    sem_init(&place->done, 0, 0);
    for (place->count = 0; place->count < wanted; place->count++) {
        struct worker *worker = &place->workers[place->count];
        worker->place = place;
        sem_init(&worker->begin, 0, 0);
        if (place->count > 0 && pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
            return conv_err_set(err, CONV_ERR_MEMORY, "cannot start %d threads", wanted);
    }
    return CONV_OK;
}

static void end_threads(struct conv_bench_layers_place *place)
{
    place->task = NULL;
    for (int i = 0; i < place->count; i++) {
        if (i > 0) {
            sem_post(&place->workers[i].begin);
            pthread_join(place->workers[i].thread, NULL);
        }
        sem_destroy(&place->workers[i].begin);
    }
    sem_destroy(&place->done);
}

// --- memory --------------------------------------------------------------------------------------

static void cpu_close(struct conv_bench_layers_place *place)
{
    if (!place)
        return;
    if (place->workers)
        end_threads(place);
    free(place->scratch);
    free(place->workers);
    conv_staging_free(place->in, place->in_bytes);
    conv_staging_free(place->out, place->out_bytes);
    free(place);
}

static void fill_input(struct worker *worker, int64_t image)
{
    struct conv_bench_layers_place *place = worker->place;
    const struct conv_bench_layers_data *data = place->data;
    size_t bytes = data->image_in * sizeof(float), out = data->image_out * sizeof(float);
    memcpy(place->in + (size_t)image * bytes,
           data->input + (size_t)(image % data->distinct) * data->image_in, bytes);
    memset(place->out + (size_t)image * out, 0, out); // the pages exist before the first run
}

static enum conv_status cpu_open(struct conv_bench_layers_place **result,
                                 const struct conv_bench_layers_data *data, int threads,
                                 struct conv_err *err)
{
    struct conv_bench_layers_place *place = *result = calloc(1, sizeof *place);
    if (!place)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    size_t images = (size_t)data->shape.images;
    place->data = data;
    place->in_bytes = images * data->image_in * sizeof(float);
    place->out_bytes = images * data->image_out * sizeof(float);
    size_t left = data->memory;
    if (place->in_bytes + place->out_bytes > left / 4 * 3)
        return conv_err_set(err, CONV_ERR_LIMIT, "%zu MiB of memory are needed, of %zu MiB",
                            (place->in_bytes + place->out_bytes) >> 20, left >> 20);
    void *memory = NULL;
    enum conv_status status = conv_staging_alloc(&memory, place->in_bytes, err);
    place->in = memory;
    memory = NULL;
    if (!status)
        status = conv_staging_alloc(&memory, place->out_bytes, err);
    place->out = memory;
    if (!status)
        status = start_threads(place, threads, err);
    if (!status)
        do_all(place, fill_input, (int64_t)images);
    return status;
}

static enum conv_status cpu_use(struct conv_bench_layers_place *place, struct conv_layer_plan *plan,
                                struct conv_err *err)
{
    size_t bytes = (plan->scratch + SCRATCH_ALIGN) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    size_t distance = bytes + CONV_LAYER_SCRATCH_GAP;
    free(place->scratch);
    place->plan = plan;
    place->scratch = aligned_alloc(SCRATCH_ALIGN, distance * (size_t)place->count);
    if (!place->scratch)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu KiB of kernel scratch",
                            bytes >> 10);
    for (int i = 0; i < place->count; i++) {
        place->workers[i].scratch = (uint8_t *)place->scratch + distance * (size_t)i;
        memset(place->workers[i].scratch, 0, bytes);
    }
    return CONV_OK;
}

// --- timed work ----------------------------------------------------------------------------------

static void flush(const struct conv_bench_layers_place *place, int64_t images)
{
    const struct conv_bench_layers_data *data = place->data;
    conv_cache_flush(place->in, (size_t)images * data->image_in * sizeof(float));
    conv_cache_flush(place->out, (size_t)images * data->image_out * sizeof(float));
}

// The images are dealt to parts of nearly equal size; with few images, each is cut into bands of
// rows as well.
static void run_task(struct worker *worker, int64_t task)
{
    struct conv_bench_layers_place *place = worker->place;
    const struct conv_bench_layers_data *data = place->data;
    int64_t parts = place->tasks / place->bands, part = task / place->bands;
    int64_t first = part * place->images / parts, end = (part + 1) * place->images / parts;
    int64_t band = task % place->bands, row = band * data->out_height / place->bands;
    struct conv_layer_batch batch = {
        .images = end - first,
        .src = place->in + (size_t)first * data->image_in * sizeof(float),
        .src_row = (int64_t)sizeof(float) * data->shape.width,
        .src_plane = (int64_t)sizeof(float) * data->shape.width * data->shape.height,
        .src_image = (int64_t)(sizeof(float) * data->image_in),
        .dst = place->out + (size_t)first * data->image_out * sizeof(float),
        .first_row = (int)row,
        .rows = (int)((band + 1) * data->out_height / place->bands - row),
        .scratch = worker->scratch,
    };
    if (batch.images && batch.rows && place->plan->variant->run(place->plan, &batch))
        place->failed = 1;
}

static enum conv_status cpu_run(struct conv_bench_layers_place *place, int64_t images, uint64_t *ns,
                                struct conv_err *err)
{
    int64_t wanted = place->count == 1 ? 1 : (int64_t)place->count * TASKS_PER_THREAD;
    int64_t parts = images < wanted ? images : wanted;
    flush(place, images);
    place->images = images;
    place->bands = (int)(wanted / parts);
    if (place->bands > place->data->out_height)
        place->bands = place->data->out_height;
    *ns = do_all(place, run_task, parts * place->bands);
    return place->failed
               ? conv_err_set(err, CONV_ERR_DEVICE, "%s failed", place->plan->variant->name)
               : CONV_OK;
}

static enum conv_status cpu_read(struct conv_bench_layers_place *place, int64_t image, float *to,
                                 struct conv_err *err)
{
    (void)err;
    size_t bytes = place->data->image_out * sizeof(float);
    memcpy(to, place->out + (size_t)image * bytes, bytes);
    return CONV_OK;
}

static void copy_task(struct worker *worker, int64_t task)
{
    struct conv_bench_layers_place *place = worker->place;
    size_t first = place->bytes * (size_t)task / (size_t)place->tasks;
    size_t end = place->bytes * (size_t)(task + 1) / (size_t)place->tasks;
    const uint8_t *src = place->in_bytes > place->out_bytes ? place->in : place->out;
    memcpy(place->out + first, src + place->bytes + first, end - first);
}

// Copies within the output, or from a larger input into the output. That is less than the layer
// reads and writes, so the time is scaled.
static enum conv_status cpu_copy(struct conv_bench_layers_place *place, int64_t images,
                                 uint64_t *ns, struct conv_err *err)
{
    (void)err;
    const struct conv_bench_layers_data *data = place->data;
    size_t in = (size_t)images * data->image_in, out = (size_t)images * data->image_out;
    size_t most = (in > out ? in : out) / 2 * sizeof(float);
    place->bytes = in > out && most > out * sizeof(float) ? out * sizeof(float) : most;
    flush(place, images);
    *ns = do_all(place, copy_task, place->count == 1 ? 1 : place->count * TASKS_PER_THREAD);
    double whole = conv_bench_layers_bytes(data, (double)images) / 2;
    *ns = (uint64_t)((double)*ns * whole / (double)(place->bytes ? place->bytes : 1));
    return CONV_OK;
}

static void fma_task(struct worker *worker, int64_t task)
{
    (void)task;
    worker->flops += conv_bench_layers_fma_cpu(FMA_FLOPS);
}

static enum conv_status cpu_fma(struct conv_bench_layers_place *place, double *flops, uint64_t *ns,
                                struct conv_err *err)
{
    (void)err;
    *flops = 0;
    for (int i = 0; i < place->count; i++)
        place->workers[i].flops = 0;
    *ns = do_all(place, fma_task, place->count);
    for (int i = 0; i < place->count; i++)
        *flops += place->workers[i].flops;
    return CONV_OK;
}

const struct conv_bench_layers_ops conv_bench_layers_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .use = cpu_use,
    .run = cpu_run,
    .read = cpu_read,
    .copy = cpu_copy,
    .fma = cpu_fma,
};
