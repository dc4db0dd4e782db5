// SPDX-License-Identifier: MIT
#include "engine/operation.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/parallel.h"

void conv_operation_close(struct conv_operation *operation)
{
    conv_layer_context_close(operation->layer);
    conv_bank_context_close(operation->bank);
    *operation = (struct conv_operation){0};
}

const struct conv_device_ops *conv_operation_device(const struct conv_operation *operation,
                                                    int *ordinal)
{
    const struct conv_bank_context *bank = operation->bank;
    *ordinal = bank ? bank->config.device : operation->layer->device;
    return bank ? bank->ops : operation->layer->ops;
}

enum conv_element conv_operation_output(const struct conv_operation *operation)
{
    return operation->bank ? CONV_ELEMENT_F32 : operation->layer->layer.output;
}

void conv_operation_describe(const struct conv_operation *operation, char *text, size_t size)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    if (ops->place == CONV_ON_CPU)
        snprintf(text, size, "%s", ops->name);
    else
        snprintf(text, size, "%s:%d", ops->name, ordinal);
}

bool conv_operation_bytes(const struct conv_operation *operation, int height, int width, size_t *in,
                          size_t *out)
{
    return operation->bank
               ? conv_bank_context_bytes(operation->bank, height, width, in, out)
               : conv_layer_context_bytes(&operation->layer->layer, height, width, in, out);
}

enum conv_status conv_operation_stream_open(const struct conv_operation *operation,
                                            struct conv_workers *workers, int threads,
                                            struct conv_tensor_stream **stream,
                                            struct conv_err *err)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    return ops->tensors->stream_open(ordinal, workers, workers ? threads : 1, stream, err);
}

void conv_operation_stream_close(const struct conv_operation *operation,
                                 struct conv_tensor_stream *stream)
{
    int ordinal;
    if (stream)
        conv_operation_device(operation, &ordinal)->tensors->stream_close(stream);
}

enum conv_status conv_operation_stream_staging(const struct conv_operation *operation,
                                               struct conv_tensor_stream *stream, size_t in_bytes,
                                               size_t out_bytes, void **h_in, void **h_out,
                                               struct conv_err *err)
{
    int ordinal;
    const struct conv_device_ops *ops = conv_operation_device(operation, &ordinal);
    return ops->tensors->stream_staging(stream, in_bytes, out_bytes, h_in, h_out, err);
}

enum conv_status conv_operation_run(const struct conv_operation *operation,
                                    struct conv_tensor_stream *stream,
                                    const struct conv_layer_shape *shape, int64_t images,
                                    const void *src, void *dst, struct conv_err *err)
{
    if (images <= 0)
        return CONV_OK;
    return operation->bank
               ? conv_bank_context_run(operation->bank, stream, shape, images, src, dst, err)
               : conv_layer_context_run(operation->layer, stream, shape, images, src, dst, err);
}

// --- a whole tensor ------------------------------------------------------------------------------

// Bytes of a chunk, input and output together. On the CPU both stay in the second-level cache.
// Copies of 16 MiB reach nine tenths of the bus's speed.
#define CPU_CHUNK ((size_t)1 << 20)
#define CUDA_CHUNK ((size_t)16 << 20)
#define CUDA_WORK ((size_t)256 << 20) // a bank's maps of one chunk in the device's memory
// Streams that overlap copies in both directions and kernels, with some that read and write files.
#define CUDA_WORKERS 8
#define WAIT_NS 100000000u // a signal handler cannot wake a condition

struct run {
    const struct conv_operation_flow *flow;
    struct conv_operation_flow_use use;
    struct conv_layer_shape shape;
    struct conv_lock lock;
    pthread_cond_t turn;
    bool is_reading;    // in order; protected by `lock`, as all below
    int64_t next;       // image to be read
    int64_t next_write; // of ordered writes
    enum conv_status status;
    struct conv_err *err; // of the first failure
};

struct worker {
    int number;
    struct run *run;
};

// --- how much at a time --------------------------------------------------------------------------

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

