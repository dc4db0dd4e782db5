// SPDX-License-Identifier: MIT
// The kernels of filters by name.
#include "conv.h"
#include "kernels/stencil/stencil.h"

const char *conv_kernel_name(int index, const char **device)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    if (index < 0 || index >= count)
        return NULL;
    const struct conv_variant *variant = variants[count - 1 - index]; // the definition first
    if (device)
        *device = variant->place == CONV_ON_CPU ? "cpu" : "cuda";
    return variant->name;
}
