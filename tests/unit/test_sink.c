// SPDX-License-Identifier: MIT
// Sinks of files (src/io/sink.h): what depends on moments that no program can choose from outside,
// and several sinks at once.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/file_sink.h"
#include "io/files/journal.h"
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
    assert_ok(conv_sink_open(&sink, &config, &err));
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

UNIT_TEST(test_an_unexpected_file_is_found_when_it_is_written)
{
    char name[32];
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    assert_true(conv_sink_should_look(sink));
    for (int i = 0; i < CONV_FILE_SINK_EXPECT_NEW; i++) {
        snprintf(name, sizeof name, "%d.png", i);
        assert_ok(write_to(name, "new"));
    }
    assert_false(conv_sink_should_look(sink));
    folder_write("out/folder.png/file", "");
    assert_int_equal(write_to("folder.png", "new"), CONV_ERR_IO);
    assert_true(conv_sink_should_look(sink)); // no longer expected to be new
    for (int i = 0; i < CONV_FILE_SINK_EXPECT_NEW; i++) {
        snprintf(name, sizeof name, "again%d.png", i);
        assert_ok(write_to(name, "new"));
    }
    assert_ok(write_to("0.png", "replaced"));
    assert_string_equal(folder_read("out/0.png"), "replaced");
    assert_int_equal(folder_count("out"), 2 * CONV_FILE_SINK_EXPECT_NEW + 1);
}

UNIT_TEST(test_abandon_removes_temporaries)
{
    folder_write("half", "");
    folder_write("whole", "");
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("")});
    struct conv_temporary *temporary = &((struct conv_file_sink *)sink)->temporaries[1];
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
    assert_ok(conv_journal_open(&journal, &config, &err));
    open_sink((struct conv_sink_config){.kind = CONV_SINK_IN_PLACE, .journal = journal});
    return journal;
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
    assert_ok(sink->ops->place(sink, &from, &output, &err));
    assert_ok(sink->ops->write(sink, 0, &from, &before, &output, &file, &result, &err));
    assert_int_equal(stat(from.name, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    conv_journal_close(journal);
}

UNIT_TEST(test_two_sinks_at_once)
{
    open_sink((struct conv_sink_config){.kind = CONV_SINK_FOLDER, .path = folder_path("out")});
    struct conv_sink *first = sink, *second;
    struct conv_sink_config config = {.kind = CONV_SINK_FOLDER, .path = "out2", .workers = 1};
    assert_ok(conv_sink_open(&second, &config, &err));
    second->ops->remove_temporaries(second); // ends one of them only
    assert_ok(write_to("a.png", "new"));
    assert_ok(conv_sink_finish(second, &err));
    sink = first;
    assert_ok(write_to("a.png", "newer"));
    assert_string_equal(folder_read("out/a.png"), "newer");
}

UNIT_MAIN_EACH(set_up, tear_down)
