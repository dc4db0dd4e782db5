// SPDX-License-Identifier: MIT
// Names of members of archives become paths below a folder (src/io/archive/member_path.h), or are
// refused.
#include <stdio.h>
#include <unistd.h>

#include "io/archive/member_path.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/unit.h"

#define NAME(text) text, sizeof text - 1

// clang-format off
static const struct { const char *name; size_t length; const char *path; } accepted[] = {
    {NAME("a.png"), "a.png"},
    {NAME("a/b.png"), "a/b.png"},
    {NAME("a/b/c/d.png"), "a/b/c/d.png"},
    // what does not change where a name leads
    {NAME("./a.png"), "a.png"},
    {NAME("././a.png"), "a.png"},
    {NAME("a/./b.png"), "a/b.png"},
    {NAME("a//b.png"), "a/b.png"},
    {NAME(".//a///./b.png"), "a/b.png"},
    // absolute names
    {NAME("/a.png"), "a.png"},
    {NAME("//a.png"), "a.png"},
    {NAME("///a/b.png"), "a/b.png"},
    {NAME("/./a.png"), "a.png"},
    {NAME("/etc/passwd"), "etc/passwd"},
    {NAME("/dev/shm/x"), "dev/shm/x"},
    // dots that are no ".."
    {NAME("...") , "..."},
    {NAME("..a"), "..a"},
    {NAME("a.."), "a.."},
    {NAME("a/...b"), "a/...b"},
    {NAME(".hidden"), ".hidden"},
    {NAME(".hidden/.png"), ".hidden/.png"},
    {NAME(". ."), ". ."},
    {NAME(".. "), ".. "},
    // characters that mean something elsewhere
    {NAME("a b.png"), "a b.png"},
    {NAME("-rf"), "-rf"},
    {NAME("~/a.png"), "~/a.png"},
    {NAME("$HOME/a.png"), "$HOME/a.png"},
    {NAME("a\nb.png"), "a\nb.png"},
    {NAME("%2e%2e/a.png"), "%2e%2e/a.png"},
    {NAME("a:1.png"), "a:1.png"},
    {NAME("1:/a.png"), "1:/a.png"},
    {NAME("ab:/a.png"), "ab:/a.png"},
    {NAME("a\\b.png"), "a\\b.png"},
    {NAME("a\\..b.png"), "a\\..b.png"},
    {NAME("d/C:/a.png"), "d/C:/a.png"},
    // any encoding
    {NAME("\xC3\xA4.png"), "\xC3\xA4.png"},           // UTF-8
    {NAME("\xE4.png"), "\xE4.png"},                   // Latin-1
    {NAME("a\xCC\x88.png"), "a\xCC\x88.png"},         // decomposed
    {NAME("\x82\xA0/\x83\x5C.png"), "\x82\xA0/\x83\x5C.png"}, // Shift JIS, whose second bytes look like ASCII
    {NAME("\xC0\xAE\xC0\xAE/a"), "\xC0\xAE\xC0\xAE/a"}, // ".." in UTF-8 that is too long: bytes, no dots
    {NAME("\xEF\xBC\x8E\xEF\xBC\x8E/a"), "\xEF\xBC\x8E\xEF\xBC\x8E/a"}, // full-width dots
    {NAME("\xFF"), "\xFF"},
};