enum conv_status conv_operation_flow_plan(struct conv_operation_flow_use *use,
                                          const struct conv_operation_flow *flow,
                                          struct conv_err *err)
{
    const struct conv_operation *operation = &flow->operation;
    int ordinal;
    bool on_cpu = conv_operation_device(operation, &ordinal)->place == CONV_ON_CPU;
    size_t each;
    if (!conv_operation_bytes(operation, flow->height, flow->width, &use->in, &use->out) ||
        __builtin_add_overflow(use->in, use->out, &each))
        return conv_err_usage(err, "planes of %d x %d are too small or too large for this layer",
                              flow->height, flow->width);
    size_t limit = flow->mem_limit ? flow->mem_limit : SIZE_MAX;
    if (each > limit)
        return conv_err_hint(
            err, CONV_HINT_MEM_LIMIT, each,
            conv_err_limit(err, "one image and its result take %zu MiB, the limit is %zu",
                           (each >> 20) + 1, limit >> 20));
    int jobs = on_cpu || flow->jobs < CUDA_WORKERS ? flow->jobs : CUDA_WORKERS;
    int64_t images = flow->images > 0 ? flow->images : 1;
    int64_t chunk = (int64_t)((on_cpu ? CPU_CHUNK : CUDA_CHUNK) / each);
    if (chunk > ceil_div(images, jobs))
        chunk = ceil_div(images, jobs);
    if (chunk > (int64_t)(limit / each))
        chunk = (int64_t)(limit / each);
    size_t work = 0; // besides the input
    if (!on_cpu && operation->bank)
        work = conv_bank_context_work(operation->bank, flow->height, flow->width);
    if (work > 0 && chunk > (int64_t)(CUDA_WORK / work))
        chunk = (int64_t)(CUDA_WORK / work);
    use->chunk = chunk > 0 ? chunk : 1;
    int64_t workers = ceil_div(images, use->chunk);
    int64_t most = (int64_t)(limit / each) / use->chunk;
    workers = workers > most ? most : workers;
    use->workers = workers > jobs ? jobs : workers > 0 ? (int)workers : 1;
    use->threads = on_cpu && !operation->bank ? flow->jobs / use->workers : 1;
    return CONV_OK;
}

// --- one worker ----------------------------------------------------------------------------------

static void fail(struct run *run, enum conv_status status, const struct conv_err *reason)
    CONV_TAKES(run->lock)
{
    conv_lock_acquire(&run->lock);
    if (!run->status) {
        run->status = status;
        if (run->err)
            *run->err = *reason;
    }
    pthread_cond_broadcast(&run->turn);
    conv_lock_release(&run->lock);
}

// The first image of the next chunk; -1: there is none, or the run has failed.
static int64_t take_chunk(struct run *run, int64_t *count) CONV_TAKES(run->lock)
{
    conv_lock_acquire(&run->lock);
    int64_t left = run->flow->images - run->next, first = run->next;
    bool over = run->status || left <= 0;
    *count = left < run->use.chunk ? left : run->use.chunk;
    if (!over)
        run->next += *count;
    conv_lock_release(&run->lock);
    return over ? -1 : first;
}

static bool is_over(struct run *run) CONV_TAKES(run->lock)
{
    conv_lock_acquire(&run->lock);
    bool over = run->status || run->next >= run->flow->images;
    conv_lock_release(&run->lock);
    return over;
}

static int64_t read_chunk(struct run *run, int64_t *count, void *h_in, enum conv_status *status,
                          struct conv_err *err)
{
    const struct conv_operation_flow *flow = run->flow;
    int64_t first = take_chunk(run, count);
    if (first >= 0 && conv_cancel_is_asked(flow->stop))
        *status = conv_err_cancelled(err);
    else if (first >= 0)
        *status = flow->read(flow->user, first, *count, h_in, err);
    return first;
}

// One worker at a time. The others wait for a condition, where a signal reaches them, not for a
// lock.
static int64_t read_in_turn(struct run *run, int64_t *count, void *h_in, enum conv_status *status,
                            struct conv_err *err) CONV_TAKES(run->lock)
{
    conv_lock_acquire(&run->lock);
    while (run->is_reading)
        (void)conv_lock_wait(&run->lock, &run->turn, WAIT_NS);
    run->is_reading = true;
    conv_lock_release(&run->lock);
    int64_t first = read_chunk(run, count, h_in, status, err);
    conv_lock_acquire(&run->lock);
    run->is_reading = false;
    pthread_cond_broadcast(&run->turn);
    conv_lock_release(&run->lock);
    return first;
}

