// SPDX-License-Identifier: MIT
// The result of walking the operands of a command line (src/io/walk/walk.h): items, their names
// below the sink, and the reasons why some cannot be read.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/walk/walk.h"
#include "support/folder.h"
#include "support/unit.h"

#define MOST 32

struct found {
    char text[MOST]
             [PATH_MAX + sizeof(struct conv_err)]; // "name -> target", or "name: reason", sorted
    int count;
    uint64_t others, ignored;
    char other[256];
};

static struct found found;

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

// Without the test's folder in front.
static const char *shorten(const char *name)
{
    const char *folder = folder_path("");
    size_t length = strlen(folder);
    bool inside = strncmp(name, folder, length) == 0;
    return inside ? name + length + (name[length] == '/') : name;
}

static enum conv_status walk(const struct conv_walk_config *config, struct conv_err *err)
{
    struct conv_walk *walk;
    struct conv_item item;
    memset(&found, 0, sizeof found);
    enum conv_status status = conv_walk_open(&walk, config, err);
    if (status)
        return status;
    for (;;) {
        enum conv_source_step step = conv_source_next(conv_walk_source(walk), &item, err);
        if (step == CONV_SOURCE_END)
            break;
        assert_true(found.count < MOST);
        const char *reason = step == CONV_SOURCE_BAD        ? err->text
                             : step == CONV_SOURCE_REPEATED ? "repeated"
                                                            : NULL;
        snprintf(found.text[found.count++], sizeof found.text[0], "%s%s%s", shorten(item.name),
                 reason ? ": " : " -> ", reason ? reason : conv_item_target(&item));
    }
    struct conv_walk_count count = conv_walk_count(walk);
    assert_int_equal(count.items, found.count);
    found.others = count.others;
    found.ignored = count.ignored;
    snprintf(found.other, sizeof found.other, "%s", count.other);
    conv_walk_close(walk);
    qsort(found.text, (size_t)found.count, sizeof found.text[0], compare);
    return CONV_OK;
}

static void assert_found(int count, const char *const *lines)
{
    for (int i = 0; i < found.count && i < count; i++)
        assert_string_equal(found.text[i], lines[i]);
    assert_int_equal(found.count, count);
}
#define FOUND(...)                                                                                 \
    assert_found(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                           \
                 (const char *const[]){__VA_ARGS__})

static void write_tree(void)
{
    folder_write("in/a.png", "");
    folder_write("in/b.PNG", "");
    folder_write("in/notes.txt", "");
    folder_write("in/.conv-00000000-1-1-0.tmp", "");
    folder_write("in/sub/c.png", "");
    folder_write("in/sub/deep/d.png", "");
}

UNIT_TEST(test_folder)
{
    struct conv_err err;
    write_tree();
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs, .input_count = 1, .output = folder_path("out")},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/b.PNG -> b.PNG");
    assert_int_equal(found.others, 1); // a temporary file is not mentioned
    assert_string_equal(found.other, "notes.txt");
    config.operands.recursive = true;
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/b.PNG -> b.PNG", "in/sub/c.png -> sub/c.png",
          "in/sub/deep/d.png -> sub/deep/d.png");
    assert_false(folder_has("out")); // nothing is made
}

UNIT_TEST(test_globs)
{
    struct conv_err err;
    write_tree();
    const char *inputs[] = {folder_path("in")};
    const char *include[] = {"*.txt", "sub/*.png"}, *exclude[] = {"deep"};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs, .input_count = 1, .recursive = true},
        .include = include,
        .include_count = 2,
    };
    assert_int_equal(walk(&config, &err), CONV_OK); // "*" matches no slash
    FOUND("in/notes.txt -> notes.txt", "in/sub/c.png -> sub/c.png");
    include[1] = "**/*.png";
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/notes.txt -> notes.txt", "in/sub/c.png -> sub/c.png",
          "in/sub/deep/d.png -> sub/deep/d.png");
    include[1] = "sub/**/*.png";
    config.exclude = exclude;
    config.exclude_count = 1;
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/notes.txt -> notes.txt", "in/sub/c.png -> sub/c.png");
}

