// SPDX-License-Identifier: MIT
// The analysis of filters, the choice of variants and the layout of launches. What variants compute
// is tested by check_kernels.
#include "kernels/stencil/stencil.h"
#include "support/unit.h"

static const struct conv_filter emboss = {
    .width = 3, .height = 3, .coef = {-2, -1, 0, -1, 1, 1, 0, 1, 2}, .scale = 1};

static struct conv_stencil *init(const struct conv_filter *filter, int depth)
{
    struct conv_stencil *stencil = malloc(sizeof *stencil);
    assert_non_null(stencil);
    conv_stencil_init(stencil, filter, depth, CONV_BORDER_CONSTANT, 100);
    return stencil;
}

UNIT_TEST(exact_filters_keep_integers)
{
    struct conv_filter filter = emboss;
    filter.offset = 128;
    filter.scale = 4;
    struct conv_stencil *stencil = init(&filter, 8);
    assert_true(stencil->exact);
    assert_true(stencil->fits_int32);
    assert_int_equal(stencil->divisor, 4);
    assert_int_equal(stencil->bias, 512);
    assert_int_equal(stencil->icoef[0], -2);
    assert_int_equal(stencil->icoef[8], 2);
    assert_int_equal(stencil->max, 255);
    assert_int_equal(stencil->border_value, 100);
    free(stencil);
}

UNIT_TEST(fits_int32_ends_where_a_sum_does)
{
    static const int cases[][3] = {{32768, 0, true},    // 32768 * 65535 + 1 = 2147450881
                                   {32769, 0, false},   // 2147516416
                                   {32768, 128, false}, // 32896 more
                                   {-32768, 0, true}};
    for (int i = 0; i < 4; i++) {
        struct conv_filter filter = {.width = 1, .height = 1, .coef = {cases[i][0]}, .scale = 1};
        filter.offset = cases[i][1];
        struct conv_stencil *stencil = init(&filter, 16);
        assert_int_equal(stencil->fits_int32, cases[i][2]);
        free(stencil);
    }
}

// Sums of the interleaved image went row by row, those of its planes by diagonals.
UNIT_TEST(symmetric_stencils_of_integers_stay_planes)
{
    struct conv_filter filter = emboss;
    filter.coef[0] = 0.5;
    struct conv_stencil *stencil = init(&filter, 16);
    assert_true(stencil->symmetric && !conv_stencil_interleave(stencil, 3));
    free(stencil);
}

UNIT_TEST(names_differ_and_the_reference_comes_last)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    assert_ptr_equal(variants[count - 1], &conv_cpu_reference);
    assert_string_equal(conv_cpu_reference.name, "cpu_reference");
    assert_int_equal(conv_cpu_reference.needs, 0);
    assert_null(conv_cpu_reference.can);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(variants[i]->name, variants[j]->name);
}

UNIT_TEST(pick_obeys_needs_and_name)
{
    struct conv_stencil *stencil = init(&emboss, 8);
    const struct conv_variant *variant = conv_stencil_pick(stencil, 0, CONV_ON_CPU, 0, NULL);
    assert_non_null(variant);
    assert_int_equal(variant->needs, 0);
    assert_string_equal(variant->name, "cpu_portable");
    assert_non_null(conv_stencil_pick(stencil, 0, CONV_ON_CPU, ~0u, NULL));
    variant = conv_stencil_pick(stencil, 0, CONV_ON_CPU, 0, "cpu_reference");
    assert_ptr_equal(variant, &conv_cpu_reference);
    assert_null(conv_stencil_pick(stencil, 0, CONV_ON_CPU, 0, "cpu_none"));
    assert_null(conv_stencil_pick(stencil, 0, CONV_ON_CUDA, ~0u, "cpu_reference"));
#ifdef __x86_64__
    assert_null(conv_stencil_pick(stencil, 0, CONV_ON_CPU, 0, "cpu_avx2"));
#endif
    free(stencil);
}

