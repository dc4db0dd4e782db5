// SPDX-License-Identifier: MIT
// Paths (src/io/files/paths.h): joined, resolved, compared, made.
#include <stdio.h>
#include <unistd.h>

#include "io/files/paths.h"
#include "support/folder.h"
#include "support/unit.h"

UNIT_TEST(test_join)
{
    char path[PATH_MAX], longest[PATH_MAX];
    assert_true(conv_paths_join(path, "a", "b"));
    assert_string_equal(path, "a/b");
    assert_true(conv_paths_join(path, "a/", "b"));
    assert_string_equal(path, "a/b");
    assert_true(conv_paths_join(path, "", "b"));
    assert_string_equal(path, "b");
    assert_true(conv_paths_join(path, path, "c")); // onto itself
    assert_string_equal(path, "b/c");
    memset(longest, 'x', sizeof longest);
    longest[PATH_MAX - 3] = '\0';
    assert_true(conv_paths_join(path, longest, "y")); // PATH_MAX - 1 characters
    assert_int_equal(strlen(path), PATH_MAX - 1);
    strcpy(path, "kept");
    assert_false(conv_paths_join(path, longest, "yz"));
    assert_string_equal(path, "kept");
}

UNIT_TEST(test_base)
{
    assert_string_equal(conv_paths_base("a/b.png"), "b.png");
    assert_string_equal(conv_paths_base("b.png"), "b.png");
    assert_string_equal(conv_paths_base("/"), "/");
    assert_string_equal(conv_paths_base("a/b//"), "b//"); // trailing slashes belong to the name
}

UNIT_TEST(test_climbs)
{
    assert_true(conv_paths_climbs("..", "/"));
    assert_true(conv_paths_climbs("a/../b", "/"));
    assert_true(conv_paths_climbs("a//..", "/"));
    assert_false(conv_paths_climbs("a/..b/c..", "/"));
    assert_false(conv_paths_climbs("...", "/"));
    assert_false(conv_paths_climbs("", "/"));
}

UNIT_TEST_IN(test_relation_sees_through_links, folder_make, folder_remove)
{
    folder_write("in/sub/a", "");
    folder_write("inner/a", "");
    assert_int_equal(symlink(folder_path("in"), folder_path("link")), 0);
    assert_int_equal(conv_paths_relation(folder_path("in"), folder_path("link")), CONV_PATHS_SAME);
    assert_int_equal(conv_paths_relation(folder_path("in"), folder_path("in/sub/../")),
                     CONV_PATHS_SAME);
    assert_int_equal(conv_paths_relation(folder_path("link"), folder_path("in/new/deeper")),
                     CONV_PATHS_NESTED);
    assert_int_equal(conv_paths_relation(folder_path("in/sub"), folder_path("link")),
                     CONV_PATHS_NESTED);
    // A common beginning of two names is no common folder.
    assert_int_equal(conv_paths_relation(folder_path("in"), folder_path("inner")),
                     CONV_PATHS_APART);
    assert_int_equal(conv_paths_relation(folder_path("in"), folder_path("in2/new")),
                     CONV_PATHS_APART);
}

UNIT_TEST_IN(test_resolve_what_does_not_exist, folder_make, folder_remove)
{
    char resolved[PATH_MAX];
    folder_write("real/a", "");
    assert_int_equal(symlink("real", folder_path("link")), 0);
    assert_true(conv_paths_resolve(folder_path("link/new/../other/"), resolved));
    assert_string_equal(resolved, folder_path("real/other"));
    assert_int_equal(symlink("loop", folder_path("loop")), 0);
    assert_false(conv_paths_resolve(folder_path("loop/a"), resolved));
    assert_false(conv_paths_resolve(folder_path("real/a/below a file"), resolved));
}

UNIT_TEST_IN(test_identify, folder_make, folder_remove)
{
    struct conv_paths_identity a, b;
    folder_write("file", "");
    assert_int_equal(link(folder_path("file"), folder_path("hard")), 0);
    assert_int_equal(symlink("file", folder_path("soft")), 0);
    assert_true(conv_paths_identify(&a, folder_path("file")));
    assert_true(a.exists);
    assert_true(conv_paths_identify(&b, folder_path("hard")));
    assert_true(conv_paths_is_same(&a, &b));
    assert_true(conv_paths_identify(&b, folder_path("soft")));
    assert_true(conv_paths_is_same(&a, &b));
    // A new file is its folder and name, also through a link that leads nowhere yet.
    assert_int_equal(symlink("new", folder_path("dangling")), 0);
    assert_true(conv_paths_identify(&a, folder_path("new")));
    assert_false(a.exists);
    assert_true(conv_paths_identify(&b, folder_path("dangling")));
    assert_true(conv_paths_is_same(&a, &b));
    assert_true(conv_paths_identify(&b, folder_path("newer")));
    assert_false(conv_paths_is_same(&a, &b));
    assert_false(conv_paths_identify(&a, folder_path("missing/new")));
    assert_false(conv_paths_identify(&a, ""));
}

UNIT_TEST_IN(test_unchanged, folder_make, folder_remove)
{
    struct stat before, after;
    folder_write("file", "abc");
    assert_int_equal(stat(folder_path("file"), &before), 0);
    after = before;
    assert_true(conv_paths_is_unchanged(&before, &after));
    after.st_mtim.tv_nsec ^= 1;
    assert_false(conv_paths_is_unchanged(&before, &after));
    after = before;
    after.st_size++;
    assert_false(conv_paths_is_unchanged(&before, &after));
    after = before;
    after.st_ino++;
    assert_false(conv_paths_is_unchanged(&before, &after));
}

UNIT_TEST_IN(test_make_folder, folder_make, folder_remove)
{
    struct conv_err err;
    assert_int_equal(conv_paths_make_folder(folder_path("a/b/c//"), &err), CONV_OK);
    assert_true(conv_paths_is_folder(folder_path("a/b/c")));
    assert_int_equal(conv_paths_make_folder(folder_path("a/b"), &err), CONV_OK); // is there
    assert_int_equal(conv_paths_make_parent(folder_path("d/e/file"), &err), CONV_OK);
    assert_true(conv_paths_is_folder(folder_path("d/e")));
    assert_false(conv_paths_exists(folder_path("d/e/file")));
    assert_int_equal(conv_paths_make_parent("file", &err), CONV_OK); // in the current folder
    folder_write("file", "");
    assert_int_equal(conv_paths_make_folder(folder_path("file"), &err), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "Not a directory"));
    assert_int_equal(conv_paths_make_folder(folder_path("file/below"), &err), CONV_ERR_IO);
    assert_string_equal(folder_read("file"), "");
}

UNIT_TEST_IN(test_descriptor, folder_make, folder_remove)
{
    char path[64];
    assert_int_equal(conv_paths_descriptor("/proc/self/fd/7"), 7);
    assert_int_equal(conv_paths_descriptor("/dev/fd/3"), 3);
    assert_int_equal(conv_paths_descriptor("/dev/stdout"), STDOUT_FILENO);
    assert_int_equal(symlink("/dev/stderr", folder_path("link")), 0);
    assert_int_equal(conv_paths_descriptor(folder_path("link")), STDERR_FILENO);
    assert_int_equal(conv_paths_descriptor("/dev/null"), -1);
    folder_write("1", "");
    assert_int_equal(conv_paths_descriptor(folder_path("1")), -1);
    snprintf(path, sizeof path, "/proc/self/fd/%d0", INT_MAX);
    assert_int_equal(conv_paths_descriptor(path), -1);
}

UNIT_MAIN(NULL, NULL)