// macOS keeps attributes of a.png in ._a.png, which made each of them a failure.
UNIT_TEST(test_files_of_other_programs)
{
    struct conv_err err;
    write_tree();
    folder_write("in/._a.png", "");
    folder_write("in/.thumb-b.png", "");
    folder_write("in/._notes.txt", ""); // no image anyway
    folder_write("in/.thumbnails/a.png", "");
    folder_write("in/@eaDir/a.png", "");
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {.operands = {.inputs = inputs, .input_count = 1}};
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/b.PNG -> b.PNG");
    assert_int_equal(found.ignored, 2);
    config.operands.recursive = true;
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 4);
    assert_int_equal(found.ignored, 4);
    config.no_ignore = true;
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 8);
    assert_int_equal(found.ignored, 0);
    config.no_ignore = false;
    inputs[0] = folder_path("in/._a.png"); // named by the user
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 1);
}

UNIT_TEST(test_several_inputs_keep_their_names)
{
    struct conv_err err;
    write_tree();
    folder_write("single.png", "");
    char slashes[PATH_MAX];
    snprintf(slashes, sizeof slashes, "%s//", folder_path("in"));
    const char *inputs[] = {slashes, folder_path("single.png"), "-"};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs, .input_count = 3, .output = folder_path("out")},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("- -> stdin.png", "in//a.png -> in//a.png", "in//b.PNG -> in//b.PNG",
          "single.png -> single.png");
    inputs[2] = folder_path("other/single.png");
    assert_int_equal(walk(&config, &err), CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "would become the same output file"));
    inputs[2] = folder_path("in/..");
    assert_int_equal(walk(&config, &err), CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "has no name"));
}

UNIT_TEST(test_what_is_no_image_is_reported)
{
    struct conv_err err;
    write_tree();
    assert_int_equal(mkfifo(folder_path("in/pipe.png"), 0666), 0);
    folder_write("in/folder.png/e.png", "");
    assert_int_equal(symlink("sub", folder_path("in/link.png")), 0);
    assert_int_equal(symlink("a.png", folder_path("in/soft.png")), 0);
    assert_int_equal(symlink("nowhere", folder_path("in/z.png")), 0);
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {.operands = {.inputs = inputs, .input_count = 1}};
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/b.PNG -> b.PNG", "in/folder.png: is a folder, not an image",
          "in/link.png: is a folder, not an image",
          "in/pipe.png: is a pipe, socket or device, not an image", "in/soft.png -> soft.png",
          "in/z.png -> z.png");       // reading it gives the reason
    config.operands.recursive = true; // a link to a folder could lead in circles
    const char *exclude[] = {"sub", "*soft*", "z*", "?.png", "b*"};
    config.exclude = exclude;
    config.exclude_count = 5;
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/pipe.png: is a pipe, socket or device, not an image");
    config.exclude_count = 4;
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/b.PNG -> b.PNG", "in/pipe.png: is a pipe, socket or device, not an image");
}

UNIT_TEST(test_folders_that_cannot_be_read)
{
    struct conv_err err;
    if (geteuid() == 0)
        skip(); // root reads them
    write_tree();
    assert_int_equal(chmod(folder_path("in/sub"), 0), 0);
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs, .input_count = 1, .recursive = true},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/a.png -> a.png", "in/b.PNG -> b.PNG",
          "in/sub: cannot open the folder: Permission denied");
}

UNIT_TEST(test_deep_folders)
{
    struct conv_err err;
    char name[PATH_MAX] = "in";
    for (int i = 1; i < 260; i++)
        strcat(name, "/d");
    strcat(name, "/a.png");
    folder_write(name, "");
    folder_write("in/b.png", "");
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs, .input_count = 1, .recursive = true},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 2); // the walk goes on beside it
    assert_string_equal(found.text[0], "in/b.png -> b.png");
    assert_non_null(strstr(found.text[1], ": more than 256 folders deep"));
}

