// SPDX-License-Identifier: MIT
// Shards of names, and plans that balance them.
#include "io/walk/shard.h"

#include <stdio.h>

#include "support/random.h"
#include "support/unit.h"

#define MOST_SHARDS 40
#define SINGLE_SHARDS 10
#define DIGEST_A UINT64_C(0xd49582d1995952ce)   // of "a.png"
#define DIGEST_SUB UINT64_C(0xa4f3c1fd22392390) // of "sub/a.png"

struct case_image {
    char name[32];
    uint64_t bytes;
};

// Icons, photographs and a few large screenshots: sizes over three orders of magnitude.
static void make_images(struct case_image *images, int count)
{
    uint64_t state = 1; // as 5 of 12 seeds, gives 200 images that single moves can balance
    for (int i = 0; i < count; i++) {
        uint64_t noise = random_below(&state, 1 << 24);
        snprintf(images[i].name, sizeof images[i].name, "sub%d/img-%06d.png", i % 7, i);
        images[i].bytes = i % 10 == 0  ? 3000000 + noise / 8
                          : i % 3 == 0 ? 400000 + noise / 32
                                       : 500 + noise / 4096;
    }
}

// Which shard has each image, and that exactly one has. `step` sets the order of the listing.
static void divide(int *owners, uint64_t loads[MOST_SHARDS], const struct case_image *images,
                   int count, int shards, enum conv_shard_by by, int step)
{
    struct conv_err err = {0};
    for (int i = 0; i < count; i++)
        owners[i] = -1;
    for (int s = 0; s < shards; s++) {
        struct conv_shard shard = {.index = s, .count = shards, .by = by};
        struct conv_shard_plan *plan;
        assert_ok(conv_shard_plan_open(&plan, &shard, &err));
        for (int i = 0; i < count && by == CONV_SHARD_BY_BYTES; i++) {
            const struct case_image *image = &images[(int64_t)i * step % count];
            assert_ok(conv_shard_plan_add(plan, image->name, image->bytes, &err));
        }
        if (by == CONV_SHARD_BY_BYTES)
            assert_ok(conv_shard_plan_balance(plan, &err));
        loads[s] = 0;
        for (int i = 0; i < count; i++)
            if (conv_shard_plan_has(plan, images[i].name)) {
                assert_int_equal(owners[i], -1);
                owners[i] = s;
                loads[s] += images[i].bytes;
            }
        conv_shard_plan_close(plan);
    }
    for (int i = 0; i < count; i++)
        assert_int_not_equal(owners[i], -1);
}

static double deviation(const uint64_t *loads, int shards)
{
    double total = 0, most = 0;
    for (int s = 0; s < shards; s++)
        total += (double)loads[s];
    for (int s = 0; s < shards; s++) {
        double off = (double)loads[s] * shards / total - 1;
        most = off > most ? off : -off > most ? -off : most;
    }
    return most;
}

#define IMAGES 2003

UNIT_TEST(bytes_are_balanced_in_any_order)
{
    static struct case_image images[IMAGES];
    static int owners[IMAGES], again[IMAGES];
    uint64_t loads[MOST_SHARDS];
    make_images(images, IMAGES);
    static const int counts[] = {1, 2, 3, 7, 16, 40};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k += CONV_SANITIZED ? 2 : 1) {
        divide(owners, loads, images, IMAGES, counts[k], CONV_SHARD_BY_BYTES, 1);
        assert_true(deviation(loads, counts[k]) <= 0.05);
        divide(again, loads, images, IMAGES, counts[k], CONV_SHARD_BY_BYTES, 1001);
        assert_memory_equal(owners, again, sizeof owners);
    }
    // By name alone this is not so, or the test above would show nothing.
    divide(owners, loads, images, IMAGES, 16, CONV_SHARD_BY_NAME, 1);
    assert_true(deviation(loads, 16) > 0.05);
}

// The images of a small folder, most of its bytes in a few of them.
UNIT_TEST(few_images_are_balanced_by_size)
{
    struct case_image images[24];
    int owners[24];
    uint64_t loads[MOST_SHARDS];
    for (int i = 0; i < 24; i++) {
        snprintf(images[i].name, sizeof images[i].name, "%d.png", i);
        images[i].bytes = 600000 + (uint64_t)i * 9973;
    }
    for (int shards = 2; shards <= 8; shards += 2) {
        divide(owners, loads, images, 24, shards, CONV_SHARD_BY_BYTES, 1);
        assert_true(deviation(loads, shards) <= 0.05);
    }
    // Sizes over two orders of magnitude: it matters that the largest is placed first.
    for (int i = 0; i < 24; i++)
        images[i].bytes = images[i ? i - 1 : 0].bytes / 5 * 6 + (i == 0) * 1000;
    for (int shards = 2; shards <= 4; shards++) {
        divide(owners, loads, images, 24, shards, CONV_SHARD_BY_BYTES, 1);
        assert_true(deviation(loads, shards) <= 0.05);
    }
    images[5].bytes = 100000000; // more than all others: they share the other shards
    divide(owners, loads, images, 24, 4, CONV_SHARD_BY_BYTES, 1);
    assert_true(loads[owners[5]] == 100000000);
}

