// SPDX-License-Identifier: MIT
// The journal of done images (src/io/files/journal.h), as killed runs, other versions and other
// programs leave it.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files/journal.h"
#include "support/folder.h"
#include "support/unit.h"

#define HEADER "conv-journal 3\n"

static struct conv_journal_config config;
static struct conv_journal *journal;
static struct conv_err err;

static int set_up(void **state)
{
    static char path[4096];
    if (folder_make(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s", folder_path("journal"));
    config = (struct conv_journal_config){.path = path, .settings = {{1, 2}}};
    journal = NULL;
    return 0;
}

static int tear_down(void **state)
{
    conv_journal_close(journal);
    return folder_remove(state);
}

static void open_again(void)
{
    conv_journal_close(journal);
    journal = NULL;
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_OK);
}

// An image by number: names and sizes differ.
static struct conv_journal_fact fact(int number)
{
    static char input[16][32];
    static struct stat in[16], out[16];
    static const struct conv_encoded encoded = {.part = {{(const uint8_t *)"result", 6}},
                                                .size = 6};
    snprintf(input[number], sizeof input[0], "in/%d\n.png", number);
    in[number] = (struct stat){.st_size = 100 + number, .st_mtim = {.tv_sec = 5}};
    out[number] = (struct stat){.st_size = 50, .st_mtim = {.tv_nsec = 7}, .st_ino = 9};
    return (struct conv_journal_fact){.input = input[number],
                                      .output = "out.png",
                                      .in = &in[number],
                                      .out = &out[number],
                                      .encoded = &encoded};
}

static void add(int number)
{
    struct conv_journal_fact new = fact(number);
    assert_int_equal(conv_journal_add(journal, &new, &err), CONV_OK);
}

static bool knows(int number)
{
    struct conv_journal_fact known = fact(number);
    return conv_journal_knows(journal, &known);
}

UNIT_TEST(test_lines_are_found_by_the_next_run)
{
    open_again();
    assert_string_equal(folder_read("journal"), HEADER);
    add(1);
    add(2);
    open_again();
    assert_true(knows(1) && knows(2));
    assert_false(knows(3));
    assert_int_equal(conv_journal_damaged(journal), 0);
    // A control character in a name does not end the line.
    assert_non_null(strstr(folder_read("journal"), "in/1\\x0a.png\n"));
}

UNIT_TEST(test_any_change_makes_an_image_unknown)
{
    open_again();
    add(1);
    open_again();
    for (int change = 0; change < 7; change++) {
        struct conv_journal_fact changed = fact(1);
        struct stat in = *changed.in, out = *changed.out;
        changed.in = &in;
        changed.out = &out;
        in.st_size += change == 0;
        in.st_mtim.tv_sec += change == 1;
        in.st_mtim.tv_nsec += change == 2;
        out.st_size += change == 3;
        out.st_mtim.tv_nsec += change == 4;
        changed.input = change == 5 ? "other" : changed.input;
        changed.output = change == 6 ? "other" : changed.output;
        assert_false(conv_journal_knows(journal, &changed));
    }
    assert_true(knows(1));
    config.settings.word[0]++;
    open_again();
    assert_false(knows(1));
}

UNIT_TEST(test_a_killed_run_leaves_half_a_line)
{
    open_again();
    add(1);
    add(2);
    size_t size = strlen(folder_read("journal"));
    // Wherever it was cut, the first line counts and the next run appends after the rest.
    for (size_t cut = size - 1; cut > size - 45; cut--) {
        assert_int_equal(truncate(folder_path("journal"), (off_t)cut), 0);
        open_again();
        assert_true(knows(1));
        assert_false(knows(2));
        add(3);
        open_again();
        assert_true(knows(1) && knows(3));
        assert_true(conv_journal_damaged(journal) <= 1);
        assert_int_equal(truncate(folder_path("journal"), (off_t)cut), 0);
    }
}

UNIT_TEST(test_a_killed_run_leaves_half_a_header)
{
    char half[sizeof HEADER];
    for (size_t length = 0; length < sizeof HEADER - 1; length++) {
        snprintf(half, sizeof half, "%.*s", (int)length, HEADER);
        folder_write("journal", half);
        open_again();
        assert_string_equal(folder_read("journal"), HEADER);
        assert_int_equal(conv_journal_damaged(journal), 0);
    }
}

UNIT_TEST(test_other_files_are_left_alone)
{
    static const char *const texts[] = {"conv-journal 1\n", "conv-journal 4\n", "notes\n", "\n",
                                        "conv-journal 3 \n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        folder_write("journal", texts[i]);
        assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_ERR_USAGE);
        assert_non_null(strstr(err.text, "not a journal of this version"));
        assert_string_equal(folder_read("journal"), texts[i]);
    }
    config.path = folder_path("");
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_ERR_USAGE);
    config.path = folder_path("missing/journal");
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_ERR_USAGE);
    config.path = "/dev/null";
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_ERR_USAGE);
}