UNIT_TEST(test_missing_inputs_are_left_to_their_reader)
{
    struct conv_err err;
    struct conv_input input = {0};
    struct conv_item item;
    struct conv_walk *walk;
    const char *inputs[] = {folder_path("missing.png")};
    struct conv_walk_config config = {.operands = {.inputs = inputs, .input_count = 1}};
    assert_int_equal(conv_walk_open(&walk, &config, &err), CONV_OK);
    assert_int_equal(conv_source_next(conv_walk_source(walk), &item, &err), CONV_SOURCE_ITEM);
    conv_walk_close(walk);
    assert_int_equal(item.ops->open(&item, &input, &err), CONV_ERR_IO);
    assert_string_equal(err.text, "cannot open: No such file or directory");
}

UNIT_TEST(test_list)
{
    struct conv_err err;
    write_tree();
    folder_write("list", "a.png\r\n\nsub//c.png\n./a.png\n../in/b.PNG\nmissing.png");
    const char *inputs[] = {folder_path("in")};
    struct conv_walk_config config = {
        .operands = {.inputs = inputs,
                     .input_count = 1,
                     .output = folder_path("out"),
                     .files_from = folder_path("list")},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("in/../in/b.PNG: a name in the list may not contain '..'", "in/./a.png: repeated",
          "in/a.png -> a.png", "in/missing.png -> missing.png", "in/sub//c.png -> sub//c.png");
    char names[2 * PATH_MAX];
    snprintf(names, sizeof names, "%s\n%s\n", folder_path("in/a.png"), folder_path("in/a.png") + 1);
    folder_write("list", names);
    config.operands.input_count = 0;
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 2);
    // Sorted: which text is first depends on the folder of the test.
    bool swapped = strstr(found.text[0], ": another name in the list has the same output");
    assert_non_null(strstr(found.text[swapped], "in/a.png -> "));
    assert_non_null(strstr(found.text[!swapped], ": another name in the list has the same output"));
    folder_write("list", "a\nb");
    config.nul = true; // the whole list is one name
    assert_int_equal(walk(&config, &err), CONV_OK);
    FOUND("a\nb -> a\nb");
    config.operands.files_from = folder_path("in");
    assert_int_equal(walk(&config, &err), CONV_ERR_USAGE);
    config.operands.files_from = folder_path("missing");
    assert_int_equal(walk(&config, &err), CONV_ERR_USAGE);
}

UNIT_TEST(test_in_place_a_list_names_files)
{
    struct conv_err err;
    write_tree();
    assert_int_equal(symlink("in", folder_path("link")), 0);
    char names[2 * PATH_MAX];
    snprintf(names, sizeof names, "%s\n%s\n", folder_path("in/a.png"), folder_path("link/a.png"));
    folder_write("list", names);
    struct conv_walk_config config = {
        .operands = {.in_place = true, .files_from = folder_path("list")},
    };
    assert_int_equal(walk(&config, &err), CONV_OK);
    assert_int_equal(found.count, 2);
    assert_string_equal(found.text[1], "link/a.png: repeated");
}

UNIT_TEST(test_peek_takes_no_step)
{
    struct conv_err err;
    struct conv_walk *walk;
    struct conv_item item;
    bool is_image = true;
    write_tree();
    folder_write("empty/notes.txt", "");
    const char *inputs[] = {folder_path("empty")};
    struct conv_walk_config config = {.operands = {.inputs = inputs, .input_count = 1}};
    assert_int_equal(conv_walk_open(&walk, &config, &err), CONV_OK);
    assert_int_equal(conv_walk_peek(walk, &is_image, &err), CONV_OK);
    assert_false(is_image);
    assert_int_equal(conv_source_next(conv_walk_source(walk), &item, &err), CONV_SOURCE_END);
    conv_walk_close(walk);
    inputs[0] = folder_path("in/a.png");
    assert_int_equal(conv_walk_open(&walk, &config, &err), CONV_OK);
    assert_int_equal(conv_walk_peek(walk, &is_image, &err), CONV_OK);
    assert_true(is_image);
    assert_int_equal(conv_source_next(conv_walk_source(walk), &item, &err), CONV_SOURCE_ITEM);
    assert_string_equal(conv_item_target(&item), "a.png");
    assert_int_equal(conv_source_next(conv_walk_source(walk), &item, &err), CONV_SOURCE_END);
    assert_int_equal(conv_walk_count(walk).items, 1);
    conv_walk_close(walk);
}

