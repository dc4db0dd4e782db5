// SPDX-License-Identifier: MIT
// The canonical text of the settings (src/cli/settings.c): every option of the table changes
// it if and only if the table says so. A threshold was once truncated to an integer, and options
// were missing from a list that was kept by hand.
#include <stdio.h>

#include "cli/commands.h"
#include "cli/option_table.h"
#include "cli/run.h"
#include "support/folder.h"
#include "support/unit.h"

#define MOST_WORDS 24

static const struct conv_limits limits = {
    .physical = (size_t)8 << 30, .memory = (size_t)8 << 30, .machine_cores = 4, .cores = 4};
static struct conv_err err;

static void write_npy(const char *name, const char *shape, const float *values, size_t count)
{
    char head[128];
    FILE *file = fopen(folder_path(name), "wb");
    assert_non_null(file);
    int size = snprintf(head, sizeof head,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    fprintf(file, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, head);
    assert_true(size < 118);
    assert_int_equal(fwrite(values, sizeof *values, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static const float values[18] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9};
    if (folder_make(state) != 0)
        return -1;
    write_npy("weights.npy", "(1, 1, 3, 3)", values, 9);
    write_npy("more.npy", "(1, 1, 3, 3)", values + 0, 9);
    write_npy("other.npy", "(1, 1, 3, 3)", values + 1, 9);
    write_npy("small.npy", "(1, 1, 1, 1)", values, 1);
    write_npy("two_maps.npy", "(2, 1, 3, 3)", values, 18);
    write_npy("bias.npy", "(1,)", values, 1);
    write_npy("bias2.npy", "(1,)", values + 1, 1);
    folder_write("box.mat", "1 1 1 0\n2\n");
    return 0;
}

// The text of a command line, whose words are separated by blanks; '_' stands for a blank in a
// word, '@' for the folder. The caller frees it.
static char *text_of(const char *line)
{
    struct conv_options options;
    struct conv_filter *filters = calloc(CONV_FILTER_MAX_CHAIN, sizeof *filters);
    struct conv_layer_setup setup = {0};
    char *words[MOST_WORDS] = {strdup("conv")}, *copy = strdup(line), *text = NULL;
    int count = 1;
    assert_non_null(filters);
    assert_non_null(copy);
    for (char *word = strtok(copy, " "); word && count < MOST_WORDS - 1; word = strtok(NULL, " ")) {
        char full[4096];
        char *at = strchr(word, '@');
        snprintf(full, sizeof full, "%.*s%s", at ? (int)(at - word) : (int)strlen(word), word,
                 at ? folder_path(at + 1) : "");
        for (char *blank = strchr(full, '_'); blank && !at; blank = strchr(blank, '_'))
            *blank = ' ';
        words[count++] = strdup(full);
    }
    if (conv_options_parse(&options, &limits, count, words, &err))
        fail_msg("%s: %s", line, err.text);
    struct conv_settings settings = {.options = &options, .filters = filters, .members = true};
    bool is_layer = options.command == CONV_COMMAND_LAYER;
    if (is_layer) {
        options.operands++; // without the command
        settings.layer = &setup;
        if (conv_layer_setup_open(&setup, &options, &err))
            fail_msg("%s: %s", line, err.text);
    } else if (conv_commands_parse_chain(&options, options.operands[0], filters,
                                         &settings.filter_count, &err))
        fail_msg("%s: %s", line, err.text);
    assert_ok(conv_settings_text(&text, &settings, &err));
    conv_layer_setup_close(&setup);
    for (int i = 0; i < count; i++)
        free(words[i]);
    free(copy);
    free(filters);
    return text;
}

static bool same(const char *one, const char *other)
{
    char *a = text_of(one), *b = text_of(other);
    bool equal = strcmp(a, b) == 0;
    free(a);
    free(b);
    return equal;
}

// How to set an option: its value, and what else the command line needs without it, too.
struct sample {
    const char *option, *value, *rest, *layer_rest;
};

static const struct sample samples[] = {
    {"include", "*.png", "", ""},
    {"exclude", "*.png", "", ""},
    {"limit", "3", "", ""},
    {"sample", "3", "", ""},
    {"seed", "3", "--sample=3", "--sample=3"},
    {"files-from", "list", "", ""},
    {"null", NULL, "--files-from=list", "--files-from=list"},
    {"base", "in", "--files-from=list", "--files-from=list"},
    {"others", "copy", "", ""},
    {"format", "tar", "", ""},
    {"resume", "journal", "", ""},
    {"shard", "1/3", "", ""},
    {"shard-by", "name", "--shard=1/3", "--shard=1/3"},
    {"shard-of", "members", "--shard=1/3", "--shard=1/3"},
    {"kernel", "1_2_1_2_4_2_1_2_2", "--kernel=1_2_1_2_4_2_1_2_1", ""},
    {"size", "5", "", ""},
    {"divisor", "3", "", ""},
    {"bias", "1.5", "", ""},
    {"border", "wrap", "", "--padding=1"},
    {"alpha", "filter", "", ""},
    {"mix", "40%", "", ""},
    {"roi", "2x2+0+0", "", ""},
    {"output-type", "f32", "", ""},
    {"output", "out", "", ""},
    {"suffix", "x", "", ""},
    {"beside", NULL, "--suffix=x", ""},
    {"to", "jpg", "", ""},
    {"quality", "50", "", ""},
    {"encoder", "libpng", "", ""},
    {"compress", "3", "", ""},
    {"device", "cpu", "", ""},
    {"decode-on", "cpu", "", ""},
    {"encode-on", "cpu", "", ""},
    {"streams", "3", "", ""},
    {"group", "3M", "", ""},
    {"jobs", "3", "", ""},
    {"mem-limit", "300M", "", ""},
    {"max-pixels", "300", "", ""},
    {"variant", "cpu_portable", "", ""},
    {"on-error", "copy", "", ""},
    {"progress", "never", "", ""},
    {"report", "report", "", ""},
    {"trace", "trace", "", ""},
    {"html", "page", "", ""},
    {"stride", "2", "", ""},
    {"padding", "same", "", ""},
    {"dilation", "2", "", ""},
    {"groups", "2", "", ""},
    {"activation", "relu", "", ""},
    {"precision", "fast", "", ""},
    {"range", "255", "", ""},
};

static const struct sample *find_sample(const char *option)
{
    static const struct sample flag = {.rest = "", .layer_rest = ""};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        if (strcmp(samples[i].option, option) == 0)
            return &samples[i];
    return &flag;
}

static void check_option(const struct conv_option *row, bool layer)
{
    char with[400], without[400], value[100] = "";
    const struct sample *sample = find_sample(row->name);
    const char *given = sample->value, *rest = layer ? sample->layer_rest : sample->rest;
    const char *start = layer                              ? "layer @weights.npy in out"
                        : strcmp(row->name, "kernel") == 0 ? "custom in out"
                                                           : "emboss in out";
    if (layer && strcmp(row->name, "bias") == 0)
        given = "@bias.npy";
    if (layer && strcmp(row->name, "groups") == 0)
        start = "layer @two_maps.npy in out";
    if (layer && strcmp(row->name, "pool") == 0) {
        start = "layer log:2 in out";
        given = "mean";
    }
    if (layer && strcmp(row->name, "output-type") == 0)
        given = "f16";
    if (row->arg && !given)
        fail_msg("--%s is new: add a value for it to this test", row->name);
    if (row->arg)
        snprintf(value, sizeof value, "=%s", given);
    snprintf(without, sizeof without, "%s %s", start, rest);
    snprintf(with, sizeof with, "%s %s --%s%s", start, rest, row->name, value);
    if (same(with, without) != (row->effect == CONV_OPTION_NEUTRAL))
        fail_msg("%s: --%s %s", with, row->name,
                 row->effect == CONV_OPTION_NEUTRAL ? "is neutral but changes the text"
                                                    : "does not change the text");
}

UNIT_TEST(test_every_option_changes_the_text_if_it_decides)
{
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
        assert_int_not_equal(row->effect, 0);
        if (row->commands & 1u << CONV_COMMAND_RUN)
            check_option(row, false);
        if (row->commands & 1u << CONV_COMMAND_LAYER)
            check_option(row, true);
    }
}

UNIT_TEST(test_other_results_are_other_texts_and_spellings_are_not)
{
    static const char *const others[][2] = {
        {"unsharp:2,1,2.3 in out", "unsharp:2,1,2.9 in out"},
        {"unsharp:2,1,0.3 in out", "unsharp:2,1,0.4 in out"},
        {"gaussian:2.5 in out", "gaussian:2.6 in out"},
        {"gaussian:12 in out", "gaussian:12.5 in out"},
        {"sobel in out", "sobel-x in out"},
        {"emboss,blur in out", "blur,emboss in out"},
        {"@box.mat in out", "identity in out"},
        {"blur --border=constant:1 in out", "blur --border=constant:2 in out"},
        {"blur --mix=40% in out", "blur --mix=40.01% in out"},
        {"blur --roi=2x2+0+0 in out", "blur --roi=2x2+0+1 in out"},
        {"blur --include=a --include=b in out", "blur --include=a\nb in out"},
        {"blur --include=a in out", "blur --exclude=a in out"},
        {"layer @weights.npy in out", "layer @other.npy in out"},
        {"layer @weights.npy in out", "layer @small.npy in out"},
        {"layer @weights.npy --bias=@bias.npy in out",
         "layer @weights.npy --bias=@bias2.npy in out"},
        {"layer @weights.npy --padding=1 --border=constant:1 in out",
         "layer @weights.npy --padding=1 --border=constant:1.0001 in out"},
        {"layer log:2 in out", "layer log:2.5 in out"},
        {"layer log:2 --pool=mean in out", "layer log:2 --pool=std in out"},
        {"layer log:2 --pool=mean in out", "layer log:2 --pool=mean:2 in out"},
        {"layer log:2 --pool=mean,std in out", "layer log:2 --pool=std,mean in out"},
        {"layer gabor:2x3 in out", "layer gabor:3x2 in out"},
    };
    static const char *const spellings[][2] = {
        {"gaussian:2.5 in out", "gaussian:2.50 in out"},
        {"unsharp:2,1,2.5 in out", "unsharp:2.0,1e0,2.5 in out"},
        {"blur --border=edge in out", "blur in out"},
        {"blur --alpha=premultiply --on-error=skip in out", "blur in out"},
        {"sobel --alpha=keep in out", "sobel in out"},
        {"blur --border=reflect101 in out", "blur --border reflect101 in out"},
        {"blur --mix=40% in out", "blur --mix=40.0% in out"},
        {"blur --roi=2x2+0+0 in out", "blur --roi=02x2+0+0 in out"},
        {"custom --kernel=1_2_1_2_4_2_1_2_1 in out",
         "custom --kernel=3x3:_1,2,1_2,4,2_1,2,1 in out"},
        {"@box.mat in out", "custom --kernel=2 in out"},
        {"blur --to=jpg in out", "blur --to=jpeg in out"},
        {"blur --quality=keep in out", "blur in out"},
        {"blur --quality=9 in out", "blur -Q 09 in out"},
        {"blur --shard=1/3 in out", "blur --shard=01/3 in out"},
        {"layer @weights.npy in out", "layer @more.npy --padding=0 --stride=1 in out"},
        {"layer @weights.npy in out", "layer @weights.npy --border=constant:0.0 in out"},
        {"layer laws:25 in out", "layer laws in out"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (same(others[i][0], others[i][1]))
            fail_msg("one text: %s; %s", others[i][0], others[i][1]);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        if (!same(spellings[i][0], spellings[i][1]))
            fail_msg("two texts: %s; %s", spellings[i][0], spellings[i][1]);
}

UNIT_MAIN_EACH(set_up, folder_remove)
