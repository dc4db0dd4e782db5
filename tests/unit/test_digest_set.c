// SPDX-License-Identifier: MIT
// The set that a journal is in memory: everything that was added is found, nothing else is.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digest.h"

#define COUNT 100000

static void fill(struct conv_digest_set *set, struct conv_digest step)
{
    struct conv_err err;
    for (uint64_t i = 1; i <= COUNT; i++) {
        struct conv_digest digest = {{i * step.word[0], i * step.word[1]}};
        bool added;
        assert_int_equal(conv_digest_set_add(set, &digest, &added, &err), CONV_OK);
        assert_true(added);
        assert_int_equal(conv_digest_set_add(set, &digest, &added, &err), CONV_OK);
        assert_false(added);
    }
    assert_int_equal(set->count, COUNT);
    for (uint64_t i = 0; i <= 2 * COUNT; i++) {
        struct conv_digest digest = {{i * step.word[0], i * step.word[1]}};
        assert_int_equal(conv_digest_set_has(set, &digest), i >= 1 && i <= COUNT);
    }
}

// A table that is indexed with bits of the digest itself takes minutes for the last three.
static void test_any_digests(void **state)
{
    (void)state;
    const struct conv_digest steps[] = {
        {{0x9E3779B97F4A7C15, 0xD1B54A32D192ED03}}, {{1, 0}}, {{0, 1}}, {{(uint64_t)1 << 40, 0}}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct conv_digest_set set = {0};
        fill(&set, steps[i]);
        assert_true(sizeof(struct conv_digest) * set.capacity <= (size_t)43 * COUNT);
        conv_digest_set_free(&set);
    }
}

static void test_nothing_is_in_an_empty_set(void **state)
{
    (void)state;
    struct conv_err err;
    struct conv_digest_set set = {0};
    const struct conv_digest zero = {{0, 0}}, one = {{1, 0}};
    bool added;
    assert_false(conv_digest_set_has(&set, &zero));
    assert_false(conv_digest_set_has(&set, &one));
    assert_int_equal(conv_digest_set_add(&set, &zero, &added, &err), CONV_OK);
    assert_false(added);
    assert_false(conv_digest_set_has(&set, &zero));
    assert_int_equal(conv_digest_set_add(&set, &one, NULL, &err), CONV_OK);
    assert_true(conv_digest_set_has(&set, &one));
    conv_digest_set_free(&set);
    assert_false(conv_digest_set_has(&set, &one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_digests),
        cmocka_unit_test(test_nothing_is_in_an_empty_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