// Waits until the images before `first` are written. False if the run has failed.
static bool wait_turn(struct run *run, int64_t first) CONV_TAKES(run->lock)
{
    conv_lock_acquire(&run->lock);
    while (run->next_write != first && !run->status)
        (void)conv_lock_wait(&run->lock, &run->turn, WAIT_NS);
    bool good = !run->status;
    conv_lock_release(&run->lock);
    return good;
}

static void end_turn(struct run *run, int64_t count) CONV_TAKES(run->lock)
{
    const struct conv_operation_flow *flow = run->flow;
    conv_lock_acquire(&run->lock);
    run->next_write += count;
    pthread_cond_broadcast(&run->turn);
    if (flow->progress)
        flow->progress(flow->user, count);
    conv_lock_release(&run->lock);
}

// The time now, which is when the next step begins.
static uint64_t end_step(const struct worker *worker, enum conv_operation_flow_step step,
                         uint64_t start, int64_t images)
{
    const struct conv_operation_flow *flow = worker->run->flow;
    uint64_t now = conv_clock_ns();
    if (flow->timed)
        flow->timed(flow->user, worker->number, step, start, now, images);
    return now;
}

static enum conv_status run_chunks(const struct worker *worker, struct conv_tensor_stream *stream,
                                   struct conv_err *err)
{
    struct run *run = worker->run;
    const struct conv_operation_flow *flow = run->flow;
    void *h_in, *h_out;
    size_t chunk = (size_t)run->use.chunk;
    enum conv_status status = conv_operation_stream_staging(
        &flow->operation, stream, chunk * run->use.in, chunk * run->use.out, &h_in, &h_out, err);
    while (!status) {
        uint64_t start = conv_clock_ns();
        int64_t count, first = flow->ordered_read ? read_in_turn(run, &count, h_in, &status, err)
                                                  : read_chunk(run, &count, h_in, &status, err);
        if (first < 0)
            break;
        start = end_step(worker, CONV_OPERATION_FLOW_READ, start, count);
        if (!status)
            status =
                conv_operation_run(&flow->operation, stream, &run->shape, count, h_in, h_out, err);
        if (status)
            break;
        (void)end_step(worker, CONV_OPERATION_FLOW_RUN, start, count);
        if (flow->ordered_write && !wait_turn(run, first))
            break;
        start = conv_clock_ns();
        status = flow->write(flow->user, first, count, h_out, err);
        (void)end_step(worker, CONV_OPERATION_FLOW_WRITE, start, count);
        if (!status)
            end_turn(run, count);
    }
    return status;
}

static void work(void *context, int, int number)
{
    struct run *run = context;
    const struct conv_operation *operation = &run->flow->operation;
    const struct worker worker = {number, run};
    struct conv_tensor_stream *stream = NULL;
    struct conv_workers *helpers = NULL;
    struct conv_err err = {0};
    if (is_over(run)) // others have done what this worker would have
        return;
    enum conv_status status = conv_workers_open(&helpers, run->use.threads, &err);
    if (!status)
        status = conv_operation_stream_open(operation, helpers, run->use.threads, &stream, &err);
    if (!status)
        status = run_chunks(&worker, stream, &err);
    if (status)
        fail(run, status, &err);
    conv_operation_stream_close(operation, stream);
    conv_workers_close(helpers);
}

// --- all of them ---------------------------------------------------------------------------------

static enum conv_status run_workers(struct run *run, struct conv_err *err)
{
    struct conv_workers *workers;
    int count = run->use.workers;
    if (conv_workers_open(&workers, count, err))
        return conv_err_workers(err, count);
    conv_workers_run(workers, count, work, run, count);
    conv_workers_close(workers);
    return run->status;
}

enum conv_status conv_operation_flow_run(const struct conv_operation_flow *flow,
                                         struct conv_err *err)
{
    struct run run = {.flow = flow, .err = err};
    enum conv_status status = conv_operation_flow_plan(&run.use, flow, err);
    if (status || flow->images <= 0)
        return status;
    run.shape = (struct conv_layer_shape){run.use.chunk, flow->height, flow->width};
    conv_lock_init(&run.lock);
    conv_lock_init_condition(&run.turn);
    status = run_workers(&run, err);
    pthread_cond_destroy(&run.turn);
    conv_lock_destroy(&run.lock);
    return status;
}
