// SPDX-License-Identifier: MIT
// Sinks of files (src/io/sink.h): where an output is written, what it may replace, and that it is
// complete or absent.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/file_sink.h"
#include "io/files/journal.h"
#include "io/files/temporary.h"
#include "support/folder.h"
#include "support/unit.h"

static atomic_int stop;
static struct conv_sink *sink;
static struct conv_err err;
static enum conv_sink_result result;

static int set_up(void **state)
{
    sink = NULL;
    atomic_store(&stop, 0);
    umask(022);
    return folder_make(state);
}

static int tear_down(void **state)
{
    return conv_sink_finish(sink, &err) ? -1 : folder_remove(state);
}

static void open_sink(struct conv_sink_config config)
{
    static char path[PATH_MAX];
    if (config.path)
        snprintf(path, sizeof path, "%s", config.path);
    config.path = path;
    config.workers = 2;
    config.stop = &stop;
    assert_int_equal(conv_sink_open(&sink, &config, &err), CONV_OK);
}

// An item of a file in the folder, whose name below the sink is `target`.
static struct conv_item item(const char *folder, const char *target)
{
    struct conv_item made = {.ops = &conv_item_file};
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s%s%s", folder, folder[0] ? "/" : "", target);
    snprintf(made.name, sizeof made.name, "%s", folder_path(name));
    made.target = strlen(made.name) - strlen(target);
    return made;
}

static enum conv_status write_item(const struct conv_item *from, const char *text)
{
    struct conv_output output = {{0}};
    struct stat info = {0};
    struct conv_encoded file = {.size = strlen(text)};
    size_t half = file.size / 2;
    (void)stat(from->name, &info);
    file.part[1].data = (const uint8_t *)text;
    file.part[1].size = half;
    file.part[4].data = (const uint8_t *)text + half;
    file.part[4].size = file.size - half;
    result = CONV_SINK_WRITTEN;
    enum conv_status status = sink->ops->place(sink, from, &output, &err);
    return status ? status : sink->ops->write(sink, 1, from, &info, &output, &file, &result, &err);
}

static enum conv_status write_to(const char *target, const char *text)
{
    struct conv_item from = item("in", target);
    return write_item(&from, text);
}

UNIT_TEST(test_place)
{
    struct conv_output output;
    struct conv_item from = item("in", "sub/a.png");
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = "out/"});
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_OK);
    assert_string_equal(output.path, "out/sub/a.png");
    memset(from.name, 'x', PATH_MAX - 1);
    from.name[PATH_MAX - 1] = '\0';
    from.target = 0;
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_ERR_LIMIT);
    conv_sink_finish(sink, &err);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FILE, .path = "b.png"});
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_OK);
    assert_string_equal(output.path, "b.png");
    conv_sink_finish(sink, &err);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_IN_PLACE});
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_OK);
    assert_string_equal(output.path, from.name);
}