static const struct { const char *name; size_t length; const char *why; } refused[] = {
    {NAME(""), "no name"},
    // folders
    {NAME("/"), "folder"},
    {NAME("//"), "folder"},
    {NAME("."), "folder"},
    {NAME("./"), "folder"},
    {NAME("/."), "folder"},
    {NAME("a/"), "folder"},
    {NAME("a//"), "folder"},
    {NAME("a/."), "folder"},
    {NAME("a/./"), "folder"},
    {NAME("/a/b/"), "folder"},
    // ways up
    {NAME(".."), "\"..\""},
    {NAME("../"), "\"..\""},
    {NAME("../a.png"), "\"..\""},
    {NAME("../../../../etc/passwd"), "\"..\""},
    {NAME("/.."), "\"..\""},
    {NAME("/../a.png"), "\"..\""},
    {NAME("a/.."), "\"..\""},
    {NAME("a/../b.png"), "\"..\""},
    {NAME("a/../../b.png"), "\"..\""},
    {NAME("./../a.png"), "\"..\""},
    {NAME("a//../b.png"), "\"..\""},
    {NAME("a/b/c/../../../../d.png"), "\"..\""},
    // NUL: what follows it would be dropped, or what a check saw would not be what is written
    {NAME("\0"), "NUL"},
    {NAME("a.png\0"), "NUL"},
    {NAME("a.png\0/../../b"), "NUL"},
    {NAME("\0a.png"), "NUL"},
    // Windows
    {NAME("C:"), "Windows"},
    {NAME("C:\\a.png"), "Windows"},
    {NAME("c:/a.png"), "Windows"},
    {NAME("/C:/a.png"), "Windows"},
    {NAME("./C:/a.png"), "Windows"},
    {NAME("Z:\\Windows\\System32\\a.png"), "Windows"},
    {NAME("\\a.png"), "Windows"},
    {NAME("\\\\server\\share\\a.png"), "Windows"},
    {NAME("\\\\?\\C:\\a.png"), "Windows"},
    {NAME("/\\a.png"), "Windows"},
    {NAME("..\\a.png"), "Windows"},
    {NAME("a\\..\\..\\b.png"), "Windows"},
    {NAME("a/..\\..\\b.png"), "Windows"},
    {NAME("a\\.."), "Windows"},
};
// clang-format on

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

UNIT_TEST(test_accepted)
{
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct conv_err err = {0};
        char path[PATH_MAX];
        enum conv_status status =
            conv_member_path_make(path, accepted[i].name, accepted[i].length, &err);
        if (status || strcmp(path, accepted[i].path) != 0)
            fail_msg("%s: %s", accepted[i].name, status ? err.text : path);
    }
}

UNIT_TEST(test_refused)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct conv_err err = {0};
        char path[PATH_MAX];
        if (conv_member_path_make(path, refused[i].name, refused[i].length, &err) !=
                CONV_ERR_FORMAT ||
            !strstr(err.text, refused[i].why))
            fail_msg("%s: %s", refused[i].name, err.text);
    }
}

// A name is not required to end: members of archives do not.
UNIT_TEST(test_length_counts)
{
    char path[PATH_MAX];
    assert_int_equal(conv_member_path_make(path, "a.png/../b", 5, NULL), CONV_OK);
    assert_string_equal(path, "a.png");
    assert_int_equal(conv_member_path_make(path, "ab/", 2, NULL), CONV_OK);
    assert_string_equal(path, "ab");
}

UNIT_TEST(test_long_names)
{
    static char name[1 << 20];
    char path[PATH_MAX];
    struct conv_err err = {0};
    memset(name, 'x', sizeof name);
    assert_int_equal(conv_member_path_make(path, name, NAME_MAX, &err), CONV_OK);
    assert_int_equal(strlen(path), NAME_MAX);
    assert_int_equal(conv_member_path_make(path, name, NAME_MAX + 1, &err), CONV_ERR_LIMIT);
    assert_int_equal(conv_member_path_make(path, name, sizeof name, &err), CONV_ERR_LIMIT);
    for (size_t i = 1; i < sizeof name; i += 2)
        name[i] = '/';
    assert_int_equal(conv_member_path_make(path, name, PATH_MAX - 1, &err), CONV_OK);
    assert_int_equal(strlen(path), PATH_MAX - 1);
    assert_int_equal(conv_member_path_make(path, name, PATH_MAX + 1, &err), CONV_ERR_LIMIT);
    assert_non_null(strstr(err.text, "too long"));
    memset(name, '/', sizeof name); // a long name of a short path
    name[sizeof name - 1] = 'a';
    assert_int_equal(conv_member_path_make(path, name, sizeof name, &err), CONV_OK);
    assert_string_equal(path, "a");
}

