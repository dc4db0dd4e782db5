// SPDX-License-Identifier: MIT
// The row filters of the fast encoder against the text of the standard; buffers end at pages
// without access.
#include "base/features.h"
#include "png/cpu/filter_rows.h"
#include "support/guard.h"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/unit.h"

static uint64_t seed;

static void fill(uint8_t *bytes, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(kind == 0   ? random_bits(&seed)
                             : kind == 1 ? (random_bits(&seed) & 1) * 255
                                         : 120 + random_bits(&seed) % 9);
}

static void check_filters(const struct conv_filter_rows *rows, size_t n, int kind)
{
    struct guarded row = guard_alloc(n), above = guard_alloc(n), dst = guard_alloc(n);
    uint64_t cost[CONV_ROW_FILTERS], expected_cost[CONV_ROW_FILTERS] = {0};
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        cost[f] = (uint64_t)f;
    fill(row.data, n, kind);
    fill(above.data, n, kind);
    for (int f = 0; f < CONV_ROW_FILTERS; f++) {
        memset(dst.data, 0xa5, n);
        rows->filter(dst.data, (enum conv_row_filter)f, row.data, above.data, n);
        for (size_t x = 0; x < n; x++) {
            int a = x ? row.data[x - 1] : 0, c = x ? above.data[x - 1] : 0;
            uint8_t expected = (uint8_t)(row.data[x] - png_predict(f, a, above.data[x], c));
            if (dst.data[x] != expected)
                fail_msg("%s, filter %d, %zu bytes: differs at %zu", rows->name, f, n, x);
            expected_cost[f] += expected < 128 ? expected : 256u - expected;
        }
    }
    rows->add_costs(cost, row.data, above.data, n);
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        assert_int_equal(cost[f], expected_cost[f] + (uint64_t)f);
    guard_free(&row);
    guard_free(&above);
    guard_free(&dst);
}

static void check_joins(const struct conv_filter_rows *rows, size_t n)
{
    for (int planes = 1; planes <= CONV_ROW_MAX_PLANES; planes++) {
        struct guarded plane[CONV_ROW_MAX_PLANES], row = guard_alloc(n * (size_t)planes);
        const uint8_t *of_planes[CONV_ROW_MAX_PLANES];
        for (int p = 0; p < planes; p++) {
            plane[p] = guard_alloc(n);
            fill(plane[p].data, n, 0);
            of_planes[p] = plane[p].data;
        }
        rows->join(row.data, of_planes, planes, n);
        for (size_t i = 0; i < n * (size_t)planes; i++)
            assert_int_equal(row.data[i], of_planes[i % (size_t)planes][i / (size_t)planes]);
        for (int p = 0; p < planes; p++)
            guard_free(&plane[p]);
        guard_free(&row);
    }
}

// `left`: the byte before the planes is a column. If not, it is noise all the same.
static void check_filtered_joins(const struct conv_filter_rows *rows, size_t n, int planes,
                                 size_t left)
{
    struct guarded row[4], above[4], residual[4], dst = guard_alloc(n * (size_t)planes);
    uint8_t *expected = malloc(n * (size_t)planes);
    const uint8_t *of_row[4], *of_above[4], *of_residual[4];
    assert_non_null(expected);
    for (int p = 0; p < planes; p++) {
        row[p] = guard_alloc(n + 1);
        above[p] = guard_alloc(n + 1);
        residual[p] = guard_alloc(n + 1);
        fill(row[p].data, n + 1, p % 3);
        fill(above[p].data, n + 1, p % 3);
        of_row[p] = row[p].data + 1;
        of_above[p] = above[p].data + 1;
        of_residual[p] = residual[p].data + 1;
    }
    for (int f = 0; f < CONV_ROW_FILTERS; f++) {
        for (int p = 0; p < planes; p++)
            conv_filter_rows_plain.filter(residual[p].data + 1 - left, (enum conv_row_filter)f,
                                          of_row[p] - left, of_above[p] - left, n + left);
        conv_filter_rows_plain.join(expected, of_residual, planes, n);
        memset(dst.data, 0xa5, n * (size_t)planes);
        rows->filter_join(dst.data, (enum conv_row_filter)f, of_row, of_above, planes, n, left);
        if (memcmp(dst.data, expected, n * (size_t)planes) != 0)
            fail_msg("%s, filter %d, %zu bytes of %d planes", rows->name, f, n, planes);
    }
    for (int p = 0; p < planes; p++) {
        guard_free(&row[p]);
        guard_free(&above[p]);
        guard_free(&residual[p]);
    }
    guard_free(&dst);
    free(expected);
}

static void check_halves(const struct conv_filter_rows *rows, size_t n)
{
    struct guarded samples = guard_alloc(2 * n), high = guard_alloc(n), low = guard_alloc(n);
    fill(samples.data, 2 * n, 0);
    rows->halve(high.data, low.data, (const uint16_t *)(const void *)samples.data, n);
    for (size_t x = 0; x < n; x++) {
        uint16_t sample;
        memcpy(&sample, samples.data + 2 * x, 2);
        assert_int_equal(high.data[x] << 8 | low.data[x], sample);
    }
    guard_free(&samples);
    guard_free(&high);
    guard_free(&low);
}

UNIT_TEST(rows_as_the_standard_has_them)
{
    unsigned features = conv_cpu_features();
    const struct conv_filter_rows *variants[] = {
        &conv_filter_rows_plain,
        conv_filter_rows_choose(features & ~(unsigned)CONV_CPU_AVX512),
        conv_filter_rows_choose(features),
    };
    seed = 11;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        for (size_t n = 1; n <= 140; n++) {
            for (int kind = 0; kind < 3; kind += CONV_SANITIZED ? 2 : 1)
                check_filters(variants[v], n, kind);
            check_joins(variants[v], n);
            check_halves(variants[v], n);
            for (int i = 0; i < 4 && n >= CONV_ROW_JOIN_LEAST && variants[v]->filter_join; i++)
                check_filtered_joins(variants[v], n, 3 + i / 2, i % 2);
        }
        check_filters(variants[v], 5000, 2);
    }
}

UNIT_MAIN(NULL, NULL)
