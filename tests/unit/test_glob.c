// SPDX-License-Identifier: MIT
// Globs of names in a folder tree (src/io/walk/glob.c).

#include "io/walk/walk.h"
#include "support/unit.h"

static const struct {
    const char *glob, *path;
    bool matches;
} cases[] = {
    // Without a slash: the last name, at any depth.
    {"*.png", "a.png", true},
    {"*.png", "sub/a.png", true},
    {"*.png", "a.jpg", false},
    {"a?.png", "ab.png", true},
    {"a?.png", "a.png", false},
    {"[a-c]*", "bird.png", true},
    {"[!a-c]*", "bird.png", false},
    {"\\*.png", "*.png", true},
    {"\\*.png", "a.png", false},
    {"*", ".hidden", true},
    {"sub", "sub/a.png", false},
    // With one: the whole path; no character of a name is a slash.
    {"sub/*.png", "sub/a.png", true},
    {"sub/*.png", "sub/deep/a.png", false},
    {"sub/*.png", "x/sub/a.png", false},
    {"*/a.png", "sub/a.png", true},
    {"*/a.png", "a.png", false},
    {"sub?a.png", "sub/a.png", false},
    {"s[!x]b/a.png", "sub/a.png", true},
    {"/a.png", "a.png", true},
    {"/a.png", "sub/a.png", false},
    {"/a*", "a.png", true},
    // Any number of folders.
    {"**/a.png", "a.png", true},
    {"**/a.png", "x/y/a.png", true},
    {"**/a.png", "x/ya.png", false},
    {"x/**/a.png", "x/a.png", true},
    {"x/**/a.png", "x/y/z/a.png", true},
    {"x/**/a.png", "y/x/a.png", false},
    {"x/**", "x/y/a.png", true},
    {"x/**", "x", false},
    {"x*/**/z*/*.png", "x1/y/z2/a.png", true},
    {"x*/**/z*/*.png", "x1/y/z2/w/a.png", false},
    {"**/b/**/c", "a/b/b/x/c", true},
    {"**/b/**/c", "b/c", true},
    {"**/b/**/c", "a/c", false},
    {"**", "a/b", true},
    {"/**", "a", true},
    {"a**b", "axxb", true}, // no whole component: as one star
    {"x/a**b", "x/a/b", false},
    // Either.
    {"*.{png,jpg}", "a.jpg", true},
    {"*.{png,jpg}", "a.gif", false},
    {"{a,b{1,2}}.png", "b2.png", true},
    {"{a,b{1,2}}.png", "b.png", false},
    {"a{,_s}.png", "a.png", true},
    {"a{,_s}.png", "a_s.png", true},
    {"{x,y}/{a,b}*", "y/b.png", true},
    {"{x/,}a.png", "x/a.png", true},
    {"{**/,}a", "b/c/a", true},
    {"{a}", "{a}", true}, // without a comma or an end: characters
    {"{a}", "a", false},
    {"{a,b", "{a,b", true},
    {"a}", "a}", true},
    {"\\{a,b}", "{a,b}", true},
    {"[{]a,b}", "{a,b}", true},
    {"{a,[,]}x", ",x", true},
    {"[a", "[a", true},
};

UNIT_TEST(test_match)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (conv_glob_match(cases[i].glob, cases[i].path, false) != cases[i].matches)
            fail_msg("%s must %smatch %s", cases[i].glob, cases[i].matches ? "" : "not ",
                     cases[i].path);
}

UNIT_TEST(test_a_slash_at_the_end_matches_folders)
{
    assert_true(conv_glob_match("b/", "b", true));
    assert_true(conv_glob_match("b/", "x/b", true));
    assert_false(conv_glob_match("b/", "b", false));
    assert_true(conv_glob_match("/b/", "b", true));
    assert_false(conv_glob_match("/b/", "x/b", true));
    assert_true(conv_glob_match("x/{a,b}/", "x/b", true));
    assert_true(conv_glob_match("b", "b", true));
}

// A thousand components, two of which two stars can stop at.
UNIT_TEST(test_many_stars_take_little_time)
{
    char path[2001];
    for (int i = 0; i < 2000; i += 2)
        memcpy(path + i, "a/", 2);
    path[1999] = '\0';
    assert_false(conv_glob_match("**/a/**/a/**/b", path, false));
    assert_true(conv_glob_match("**/a/**/a/**/a", path, false));
}

UNIT_TEST(test_check)
{
    struct conv_err err;
    char longest[5000];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_ok(conv_glob_check("*.{png,jpg}", &err));
    assert_int_equal(conv_glob_check("", &err), CONV_ERR_USAGE);
    assert_int_equal(conv_glob_check(longest, &err), CONV_ERR_USAGE);
    assert_ok(conv_glob_check("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", &err));
    assert_int_equal(
        conv_glob_check("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", &err),
        CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "1024"));
}

UNIT_MAIN(NULL, NULL)
