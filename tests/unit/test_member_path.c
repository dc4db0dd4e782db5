// SPDX-License-Identifier: MIT
// Names of members of archives become paths below a folder (src/io/archive/archive_members.h), or
// are refused.
#include <stdio.h>
#include <unistd.h>

#include "io/archive/archive_members.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/unit.h"

// clang-format off
static const struct { const char *name, *path; } accepted[] = {
    {"a.png", "a.png"},
    {"a/b.png", "a/b.png"},
    {"a/b/c/d.png", "a/b/c/d.png"},
    // what does not change where a name leads
    {"./a.png", "a.png"},
    {"././a.png", "a.png"},
    {"a/./b.png", "a/b.png"},
    {"a//b.png", "a/b.png"},
    {".//a///./b.png", "a/b.png"},
    // absolute names
    {"/a.png", "a.png"},
    {"//a.png", "a.png"},
    {"///a/b.png", "a/b.png"},
    {"/./a.png", "a.png"},
    {"/etc/passwd", "etc/passwd"},
    {"/dev/shm/x", "dev/shm/x"},
    // dots that are no ".."
    {"...", "..."},
    {"..a", "..a"},
    {"a..", "a.."},
    {"a/...b", "a/...b"},
    {".hidden", ".hidden"},
    {".hidden/.png", ".hidden/.png"},
    {". .", ". ."},
    {".. ", ".. "},
    // characters that mean something elsewhere
    {"a b.png", "a b.png"},
    {"-rf", "-rf"},
    {"~/a.png", "~/a.png"},
    {"$HOME/a.png", "$HOME/a.png"},
    {"a\nb.png", "a\nb.png"},
    {"%2e%2e/a.png", "%2e%2e/a.png"},
    {"a:1.png", "a:1.png"},
    {"1:/a.png", "1:/a.png"},
    {"ab:/a.png", "ab:/a.png"},
    {"a\\b.png", "a\\b.png"},
    {"a\\..b.png", "a\\..b.png"},
    {"d/C:/a.png", "d/C:/a.png"},
    // any encoding
    {"\xC3\xA4.png", "\xC3\xA4.png"},           // UTF-8
    {"\xE4.png", "\xE4.png"},                   // Latin-1
    {"a\xCC\x88.png", "a\xCC\x88.png"},         // decomposed
    {"\x82\xA0/\x83\x5C.png", "\x82\xA0/\x83\x5C.png"}, // Shift JIS, whose second bytes look like ASCII
    {"\xC0\xAE\xC0\xAE/a", "\xC0\xAE\xC0\xAE/a"}, // ".." in UTF-8 that is too long: bytes, no dots
    {"\xEF\xBC\x8E\xEF\xBC\x8E/a", "\xEF\xBC\x8E\xEF\xBC\x8E/a"}, // full-width dots
    {"\xFF", "\xFF"},
};

static const struct { const char *name, *why; } refused[] = {
    {"", "no name"},
    // folders
    {"/", "folder"},
    {"//", "folder"},
    {".", "folder"},
    {"./", "folder"},
    {"/.", "folder"},
    {"a/", "folder"},
    {"a//", "folder"},
    {"a/.", "folder"},
    {"a/./", "folder"},
    {"/a/b/", "folder"},
    // ways up
    {"..", "\"..\""},
    {"../", "\"..\""},
    {"../a.png", "\"..\""},
    {"../../../../etc/passwd", "\"..\""},
    {"/..", "\"..\""},
    {"/../a.png", "\"..\""},
    {"a/..", "\"..\""},
    {"a/../b.png", "\"..\""},
    {"a/../../b.png", "\"..\""},
    {"./../a.png", "\"..\""},
    {"a//../b.png", "\"..\""},
    {"a/b/c/../../../../d.png", "\"..\""},
    // Windows
    {"C:", "Windows"},
    {"C:\\a.png", "Windows"},
    {"c:/a.png", "Windows"},
    {"/C:/a.png", "Windows"},
    {"./C:/a.png", "Windows"},
    {"Z:\\Windows\\System32\\a.png", "Windows"},
    {"\\a.png", "Windows"},
    {"\\\\server\\share\\a.png", "Windows"},
    {"\\\\?\\C:\\a.png", "Windows"},
    {"/\\a.png", "Windows"},
    {"..\\a.png", "Windows"},
    {"a\\..\\..\\b.png", "Windows"},
    {"a/..\\..\\b.png", "Windows"},
    {"a\\..", "Windows"},
};
// clang-format on

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