UNIT_TEST(test_damaged_lines_are_counted_and_passed_by)
{
    char text[1000];
    open_again();
    add(1);
    snprintf(text, sizeof text, "%sxyz\n%s", HEADER, folder_read("journal"));
    folder_write("journal", text); // with a second header, as two runs that begin together write
    open_again();
    assert_true(knows(1));
    assert_int_equal(conv_journal_damaged(journal), 1);
}

UNIT_TEST(test_read_only_writes_nothing)
{
    config.read_only = true;
    open_again(); // missing: empty
    assert_false(knows(1));
    assert_false(folder_has("journal"));
    folder_write("journal", "");
    open_again();
    assert_string_equal(folder_read("journal"), "");
}

// --- outputs that are read
// ------------------------------------------------------------------------

static const char *text; // of the file "result", the output

// The fact about the file that a run with a journal has written.
static struct conv_journal_fact fact_of_file(struct stat *info)
{
    static struct conv_encoded encoded;
    struct conv_journal_fact made = fact(1);
    folder_write("result", text);
    assert_int_equal(stat(folder_path("result"), info), 0);
    encoded = (struct conv_encoded){.part = {{(const uint8_t *)text, 3},
                                             {NULL, 0},
                                             {(const uint8_t *)text + 3, strlen(text) - 3}},
                                    .size = strlen(text)};
    made.out = info;
    made.folder = AT_FDCWD;
    made.name = folder_path("result");
    made.encoded = &encoded;
    return made;
}

UNIT_TEST(test_where_times_do_not_tell_the_bytes_do)
{
    for (int mode = 0; mode < 3; mode++) { // a coarse clock, copied times, in place
        struct stat info;
        assert_int_equal(unlink(config.path) == 0 || errno == ENOENT, true);
        config.preserve = mode == 1;
        config.in_place = mode == 2;
        open_again();
        text = "the first result";
        struct conv_journal_fact one = fact_of_file(&info);
        info.st_mtim = (struct timespec){.tv_sec = 1000};
        assert_int_equal(
            utimensat(AT_FDCWD, one.name, (struct timespec[]){info.st_mtim, info.st_mtim}, 0), 0);
        if (mode == 2)
            assert_int_equal(conv_journal_lock(journal, &err), CONV_OK);
        assert_int_equal(conv_journal_add(journal, &one, &err), CONV_OK);
        if (mode == 2)
            conv_journal_unlock(journal);
        open_again();
        one.encoded = NULL;
        assert_true(conv_journal_knows(journal, &one));
        info.st_ino += 100; // after another mount
        assert_true(conv_journal_knows(journal, &one));
        if (mode == 2) {
            one.input = one.output = "renamed";
            assert_true(conv_journal_knows(journal, &one));
        }
        text = "another result !"; // of the same size and time
        struct conv_journal_fact other = fact_of_file(&info);
        info.st_mtim = (struct timespec){.tv_sec = 1000};
        assert_int_equal(
            utimensat(AT_FDCWD, one.name, (struct timespec[]){info.st_mtim, info.st_mtim}, 0), 0);
        assert_false(conv_journal_knows(journal, &other));
        config.settings.word[0]++;
        text = "the first result";
        one = fact_of_file(&info);
        open_again();
        assert_false(conv_journal_knows(journal, &one));
    }
}

UNIT_TEST(test_a_member_is_more_than_its_time)
{
    open_again();
    struct stat archive = {.st_mode = S_IFREG, .st_size = 1000, .st_mtim = {.tv_sec = 9}};
    struct conv_journal_fact member = fact(1);
    uint8_t bytes[101] = "bytes";
    member.archive = &archive;
    assert_int_equal(conv_journal_add(journal, &member, &err), CONV_OK);
    member.member = bytes; // from a pipe
    assert_int_equal(conv_journal_add(journal, &member, &err), CONV_OK);
    open_again();
    archive.st_mtim.tv_nsec++; // a pipe has no identity
    assert_true(conv_journal_knows(journal, &member));
    bytes[100]++;
    assert_false(conv_journal_knows(journal, &member));
    member.member = NULL;
    assert_false(conv_journal_knows(journal, &member));
    archive.st_mtim.tv_nsec--;
    assert_true(conv_journal_knows(journal, &member));
    archive.st_size++;
    assert_false(conv_journal_knows(journal, &member));
}

