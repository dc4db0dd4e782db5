// SPDX-License-Identifier: MIT
// Errors in the words of conv.h: which member of the options a text is about, or would help.
#include <inttypes.h>
#include <stdio.h>

#include "api/api_context.h"

struct words {
    const char *before, *after;
};

// Hints that only the program's options can cause have no words.
static const struct words table[CONV_HINT_COUNT] = {
    [CONV_HINT_BIAS] = {"bias: ", ""},
    [CONV_HINT_BORDER_CONSTANT] = {"border constant:V ", ""},
    [CONV_HINT_DIVISOR] = {"divisor: ", ""},
    [CONV_HINT_DIVISOR_SUM] = {"divisor \"sum\": ", ""},
    [CONV_HINT_KERNEL] = {"kernel: ", ""},
    [CONV_HINT_KERNEL_AT] = {"kernel, ", ""},
    [CONV_HINT_PADDING] = {"padding ", ""},
    [CONV_HINT_SIZE] = {"side: ", ""},
    [CONV_HINT_SIZE_OF_CUSTOM] = {"side is for built-in filters; ", ""},
    [CONV_HINT_SUBFOLDERS] = {"with `recursive`: ", ""},
    [CONV_HINT_VARIANT] = {"variant ", ""},
    [CONV_HINT_DEFINE_KERNEL] = {"", ": `kernel` defines it"},
    [CONV_HINT_FEWER_WORKERS] = {"", "; use fewer `threads` in the context"},
    [CONV_HINT_FLOATS] = {"", " (`floats`)"},
    [CONV_HINT_MAX_PIXELS] = {"", " (`max_pixels` of the context)"},
    [CONV_HINT_OTHER_FOLDER] = {"", "; name another output folder"},
};

char *conv_api_explain(char *text, size_t size, const struct conv_err *err)
{
    const struct words *words = &table[err->hint];
    snprintf(text, size, "%s%s%s", words->before ? words->before : "", err->text,
             words->after ? words->after : "");
    return text;
}