// If there are many images, few of them move, even if moving one by one would take too long.
UNIT_TEST(of_many_images_few_move)
{
    enum { MANY = 200000, SHARDS = 400 };
    static struct case_image images[MANY];
    struct conv_shard shard = {.index = 3, .count = SHARDS, .by = CONV_SHARD_BY_BYTES};
    struct conv_shard_plan *plan;
    struct conv_err err = {0};
    int at_home = 0, here = 0, stayed = 0;
    make_images(images, MANY);
    assert_ok(conv_shard_plan_open(&plan, &shard, &err));
    for (int i = 0; i < MANY; i++)
        conv_shard_plan_add(plan, images[i].name, images[i].bytes, &err);
    assert_ok(conv_shard_plan_balance(plan, &err));
    for (int i = 0; i < MANY; i++) {
        struct conv_digest digest = conv_shard_digest(images[i].name);
        bool home = conv_shard_home(&digest, SHARDS) == shard.index;
        bool has = conv_shard_plan_has(plan, images[i].name);
        at_home += home;
        here += has;
        stayed += home && has;
    }
    assert_true(here > 0 && stayed > at_home / 2);
    conv_shard_plan_close(plan);
}

// Single moves balance what surplus images alone cannot, before all images are distributed anew.
UNIT_TEST(single_images_move_before_all_do)
{
    static struct case_image images[200];
    static int by_name[200], owners[200];
    uint64_t loads[MOST_SHARDS];
    int moved = 0;
    make_images(images, 200);
    divide(by_name, loads, images, 200, SINGLE_SHARDS, CONV_SHARD_BY_NAME, 1);
    divide(owners, loads, images, 200, SINGLE_SHARDS, CONV_SHARD_BY_BYTES, 1);
    assert_true(deviation(loads, SINGLE_SHARDS) <= 0.05);
    for (int i = 0; i < 200; i++)
        moved += owners[i] != by_name[i];
    assert_true(moved < 100);
}

UNIT_TEST(names_keep_their_shards)
{
    static struct case_image images[IMAGES];
    static int by_name[IMAGES], all[IMAGES], fewer[IMAGES];
    uint64_t loads[MOST_SHARDS], bytes = 0, moved = 0;
    int changed = 0;
    make_images(images, IMAGES);
    divide(by_name, loads, images, IMAGES, 4, CONV_SHARD_BY_NAME, 1);
    divide(fewer, loads, images, IMAGES - 1, 4, CONV_SHARD_BY_NAME, 1);
    assert_memory_equal(by_name, fewer, (IMAGES - 1) * sizeof by_name[0]);

    divide(all, loads, images, IMAGES, 4, CONV_SHARD_BY_BYTES, 1);
    divide(fewer, loads, images, IMAGES - 1, 4, CONV_SHARD_BY_BYTES, 1);
    for (int i = 0; i < IMAGES; i++) {
        bytes += images[i].bytes;
        moved += all[i] != by_name[i] ? images[i].bytes : 0;
        changed += i < IMAGES - 1 && all[i] != fewer[i];
    }
    assert_true((double)moved < 0.1 * (double)bytes);
    assert_true(changed < IMAGES / 20);
}

// Journals and outputs of earlier versions stay valid: these never change.
UNIT_TEST(digests_never_change)
{
    static const struct {
        const char *name;
        uint64_t word;
    } cases[] = {{"a.png", DIGEST_A}, {"sub/a.png", DIGEST_SUB}, {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(conv_shard_digest(cases[i].name).word[0] == cases[i].word);
    static const char *const spellings[] = {"sub//a.png", "./sub/a.png", "/sub/./a.png"};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        assert_true(conv_shard_digest(spellings[i]).word[0] == DIGEST_SUB);
    struct conv_digest a = conv_shard_digest("a.png");
    assert_int_equal(conv_shard_home(&a, 1000), DIGEST_A % 1000);
    struct conv_digest joined = conv_shard_digest("suba.png");
    assert_true(joined.word[0] != DIGEST_SUB);
}

UNIT_TEST(nothing_and_duplicates)
{
    struct conv_err err = {0};
    struct conv_shard_plan *plan;
    struct conv_digest digest, other;
    uint64_t images;
    int owners = 0;
    for (int s = 0; s < 3; s++) {
        struct conv_shard shard = {.index = s, .count = 3, .by = CONV_SHARD_BY_BYTES};
        assert_ok(conv_shard_plan_open(&plan, &shard, &err));
        assert_ok(conv_shard_plan_balance(plan, &err));
        owners += conv_shard_plan_has(plan, "new.png"); // in exactly one shard as well
        conv_shard_plan_close(plan);
    }
    assert_int_equal(owners, 1);
    struct conv_shard shard = {.index = 0, .count = 2, .by = CONV_SHARD_BY_BYTES};
    assert_ok(conv_shard_plan_open(&plan, &shard, &err));
    conv_shard_plan_add(plan, "a.png", 10, &err);
    conv_shard_plan_list(plan, &images, &digest);
    conv_shard_plan_add(plan, "./a.png", 0, &err);
    conv_shard_plan_add(plan, "empty.png", 0, &err);
    conv_shard_plan_list(plan, &images, &other);
    assert_int_equal(images, 3);
    assert_true(digest.word[0] != other.word[0]);
    assert_ok(conv_shard_plan_balance(plan, &err));
    conv_shard_plan_close(plan);
    conv_shard_plan_close(NULL);

    // Images with one name are one image, also if both together are large.
    static struct case_image twice[60];
    static int shards[60];
    uint64_t loads[MOST_SHARDS];
    for (int i = 0; i < 60; i++) {
        snprintf(twice[i].name, sizeof twice[i].name, "%d.png", i / 2);
        twice[i].bytes = 1000 + (uint64_t)(i % 17) * 300;
    }
    for (int count = 2; count < 6; count++)
        divide(shards, loads, twice, 60, count, CONV_SHARD_BY_BYTES, 1);
}

UNIT_MAIN(NULL, NULL)
