// SPDX-License-Identifier: MIT
// libFuzzer target: the command line, one word per line. For any words the parser returns, with an
// error or with every option within its range.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "png/png.h"

#define MOST_WORDS 256

static const struct conv_limits limits = {
    .physical = (size_t)8 << 30,
    .memory = (size_t)8 << 30,
    .machine_cores = 4,
    .allowed_cores = 4,
    .cores = 4,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static bool is_within(long value, long min, long max)
{
    return value >= min && value <= max;
}

// Every word is a separate block, so that a read beyond its end is detected.
static char **split(const char *text, size_t size, int *count)
{
    char **words = calloc(MOST_WORDS + 2, sizeof *words);
    demand(words && (words[0] = strdup("conv")), "no memory");
    *count = 1;
    for (const char *end = text + size; text < end && *count <= MOST_WORDS; text++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        words[*count] = strndup(text, (size_t)(stop - text));
        demand(words[*count] != NULL, "no memory");
        ++*count;
        text = stop;
    }
    return words;
}

static void check_options(const struct conv_options *options, char *const *words, int count)
{
    demand(is_within(options->filter.alpha, 0, 2), "--alpha");
    demand(is_within(options->report.progress, 0, 2), "--progress");
    demand(is_within((long)options->bench.depth, 0, CONV_BENCH_FLOAT32), "--depth");
    demand(is_within((long)options->filter.border, 0, CONV_BORDER_CONSTANT), "--border");
    demand(is_within(options->filter.border_value, 0, 255), "--border constant:V");
    demand(conv_png_check_level(&options->outputs.codec, NULL) == CONV_OK, "--compress");
    demand(is_within(options->machine.streams, 0, 64), "--streams");
    demand(is_within(options->machine.jobs, 1, 1024), "--jobs");
    demand(is_within(options->inputs.include.count, 0, CONV_OPTIONS_MAX_GLOBS), "--include");
    demand(is_within(options->inputs.exclude.count, 0, CONV_OPTIONS_MAX_GLOBS), "--exclude");
    demand(is_within(options->bench.images, 0, 100000), "--images");
    demand(conv_options_group_bytes(&options->machine, true) &&
               conv_options_group_bytes(&options->machine, false) &&
               conv_options_mem_limit(&options->machine, true) &&
               conv_options_mem_limit(&options->machine, false) && options->inputs.max_pixels,
           "a size of 0");
    demand(!options->outputs.in_place || !options->inputs.first_frame,
           "--first-frame where frames get lost");
    demand(is_within(options->operand_count, 0, count - 1), "operands");
    for (int i = 0; i < options->operand_count; i++) {
        bool found = false;
        for (int w = 1; w < count; w++)
            found |= options->operands[i] == words[w];
        demand(found, "an operand that nobody typed");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conv_options options;
    struct conv_err err = {0};
    int count;
    char **words = split((const char *)data, size, &count);
    char **given = malloc(((size_t)count + 1) * sizeof *given); // getopt_long reorders it
    demand(given != NULL, "no memory");
    memcpy(given, words, ((size_t)count + 1) * sizeof *given);
    enum conv_status status = conv_options_parse(&options, &limits, count, given, &err);
    if (status)
        demand(err.status == status && err.text[0] && memchr(err.text, 0, sizeof err.text),
               "refused without a reason");
    else
        check_options(&options, words, count);
    for (int i = 0; i < count; i++)
        free(words[i]);
    free(words);
    free(given);
    return 0;
}
