// SPDX-License-Identifier: MIT
// The message for a kernel that cannot be had, the same for both tenants.
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"

#define MOST_ROWS 64

enum conv_status conv_backend_no_variant(const char *name, enum conv_where where, int depth,
                                         struct conv_err *err)
{
    const char *device = where == CONV_ON_CUDA ? "GPU" : "CPU";
    if (!name)
        return conv_err_set(err, CONV_ERR_USAGE, "no %s kernel takes this filter at %d bits",
                            device, depth);
    const char *names[MOST_ROWS];
    char all[512] = "";
    size_t count = 0;
    int rows;
    const struct conv_variant *const *variants = conv_stencil_variants(&rows);
    for (int i = 0; i < rows && count < MOST_ROWS; i++) {
        if (variants[i]->where != where)
            continue;
        if (strcmp(variants[i]->name, name) == 0)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "kernel '%s' cannot run this filter at %d bits on this %s", name,
                                depth, device);
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", variants[i]->name);
        names[count++] = variants[i]->name;
    }
    const char *near = conv_suggest_nearest(name, names, sizeof names[0], count);
    return conv_err_set(err, CONV_ERR_USAGE, "unknown %s kernel '%s'%s%s%s (there are %s)", device,
                        name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                        all);
}
