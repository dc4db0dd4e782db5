// SPDX-License-Identifier: MIT
// The choice of a kernel and the message for one that cannot be had, the same for both tenants.
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"

#define MOST_ROWS 64

// Why there is no kernel `name` (NULL: any) at `where`.
static enum conv_status no_variant(const char *name, enum conv_where where, struct conv_err *err)
{
    const char *device = where == CONV_ON_CUDA ? "GPU" : "CPU";
    if (!name)
        return conv_err_set(err, CONV_ERR_USAGE, "no %s kernel takes this filter", device);
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
                                "kernel '%s' cannot run this filter on this %s", name, device);
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", variants[i]->name);
        names[count++] = variants[i]->name;
    }
    const char *near = conv_suggest_nearest(name, names, sizeof names[0], count);
    return conv_err_set(err, CONV_ERR_USAGE, "unknown %s kernel '%s'%s%s%s (there are %s)", device,
                        name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                        all);
}

enum conv_status conv_backend_pick(const struct conv_variant *variant[2],
                                   const struct conv_stencil stencil[2], enum conv_where where,
                                   unsigned have, const struct conv_backend_config *config,
                                   struct conv_err *err)
{
    for (int d = 0; d < 2; d++) {
        if (!config->row)
            variant[d] = conv_stencil_pick(&stencil[d], where, have, config->variant);
        else
            variant[d] = conv_stencil_can(config->row, &stencil[d], have) ? config->row : NULL;
    }
    if (!variant[0] && !variant[1])
        return config->row ? conv_err_set(err, CONV_ERR_USAGE, "not for this filter or this %s",
                                          where == CONV_ON_CUDA ? "GPU" : "CPU")
                           : no_variant(config->variant, where, err);
    for (int d = 0; d < 2; d++) {
        if (!variant[d])
            variant[d] = conv_stencil_pick(&stencil[d], where, have, NULL);
        if (!variant[d])
            return no_variant(NULL, where, err);
    }
    return CONV_OK;
}