UNIT_TEST(test_an_earlier_version_is_refused_in_place)
{
    static const char earlier[] = "conv-journal 2\n00000000000000010000000000000002 in/1.png\n";
    folder_write("journal", earlier);
    open_again(); // its lines match nothing
    assert_int_equal(conv_journal_damaged(journal), 0);
    assert_false(knows(1));
    config.in_place = true;
    conv_journal_close(journal);
    journal = NULL;
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "earlier version"));
    assert_string_equal(folder_read("journal"), earlier);
}

// --- in place ------------------------------------------------------------------------------------

UNIT_TEST(test_in_place_the_file_counts_not_its_name)
{
    config.in_place = true;
    open_again();
    struct conv_journal_fact one = fact(1), renamed = one;
    assert_int_equal(conv_journal_lock(journal, &err), CONV_OK);
    assert_int_equal(conv_journal_add(journal, &one, &err), CONV_OK);
    conv_journal_unlock(journal);
    open_again();
    renamed.input = "other name";
    assert_true(conv_journal_knows(journal, &renamed));
    struct stat copy = *one.out;
    copy.st_ino++;
    renamed.out = &copy;
    assert_false(conv_journal_knows(journal, &renamed));
}

UNIT_TEST(test_in_place_runs_see_each_other)
{
    config.in_place = true;
    open_again();
    struct conv_journal *other;
    struct conv_journal_fact one = fact(1);
    assert_int_equal(conv_journal_open(&other, &config, &err), CONV_OK);
    assert_int_equal(conv_journal_lock(other, &err), CONV_OK);
    assert_int_equal(conv_journal_add(other, &one, &err), CONV_OK);
    assert_false(conv_journal_knows(journal, &one)); // until it is locked
    conv_journal_unlock(other);
    assert_int_equal(conv_journal_lock(journal, &err), CONV_OK);
    assert_true(conv_journal_knows(journal, &one));
    conv_journal_unlock(journal);
    conv_journal_close(other);
}

UNIT_TEST(test_in_place_the_lock_of_a_killed_run_ends)
{
    config.in_place = true;
    open_again();
    pid_t child = fork();
    if (child == 0) { // dies with the lock and half a line
        struct conv_journal *own;
        bool locked = conv_journal_open(&own, &config, &err) == CONV_OK &&
                      conv_journal_lock(own, &err) == CONV_OK;
        int fd = open(config.path, O_WRONLY | O_APPEND);
        _exit(locked && write(fd, "0123", 4) == 4 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct conv_journal_fact one = fact(1);
    assert_int_equal(conv_journal_lock(journal, &err), CONV_OK);
    assert_int_equal(conv_journal_add(journal, &one, &err), CONV_OK);
    conv_journal_unlock(journal);
    open_again();
    assert_true(conv_journal_knows(journal, &one));
    assert_int_equal(conv_journal_damaged(journal), 1);
}

UNIT_TEST(test_in_place_a_stop_ends_the_wait_for_a_lock)
{
    atomic_int stop = 15;
    config.in_place = true;
    config.stop = &stop;
    open_again();
    int fd = open(config.path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(conv_journal_lock(journal, &err), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "stopped while another run held the lock"));
    close(fd);
    assert_int_equal(conv_journal_lock(journal, &err), CONV_OK); // the failure locked nothing
    conv_journal_unlock(journal);
}

UNIT_TEST(test_in_place_without_a_file)
{
    config.in_place = true;
    config.path = NULL;
    open_again();
    struct conv_journal_fact one = fact(1);
    assert_false(conv_journal_knows(journal, &one));
    assert_int_equal(conv_journal_lock(journal, &err), CONV_OK);
    assert_int_equal(conv_journal_add(journal, &one, &err), CONV_OK);
    conv_journal_unlock(journal);
    assert_true(conv_journal_knows(journal, &one));
    open_again();
    assert_false(conv_journal_knows(journal, &one));
}

UNIT_MAIN_EACH(set_up, tear_down)
