// SPDX-License-Identifier: MIT
// The budget: how memory is divided, what an image takes, and that shares within it neither exceed
// it nor wait for ever.
#include "base/features.h"
#include "engine/group.h"
#include "run/budget.h"
#include "run/job.h"
#include "run/pipeline.h"
#include "support/random.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define LIMIT 100
#define THREADS 8
#define ROUNDS 4000

// --- the division --------------------------------------------------------------------------------

static struct conv_limits limit_of(size_t memory, bool addresses)
{
    struct conv_limits limits = {.physical = (size_t)1 << 36, .memory = (size_t)1 << 36};
    if (memory > 0) {
        limits.memory = memory;
        limits.counts_address_space = addresses;
        limits.memory_source[0] = 'x';
    }
    return limits;
}

UNIT_TEST(test_parts_stay_within_a_limit)
{
    for (int kind = 0; kind < 48; kind++) {
        size_t limit = (kind & 1 ? 4096 : 100) * MIB;
        bool async = kind & 2, addresses = kind & 4, is_asked = kind & 8;
        const struct conv_limits limits = limit_of(limit, addresses);
        struct conv_division memory, without;
        struct conv_division_terms terms = {.limits = &limits,
                                            .staging = conv_budget_staging(&limits, async),
                                            .is_asked = is_asked,
                                            .async = async,
                                            .jobs = 1 + kind};
        conv_budget_divide(&without, &terms);
        terms.archives = kind / 16;
        conv_budget_divide(&memory, &terms);
        size_t archives = memory.archives * (size_t)terms.archives;
        assert_int_equal(memory.archives, without.archives);
        assert_int_equal(memory.run + archives, without.run);
        assert_int_equal(without.run, addresses ? limit - limit / 4 : limit);
        assert_true(memory.staging < limit);
        assert_int_equal(memory.refuses_beyond, !is_asked);
        assert_true(memory.live >= 64);
        assert_true(8 * memory.keep * (size_t)terms.jobs <= limit);
        if (async) {
            assert_true(memory.total == SIZE_MAX && memory.keep_staging == SIZE_MAX);
            continue;
        }
        size_t kept = 6 * memory.keep * (size_t)terms.jobs;
        assert_true(memory.total + kept + archives <= limit);
        assert_true(memory.files <= memory.total / 7);
    }
}

UNIT_TEST(test_without_a_limit_only_staging_counts)
{
    static const struct {
        size_t staging, archives;
    } cases[] = {{400 * MIB, 100 * MIB}, {40000 * MIB, 1024 * MIB}};
    for (int i = 0; i < 6; i++) {
        const struct conv_limits limits = limit_of(0, false);
        struct conv_division memory;
        conv_budget_divide(&memory, &(struct conv_division_terms){.limits = &limits,
                                                                  .staging = cases[i % 2].staging,
                                                                  .jobs = 4,
                                                                  .archives = i / 2});
        assert_int_equal(memory.staging, cases[i % 2].staging);
        assert_int_equal(memory.archives, cases[i % 2].archives);
        assert_int_equal(memory.files, memory.staging / 2);
        assert_true(memory.run == 0 && memory.helpers == 0 && !memory.refuses_beyond);
        assert_true(memory.total == SIZE_MAX && memory.keep_staging == SIZE_MAX);
    }
}

// --- what an image takes -------------------------------------------------------------------------

static void estimate(struct conv_need *need, size_t *staging, size_t *scratch, int width)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_backend *backend;
    struct conv_err err;
    int count = 0;
    assert_ok(conv_filter_parse_chain(filters, &count, "emboss,gaussian:4",
                                      &(struct conv_filter_settings){0}, &err));
    const struct conv_backend_config open = {.filters = filters, .filter_count = count};
    assert_ok(conv_device_cpu.open(&backend, &open, &err));
    const struct conv_pipeline_config config = {
        .ops = &conv_device_cpu,
        .backends = &backend,
        .filter_count = count,
        .output_type = CONV_OUTPUT_F32, // written from staging: encoding takes nothing
    };
    struct conv_file file = {0};
    struct conv_job job = {.file = &file, .format = conv_formats[0], .file_depth = 8};
    job.header.shape = (struct conv_image){.width = width, .height = 3, .channels = 1, .depth = 8};
    job.header.png.bit_depth = 8;
    *staging = conv_group_need(&job.header.shape, false, 0);
    *scratch = conv_device_cpu.scratch_bytes(backend, width, 8);
    conv_budget_estimate(need, &config, &job, *staging);
    conv_device_cpu.close(backend);
}

// Kernels that read whole rows hold two of them: that was not counted, a third of the samples of an
// image of three long rows.
UNIT_TEST(scratch_of_the_filter_counts)
{
    enum { LONG = 4000000 };
    struct conv_need need;
    size_t staging, scratch, few;
    estimate(&need, &staging, &few, 64);
    estimate(&need, &staging, &scratch, LONG);
    assert_true(scratch >= few);
    if (conv_cpu_features() & CONV_CPU_AVX2) // emboss on whole rows
        assert_true(scratch >= 2 * (size_t)LONG);
    assert_true(need.work >= 2 * staging + scratch);
    assert_true(need.peak >= need.work);
}

// --- what is taken -------------------------------------------------------------------------------

static void open_budget(struct conv_budget *budget, size_t files, size_t total)
{
    conv_budget_open(budget, &(struct conv_division){.files = files, .total = total});
}

