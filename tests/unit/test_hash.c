// SPDX-License-Identifier: MIT
// SipHash-2-4 with 128 bits against the vectors of its reference implementation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digest.h"

static void check(size_t size, uint64_t low, uint64_t high)
{
    static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct conv_digest digest = {{0x0706050403020100, 0x0F0E0D0C0B0A0908}};
    conv_hash_add(&digest, bytes, size);
    assert_true(digest.word[0] == low && digest.word[1] == high);
}

// Printed there as bytes, least significant first.
static void test_reference_vectors(void **state)
{
    (void)state;
    check(0, 0xE6A825BA047F81A3, 0x930255C71472F66D);
    check(1, 0x44AF996BD8C187DA, 0x45FC229B11597634);
}

static void test_every_byte_and_every_border_between_fields_counts(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_vectors),
        cmocka_unit_test(test_every_byte_and_every_border_between_fields_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