UNIT_TEST(test_accepted)
{
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct conv_err err = {0};
        char path[PATH_MAX];
        enum conv_status status = conv_member_path_make(path, accepted[i].name, &err);
        if (status || strcmp(path, accepted[i].path) != 0)
            fail_msg("%s: %s", accepted[i].name, status ? err.text : path);
    }
}

UNIT_TEST(test_refused)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct conv_err err = {0};
        char path[PATH_MAX];
        if (conv_member_path_make(path, refused[i].name, &err) != CONV_ERR_FORMAT ||
            !strstr(err.text, refused[i].why))
            fail_msg("%s: %s", refused[i].name, err.text);
    }
}

UNIT_TEST(test_long_names)
{
    static char name[1 << 20];
    static const struct {
        size_t length;
        enum conv_status status;
    } plain[] = {{NAME_MAX, CONV_OK},
                 {NAME_MAX + 1, CONV_ERR_LIMIT},
                 {sizeof name - 1, CONV_ERR_LIMIT}},
      deep[] = {{PATH_MAX - 1, CONV_OK}, {PATH_MAX + 1, CONV_ERR_LIMIT}};
    char path[PATH_MAX];
    for (size_t i = 0; i < COUNT(plain); i++) {
        memset(name, 'x', plain[i].length);
        name[plain[i].length] = '\0';
        assert_int_equal(conv_member_path_make(path, name, NULL), plain[i].status);
    }
    for (size_t i = 0; i < COUNT(deep); i++) {
        for (size_t at = 0; at < deep[i].length; at++)
            name[at] = at % 2 ? '/' : 'x';
        name[deep[i].length] = '\0';
        assert_int_equal(conv_member_path_make(path, name, NULL), deep[i].status);
    }
    memset(name, '/', sizeof name); // a long name of a short path
    strcpy(name + sizeof name - 2, "a");
    assert_ok(conv_member_path_make(path, name, NULL));
    assert_string_equal(path, "a");
}

// Whatever bytes a name has, an accepted one is a relative path that stays below the folder, and is
// its own path.
UNIT_TEST(test_any_bytes)
{
    static const char letters[] = "../\\aC:./~";
    uint64_t random = 1;
    int accepted_count = 0;
    for (int round = 0; round < 200000; round++) {
        char name[12], path[PATH_MAX], again[PATH_MAX];
        size_t length = random_below(&random, sizeof name);
        for (size_t i = 0; i < length; i++)
            name[i] = letters[random_below(&random, sizeof letters - 1)];
        name[length] = '\0';
        if (conv_member_path_make(path, name, NULL))
            continue;
        accepted_count++;
        assert_true(path[0] && path[0] != '/' && path[0] != '\\');
        char framed[PATH_MAX + 4];
        snprintf(framed, sizeof framed, "/%s/", path);
        for (char *s = framed; *s; s++)
            *s = *s == '\\' ? '/' : *s;
        assert_null(strstr(framed, "/../"));
        assert_ok(conv_member_path_make(again, path, NULL));
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
    assert_ok(check_links("a/b.png", &err)); // there is no folder yet
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
    assert_ok(conv_member_path_check_links(&links, "ab/x", NULL));
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
    assert_ok(conv_member_path_check_links(&links, "a/x", NULL));
    assert_ok(conv_member_path_check_links(&links, "ab/y", NULL));
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
    assert_int_equal(conv_member_path_check_links(&links, "abc/x", NULL), CONV_ERR_IO);
}

UNIT_MAIN(NULL, NULL)