UNIT_TEST(test_shares_fit_or_one_goes_beyond)
{
    struct conv_budget budget;
    struct conv_share a = {0}, b = {0}, c = {0};
    open_budget(&budget, LIMIT, SIZE_MAX);
    assert_true(conv_budget_try(&budget, &a, 60));
    assert_true(conv_budget_try(&budget, &b, 40));
    assert_int_equal(budget.used, LIMIT);
    assert_true(conv_budget_try(&budget, &b, 30)); // a share never shrinks
    assert_int_equal(b.bytes, 40);
    assert_true(conv_budget_try(&budget, &c, 1));
    assert_ptr_equal(budget.beyond, &c);
    assert_false(conv_budget_try(&budget, &a, 61)); // one at a time
    assert_int_equal(a.bytes, 60);
    assert_true(conv_budget_try(&budget, &c, 500)); // a share beyond the limit may grow further
    assert_int_equal(budget.used, 600);
    conv_budget_release(&budget, &c);
    assert_true(conv_budget_try(&budget, &a, SIZE_MAX / 2));
    conv_budget_release(&budget, &a);
    conv_budget_release(&budget, &a); // twice is once
    assert_int_equal(budget.used, 40);
    assert_null(budget.beyond);
    conv_budget_release(&budget, &b);
    assert_int_equal(budget.used, 0);
    conv_budget_close(&budget);
    assert_true(conv_budget_try(NULL, &a, SIZE_MAX));
    conv_budget_grow(NULL, &a, SIZE_MAX);
    conv_budget_release(NULL, &a);
}

// Images in flight and files together stay within the total, except a single image.
UNIT_TEST(test_images_and_files_share_the_total)
{
    struct conv_budget budget;
    struct conv_share a = {0}, b = {0}, c = {0};
    open_budget(&budget, 40, LIMIT);
    assert_true(conv_budget_try(&budget, &a, 30));
    assert_true(conv_budget_reserve(&budget, 60));
    assert_false(conv_budget_reserve(&budget, 11));
    assert_true(conv_budget_reserve(&budget, 5));
    assert_true(conv_budget_try(&budget, &b, 5));
    assert_false(conv_budget_try(&budget, &c, 1)); // full, and images will end
    assert_false(conv_budget_try(&budget, &b, 6)); // a thread that holds a share waits as well
    assert_null(budget.beyond);
    conv_budget_unreserve(&budget, 60);
    assert_true(conv_budget_try(&budget, &b, 20)); // beyond 40, which the total has room for
    assert_ptr_equal(budget.beyond, &b);
    assert_false(conv_budget_try(&budget, &c, 1));
    conv_budget_unreserve(&budget, 5);
    assert_true(conv_budget_reserve(&budget, 500)); // alone, larger than everything
    assert_false(conv_budget_reserve(&budget, 1));
    assert_false(conv_budget_try(&budget, &b, 21));
    conv_budget_release(&budget, &a);
    conv_budget_release(&budget, &b);
    assert_false(conv_budget_try(&budget, &c, 1));
    conv_budget_unreserve(&budget, 500);
    assert_true(conv_budget_try(&budget, &c, 500)); // a file that is alone as well
    assert_false(conv_budget_try(&budget, &a, 1));
    conv_budget_release(&budget, &c);
    assert_int_equal(budget.used, 0);
    assert_int_equal(budget.reserved, 0);
    conv_budget_close(&budget);
}

struct eater {
    struct conv_budget *budget;
    uint64_t seed;
    size_t most; // seen of the budget less this share, when this one is not the one beyond
    pthread_t thread;
};

// Begins with a share that is available at once, then needs more and more while it holds that.
static void *eat(void *argument)
{
    struct eater *eater = argument;
    struct conv_budget *budget = eater->budget;
    for (int i = 0; i < ROUNDS; i++) {
        struct conv_share share = {0};
        size_t bytes = random_below(&eater->seed, LIMIT);
        if (random_below(&eater->seed, 2) && !conv_budget_try(budget, &share, bytes))
            continue;
        for (uint32_t steps = random_below(&eater->seed, 5); steps > 0; steps--) {
            bytes = share.bytes + random_below(&eater->seed, LIMIT);
            conv_budget_grow(budget, &share, bytes);
            conv_lock_acquire(&budget->lock);
            size_t others = budget->used - (budget->beyond ? budget->beyond->bytes : 0);
            eater->most = others > eater->most ? others : eater->most;
            conv_lock_release(&budget->lock);
        }
        conv_budget_release(budget, &share);
    }
    return NULL;
}

UNIT_TEST(test_no_thread_waits_for_ever)
{
    struct conv_budget budget;
    struct eater eaters[THREADS] = {0};
    open_budget(&budget, LIMIT, SIZE_MAX);
    for (int i = 0; i < THREADS; i++) {
        eaters[i].budget = &budget;
        eaters[i].seed = (uint64_t)i + 1;
        assert_int_equal(pthread_create(&eaters[i].thread, NULL, eat, &eaters[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) { // a deadlock hangs here until the test's time is up
        pthread_join(eaters[i].thread, NULL);
        assert_true(eaters[i].most <= LIMIT);
    }
    assert_int_equal(budget.used, 0);
    assert_null(budget.beyond);
    conv_budget_close(&budget);
}

UNIT_MAIN(NULL, NULL)
