// SPDX-License-Identifier: MIT
#include "cli/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/standard.h"
#include "report/report.h"

// Printed before and after the text. "{N}" is the hint's value, "{SIZE}" the same in bytes.
struct words {
    const char *before, *after;
};

static const struct words table[CONV_HINT_COUNT] = {
    [CONV_HINT_BIAS] = {"--bias: ", ""},
    [CONV_HINT_BORDER_CONSTANT] = {"--border constant:V ", ""},
    [CONV_HINT_DIVISOR] = {"--divisor: ", ""},
    [CONV_HINT_DIVISOR_SUM] = {"--divisor sum: ", ""},
    [CONV_HINT_JOURNAL] = {"--resume ", ""},
    [CONV_HINT_KERNEL] = {"--kernel: ", ""},
    [CONV_HINT_KERNEL_AT] = {"--kernel, ", ""},
    [CONV_HINT_LIST] = {"--files-from ", ""},
    [CONV_HINT_LIST_INPUTS] = {"--files-from: ", ""},
    [CONV_HINT_PADDING] = {"--padding ", ""},
    [CONV_HINT_REPLACE] = {"--in-place: ", ""},
    [CONV_HINT_REPLACE_TWICE] = {"--in-place would filter images twice: ", ""},
    [CONV_HINT_REPORT] = {"--report ", ""},
    [CONV_HINT_SIZE] = {"--size {N}: ", ""},
    [CONV_HINT_SIZE_OF_CUSTOM] = {"--size {N} chooses among built-in filters; ", ""},
    [CONV_HINT_SUBFOLDERS] = {"with --recursive ", ""},
    [CONV_HINT_TRACE] = {"--trace ", ""},
    [CONV_HINT_VARIANT] = {"--variant ", ""},
    [CONV_HINT_BASE] = {"", "; --base DIR makes names relative to DIR"},
    [CONV_HINT_DEFINE_KERNEL] = {"", ": --kernel SPEC"},
    [CONV_HINT_EXISTING] = {"", ": use --skip-existing"},
    [CONV_HINT_FEWER_WORKERS] = {"", "; use fewer --jobs"},
    [CONV_HINT_FLOATS] = {"", " (--output-type f32)"},
    [CONV_HINT_FORCE] = {"", " (--force replaces it)"},
    [CONV_HINT_GRAY] = {"", " (--gray takes the luminance)"},
    [CONV_HINT_KEEP_FOLDERS] = {"", "; --recursive or --files-from keeps their folders"},
    [CONV_HINT_MAX_PIXELS] = {"", " (--max-pixels)"},
    [CONV_HINT_MEM_LIMIT] = {"", ": use --mem-limit {SIZE}"},
    [CONV_HINT_MEM_LIMIT_FILE] = {"", " (--mem-limit)"},
    [CONV_HINT_MEM_LIMIT_TRY] = {"", " (conv devices shows the limit; --mem-limit SIZE tries it "
                                     "nevertheless)"},
    [CONV_HINT_OTHER_ENCODER] = {"", "; use --encoder libpng"},
    [CONV_HINT_FLOAT_FORMAT] = {"", "; --to tif or --output-type f32 keeps them"},
    [CONV_HINT_KEEP_ALPHA] = {"", ": use --alpha keep"},
    [CONV_HINT_OTHER_FORMAT] = {"", "; --to png keeps them"},
    [CONV_HINT_OTHER_FOLDER] = {"", "; name another output folder, or use --beside or --in-place"},
    [CONV_HINT_REPLACE_INSTEAD] = {"", " (--in-place does that)"},
    [CONV_HINT_TAKE_FIRST] = {"", "; --first-frame takes the first"},
    [CONV_HINT_TAKE_FIRST_COPY] = {"", "; --first-frame takes the first, but not with --in-place"},
    [CONV_HINT_NO_LINKS] = {"", "; --in-place replaces files only"},
};

// A multiple of 1 MiB as "5M", of 1 KiB as "5K".
static void print_size(char *text, size_t size, uint64_t bytes)
{
    uint64_t mib = bytes >> 20;
    if (mib << 20 == bytes)
        snprintf(text, size, "%" PRIu64 "M", mib);
    else
        snprintf(text, size, "%" PRIu64 "K", (bytes + 1023) >> 10);
}

// Appends `words` with the value in its place.
static void append(char *text, size_t size, const char *words, uint64_t value)
{
    const char *place = strchr(words, '{');
    char number[24] = "";
    if (place && strncmp(place, "{SIZE}", 6) == 0)
        print_size(number, sizeof number, value);
    else
        snprintf(number, sizeof number, "%" PRIu64, value);
    conv_text_add(text, size, "", "%.*s%s%s", (int)strcspn(words, "{"), words, place ? number : "",
                  place ? strchr(place, '}') + 1 : "");
}

char *conv_errors_explain(char *text, size_t size, const struct conv_err *err)
{
    static const struct words none = {"", ""};
    const struct words *words = err->hint ? &table[err->hint] : &none;
    text[0] = '\0';
    append(text, size, words->before, err->value);
    conv_text_add(text, size, "", "%s", err->text);
    append(text, size, words->after, err->value);
    return text;
}

// --- exit codes ----------------------------------------------------------------------------------

int conv_errors_code_of(const struct conv_err *err)
{
    if (err->status == CONV_ERR_USAGE)
        return CONV_EXIT_USAGE;
    return err->status == CONV_ERR_DEVICE ? CONV_EXIT_DEVICE : CONV_EXIT_SOME_FAILED;
}

int conv_errors_fail(const struct conv_err *err)
{
    char text[CONV_ERRORS_SIZE];
    conv_report_say("%s", conv_errors_explain(text, sizeof text, err));
    return conv_errors_code_of(err);
}

int conv_errors_exit_code(const struct conv_totals *totals, int stop)
{
    if (stop > 0)
        return CONV_EXIT_SIGNAL + stop;
    if (totals->failed)
        return CONV_EXIT_SOME_FAILED;
    return totals->done + totals->skipped + totals->planned + totals->copied ? CONV_EXIT_OK
                                                                             : CONV_EXIT_NOTHING;
}

int conv_errors_flush(void)
{
    struct conv_err err = {0};
    return conv_standard_flush(&err) ? conv_errors_fail(&err) : CONV_EXIT_OK;
}
