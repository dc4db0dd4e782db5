// SPDX-License-Identifier: MIT
// The CPU: one core, as one worker of the program, or several that share the work.
#include "bench/bench_place.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/features.h"
#include "bench/bench.h"
#include "engine/memory.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define FMA_FLOPS (4e9 / CONV_BENCH_SHORTER) // of each thread: some tens of milliseconds
#define COPY_TASKS_PER_THREAD 8

struct conv_bench_place {
    struct conv_workers *workers;
    int threads;
};

static enum conv_status cpu_open(struct conv_bench_place **result, int threads,
                                 struct conv_err *err)
{
    struct conv_bench_place *place = *result = calloc(1, sizeof *place);
    if (!place)
        return conv_err_memory(err, "no memory for the benchmark");
    place->threads = threads;
    return conv_workers_open(&place->workers, threads, err);
}

static void cpu_close(struct conv_bench_place *place)
{
    if (!place)
        return;
    conv_workers_close(place->workers);
    free(place);
}

// The pages exist before the first run.
static enum conv_status cpu_take(uint8_t **memory, size_t bytes, const char *, struct conv_err *err)
{
    void *taken = NULL;
    enum conv_status status = conv_staging_alloc(&taken, bytes, err);
    *memory = taken;
    if (!status)
        memset(taken, 0, bytes);
    return status;
}

static void cpu_release(uint8_t *memory, size_t bytes)
{
    conv_staging_free(memory, bytes);
}

static enum conv_status cpu_copy_in(uint8_t *to, const void *from, size_t bytes, const char *,
                                    struct conv_err *)
{
    memcpy(to, from, bytes);
    return CONV_OK;
}

static enum conv_status cpu_copy_out(void *to, const uint8_t *from, size_t bytes, struct conv_err *)
{
    memcpy(to, from, bytes);
    return CONV_OK;
}

static enum conv_status cpu_move(uint8_t *to, const uint8_t *from, size_t bytes,
                                 struct conv_err *err)
{
    return cpu_copy_out(to, from, bytes, err);
}

// --- timed work ----------------------------------------------------------------------------------

struct job {
    const struct conv_bench_work *work;
    atomic_int failed;
};

static void do_task(void *context, int worker, int task)
{
    struct job *job = context;
    if (job->work->run(job->work->context, worker, task, NULL))
        job->failed = 1;
}

// Writes memory back and drops it from all caches of the machine, so that the next access goes to
// memory. Does nothing on processors other than x86-64 and AArch64.
#if defined(__x86_64__)

#define LINE 64

// clflush waits for the line before it, clflushopt (Skylake, Zen and later) does not: 6 MB in
// 0.35 ms instead of 12 on a Sapphire Rapids.
static int has_clflushopt(void)
{
    unsigned eax, ebx = 0, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_CLFLUSHOPT);
}

static void flush_cache(const void *memory, size_t size)
{
    const char *line = (const char *)((uintptr_t)memory & ~(uintptr_t)(LINE - 1));
    const char *end = (const char *)memory + size;
    int fast = has_clflushopt();
    for (; line < end; line += LINE) {
        if (fast)
            __asm__ volatile("clflushopt %0" : : "m"(*line) : "memory");
        else
            __asm__ volatile("clflush %0" : : "m"(*line) : "memory");
    }
    __asm__ volatile("mfence" : : : "memory");
}

#elif defined(__aarch64__)

static void flush_cache(const void *memory, size_t size)
{
    uint64_t type;
    __asm__("mrs %0, ctr_el0" : "=r"(type));
    uintptr_t bytes = (uintptr_t)4 << (type >> 16 & 15); // of the smallest line of the data caches
    const char *line = (const char *)((uintptr_t)memory & ~(bytes - 1));
    const char *end = (const char *)memory + size;
    for (; line < end; line += bytes)
        __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
    __asm__ volatile("dsb ish" : : : "memory");
}

#else

static void flush_cache(const void *, size_t)
{
}

#endif

// A copy and the kernels must begin in the same state, or a copy after a slow kernel and one after
// a fast kernel differ by a factor of 2 to 4 where the planes fit into caches.
static enum conv_status cpu_run(struct conv_bench_place *place, const struct conv_bench_work *work,
                                uint64_t *ns, struct conv_err *err)
{
    struct job job = {.work = work};
    for (int i = 0; i < 2; i++)
        if (work->cold[i].bytes)
            flush_cache(work->cold[i].data, work->cold[i].bytes);
    uint64_t start = conv_clock_ns();
    conv_workers_run(place->workers, place->threads, do_task, &job, work->tasks);
    *ns = conv_clock_ns() - start;
    return job.failed ? conv_err_set(err, CONV_ERR_DEVICE, "%s failed", work->name) : CONV_OK;
}

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    int tasks;
};

