// SPDX-License-Identifier: MIT
// The budget for files: only one share at a time exceeds it, and no thread waits for ever.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/budget.h"
#include "support/random.h"

#define LIMIT 100
#define THREADS 8
#define ROUNDS 4000

static void test_shares_fit_or_one_goes_beyond(void **state)
{
    (void)state;
    struct conv_budget budget;
    struct conv_share a = {0}, b = {0}, c = {0};
    assert_int_equal(conv_budget_init(&budget, LIMIT, SIZE_MAX), 0);
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
    conv_budget_destroy(&budget);
    assert_true(conv_budget_try(NULL, &a, SIZE_MAX));
    conv_budget_grow(NULL, &a, SIZE_MAX);
    conv_budget_release(NULL, &a);
}

// Images in flight and files together stay within the total, except a single image.
static void test_images_and_files_share_the_total(void **state)
{
    (void)state;
    struct conv_budget budget;
    struct conv_share a = {0}, b = {0}, c = {0};
    assert_int_equal(conv_budget_init(&budget, 40, LIMIT), 0);
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
    conv_budget_destroy(&budget);
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
            pthread_mutex_lock(&budget->lock);
            size_t others = budget->used - (budget->beyond ? budget->beyond->bytes : 0);
            eater->most = others > eater->most ? others : eater->most;
            pthread_mutex_unlock(&budget->lock);
        }
        conv_budget_release(budget, &share);
    }
    return NULL;
}

static void test_everybody_gets_on(void **state)
{
    (void)state;
    struct conv_budget budget;
    struct eater eaters[THREADS] = {0};
    assert_int_equal(conv_budget_init(&budget, LIMIT, SIZE_MAX), 0);
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
    conv_budget_destroy(&budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_fit_or_one_goes_beyond),
        cmocka_unit_test(test_images_and_files_share_the_total),
        cmocka_unit_test(test_everybody_gets_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