UNIT_TEST(test_new_files_and_folders)
{
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    assert_int_equal(write_to("a.png", "new image"), CONV_OK);
    assert_int_equal(write_to("x/y/b.png", "deep"), CONV_OK); // folders on the way are made
    assert_string_equal(folder_read("out/a.png"), "new image");
    assert_string_equal(folder_read("out/x/y/b.png"), "deep");
    assert_int_equal(folder_count("out"), 2); // nothing else is left
    struct stat info;
    assert_int_equal(stat(folder_path("out/a.png"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0644);
}

UNIT_TEST(test_files_are_replaced_not_written_into)
{
    folder_write("out/a.png", "old");
    assert_int_equal(link(folder_path("out/a.png"), folder_path("other name")), 0);
    assert_int_equal(symlink("other name", folder_path("out/link.png")), 0);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    assert_int_equal(write_to("a.png", "new"), CONV_OK);
    assert_int_equal(write_to("link.png", "new"), CONV_OK);
    assert_string_equal(folder_read("out/a.png"), "new");
    assert_string_equal(folder_read("out/link.png"), "new");
    assert_string_equal(folder_read("other name"), "old");
    assert_int_equal(folder_count("out"), 2);
}

UNIT_TEST(test_without_nameless_files)
{
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    atomic_store(&((struct conv_file_sink *)sink)->lacks_nameless, true);
    assert_int_equal(write_to("a.png", "new"), CONV_OK);
    assert_int_equal(write_to("a.png", "newer"), CONV_OK);
    assert_string_equal(folder_read("out/a.png"), "newer");
    assert_int_equal(folder_count("out"), 1);
}

UNIT_TEST(test_an_unexpected_file_is_found_when_it_is_written)
{
    char name[32];
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    assert_true(conv_sink_should_look(sink));
    for (int i = 0; i < CONV_FILE_SINK_EXPECT_NEW; i++) {
        snprintf(name, sizeof name, "%d.png", i);
        assert_int_equal(write_to(name, "new"), CONV_OK);
    }
    assert_false(conv_sink_should_look(sink));
    folder_write("out/folder.png/file", "");
    assert_int_equal(write_to("folder.png", "new"), CONV_ERR_IO);
    assert_true(conv_sink_should_look(sink)); // no longer expected to be new
    for (int i = 0; i < CONV_FILE_SINK_EXPECT_NEW; i++) {
        snprintf(name, sizeof name, "again%d.png", i);
        assert_int_equal(write_to(name, "new"), CONV_OK);
    }
    assert_int_equal(write_to("0.png", "replaced"), CONV_OK);
    assert_string_equal(folder_read("out/0.png"), "replaced");
    assert_int_equal(folder_count("out"), 2 * CONV_FILE_SINK_EXPECT_NEW + 1);
}

static enum conv_status check(const struct conv_item *from)
{
    struct conv_output output;
    struct conv_existing existing;
    struct stat info = {0};
    (void)stat(from->name, &info);
    assert_int_equal(sink->ops->place(sink, from, &output, &err), CONV_OK);
    conv_sink_look(sink, &output, &existing);
    return conv_sink_check(sink, from, &info, &output, &existing, &err);
}

UNIT_TEST(test_what_may_not_be_replaced)
{
    struct conv_paths_id own;
    struct stat info;
    folder_write("in/a.png", "input");
    folder_write("out/journal", "");
    folder_write("out/folder/file", "");
    assert_int_equal(stat(folder_path("out/journal"), &info), 0);
    own = (struct conv_paths_id){info.st_dev, info.st_ino};
    assert_int_equal(link(folder_path("in/a.png"), folder_path("out/a.png")), 0);
    assert_int_equal(mkfifo(folder_path("out/pipe"), 0666), 0);
    assert_int_equal(symlink("pipe", folder_path("out/link")), 0);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER,
                                        .path = folder_path("out"),
                                        .own_files = &own,
                                        .own_file_count = 1});
    static const struct {
        const char *target;
        enum conv_status status;
    } cases[] = {
        {"a.png", CONV_ERR_USAGE}, // the input under another name
        {"journal", CONV_ERR_USAGE}, {"folder", CONV_ERR_IO}, {"pipe", CONV_ERR_IO},
        {"link", CONV_OK},           {"new", CONV_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_item from = item("in", cases[i].target);
        assert_int_equal(check(&from), cases[i].status);
        enum conv_status status = write_item(&from, "new"); // checks again
        assert_int_equal(status, cases[i].status);
    }
    assert_string_equal(folder_read("in/a.png"), "input");
    assert_string_equal(folder_read("out/journal"), "");
    assert_string_equal(folder_read("out/link"), "new"); // replaced; the pipe is still there
    assert_int_equal(folder_count("out"), 6);
}

UNIT_TEST(test_a_pipe_that_is_named_is_written_to)
{
    char got[16];
    struct conv_item from = item("in", "a.png");
    assert_int_equal(mkfifo(folder_path("pipe"), 0666), 0);
    int fd = open(folder_path("pipe"), O_RDONLY | O_NONBLOCK);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FILE, .path = folder_path("pipe")});
    assert_int_equal(write_item(&from, "through it"), CONV_OK);
    assert_int_equal(read(fd, got, sizeof got), 10);
    assert_memory_equal(got, "through it", 10);
    close(fd);
    atomic_store(&stop, 2); // without a reader: the wait ends
    assert_int_equal(write_item(&from, "through it"), CONV_ERR_CANCELLED);
    assert_int_equal(folder_count(""), 1);
}

UNIT_TEST(test_a_failed_write_leaves_nothing)
{
    struct rlimit limit, small;
    static char large[8192];
    memset(large, 'x', sizeof large - 1);
    folder_write("out/old.png", "old");
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    // As a full disk: the first bytes are written, the rest is not.
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){4096, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum conv_status new = write_to("new.png", large), old = write_to("old.png", large);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(new, CONV_ERR_IO);
    assert_int_equal(old, CONV_ERR_IO);
    assert_string_equal(folder_read("out/old.png"), "old");
    assert_int_equal(folder_count("out"), 1);
}