// Whatever bytes a name has, an accepted one is a relative path that stays below the folder, and is
// its own path.
UNIT_TEST(test_any_bytes)
{
    static const char letters[] = "../\\aC:.\0/~";
    uint64_t random = 1;
    int accepted_count = 0;
    for (int round = 0; round < 200000; round++) {
        char name[12], path[PATH_MAX], again[PATH_MAX];
        size_t length = random_below(&random, sizeof name);
        for (size_t i = 0; i < length; i++)
            name[i] = letters[random_below(&random, sizeof letters - 1)];
        if (conv_member_path_make(path, name, length, NULL))
            continue;
        accepted_count++;
        assert_true(path[0] && path[0] != '/' && path[0] != '\\');
        char framed[PATH_MAX + 4];
        snprintf(framed, sizeof framed, "/%s/", path);
        for (char *s = framed; *s; s++)
            *s = *s == '\\' ? '/' : *s;
        assert_null(strstr(framed, "/../"));
        assert_int_equal(conv_member_path_make(again, path, strlen(path), NULL), CONV_OK);
        assert_string_equal(again, path);
    }
    assert_true(accepted_count > 1000 && accepted_count < 199000);
}

static enum conv_status check_links(const char *path, struct conv_err *err)
{
    struct conv_member_links links = {.folder = folder_path("out")};
    return conv_member_path_check_links(&links, path, err);
}

UNIT_TEST_IN(test_links, folder_make, folder_remove)
{
    struct conv_err err = {0};
    assert_int_equal(check_links("a/b.png", &err), CONV_OK); // there is no folder yet
    folder_write("elsewhere/file", "");
    folder_write("out2/file", "");
    folder_write("out/real/file", "");
    assert_int_equal(symlink("../elsewhere", folder_path("out/away")), 0);
    assert_int_equal(symlink("../out2", folder_path("out/sibling")), 0); // its name begins alike
    assert_int_equal(symlink(folder_path("elsewhere"), folder_path("out/absolute")), 0);
    assert_int_equal(symlink("real", folder_path("out/inside")), 0);
    assert_int_equal(symlink("..", folder_path("out/real/up")), 0);
    assert_int_equal(symlink("../..", folder_path("out/real/above")), 0);
    assert_int_equal(symlink("../nowhere", folder_path("out/dangling")), 0);
    assert_int_equal(symlink("loop", folder_path("out/loop")), 0);
    static const char *const fine[] = {"a.png",           "real/a.png",    "new/sub/a.png",
                                       "inside/a.png",    "real/up/a.png", "real/up/inside/a.png",
                                       "inside/up/a.png", "away"};
    for (size_t i = 0; i < COUNT(fine); i++)
        if (check_links(fine[i], &err))
            fail_msg("%s: %s", fine[i], err.text);
    static const char *const bad[] = {"away/a.png",          "away/sub/a.png", "absolute/a.png",
                                      "sibling/a.png",       "inside/above/a", "real/above/a.png",
                                      "real/up/away/a.png",  "dangling/a.png", "loop/a.png",
                                      "real/above/out/a.png"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        err.text[0] = '\0';
        if (check_links(bad[i], &err) != CONV_ERR_IO || !strstr(err.text, "leads out"))
            fail_msg("%s: %s", bad[i], err.text);
    }
}

// The folder that passed is remembered, and no other.
UNIT_TEST_IN(test_links_remembered, folder_make, folder_remove)
{
    struct conv_member_links links = {.folder = folder_path("out")};
    folder_write("out/a/file", "");
    folder_write("out/ab/file", "");
    folder_write("elsewhere/file", "");
    assert_int_equal(symlink("../elsewhere", folder_path("out/abc")), 0);
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
    assert_int_equal(conv_member_path_check_links(&links, "ab/x", NULL), CONV_OK);
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
    assert_int_equal(conv_member_path_check_links(&links, "a/x", NULL), CONV_OK);
    assert_int_equal(conv_member_path_check_links(&links, "ab/y", NULL), CONV_OK);
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
}

UNIT_MAIN(NULL, NULL)
