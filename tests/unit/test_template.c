// SPDX-License-Identifier: MIT
// Templates: values, lists, and names of files that try to be markup.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "page/template.h"
#include "report/text.h"

static bool next(struct conv_template *filled, const char *list, int index)
{
    const int *count = filled->context;
    if (strcmp(list, "outer") != 0)
        return index < 2 && strcmp(list, "inner") == 0;
    conv_template_number(filled, "i", index, 0);
    return index < *count;
}

// The filled template, to be freed; NULL if the template is wrong, with the wrong name in `name`.
static char *fill(const char *text, int count, char name[64])
{
    struct conv_template filled = {.next = next, .context = &count};
    conv_template_text(&filled, "text", "a<b>&\"'\\ \xff \x01 \xc3\xa9");
    conv_template_number(&filled, "small", 1234.5678, 2);
    conv_template_number(&filled, "large", -1234567.4, 0);
    conv_template_number(&filled, "i", -1, 0);
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);
    bool good = conv_template_write(&filled, file, text, name);
    fclose(file);
    if (good)
        return out;
    free(out);
    return NULL;
}

static void check(const char *text, int count, const char *expected)
{
    char name[64];
    char *out = fill(text, count, name);
    assert_non_null(out);
    assert_string_equal(out, expected);
    free(out);
}

static void values_are_put_in(void **state)
{
    (void)state;
    check("no marks { here }", 0, "no marks { here }");
    check("{{small}} {{large}}", 0,
          "1234.57 -1\xE2\x80\xAF"
          "234\xE2\x80\xAF"
          "567");
    check("<p>{{text}}</p>", 0,
          "<p>a&lt;b&gt;&amp;&quot;&#39;\\ \xEF\xBF\xBD \xEF\xBF\xBD \xC3\xA9</p>");
}

static void lists_are_repeated(void **state)
{
    (void)state;
    check("[{{#outer}}({{i}}{{#inner}}.{{i}}{{/inner}}){{/outer}}]", 3, "[(0.0.0)(1.1.1)(2.2.2)]");
    check("[{{#outer}}x{{/outer}}]", 0, "[]");
}

static void mistakes_are_named(void **state)
{
    (void)state;
    char name[64];
    assert_null(fill("{{nothing}}", 0, name));
    assert_string_equal(name, "nothing");
    assert_null(fill("{{#outer}}{{i}}", 1, name));
    assert_string_equal(name, "outer");
}

static void json_takes_any_bytes(void **state)
{
    (void)state;
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);
    conv_text_json(file, "q\" b\\ n\n d\x7f </script> \xff\xc3\xa9 \xed\xa0\x80");
    fclose(file);
    assert_string_equal(out, "q\\\" b\\\\ n\\u000a d\\u007f \\u003c/script> \\ufffd\xc3\xa9 "
                             "\\ufffd\\ufffd\\ufffd");
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_put_in),
        cmocka_unit_test(lists_are_repeated),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(json_takes_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
