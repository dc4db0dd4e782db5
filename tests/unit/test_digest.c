// SPDX-License-Identifier: MIT
// Digests: SipHash-2-4 with 128 bits against the vectors of its reference implementation. The set
// that a journal is in memory: everything that was added is found, nothing else is.
#include "base/digest.h"
#include "support/unit.h"

#define COUNT 25000

static void check(size_t size, uint64_t low, uint64_t high)
{
    static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct conv_digest digest = {{0x0706050403020100, 0x0F0E0D0C0B0A0908}};
    conv_hash_add(&digest, bytes, size);
    assert_true(digest.word[0] == low && digest.word[1] == high);
}

// Printed there as bytes, least significant first.
UNIT_TEST(test_reference_vectors)
{
    check(0, 0xE6A825BA047F81A3, 0x930255C71472F66D);
    check(1, 0x44AF996BD8C187DA, 0x45FC229B11597634);
}

UNIT_TEST(test_every_byte_and_every_border_between_fields_counts)
{
    struct conv_digest seen[20];
    size_t count = 0;
    for (size_t size = 0; size < 10; size++) {
        struct conv_digest digest = {{1, 2}};
        conv_hash_add(&digest, "aaaaaaaaaa", size);
        conv_hash_add(&digest, "aaaaaaaaaa", 10 - size);
        seen[count++] = digest;
        digest = (struct conv_digest){{1, 2}};
        char text[] = "aaaaaaaaaa";
        text[size] = 'b';
        conv_hash_add(&digest, text, 10);
        seen[count++] = digest;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(seen[i].word[0] == seen[j].word[0] || seen[i].word[1] == seen[j].word[1]);
}

// The longest run of taken slots: the most that a search looks at.
static size_t longest_run(const struct conv_digest_set *set)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < set->capacity; i++) {
        const struct conv_digest *slot = (const void *)(set->slots + i * sizeof *slot);
        run = slot->word[0] | slot->word[1] ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static void fill(struct conv_digest_set *set, struct conv_digest step)
{
    struct conv_err err;
    for (uint64_t i = 1; i <= COUNT; i++) {
        struct conv_digest digest = {{i * step.word[0], i * step.word[1]}};
        bool added;
        assert_ok(conv_digest_set_add(set, &digest, &added, &err));
        assert_true(added);
        assert_ok(conv_digest_set_add(set, &digest, &added, &err));
        assert_false(added);
        if (i % 5000 == 0)
            assert_true(longest_run(set) < 500); // about 50: up to 61 % are taken
    }
    assert_int_equal(set->count, COUNT);
    for (uint64_t i = 0; i <= 2 * COUNT; i++) {
        struct conv_digest digest = {{i * step.word[0], i * step.word[1]}};
        assert_int_equal(conv_digest_set_has(set, &digest), i >= 1 && i <= COUNT);
    }
}

// Also digests that are to share slots, as in forged journals, one of which once took 11 s to read.
// The slots depend on a key for each set.
UNIT_TEST(test_any_digests)
{
    const struct conv_digest steps[] = {
        {{0x9E3779B97F4A7C15, 0xD1B54A32D192ED03}}, {{1, 0}}, {{0, 1}}, {{(uint64_t)1 << 40, 0}}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct conv_digest_set sets[2];
        memset(sets, 0, sizeof sets);
        for (int k = 0; k < 2; k++)
            fill(&sets[k], steps[i]);
        assert_true(sizeof(struct conv_digest) * sets[0].capacity <= (size_t)43 * COUNT);
        assert_int_equal(sets[0].capacity, sets[1].capacity);
        assert_memory_not_equal(sets[0].slots, sets[1].slots,
                                sizeof(struct conv_digest) * sets[0].capacity);
        for (int k = 0; k < 2; k++)
            conv_digest_set_free(&sets[k]);
    }
}

UNIT_TEST(test_nothing_is_in_an_empty_set)
{
    struct conv_err err;
    struct conv_digest_set set = {0};
    const struct conv_digest zero = {{0, 0}}, one = {{1, 0}};
    bool added;
    assert_false(conv_digest_set_has(&set, &zero));
    assert_false(conv_digest_set_has(&set, &one));
    assert_ok(conv_digest_set_add(&set, &zero, &added, &err));
    assert_false(added);
    assert_false(conv_digest_set_has(&set, &zero));
    assert_ok(conv_digest_set_add(&set, &one, NULL, &err));
    assert_true(conv_digest_set_has(&set, &one));
    conv_digest_set_free(&set);
    assert_false(conv_digest_set_has(&set, &one));
}

UNIT_MAIN(NULL, NULL)
