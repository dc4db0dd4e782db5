// SPDX-License-Identifier: MIT
// Fills a template: {{name}} is a value, {{#name}} ... {{/name}} is repeated for each item of a
// list (a condition is a list of one item or none). Values are bound by name; binding a name again
// replaces its value.
#ifndef CONV_PAGE_TEMPLATE_H
#define CONV_PAGE_TEMPLATE_H

#include <stdbool.h>
#include <stdio.h>

#define CONV_TEMPLATE_MOST_VALUES 128

struct conv_template_value {
    const char *name;
    const char *text; // escaped when written; NULL: a number, or what `write` writes
    double number;
    int decimals;
    void (*write)(FILE *file, const void *what); // markup, as it stands
    const void *what;
};

struct conv_template {
    struct conv_template_value values[CONV_TEMPLATE_MOST_VALUES];
    int count;
    // Binds the values of item `index` of a list; false: there is none.
    bool (*next)(struct conv_template *filled, const char *list, int index);
    void *context; // of `next`
};

// The strings must live until the template is written.
void conv_template_text(struct conv_template *filled, const char *name, const char *text);
// Numbers from 10,000 on get separators of thousands.
void conv_template_number(struct conv_template *filled, const char *name, double number,
                          int decimals);
void conv_template_markup(struct conv_template *filled, const char *name,
                          void (*write)(FILE *file, const void *what), const void *what);

// False if the template has a name that is not bound or a list that is not closed; *name says
// which.
bool conv_template_write(struct conv_template *filled, FILE *file, const char *text, char name[64]);

#endif
