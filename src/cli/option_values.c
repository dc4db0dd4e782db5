// SPDX-License-Identifier: MIT
// Parses the argument of an option.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/option_table.h"

static enum conv_status parse_number(uint64_t *value, const char *text, bool suffix,
                                     const char *name, struct conv_err *err)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    unsigned long long number = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    bool good = end && errno == 0;
    if (good && suffix && *end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        int shift = unit ? 10 * (int)(unit - units + 1) : 0;
        if (unit && number <= UINT64_MAX >> shift) {
            number <<= shift;
            end++;
            if (end[0] == 'i' && end[1] == 'B')
                end += 2;
            else if (end[0] == 'B')
                end++;
        }
    }
    if (!good || *end)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s takes a %s, not '%s'", name,
                            suffix ? "size such as 512M or 2G" : "number", text);
    *value = number;
    return CONV_OK;
}

static enum conv_status parse_choice(int *value, const struct conv_option *row, const char *text,
                                     struct conv_err *err)
{
    char all[128] = "";
    size_t count = 0;
    for (; row->choices[count]; count++) {
        if (strcmp(text, row->choices[count]) == 0) {
            *value = (int)count;
            return CONV_OK;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", count ? ", " : "", row->choices[count]);
    }
    const char *near = conv_suggest_nearest(text, row->choices, sizeof row->choices[0], count);
    if (near)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s '%s' is unknown; did you mean '%s'? (%s)",
                            row->name, text, near, all);
    return conv_err_set(err, CONV_ERR_USAGE, "--%s takes one of %s, not '%s'", row->name, all,
                        text);
}

enum conv_status conv_option_store(struct conv_options *options, const struct conv_option *row,
                                   const char *text, struct conv_err *err)
{
    char *field = (char *)options + row->offset;
    uint64_t number = 0;
    enum conv_status status = CONV_OK;
    switch (row->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        break;
    case KIND_STRING:
        *(const char **)(void *)field = text;
        break;
    case KIND_CHOICE:
        status = parse_choice((int *)(void *)field, row, text, err);
        break;
    case KIND_INT:
        status = parse_number(&number, text, false, row->name, err);
        if (!status && (number > (uint64_t)row->max || number < (uint64_t)row->min))
            return conv_err_set(err, CONV_ERR_USAGE, "--%s takes %ld to %ld, not %s", row->name,
                                row->min, row->max, text);
        *(int *)(void *)field = (int)number;
        break;
    case KIND_SIZE:
    case KIND_COUNT:
        status = parse_number(&number, text, row->kind == KIND_SIZE, row->name, err);
        if (!status && number == 0 && strcmp(row->name, "seed") != 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s must be more than 0", row->name);
        *(uint64_t *)(void *)field = number;
        break;
    case KIND_LIST: {
        struct conv_string_list *list = (struct conv_string_list *)(void *)field;
        if (list->count == CONV_OPTIONS_MAX_GLOBS)
            return conv_err_set(err, CONV_ERR_USAGE, "--%s can be given %d times", row->name,
                                CONV_OPTIONS_MAX_GLOBS);
        list->items[list->count++] = text;
        break;
    }
    }
    return status;
}

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "KIND_SIZE stores 64 bits");