UNIT_TEST(test_preserve)
{
    struct stat info;
    struct timespec times[2] = {{1000000, 1}, {2000000, 3}};
    folder_write("in/a.png", "");
    assert_int_equal(chmod(folder_path("in/a.png"), 0640), 0);
    assert_int_equal(utimensat(AT_FDCWD, folder_path("in/a.png"), times, 0), 0);
    open_sink((struct conv_sink_config){
        .kind = CONV_SINK_FOLDER, .path = folder_path("out"), .preserve = true, .fsync = true});
    assert_int_equal(write_to("a.png", "new"), CONV_OK);
    assert_int_equal(stat(folder_path("out/a.png"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(info.st_mtim.tv_sec, 2000000);
    assert_int_equal(info.st_mtim.tv_nsec, 3);
}

UNIT_TEST(test_killed_runs_are_swept_up)
{
    char name[CONV_TEMPORARY_NAME_SIZE + 4];
    strcpy(name, "out/");
    folder_write("out/.conv-00000000-1-1-0.tmp", "of another machine, new");
    conv_temporary_name(name + 4, 7);
    char *start = strrchr(name, '-'); // an earlier process of our number
    while (start[-1] != '-')
        start--;
    *start = *start == '1' ? '2' : '1';
    folder_write(name, "half");
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    assert_int_equal(write_to("a.png", "new"), CONV_OK);
    assert_false(folder_has(name));
    assert_int_equal(folder_count("out"), 2);
}

UNIT_TEST(test_abandon_removes_temporaries)
{
    folder_write("half", "");
    folder_write("whole", "");
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("")});
    struct conv_file_temporary *temporary = &((struct conv_file_sink *)sink)->temporaries[1];
    temporary->folder = open(folder_path(""), O_PATH | O_DIRECTORY);
    strcpy(temporary->name, "half");
    atomic_store(&temporary->exists, true);
    sink->ops->remove_temporaries(sink);
    assert_false(folder_has("half"));
    assert_true(folder_has("whole"));
    close(temporary->folder);
    atomic_store(&temporary->exists, false);
    assert_int_equal(write_to("whole", "new"), CONV_ERR_IO); // no new file comes into being
    assert_int_equal(write_to("new", "new"), CONV_ERR_IO);
    assert_int_equal(folder_count(""), 1);
}

// --- in place ------------------------------------------------------------------------------------

static struct conv_journal *open_in_place(void)
{
    struct conv_journal *journal;
    struct conv_journal_config config = {.in_place = true};
    assert_int_equal(conv_journal_open(&journal, &config, &err), CONV_OK);
    open_sink((struct conv_sink_config){.kind = CONV_SINK_IN_PLACE, .journal = journal});
    return journal;
}

UNIT_TEST(test_in_place_an_image_is_replaced_once)
{
    struct stat info;
    struct conv_item from = item("in", "a.png");
    from.in_place = true;
    folder_write("in/a.png", "old");
    assert_int_equal(chmod(from.name, 0750), 0);
    struct conv_journal *journal = open_in_place();
    assert_int_equal(write_item(&from, "filtered"), CONV_OK);
    assert_int_equal(result, CONV_SINK_WRITTEN);
    assert_int_equal(write_item(&from, "filtered twice"), CONV_OK);
    assert_int_equal(result, CONV_SINK_REPLACED);
    assert_string_equal(folder_read("in/a.png"), "filtered");
    assert_int_equal(stat(from.name, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0750);
    assert_int_equal(folder_count("in"), 1);
    conv_journal_close(journal);
}

// Its owner has withdrawn permissions since the image was read.
UNIT_TEST(test_in_place_the_latest_permissions_count)
{
    struct stat before, info;
    struct conv_output output;
    struct conv_item from = item("in", "a.png");
    struct conv_encoded file = {.part = {{(const uint8_t *)"new", 3}}, .size = 3};
    from.in_place = true;
    folder_write("in/a.png", "old");
    assert_int_equal(chmod(from.name, 06755), 0);
    assert_int_equal(stat(from.name, &before), 0); // read
    assert_int_equal(chmod(from.name, 0600), 0);
    struct conv_journal *journal = open_in_place();
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_OK);
    assert_int_equal(sink->ops->write(sink, 0, &from, &before, &output, &file, &result, &err),
                     CONV_OK);
    assert_int_equal(stat(from.name, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    conv_journal_close(journal);
}

UNIT_TEST(test_in_place_a_change_in_between_stays)
{
    struct stat info;
    struct conv_output output;
    struct conv_item from = item("in", "a.png");
    struct conv_encoded file = {.part = {{(const uint8_t *)"new", 3}}, .size = 3};
    from.in_place = true;
    folder_write("in/a.png", "old");
    assert_int_equal(stat(from.name, &info), 0); // read
    folder_write("in/a.png", "changed by another program");
    struct conv_journal *journal = open_in_place();
    assert_int_equal(sink->ops->place(sink, &from, &output, &err), CONV_OK);
    assert_int_equal(sink->ops->write(sink, 0, &from, &info, &output, &file, &result, &err),
                     CONV_ERR_IO);
    assert_string_equal(err.text, "changed while it was filtered; left as it is");
    assert_string_equal(folder_read("in/a.png"), "changed by another program");
    assert_int_equal(folder_count("in"), 1);
    conv_journal_close(journal);
}

UNIT_TEST(test_two_sinks_at_once)
{
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    struct conv_sink *first = sink, *second;
    struct conv_sink_config config = {.kind = CONV_SINK_FOLDER, .path = "out2", .workers = 1};
    assert_int_equal(conv_sink_open(&second, &config, &err), CONV_OK);
    second->ops->remove_temporaries(second); // ends one of them only
    assert_int_equal(write_to("a.png", "new"), CONV_OK);
    assert_int_equal(conv_sink_finish(second, &err), CONV_OK);
    sink = first;
    assert_int_equal(write_to("a.png", "newer"), CONV_OK);
    assert_string_equal(folder_read("out/a.png"), "newer");
}

UNIT_MAIN_EACH(set_up, tear_down)
