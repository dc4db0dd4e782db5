// SPDX-License-Identifier: MIT
// Filter banks: names, sizes, terms of separable filters, and coefficients of Gabor filters and of
// differences of Gaussians; those of the other banks are in tests/cli/bank_definition.py.
#include <math.h>

#include "filter/bank.h"
#include "support/unit.h"

static void parse(struct conv_bank *bank, const char *text)
{
    struct conv_err err = {0};
    if (conv_bank_parse(bank, text, &err))
        fail_msg("%s: %s", text, err.text);
}

static double at(const struct conv_bank_filter *filter, int row, int column)
{
    return filter->coef[row * filter->width + column];
}

UNIT_TEST(every_family_has_an_example)
{
    static const int sizes[][2] = {{64, 32}, {48, 48}, {38, 8}, {13, 13}, {25, 25},
                                   {2, 3},   {2, 3},   {2, 3},  {1, 1},   {1, 1}};
    int count;
    const struct conv_filter_family *families = conv_bank_families(&count);
    assert_int_equal(count, sizeof sizes / sizeof sizes[0]);
    for (int k = 0; k < count; k++) {
        struct conv_bank bank;
        assert_true(conv_bank_is_name(families[k].example));
        parse(&bank, families[k].example);
        assert_string_equal(bank.name, families[k].example);
        assert_int_equal(bank.filter_count, sizes[k][0]);
        assert_int_equal(bank.map_count, sizes[k][1]);
        for (int m = 0; m < bank.map_count; m++) {
            const struct conv_bank_map *map = &bank.maps[m];
            assert_true(map->first >= 0 && map->first + map->count <= bank.filter_count);
            assert_true(map->label[0]);
            for (int other = 0; other < m; other++)
                assert_string_not_equal(map->label, bank.maps[other].label);
        }
        conv_bank_free(&bank);
    }
}

UNIT_TEST(separable_filters_are_their_terms)
{
    static const char *const names[] = {"gabor:6x3", "lm",    "mr8",      "laws:9",
                                        "laws",      "sobel", "log:7.75", "dog:0.25,3"};
    int separable = 0;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct conv_bank bank;
        parse(&bank, names[k]);
        for (int i = 0; i < bank.filter_count; i++) {
            const struct conv_bank_filter *filter = &bank.filters[i];
            assert_true(filter->height % 2 == 1 && filter->height <= CONV_BANK_MAX_SIDE);
            assert_true(filter->width % 2 == 1 && filter->width <= CONV_BANK_MAX_SIDE);
            for (int u = 0; u < filter->height && filter->terms; u++) {
                for (int v = 0; v < filter->width; v++) {
                    double sum = 0;
                    for (int t = 0; t < filter->terms; t++)
                        sum += filter->columns[t * filter->height + u] *
                               filter->rows[t * filter->width + v];
                    assert_true(fabs(sum - at(filter, u, v)) < 1e-12);
                }
            }
            separable += filter->terms > 0;
        }
        conv_bank_free(&bank);
    }
    assert_int_equal(separable, 36 + 12 + 2 + 9 + 25 + 2 + 1 + 1);
}

// The formula of scikit-image's gabor_kernel, bandwidth 1: the wave runs along x cos + y sin, rows
// counted downwards.
UNIT_TEST(gabor_is_the_published_formula)
{
    struct conv_bank bank;
    parse(&bank, "gabor:2x4");
    assert_string_equal(bank.filters[2 * (4 + 1)].label, "real 2 45");
    assert_string_equal(bank.filters[2 * (4 + 3) + 1].label, "imaginary 2 135");
    for (int pair = 0; pair < 8; pair++) {
        const struct conv_bank_filter *real = &bank.filters[2 * pair], *imaginary = real + 1;
        double frequency = pair < 4 ? 0.4 : 0.4 / sqrt(2), theta = M_PI * (pair % 4) / 4;
        double sigma = sqrt(log(2) / 2) / M_PI * 3 / frequency;
        int half = real->width / 2;
        assert_int_equal(half, (int)ceil(3 * sigma));
        for (int y = -half; y <= half; y++) {
            for (int x = -half; x <= half; x++) {
                double phase = 2 * M_PI * frequency * (x * cos(theta) + y * sin(theta));
                double density =
                    exp(-(x * x + y * y) / (2 * sigma * sigma)) / (2 * M_PI * sigma * sigma);
                assert_true(fabs(at(real, y + half, x + half) - density * cos(phase)) < 1e-12);
                assert_true(fabs(at(imaginary, y + half, x + half) - density * sin(phase)) < 1e-12);
            }
        }
    }
    conv_bank_free(&bank);
}

UNIT_TEST(log_and_dog_have_sum_0)
{
    static const char *const names[] = {"log:2.5", "dog:1,1.6"};
    for (size_t k = 0; k < 2; k++) {
        struct conv_bank bank;
        double sum = 0;
        parse(&bank, names[k]);
        const struct conv_bank_filter *filter = bank.filters;
        for (int i = 0; i < filter->height * filter->width; i++)
            sum += filter->coef[i];
        assert_true(fabs(sum) < 1e-12);
        double centre = at(filter, filter->height / 2, filter->width / 2);
        assert_true(k ? centre > 0 : centre < 0);
        conv_bank_free(&bank);
    }
}

UNIT_TEST(wrong_names_are_explained)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"gabro:4x8", "did you mean gabor?"},
        {"gabor", "this bank is written gabor:SCALESxANGLES, for example gabor:4x8"},
        {"gabor:4", "for example gabor:4x8"},
        {"gabor:4x8x2", "for example gabor:4x8"},
        {"gabor:7x8", "1 to 6 scales"},
        {"gabor:2.5x8", "1 to 6 scales"},
        {"gabor:-1x8", "1 to 6 scales"},
        {"lm:3", "this bank is written lm"},
        {"laws:16", "laws:9 (3x3) and laws:25 (5x5)"},
        {"log:0", "sigma is 0.25 to 7.75"},
        {"log:", "for example log:2"},
        {"dog:1", "for example dog:1,1.6"},
        {"dog:1,8", "sigma is 0.25 to 7.75"},
        {"dog:1,nan", "for example dog:1,1.6"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct conv_bank bank;
        struct conv_err err = {0};
        assert_int_equal(conv_bank_parse(&bank, cases[k].text, &err), CONV_ERR_USAGE);
        if (!strstr(err.text, cases[k].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[k].text, err.text, cases[k].says);
        assert_null(bank.filters);
        conv_bank_free(&bank);
    }
    assert_false(conv_bank_is_name("weights.npy"));
    assert_false(conv_bank_is_name("lmx"));
}

UNIT_MAIN(NULL, NULL)
