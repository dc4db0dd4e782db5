// SPDX-License-Identifier: MIT
// libFuzzer target: all parsers that turn text into a filter. The first byte says which parser
// reads the rest: m a matrix file, k --kernel, c a chain with its options (parts divided by |), b a
// border. The resulting filter must be valid, and every kernel of this machine must compute the
// same result as the reference.
#include "base/features.h"
#include "fuzz/fuzz.h"
#include "kernels/stencil/stencil.h"
#include "support/random.h"

#define WIDTH 7
#define HEIGHT 3

static void run(const struct conv_variant *variant, const struct conv_stencil *stencil,
                uint16_t dst[HEIGHT][WIDTH])
{
    static uint16_t src[HEIGHT][WIDTH];
    uint64_t seed = 1;
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        src[i / WIDTH][i % WIDTH] = (uint16_t)random_bits(&seed);
    }
    struct conv_stencil_plane plane = {
        .src = (const uint8_t *)src,
        .dst = (uint8_t *)dst,
        .src_stride = sizeof src[0],
        .dst_stride = sizeof dst[0],
        .width = WIDTH,
        .height = HEIGHT,
    };
    struct conv_stencil_batch batch = {.planes = &plane, .count = 1};
    static struct conv_stencil_plan plan;
    conv_stencil_plan_init(&plan, variant, stencil);
    size_t size = conv_stencil_plan_scratch(&plan, WIDTH);
    if (size > 0)
        batch.cpu.scratch = aligned_alloc(64, (size + 63) / 64 * 64);
    memset(dst, 0, HEIGHT * sizeof dst[0]);
    if ((size > 0 && !batch.cpu.scratch) || variant->run(&plan, &batch))
        fail(variant->name, "failed");
    free(batch.cpu.scratch);
}

static void compare_variants(const struct conv_filter *filter, enum conv_border border, int value)
{
    int count;
    const struct conv_variant *const *rows = conv_stencil_variants(&count);
    for (int depth = 8; depth <= 16; depth += 8) {
        static struct conv_stencil stencil;
        uint16_t want[HEIGHT][WIDTH], got[HEIGHT][WIDTH];
        conv_stencil_init(&stencil, filter, depth, border, value);
        run(stencil.decimated.step ? &conv_cpu_decimated : &conv_cpu_reference, &stencil, want);
        for (int i = 0; i < count - 1; i++) {
            if (rows[i]->place != CONV_ON_CPU ||
                !conv_stencil_can(rows[i], &stencil, conv_cpu_features()))
                continue;
            run(rows[i], &stencil, got);
            if (memcmp(got, want, sizeof got) != 0)
                fail(rows[i]->name, "other samples than the reference's");
        }
    }
}

static void use_filter(const struct conv_filter *filter, enum conv_border border, int value)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    struct conv_err err;
    if (conv_filter_check(filter, &err))
        fail("the parser let pass", err.text);
    if (!memchr(filter->name, 0, sizeof filter->name))
        fail("name", "has no end");
    if (conv_filter_is_separable(filter, column, row))
        for (int k = 0; k < filter->width * filter->height; k++)
            if (column[k / filter->width] * row[k % filter->width] != filter->coef[k])
                fail(filter->name, "is not the product of its factors");
    compare_variants(filter, border, value);
}

static void try_matrix(const char *text, size_t size)
{
    struct conv_filter filter;
    struct conv_err err = {0};
    enum conv_status status = conv_filter_parse_matrix(&filter, text, size, "fuzz.mat", &err);
    if (status)
        check_message(status, &err);
    else
        use_filter(&filter, CONV_BORDER_REPLICATE, 0);
}

static void try_spec(const char *text)
{
    struct conv_filter filter;
    struct conv_err err = {0};
    if (text[0] == '@')
        return; // files are not for the fuzzer to open
    enum conv_status status = conv_filter_parse_spec(&filter, text, &err);
    if (status)
        check_message(status, &err);
    else
        use_filter(&filter, CONV_BORDER_WRAP, 0);
}

static void try_border(const char *text)
{
    enum conv_border border;
    float value;
    struct conv_err err = {0};
    enum conv_status status = conv_filter_parse_border(&border, &value, text, &err);
    if (status)
        check_message(status, &err);
    else if (!(value >= -1e30f && value <= 1e30f) ||
             strcmp(conv_filter_border_name(border), "unknown") == 0)
        fail("border", text);
}

static bool names_a_file(const char *text)
{
    return strchr(text, '/') || strstr(text, ".mat");
}

// CHAIN|KERNEL|DIVISOR|BIAS|FLAGS; an empty part is not given.
static void try_chain(char *text)
{
    static struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    char *part[5] = {text};
    for (int i = 1; i < 5 && part[i - 1]; i++) {
        part[i] = strchr(part[i - 1], '|');
        if (part[i])
            *part[i]++ = '\0';
    }
    const char *flags = part[4] ? part[4] : "";
    struct conv_filter_settings options = {
        .kernel = part[1] && *part[1] ? part[1] : NULL,
        .divisor = part[2] && *part[2] ? part[2] : NULL,
        .bias = part[3] && *part[3] ? part[3] : NULL,
        .size = strchr(flags, '3')   ? 3
                : strchr(flags, '5') ? 5
                                     : 0,
        .flip = strchr(flags, 'f') != NULL,
    };
    if (names_a_file(text) || (options.kernel && options.kernel[0] == '@'))
        return;
    int count = 0;
    struct conv_err err = {0};
    enum conv_status status = conv_filter_parse_chain(filters, &count, text, &options, &err);
    if (status)
        check_message(status, &err);
    else if (count < 1 || count > CONV_FILTER_MAX_CHAIN)
        fail("chain", "of no length");
    for (int i = 0; i < count && !status; i++) // one that is repeated would be compared again
        if (i == 0 || memcmp(&filters[i], &filters[i - 1], sizeof filters[i]) != 0)
            use_filter(&filters[i], CONV_BORDER_REFLECT101, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    // Of the exact size, so that a read beyond the end is detected.
    char *text = malloc(size);
    if (!text)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0]) {
    case 'k':
        try_spec(text);
        break;
    case 'c':
        try_chain(text);
        break;
    case 'b':
        try_border(text);
        break;
    case 'm':
        text = realloc(text, size > 1 ? size - 1 : 1); // a matrix has no NUL after it
        if (!text)
            abort();
        try_matrix(text, size - 1);
        break;
    default:
        break;
    }
    free(text);
    return 0;
}
