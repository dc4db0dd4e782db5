// SPDX-License-Identifier: MIT
// The names of the borders. The first one of a border is OpenCV's; the aliases are those of
// ImageMagick (edge), GLSL and PyTorch (clamp) and SciPy (nearest).
#include <string.h>

#include "base/suggest.h"
#include "filter/filter.h"
#include "filter/number.h"

static const struct border_name {
    const char *name;
    enum conv_border border;
} names[] = {
    {"replicate", CONV_BORDER_REPLICATE},    {"reflect", CONV_BORDER_REFLECT},
    {"reflect101", CONV_BORDER_REFLECT101},  {"wrap", CONV_BORDER_WRAP},
    {"constant", CONV_BORDER_CONSTANT},      {"edge", CONV_BORDER_REPLICATE},
    {"clamp", CONV_BORDER_REPLICATE},        {"nearest", CONV_BORDER_REPLICATE},
    {"reflect-101", CONV_BORDER_REFLECT101},
};
#define NAME_COUNT (sizeof names / sizeof names[0])

const char *conv_filter_border_name(enum conv_border border)
{
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (names[i].border == border)
            return names[i].name;
    }
    return "unknown";
}

static enum conv_status refuse(const char *text, struct conv_err *err)
{
    if (strcmp(text, "mirror") == 0)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "border 'mirror' means reflect (edge repeated) in some programs and "
                            "reflect101 (edge not repeated) in others; say which");
    const char *nearest = conv_suggest_nearest(text, names, sizeof names[0], NAME_COUNT);
    const char *all = "replicate, reflect, reflect101, wrap, constant[:V]";
    if (nearest)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "unknown border '%.64s'; did you mean '%s'? (there are %s)", text,
                            nearest, all);
    return conv_err_set(err, CONV_ERR_USAGE, "unknown border '%.64s' (there are %s)", text, all);
}

enum conv_status conv_filter_check_border(float value, struct conv_err *err)
{
    if (value >= 0 && value <= 255 && value == (float)(int)value)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "border 'constant:V' takes a whole number from 0 to 255 (at 16 bits it "
                        "counts 257-fold), not '%g'",
                        (double)value);
}

enum conv_status conv_filter_parse_border(enum conv_border *border, float *value, const char *text,
                                          struct conv_err *err)
{
    static const char prefix[] = "constant:";
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        const char *digits = text + sizeof prefix - 1;
        double number;
        if (conv_number_parse(&number, 1e30, digits, strlen(digits), NULL))
            return conv_err_hint(
                err, CONV_HINT_BORDER_CONSTANT, 0,
                conv_err_set(err, CONV_ERR_USAGE, "takes a number, not '%.32s'", digits));
        *border = CONV_BORDER_CONSTANT;
        *value = (float)number;
        return CONV_OK;
    }
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (strcmp(names[i].name, text) == 0) {
            *border = names[i].border;
            *value = 0;
            return CONV_OK;
        }
    }
    return refuse(text, err);
}