// --- operands ------------------------------------------------------------------------------------

static enum conv_sink_kind sink_for(const char *input, const char *output)
{
    struct conv_err err;
    struct conv_operands_shape shape;
    struct conv_operands operands = {.inputs = &input, .input_count = 1, .output = output};
    return conv_operands_check(&operands, &shape, &err) ? CONV_SINK_NONE : shape.sink;
}

UNIT_TEST(test_kinds_of_output)
{
    char slash[PATH_MAX];
    write_tree();
    snprintf(slash, sizeof slash, "%s/", folder_path("new"));
    const char *image = folder_path("in/a.png"), *folder = folder_path("in");
    assert_int_equal(sink_for(image, folder_path("new.png")), CONV_SINK_FILE);
    assert_int_equal(sink_for(image, folder_path("new")), CONV_SINK_FILE);
    assert_int_equal(sink_for(image, slash), CONV_SINK_FOLDER);
    assert_int_equal(sink_for(image, folder_path("in/sub")), CONV_SINK_FOLDER);
    assert_int_equal(sink_for(image, "-"), CONV_SINK_STANDARD);
    assert_int_equal(sink_for(folder, slash), CONV_SINK_FOLDER);
    // Refused: several images to one place, other formats, a folder onto itself or a file.
    assert_int_equal(sink_for(folder, "-"), CONV_SINK_NONE);
    assert_int_equal(sink_for(image, folder_path("new.webp")), CONV_SINK_NONE);
    assert_int_equal(sink_for(folder, folder), CONV_SINK_NONE);
    assert_int_equal(sink_for(folder, folder_path("in/notes.txt")), CONV_SINK_NONE);
    assert_int_equal(sink_for(image, ""), CONV_SINK_NONE);
    assert_int_equal(sink_for("", slash), CONV_SINK_NONE);
    assert_int_equal(sink_for(image, "/dev/fd/987"), CONV_SINK_NONE); // is not open
}

static enum conv_status check_in_place(const char *a, const char *b, bool recursive)
{
    struct conv_err err;
    struct conv_operands_shape shape;
    const char *inputs[] = {a, b};
    struct conv_operands operands = {
        .inputs = inputs, .input_count = 2, .in_place = true, .recursive = recursive};
    return conv_operands_check(&operands, &shape, &err);
}

UNIT_TEST(test_in_place_inputs_must_not_overlap)
{
    write_tree();
    assert_int_equal(symlink("in", folder_path("link")), 0);
    const char *in = folder_path("in"), *sub = folder_path("in/sub"), *a = folder_path("in/a.png");
    assert_int_equal(check_in_place(in, sub, false), CONV_OK);
    assert_int_equal(check_in_place(in, sub, true), CONV_ERR_USAGE);
    assert_int_equal(check_in_place(a, in, false), CONV_ERR_USAGE);
    assert_int_equal(check_in_place(in, folder_path("link"), false), CONV_ERR_USAGE);
    assert_int_equal(check_in_place(a, folder_path("link/a.png"), false), CONV_ERR_USAGE);
    assert_int_equal(check_in_place(a, folder_path("in/b.PNG"), true), CONV_OK);
    assert_int_equal(check_in_place(a, "-", false), CONV_ERR_USAGE);
}

UNIT_MAIN_EACH(folder_make, folder_remove)
