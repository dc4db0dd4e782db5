// SPDX-License-Identifier: MIT
// Names of unfinished files, and which of the left-over ones may be removed
// (src/io/files/temporary.h).
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/files/temporary.h"
#include "support/folder.h"
#include "support/unit.h"

UNIT_TEST(test_names)
{
    char name[CONV_TEMPORARY_NAME_SIZE], other[CONV_TEMPORARY_NAME_SIZE];
    conv_temporary_name(name, 4294967295u);
    conv_temporary_name(other, 0);
    assert_true(conv_temporary_is(name) && conv_temporary_is(other));
    assert_string_not_equal(name, other);
    assert_int_equal(name[0], '.');
    assert_true(conv_temporary_is(".conv-0123abcd-42-1f-7.tmp"));
    static const char *const others[] = {
        "",
        ".conv-.tmp",
        "conv-0123abcd-42-1f-7.tmp",
        ".conv-0123abcd-42-1f-7.tmp2",
        ".conv-0123abcd-42-1f-7",
        ".conv-0123abcd-42-1f.tmp",
        ".conv-xyz-42-1f-7.tmp",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(conv_temporary_is(others[i]));
}

// The name that process `pid`, started at `start`, would give.
static const char *name_of(long pid, const char *start)
{
    static char name[CONV_TEMPORARY_NAME_SIZE];
    char own[CONV_TEMPORARY_NAME_SIZE], where[16], own_start[32];
    long own_pid;
    conv_temporary_name(own, 0);
    assert_int_equal(sscanf(own, ".conv-%15[0-9a-f]-%ld-%31[0-9a-f]-", where, &own_pid, own_start),
                     3);
    assert_int_equal(own_pid, getpid());
    snprintf(name, sizeof name, ".conv-%s-%ld-%s-0.tmp", where, pid, start ? start : own_start);
    return name;
}

static void set_age(const char *name, time_t seconds)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, folder_path(name), times, 0), 0);
}

static bool survives(const char *name)
{
    conv_temporary_sweep(folder_path(""));
    return folder_has(name);
}

UNIT_TEST_IN(test_files_of_dead_processes_go, folder_make, folder_remove)
{
    char name[CONV_TEMPORARY_NAME_SIZE];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    snprintf(name, sizeof name, "%s", name_of(child, NULL));
    folder_write(name, "half");
    assert_false(survives(name));
}

UNIT_TEST_IN(test_files_of_living_processes_stay, folder_make, folder_remove)
{
    char name[CONV_TEMPORARY_NAME_SIZE];
    snprintf(name, sizeof name, "%s", name_of(getpid(), NULL));
    folder_write(name, "half");
    set_age(name, 3 * 24 * 60 * 60); // however old they are
    assert_true(survives(name));
}

UNIT_TEST_IN(test_a_reused_process_number_does_not_protect, folder_make, folder_remove)
{
    char name[CONV_TEMPORARY_NAME_SIZE];
    snprintf(name, sizeof name, "%s", name_of(getpid(), "1")); // since boot
    folder_write(name, "half");
    assert_false(survives(name));
}

UNIT_TEST_IN(test_files_of_other_machines_go_after_a_day, folder_make, folder_remove)
{
    const char *name = ".conv-00000000-1-1-0.tmp";
    folder_write(name, "half");
    assert_true(survives(name));
    set_age(name, 23 * 60 * 60);
    assert_true(survives(name));
    set_age(name, 25 * 60 * 60);
    assert_false(survives(name));
}

UNIT_TEST_IN(test_what_is_no_file_of_ours_stays, folder_make, folder_remove)
{
    const char *folder = ".conv-00000000-1-1-1.tmp", *link = ".conv-00000000-1-1-2.tmp";
    folder_write(".conv-00000000-1-1-1.tmp/a", "");
    folder_write("target", "kept");
    assert_int_equal(symlink("target", folder_path(link)), 0);
    folder_write(".conv-note.tmp", "");
    set_age(folder, 3 * 24 * 60 * 60);
    set_age("target", 3 * 24 * 60 * 60);
    set_age(".conv-note.tmp", 3 * 24 * 60 * 60);
    assert_true(survives(folder));
    assert_true(survives(link));
    assert_true(survives(".conv-note.tmp"));
    assert_string_equal(folder_read("target"), "kept");
    conv_temporary_sweep(folder_path("missing")); // is not an error
}

UNIT_MAIN(NULL, NULL)