static enum conv_status copy_task(void *context, int, int task, void *)
{
    const struct copy *copy = context;
    size_t first = copy->bytes * (size_t)task / (size_t)copy->tasks;
    size_t end = copy->bytes * (size_t)(task + 1) / (size_t)copy->tasks;
    memcpy(copy->to + first, copy->from + first, end - first);
    return CONV_OK;
}

static enum conv_status cpu_copy(struct conv_bench_place *place, uint8_t *to, const uint8_t *from,
                                 size_t bytes, uint64_t *ns, struct conv_err *err)
{
    int tasks = place->threads == 1 ? 1 : place->threads * COPY_TASKS_PER_THREAD;
    struct copy copy = {.to = to, .from = from, .bytes = bytes, .tasks = tasks};
    struct conv_bench_work work = {
        .run = copy_task,
        .context = &copy,
        .tasks = tasks,
        .name = "a copy",
        .cold = {{to, bytes}, {from, bytes}},
    };
    return cpu_run(place, &work, ns, err);
}

// --- multiply-adds in registers alone: the speed that no layer can exceed on a core --------------

// Independent sums: more than the latency (4 cycles) times the units (2) of any of these
// processors.
#define CHAINS 12

// A kernel of VECTOR, LANES floats wide; the sink keeps its loop from being optimised away. x / 2 +
// 1 converges to 2, so that no sum is subnormal.
#define FMA_LOOP(NAME, ATTRIBUTES, VECTOR, LANES, SET, FMADD, FIRST)                               \
    ATTRIBUTES static double NAME(double flops)                                                    \
    {                                                                                              \
        volatile float sink;                                                                       \
        VECTOR sums[CHAINS], factor = SET(0.5f), addend = SET(1.0f);                               \
        uint64_t turns = (uint64_t)(flops / (2.0 * CHAINS * (LANES))) + 1;                         \
        for (int i = 0; i < CHAINS; i++)                                                           \
            sums[i] = SET((float)i);                                                               \
        for (uint64_t turn = 0; turn < turns; turn++)                                              \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =                    \
                FMADD(sums[i], factor, addend);                                                    \
        for (int i = 0; i < CHAINS; i++)                                                           \
            sink = FIRST(sums[i]);                                                                 \
        (void)sink;                                                                                \
        return 2.0 * CHAINS * (LANES) * (double)turns;                                             \
    }

#if defined(__x86_64__)

FMA_LOOP(fma_avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_set1_ps,
         _mm512_fmadd_ps, _mm512_cvtss_f32)
FMA_LOOP(fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps,
         _mm256_cvtss_f32)
#define PLAIN_FMADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
FMA_LOOP(fma_plain, , __m128, 4, _mm_set1_ps, PLAIN_FMADD, _mm_cvtss_f32)

static double fma_cpu(double flops)
{
    unsigned have = conv_cpu_features();
    return have & CONV_CPU_AVX512 ? fma_avx512(flops)
           : have & CONV_CPU_AVX2 ? fma_avx2(flops)
                                  : fma_plain(flops);
}

#else

#if defined(__aarch64__)
#define NEON_FMADD(a, b, c) vfmaq_f32(c, a, b)
#define NEON_FIRST(a) vgetq_lane_f32(a, 0)
FMA_LOOP(fma_any, , float32x4_t, 4, vdupq_n_f32, NEON_FMADD, NEON_FIRST)
#else
#define SCALAR(a) (a)
#define SCALAR_FMADD(a, b, c) ((a) * (b) + (c))
FMA_LOOP(fma_any, , float, 1, SCALAR, SCALAR_FMADD, SCALAR)
#endif

static double fma_cpu(double flops)
{
    return fma_any(flops);
}

#endif

static enum conv_status fma_task(void *context, int, int task, void *)
{
    double *flops = context, done = fma_cpu(FMA_FLOPS);
    if (task == 0) // all tasks do as many
        *flops = done;
    return CONV_OK;
}

static enum conv_status cpu_fma(struct conv_bench_place *place, uint8_t *, double *flops,
                                uint64_t *ns, struct conv_err *err)
{
    struct conv_bench_work work = {
        .run = fma_task, .context = flops, .tasks = place->threads, .name = "multiply-adds"};
    enum conv_status status = cpu_run(place, &work, ns, err);
    *flops *= place->threads;
    return status;
}

const struct conv_bench_place_ops conv_bench_place_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .take = cpu_take,
    .release = cpu_release,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
    .move = cpu_move,
    .run = cpu_run,
    .copy = cpu_copy,
    .fma = cpu_fma,
};