// Without a name the highest score wins; with one, whatever can do the stencil is taken.
static void expect_best(const struct conv_stencil *stencil, enum conv_place place, unsigned have)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    const struct conv_variant *best = conv_stencil_pick(stencil, 0, place, have, NULL);
    for (int i = 0; i < count; i++) {
        if (variants[i]->place != place || !conv_stencil_can(variants[i], stencil, have))
            continue;
        int score = variants[i]->score(stencil, 0);
        assert_in_range(score, CONV_SCORE_LAST, 100);
        assert_non_null(best);
        assert_true(best->score(stencil, 0) >= score);
        assert_ptr_equal(conv_stencil_pick(stencil, 0, place, have, variants[i]->name),
                         variants[i]);
    }
}

UNIT_TEST(pick_takes_the_highest_score)
{
    for (int side = 1; side <= CONV_FILTER_MAX_SIDE; side += 2) {
        for (int kind = 0; kind < 3; kind++) { // a column times a row, other integers, real
            struct conv_filter filter = {.width = side, .height = side, .scale = 1};
            for (int i = 0; i < side * side; i++)
                filter.coef[i] = kind == 0 ? 1 : kind == 1 ? i % 7 - 2 : i * 0.25;
            for (int depth = 8; depth <= 16; depth += 8) {
                struct conv_stencil *stencil = init(&filter, depth);
                for (int shift = 0; shift < 8; shift++)
                    expect_best(stencil, CONV_ON_CPU, (1u << shift) - 1);
                expect_best(stencil, CONV_ON_CUDA, 75);
                expect_best(stencil, CONV_ON_CUDA, 90);
                free(stencil);
            }
        }
    }
}

// Only the reference can do sums that float64 does not hold.
UNIT_TEST(huge_sums_fall_back_to_the_reference)
{
    struct conv_filter filter = {.width = 31, .height = 31, .scale = 2147483647};
    for (int i = 0; i < 31 * 31; i++)
        filter.coef[i] = 2147483647;
    struct conv_stencil *stencil = init(&filter, 16);
    assert_ptr_equal(conv_stencil_pick(stencil, 0, CONV_ON_CPU, ~0u, NULL), &conv_cpu_reference);
    free(stencil);
}

UNIT_TEST(tiles_are_numbered_without_gaps)
{
    struct conv_variant variant = {.place = CONV_ON_CUDA, .tile_width = 32, .tile_height = 8};
    struct conv_stencil_plane planes[] = {{.width = 1, .height = 1},
                                          {.width = 32, .height = 8},
                                          {.width = 33, .height = 9},
                                          {.width = 64, .height = 1}};
    assert_int_equal(conv_stencil_tiles(&variant, planes, 4), 1 + 1 + 4 + 2);
    static const int firsts[] = {0, 1, 2, 6};
    for (int p = 0; p < 4; p++)
        assert_int_equal(planes[p].cuda.first_tile, firsts[p]);
}

static bool factors_of(int width, int height, const double *coef, int32_t *column, int32_t *row)
{
    struct conv_filter filter = {.width = width, .height = height, .scale = 1};
    memcpy(filter.coef, coef, (size_t)(width * height) * sizeof *coef);
    struct conv_stencil *stencil = init(&filter, 8);
    bool found = conv_stencil_factors(stencil, column, row);
    free(stencil);
    return found;
}

UNIT_TEST(factors_are_integers_or_none)
{
    int32_t column[3], row[3];
    // The first row is 0 and the next a multiple; signs differ; 2 * 3 must not become 6 * 1.
    static const double product[] = {0, 0, 0, -6, 9, 3, 4, -6, -2};
    assert_true(factors_of(3, 3, product, column, row));
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(column[j] * row[i], (int)product[j * 3 + i]);
    assert_int_equal(column[0], 0);
    assert_int_equal(abs(column[2]), 2);

    static const double one_off[] = {0, 0, 0, -6, 9, 3, 4, -6, -3};
    assert_false(factors_of(3, 3, one_off, column, row));
    assert_false(factors_of(3, 3, emboss.coef, column, row));
    assert_false(factors_of(3, 3, (const double[9]){0}, column, row));
    static const double half[] = {0.5, 1, 0.5};
    assert_false(factors_of(3, 1, half, column, row)); // real: defined as one pass
}

UNIT_MAIN(NULL, NULL)
