// SPDX-License-Identifier: MIT
#include "page/template.h"

#include <assert.h>
#include <string.h>

#include "report/text.h"

static struct conv_template_value *bind(struct conv_template *filled, const char *name)
{
    int i = 0;
    while (i < filled->count && strcmp(filled->values[i].name, name) != 0)
        i++;
    assert(i < CONV_TEMPLATE_MOST_VALUES);
    if (i == filled->count)
        filled->count++;
    filled->values[i] = (struct conv_template_value){.name = name};
    return &filled->values[i];
}

void conv_template_text(struct conv_template *filled, const char *name, const char *text)
{
    bind(filled, name)->text = text;
}

void conv_template_number(struct conv_template *filled, const char *name, double number,
                          int decimals)
{
    struct conv_template_value *value = bind(filled, name);
    value->number = number;
    value->decimals = decimals;
}

void conv_template_markup(struct conv_template *filled, const char *name,
                          void (*write)(FILE *file, const void *what), const void *what)
{
    struct conv_template_value *value = bind(filled, name);
    value->write = write;
    value->what = what;
}

// Groups of three digits, with narrow spaces that do not break.
static void put_number(FILE *file, double number, int decimals)
{
    char digits[400];
    snprintf(digits, sizeof digits, "%.*f", decimals, number);
    size_t whole = strcspn(digits, ".");
    bool grouped = whole > 4;
    for (size_t i = 0; digits[i]; i++) {
        if (grouped && i > 0 && i < whole && (whole - i) % 3 == 0 && digits[i - 1] != '-')
            fputs("\xE2\x80\xAF", file);
        fputc(digits[i], file);
    }
}

static bool put_value(const struct conv_template *filled, FILE *file, const char *name)
{
    for (int i = 0; i < filled->count; i++) {
        const struct conv_template_value *value = &filled->values[i];
        if (strcmp(value->name, name) != 0)
            continue;
        if (value->write)
            value->write(file, value->what);
        else if (value->text)
            conv_text_html(file, value->text);
        else
            put_number(file, value->number, value->decimals);
        return true;
    }
    return false;
}

// The text after the {{/name}} that ends a {{#name}} whose content starts at `text`, or NULL;
// *inside is where the {{/name}} begins.
static const char *find_end(const char *text, const char *end, const char *name,
                            const char **inside)
{
    char mark[72];
    int size = snprintf(mark, sizeof mark, "{{/%s}}", name);
    const char *found = memmem(text, (size_t)(end - text), mark, (size_t)size);
    *inside = found;
    return found ? found + size : NULL;
}

static bool write_part(struct conv_template *filled, FILE *file, const char *text, const char *end,
                       char name[64])
{
    while (text < end) {
        const char *mark = memmem(text, (size_t)(end - text), "{{", 2);
        const char *stop = mark ? memmem(mark, (size_t)(end - mark), "}}", 2) : NULL;
        if (!stop) {
            fwrite(text, 1, (size_t)(end - text), file);
            return true;
        }
        fwrite(text, 1, (size_t)(mark - text), file);
        bool list = mark[2] == '#';
        snprintf(name, 64, "%.*s", (int)(stop - mark - 2 - list), mark + 2 + list);
        text = stop + 2;
        if (!list) {
            if (!put_value(filled, file, name))
                return false;
            continue;
        }
        char own[64];
        const char *inside_end, *after = find_end(text, end, name, &inside_end);
        if (!after)
            return false;
        memcpy(own, name, sizeof own);
        for (int i = 0; filled->next(filled, own, i); i++)
            if (!write_part(filled, file, text, inside_end, name))
                return false;
        text = after;
    }
    return true;
}

bool conv_template_write(struct conv_template *filled, FILE *file, const char *text, char name[64])
{
    return write_part(filled, file, text, text + strlen(text), name);
}
