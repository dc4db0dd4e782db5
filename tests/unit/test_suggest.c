// SPDX-License-Identifier: MIT
// The candidates of "did you mean", and that there are none if no name is similar.
#include "base/err.h"
#include "support/unit.h"

static const struct entry {
    int number;
    const char *name;
} table[] = {
    {1, "emboss"}, {2, "emboss5"}, {3, "blur"}, {4, "gaussian"}, {5, "sobel-x"}, {6, "sobel-y"},
};

static const char *nearest(const char *word)
{
    return conv_suggest_nearest(word, &table[0].name, sizeof table[0],
                                sizeof table / sizeof table[0]);
}

UNIT_TEST(mistakes_are_understood)
{
    assert_string_equal(nearest("embos"), "emboss");     // one missing
    assert_string_equal(nearest("embosss"), "emboss");   // one too many
    assert_string_equal(nearest("enboss"), "emboss");    // one wrong
    assert_string_equal(nearest("ebmoss"), "emboss");    // two swapped
    assert_string_equal(nearest("bulr"), "blur");        // a swap is one mistake, not two
    assert_string_equal(nearest("EMBOSS"), "emboss");    // case
    assert_string_equal(nearest("gauss"), "gaussian");   // unfinished
    assert_string_equal(nearest("sobely"), "sobel-y");   // the nearest, not the first
    assert_string_equal(nearest("sobel-z"), "sobel-x");  // the first of equals
    assert_string_equal(nearest("emboss5x"), "emboss5"); // the longer one is nearer
}

UNIT_TEST(equals_are_all_offered)
{
    const char *names[3];
    size_t count = sizeof table / sizeof table[0];
    assert_int_equal(conv_suggest_all(names, 3, "sobel", &table[0].name, sizeof table[0], count),
                     2);
    assert_string_equal(names[0], "sobel-x");
    assert_string_equal(names[1], "sobel-y");
    assert_int_equal(conv_suggest_all(names, 1, "sobel", &table[0].name, sizeof table[0], count),
                     1);
    assert_string_equal(names[0], "sobel-x");
    assert_int_equal(conv_suggest_all(names, 3, "embos", &table[0].name, sizeof table[0], count),
                     1);
    assert_string_equal(names[0], "emboss"); // emboss5 begins with it
    assert_int_equal(conv_suggest_all(names, 3, "median", &table[0].name, sizeof table[0], count),
                     0);
}

UNIT_TEST(strangers_are_not)
{
    assert_null(nearest(""));
    assert_null(nearest("x"));
    assert_null(nearest("bl"));
    assert_null(nearest("median"));
    assert_null(conv_suggest_nearest("emboss", table, sizeof table[0], 0));
    char longest[4096];
    for (size_t i = 0; i + 1 < sizeof longest; i++)
        longest[i] = 'e';
    longest[sizeof longest - 1] = '\0';
    assert_null(nearest(longest));
}

UNIT_MAIN(NULL, NULL)
